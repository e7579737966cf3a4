"""The model's service refuses, or is down: a run waits for it and burns nothing, or goes on with another agent."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from ralphproof.engine.agent import RESET_MARGIN_S
from ralphproof.engine.records import Judged, TurnBegan, TurnEnded, TurnRetried
from tests.agents.real_clis import CLAUDE_LOGGED_IN
from tests.misbehaviour.invariants import hold
from tests.ralph import Live, Ralph, until
from tests.real_agents.conftest import DONE, Real, claims, writes

pytestmark = pytest.mark.thorough

SOON_S = 3  # until a limit ends: longer than a turn takes from its refusal to its end
AT_ONCE_S = 4.0  # generous: what is asked to end while it only waits does so within a second


@pytest.fixture
def real(ralph: Ralph, agent: str) -> Real:
    """An agent that is logged in with an account: only then Claude Code tells when its limit ends."""
    return Real(ralph, agent, env=dict(CLAUDE_LOGGED_IN) if agent == "claude" else {})


def soon(agent: str) -> dict[str, Any]:
    """A limit that ends soon. Codex tells the minute alone; after one that is past it is asked again."""
    return {"limit": {"resets_in_s": SOON_S if agent == "claude" else -90}}


def on_the_minute(minutes: int) -> int:
    """An epoch so far ahead that both agents tell exactly."""
    return (int(time.time()) // 60 + minutes) * 60


def shown_by(live: Live) -> str:
    return Path(live.err.name).read_text(encoding="utf-8")


def test_a_limit_in_the_midst_of_work_is_waited_for_and_the_session_goes_on(real: Real) -> None:
    ended = real.run([writes("half.txt"), soon(real.agent), *DONE], "--max-minutes", "1")
    assert (ended.code, real.answered()) == (0, [0, 1, 2, 3]), ended
    assert "; waits until " in ended.err
    assert ".; " not in ended.err
    assert len(real.recorded(Judged)) == real.ralph.outcome()["iterations"] == 1
    (again,) = real.recorded(TurnRetried)
    assert (again.iteration, again.turn, again.empty) == (1, 1, False)
    refused, resumed = (record.reply for record in real.recorded(TurnEnded))
    assert (refused.session, refused.tools, refused.errored) == (resumed.session, 1, True)
    assert refused.limited is not None
    _, second = real.recorded(TurnBegan)
    assert refused.session in second.argv
    assert "half.txt" in real.shown(2), "the model sees what it did before"
    change = real.ralph.state().history.latest.change
    assert (set(change.paths), change.older) == ({"half.txt", "done.txt"}, ())
    billed_once(real)


def billed_once(real: Real) -> None:
    """Both agents account for the whole session: what its first part cost is not counted once more."""
    outcome, spend = real.ralph.outcome(), real.ralph.state().spend
    assert spend.tokens == 3 * (1000 + 800 + 10 + 50), "three answers of the model"
    if real.agent == "claude":
        last = real.printed("agent_001_2")[-1]
        assert outcome["costUSD"] == pytest.approx(last["total_cost_usd"])
        assert spend.notional == spend.micro_usd > 0, "an account pays"
    else:
        assert outcome["costUSD"] is None


def test_a_wait_says_until_when_and_an_interrupt_ends_it_at_once(real: Real) -> None:
    resets_at = on_the_minute(90)
    live = real.start([{"limit": {"resets_at": resets_at}}])
    until(lambda: "; waits until " in shown_by(live), "the run waits", 40)
    (again,) = real.recorded(TurnRetried)
    assert again.until == resets_at + RESET_MARGIN_S
    assert f"; waits until {time.strftime('%H:%M', time.localtime(again.until))} " in shown_by(live)
    live.process.send_signal(signal.SIGINT)
    began = time.monotonic()
    ended = live.end()
    assert time.monotonic() - began < AT_ONCE_S
    hold(real.ralph, ended)
    outcome = real.ralph.outcome()
    assert (ended.code, outcome["reason"], outcome["exitCode"]) == (130, "INTERRUPTED", 130)
    assert "ABORTED, INTERRUPTED: " in ended.out
    assert not real.recorded(Judged)


# With its own repetitions: each of them asks twice in one turn.
IMPATIENT = "codex -c model_providers.fake.request_max_retries=1 -c model_providers.fake.stream_max_retries=0"


@pytest.mark.parametrize(
    ("agent", "command", "status"), [("claude", "claude", 529), ("codex", IMPATIENT, 500)], ids=["claude", "codex"]
)
def test_an_outage_is_waited_for_and_burns_no_iteration(real: Real, command: str, status: int) -> None:
    real.env = {"CLAUDE_CODE_MAX_RETRIES": "1"}
    ended = real.run([{"status": status, "times": 2}, *DONE], "-m", "1", "--agent", command)
    assert (ended.code, real.answered()) == (0, [0, 0, 1, 2]), ended
    assert real.ralph.outcome()["iterations"] == 1
    (again,) = real.recorded(TurnRetried)
    assert (again.iteration, again.empty) == (1, False)
    assert again.why.startswith(f"the service of {real.agent} does not answer as it should: ")
    assert f"{again.why}; waits until " in ended.err
    assert [record.turn for record in real.recorded(TurnBegan)] == [1, 2]
    assert [record.turn for record in real.recorded(Judged)] == [2]


def test_another_agent_goes_on_while_the_usual_one_is_limited(ralph: Ralph) -> None:
    real = Real(ralph, "claude", ("codex",), dict(CLAUDE_LOGGED_IN))
    ralph.settings(agent={"fallbacks": ["codex"]})
    resets_at = on_the_minute(300)
    ended = real.run([{"limit": {"resets_at": resets_at}}, writes("half.txt"), claims(), *DONE])
    assert (ended.code, real.answered()) == (0, [0, 1, 2, 3, 4]), ended
    assert "; goes on with codex (claude not before " in ended.err
    began = [(record.iteration, record.agent, record.place) for record in real.recorded(TurnBegan)]
    assert began == [(1, "claude", 0), (1, "codex", 1), (2, "codex", 1)]
    (again,) = real.recorded(TurnRetried)
    assert again.until == resets_at + RESET_MARGIN_S
    assert real.ralph.outcome()["iterations"] == 2
    assert "MISSING: done.txt" in real.shown(3)
