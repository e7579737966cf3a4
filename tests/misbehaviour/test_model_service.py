"""The model's service refuses, is down, breaks off, or says nothing."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ralphproof.engine.agent import (
    BACK_OFF_S,
    BACK_OFF_SPREAD,
    MAX_FAILURES,
    RESET_MARGIN_S,
    THE_SERVICE,
    Limited,
    Turn,
)
from ralphproof.engine.limits import SERVICE_UNAVAILABLE, Limits
from ralphproof.engine.outcome import Aborted, Completed
from ralphproof.engine.records import Judged, TurnBegan, TurnRetried
from ralphproof.engine.sandbox import Exit
from tests.engine.fake_environment import CLAIMING, NOTHING, Crash, FakeEnvironment, Step, with_limits
from tests.misbehaviour.agents import TAG, case, heard, prompt
from tests.misbehaviour.invariants import hold
from tests.misbehaviour.machine import recorded
from tests.misbehaviour.streams import (
    LONG,
    Line,
    Play,
    call,
    called,
    done,
    init,
    item,
    message,
    plays,
    refused,
    replies,
    run,
    told,
    turn,
)
from tests.ralph import Ralph, until

STAMP = "date +%s.%N >> ../stamps"


@pytest.mark.parametrize(
    ("agent", "play"),
    [
        case("MS-01-status", "claude", Play(
            refused("API Error: Request rejected (429) · try again in 1 second", api_error_status=429), code=1)),
        case("MS-01-stderr", "codex", Play([], err="ERROR: 429 Too Many Requests, retry-after: 1\n", code=1)),
    ],
)  # fmt: skip
def test_a_refusal_is_waited_for_as_long_as_it_says_and_burns_nothing(ralph: Ralph, agent: str, play: Play) -> None:
    """MS-01: the iteration is the same one, and what the limits count is as before."""
    ralph.settings(limits={"stallIterations": 1, "sameErrorIterations": 1})
    plays(ralph, agent, replace(play, does=STAMP), Play(turn(agent, final=TAG), does=STAMP))
    ended = run(ralph, agent)
    assert (ended.code, ralph.outcome()["iterations"]) == (0, 1), ended
    before, after = map(float, (ralph.folder / "stamps").read_text().split())
    (again,) = recorded(ralph, TurnRetried)
    assert 1 + RESET_MARGIN_S <= again.until - before < BACK_OFF_S[0] * (1 - BACK_OFF_SPREAD), (
        "as stated, and no back-off"
    )
    assert after >= again.until
    assert [(began.iteration, began.turn) for began in recorded(ralph, TurnBegan)] == [(1, 1), (1, 2)]
    assert len(recorded(ralph, Judged)) == 1
    assert "; waits until " in ended.err


# Prints a turn that is limited until so many seconds from now, as a clock in Tokyo shows it, and keeps that instant.
TOKYO = """
import json, sys, time
from datetime import datetime
from zoneinfo import ZoneInfo
at = int(time.time()) + int(sys.argv[1])
open("../resets", "w").write(str(at))
clock = datetime.fromtimestamp(at, ZoneInfo("Asia/Tokyo")).strftime("%I:%M:%S%p").lstrip("0").lower()
words = f"You've hit your session limit · resets {clock} (Asia/Tokyo)"
print(json.dumps({"type": "result", "subtype": "success", "is_error": True, "result": words, "total_cost_usd": 0}))
"""


def tokyo(seconds: int) -> Play:
    return Play([init()], code=1, then=shlex.join([sys.executable, "-S", "-c", TOKYO, str(seconds)]))


def test_a_limit_that_ends_by_a_clock_in_tokyo_is_waited_for(ralph: Ralph) -> None:
    """MS-02: wherever we are."""
    ralph.env["TZ"] = "America/Caracas"
    plays(ralph, "claude", tokyo(2), done())
    ended = run(ralph, "claude")
    assert (ended.code, heard(ralph)) == (0, ["DONE"]), ended
    (again,) = recorded(ralph, TurnRetried)
    assert again.until == int((ralph.folder / "resets").read_text()) + RESET_MARGIN_S
    assert "You've hit your session limit" in ended.err


def test_a_long_wait_is_visible_and_ends_at_once_when_somebody_wants_it(ralph: Ralph) -> None:
    """MS-02"""
    plays(ralph, "claude", tokyo(7200))
    live = ralph.start("run", "-p", "make it so", "--agent", "claude", "--check", "true")
    until(lambda: "; waits until " in Path(live.err.name).read_text(), "the run waits")
    live.process.send_signal(signal.SIGINT)
    asked = time.monotonic()
    ended = live.end()
    assert time.monotonic() - asked < 10
    hold(ralph, ended)
    assert (ended.code, ralph.outcome()["reason"], len(told(ralph))) == (130, "INTERRUPTED", 1), ended
    (again,) = recorded(ralph, TurnRetried)
    assert again.until == int((ralph.folder / "resets").read_text()) + RESET_MARGIN_S


def test_a_limit_that_is_days_away_ends_the_run(ralph: Ralph) -> None:
    """MS-02: another run may be begun then."""
    plays(ralph, "claude", refused("You've hit your weekly limit · resets in 3 days"))
    ended = run(ralph, "claude")
    assert (ended.code, ralph.outcome()["reason"], len(told(ralph))) == (1, "SERVICE_UNAVAILABLE", 1), ended
    assert "for another 72 hours" in ended.out


LIMIT = "5-hour limit reached · resets 7pm (Asia/Tokyo)"


@pytest.mark.parametrize(
    ("agent", "before"),
    [
        case("MS-04-claude", "claude", [message(call("Bash", command="cat notes")), called(LIMIT)]),
        case("MS-04-codex", "codex", [item("command_execution", command="cat notes", aggregated_output=LIMIT)]),
    ],
)
def test_a_limit_that_a_tool_printed_is_none(ralph: Ralph, agent: str, before: list[Line]) -> None:
    """MS-04: nor one on standard error, where the time was up: it is the agent's own fault."""
    ralph.settings(agent={"timeoutSeconds": 1})
    plays(ralph, agent, Play(turn(agent, *before)[:-2], err=f"{LIMIT}\n", then=LONG))
    ended = run(ralph, agent)
    assert (ended.code, ralph.outcome()["reason"]) == (1, "MAX_ITERATIONS"), ended
    (reply,) = replies(ralph)
    assert (reply.exit.why, reply.limited, reply.blame) == ("timeout", None, "")
    assert recorded(ralph, TurnRetried) == []
    assert "its time was up" in ended.err


def test_an_overload_is_waited_for(ralph: Ralph) -> None:
    """MS-05: the one test that waits for the shortest back-off."""
    plays(ralph, "claude", Play(refused("API Error: 529 Overloaded", api_error_status=529), code=1), done())
    ended = run(ralph, "claude")
    assert (ended.code, ralph.outcome()["iterations"], len(told(ralph))) == (0, 1, 2), ended
    (again,) = recorded(ralph, TurnRetried)
    assert again.why.startswith("the service of claude does not answer as it should: API Error: 529 Overloaded")


DOWN = Turn(Exit(1), "", error="API Error: 529 Overloaded", blame=THE_SERVICE)


@pytest.mark.parametrize("times", [1, 5, MAX_FAILURES - 1])
def test_waits_for_a_service_that_is_down_grow_and_burn_no_iteration(times: int) -> None:
    """MS-05: with a clock of our own."""
    world = FakeEnvironment(
        *[Step(DOWN, NOTHING)] * times,
        Step(CLAIMING),
        rules=with_limits(Limits(stall_iterations=1, same_error_iterations=1)),
    )
    outcome = world.run()
    assert isinstance(outcome, Completed)
    assert outcome.iterations == 1
    usual = [BACK_OFF_S[min(count, len(BACK_OFF_S) - 1)] for count in range(times)]
    waited = world.clock.now - 1_000.0
    assert sum(usual) * (1 - BACK_OFF_SPREAD) <= waited <= sum(usual) * (1 + BACK_OFF_SPREAD) + 1


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("resets_in", [None, 60.0])
def test_a_clock_that_is_set_back_makes_no_wait_longer(crashes: bool, resets_in: float | None) -> None:
    """MS-05: with a clock of our own, also where the run is taken up after that."""
    limited = Turn(Exit(1), limited=Limited("usage limit", None if resets_in is None else 1_000.0 + resets_in))
    world = FakeEnvironment(Step(limited, NOTHING), Step(CLAIMING))
    world.clock.set_back_s = 7200.0
    if crashes:
        world.ledger.crash_on = TurnRetried
        with pytest.raises(Crash):
            world.run()
        world.clock.sleeps.append(0.0)
    assert isinstance(world.run(), Completed)
    assert world.clock.now - 1_000.0 <= (resets_in or BACK_OFF_S[0]) * (1 + BACK_OFF_SPREAD) + 2


def test_a_service_that_stays_away_is_not_asked_for_ever() -> None:
    """MS-05, MS-15: with a clock of our own; all waits together are long, and they end."""
    world = FakeEnvironment(Step(DOWN, NOTHING))
    outcome = world.run()
    assert isinstance(outcome, Aborted)
    assert (outcome.breach.reason, len(world.turns)) == (SERVICE_UNAVAILABLE, MAX_FAILURES)
    assert 300 < world.clock.now - 1_000.0 < 3600


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_a_stream_that_breaks_off_is_a_failure_and_its_work_is_kept(ralph: Ralph, agent: str) -> None:
    """MS-06: exit code 0 is no result, whatever was said before it."""
    ralph.commit()
    *lines, last = turn(agent, final=TAG)
    cut = json.dumps(last)[:-2]
    plays(ralph, agent, Play([*lines, cut], does="echo 1 > work", end=b""), turn(agent, final=TAG))
    ended = run(ralph, agent, most=2)
    assert (ended.code, heard(ralph), len(recorded(ralph, TurnRetried))) == (0, [None, "DONE"], 0), ended
    first, _ = replies(ralph)
    assert "with exit code 0 and without its result" in str(first.error)
    assert "Your last turn failed: the agent ended with exit code 0 and without its result" in prompt(ralph, 2)
    saved = ralph.state().history.iterations[0].snapshot.id
    assert ralph.git("show", f"{saved}:work") == "1\n"


@pytest.mark.parametrize(
    ("empties", "code", "turns"),
    [case("MS-09-once", 1, 0, 2), case("MS-09-as-often-as-may-be", 3, 0, 4), case("MS-09-always", 9, 1, 4)],
)
def test_empty_replies_are_taken_again_and_then_end_the_run(ralph: Ralph, empties: int, code: int, turns: int) -> None:
    """MS-09: none of them is an iteration."""
    plays(ralph, "claude", *[done("")] * empties, done())
    ended = run(ralph, "claude")
    assert (ended.code, len(told(ralph))) == (code, turns), ended
    assert ralph.outcome().get("reason", "") == ("EMPTY_REPLIES" if code else "")
    assert len(recorded(ralph, Judged)) == 1 - code
