"""A run that looks at what a real agent spends while it spends it."""

from __future__ import annotations

import time

import pytest

from ralphproof.agents.cost import PriceList
from ralphproof.engine.agent import Spent, Usage
from ralphproof.engine.limits import utc_day
from ralphproof.engine.records import Escalated, Saved, TurnEnded, Warned
from ralphproof.store.spend import SpendStore
from tests.agents import isolated_network
from tests.misbehaviour.machine import there
from tests.ralph import Ended
from tests.real_agents.conftest import DONE, Json, Real, runs, says, writes
from tests.real_agents.test_killed import leaves, length

pytestmark = [pytest.mark.thorough, pytest.mark.parametrize("agent", ["claude"])]
CHEAP, DEAR = "claude-haiku-4-5", "claude-opus-4-5"  # 1 and 5 dollars for a million tokens of input
TOKENS = 10_000  # 5 cents
MANY = 40
# The check of the project, which also notes how often the model was asked before it looked.
CHECK = "wc -l < ../requests.jsonl > ../asked; test -e done.txt"


def spends(real: Real) -> list[Json]:
    """Turns that would go on for long: each runs a command and costs 5 cents. The first leaves a process behind."""
    first, more = runs(leaves(real), usage={"input": TOKENS}), runs("echo more >> work.txt", usage={"input": TOKENS})
    return [first, *[more] * (MANY - 1)]


def told(real: Real, name: str) -> int:
    """What an agent's own lines say that it used, at the price of its model, in micro-dollars."""
    lines = [line["message"] for line in real.printed(name) if line["type"] == "assistant"]
    used = {message["id"]: message["usage"] for message in lines}.values()
    inputs = sum(usage["input_tokens"] for usage in used)
    cost = PriceList({}).cost(DEAR, Usage(inputs))
    assert cost is not None
    return cost


def booked(real: Real) -> list[tuple[int, int, int]]:
    """(day, micro-dollars, calls of unknown cost) in the user's own book."""
    book = SpendStore.open(str(real.ralph.state_dir))
    try:
        return book.days(0, 10**6)
    finally:
        book.close()


def stopped(real: Real, ended: Ended, reason: str, before: int = 0) -> int:
    """All that holds of a run that money ended in mid-turn; what its last turn cost, at least."""
    outcome = real.ralph.outcome()
    assert (ended.code, outcome["status"], outcome["reason"], outcome["cost"]["atLeast"]) == (
        1,
        "ABORTED",
        reason,
        True,
    ), ended
    *_, reply = [record.reply for record in real.recorded(TurnEnded)]
    assert (reply.exit.why, reply.at_least) == ("stopped", True)
    assert reply.micro_usd is not None
    assert reply.micro_usd >= told(real, f"agent_{outcome['iterations']:03d}") > 0
    assert len(real.answered()) - before < MANY / 2, "it was ended long before its script was"
    asked = int((real.ralph.folder / "asked").read_text())
    assert asked == len(isolated_network.requests_in(real.asked)), "nothing was asked after it was ended"
    assert there(length(real)) == []
    *_, kept = [record.snapshot for record in real.recorded(Saved)]
    assert real.ralph.git("show", f"{kept.ref}:half.txt") == "half\n"
    return reply.micro_usd


@pytest.fixture(autouse=True)
def looks(real: Real) -> None:
    real.ralph.write({"check.sh": CHECK})
    real.ralph.commit()


def run(real: Real, turns: list[Json], *argv: str) -> Ended:
    return real.run(turns, "--no-sandbox", "--model", DEAR, *argv)


def test_a_limit_is_told_once_when_it_is_near_and_ends_the_agent_when_it_is_passed(real: Real) -> None:
    near = says("half of it", usage={"input": 165_000})
    ended = run(real, [writes("first.txt"), near, *spends(real)], "--max-cost-usd", "1")
    cost = stopped(real, ended, "COST_LIMIT", before=2)
    first = real.recorded(TurnEnded)[0].reply
    assert first.micro_usd is not None
    assert 800_000 < first.micro_usd < 1_000_000 < first.micro_usd + cost
    assert (real.ralph.state().spend.micro_usd, real.ralph.state().spend.unpriced) == (first.micro_usd + cost, 1)
    assert ended.err.count("[Ralph] Cost at 80% of limit: $0.8") == 1
    assert [record.iteration for record in real.recorded(Warned) if record.what == "cost"] == [1]
    assert f"COST_LIMIT: spent ${(first.micro_usd + cost) / 1e6:.2f} of $1.00" in ended.out
    assert "cost at least $1." in ended.out
    assert [booking[1] for booking in booked(real)] == [first.micro_usd + cost]


def test_what_other_runs_spent_today_ends_the_agent_too(real: Real) -> None:
    book = SpendStore.open(str(real.ralph.state_dir))
    book.book("another", "another/agent_001", Spent(850_000), time.time())
    book.close()
    real.ralph.settings(limits={"dailyCostUsd": 1})
    ended = run(real, spends(real))
    cost = stopped(real, ended, "DAILY_COST_LIMIT")
    assert 150_000 < cost < 1_000_000
    assert "[Ralph] Daily cost at 80% of limit: $0.85 / $1" in ended.err
    assert "all runs of this UTC day together spent $1." in ended.out
    assert booked(real) == [(utc_day(time.time()), 850_000 + cost, 0)]


def test_after_a_stall_the_next_model_of_the_ladder_is_asked(real: Real) -> None:
    real.ralph.settings(agent={"ladder": [CHEAP, DEAR]}, limits={"stallIterations": 1})
    ended = real.run([says("I see nothing to do."), *DONE])
    assert (ended.code, real.ralph.outcome()["iterations"]) == (0, 2), ended
    asked = [one["body"]["model"] for one in isolated_network.requests_in(real.asked) if one["turn"] is not None]
    assert asked == [CHEAP, DEAR, DEAR], "a turn of one answer, and one of two"
    (step,) = real.recorded(Escalated)
    assert (step.iteration, step.rung, step.deep) == (2, 1, False)
    assert [record.reply.model for record in real.recorded(TurnEnded)] == [CHEAP, DEAR]
