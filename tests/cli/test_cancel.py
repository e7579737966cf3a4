from __future__ import annotations

import os
import signal

import pytest

from ralphproof.base.processes import current_process
from ralphproof.base.value import replace
from ralphproof.engine.outcome import Aborted
from ralphproof.engine.state import RunOver
from ralphproof.store.run_state import ENDED, run_state
from tests.ralph import Live, Ralph, done, say, until, write


def begun(ralph: Ralph, *steps: dict[str, object]) -> tuple[str, Live]:
    """A run whose agent is at work and would be so for long."""
    ralph.commit()
    agent = ralph.script([*steps, write(started="yes"), {"sleep": 120}, done()])
    live = ralph.start("run", "-p", "x", "--agent", agent)
    until(lambda: (ralph.root / "started").exists(), "the agent is at work")
    return ralph.runs()[0].id, live


def kill(live: Live) -> None:
    os.kill(live.process.pid, signal.SIGKILL)
    live.process.wait()


def reason(ralph: Ralph, run: str) -> str:
    phase = ralph.state(run).phase
    assert isinstance(phase, RunOver)
    assert isinstance(phase.outcome, Aborted)
    return phase.outcome.breach.reason


def test_a_live_run_ends_in_good_order(ralph: Ralph) -> None:
    run, live = begun(ralph)
    told = ralph("cancel")
    assert told.code == 0
    assert told.out.splitlines()[0] == f"run {run} is over"
    assert "ABORTED, CANCELLED" in told.out.splitlines()[-1]
    assert live.end().code == 130
    assert (reason(ralph, run), ralph.outcome()["reason"]) == ("CANCELLED", "CANCELLED")
    assert ralph.processes(run) == []


@pytest.mark.thorough
def test_an_agent_that_ignores_the_request_is_ended_all_the_same(ralph: Ralph) -> None:
    run, live = begun(ralph, {"ignore": ["TERM", "INT", "HUP"]})
    assert ralph("cancel", run).code == 0
    assert live.end().code == 130
    assert ralph.processes(run) == []


def test_without_waiting_the_wish_is_left_for_the_run(ralph: Ralph) -> None:
    run, live = begun(ralph)
    told = ralph("cancel", "--no-wait", "--json")
    assert told.code == 0
    assert told.json == {"v": 1, "type": "cancel", "run": run, "ended": False, "outcome": None}
    assert live.end().code == 130


def test_a_turn_that_lost_its_harness_is_ended_and_the_run_closed(ralph: Ralph) -> None:
    run, live = begun(ralph)
    kill(live)
    told = ralph("cancel", "--json")
    assert told.code == 0
    assert (told.json["ended"], told.json["outcome"]["reason"]) == (True, "CANCELLED")
    assert (reason(ralph, run), ralph.outcome(run)["reason"]) == ("CANCELLED", "CANCELLED")
    assert ralph.processes(run) == []
    assert ralph("run", "-p", "x", "--agent", ralph.script([done()])).code == 0


@pytest.mark.thorough
def test_a_turn_without_harness_that_ignores_the_request_is_ended_too(ralph: Ralph) -> None:
    run, live = begun(ralph, {"ignore": ["TERM"]}, {"spawn": {"argv": ["sleep", "120"], "setsid": True, "quiet": True}})
    kill(live)
    assert ralph("cancel").code == 0
    assert ralph.processes(run) == []


def test_a_run_that_crashed_between_turns_is_closed(ralph: Ralph) -> None:
    ralph.commit()
    live = ralph.start(
        "run", "-p", "x", "--agent", ralph.script([say("no")]), env={"RALPH__LIMITS__PAUSE_MILLISECONDS": "60000"}
    )
    until(lambda: ralph.runs() and len(ralph.state().history.iterations) == 1, "the pause after the first iteration")
    run = ralph.runs()[0].id
    kill(live)
    assert ralph("status", "--json").json["state"] == "crashed"
    assert ralph("cancel").code == 0
    assert reason(ralph, run) == "CANCELLED"
    assert ralph("status", "--json").json["outcome"]["iterations"] == 1


def test_a_run_that_has_ended_is_left_alone(ralph: Ralph) -> None:
    assert ralph("run", "-p", "x", "--agent", ralph.script([done()])).code == 0
    before = ralph.records()
    told = ralph("cancel")
    assert (told.code, told.out.splitlines()[0].endswith("had ended already")) == (0, True)
    assert ralph("cancel", "--json").json["alreadyEnded"] is True
    assert ralph.records() == before


def test_a_run_that_has_ended_is_over_even_while_its_harness_still_exits(ralph: Ralph) -> None:
    assert ralph("run", "-p", "x", "--agent", ralph.script([done()])).code == 0
    me = current_process()
    stale = replace(ralph.runs()[0], ended=False, pid=me.pid, pid_start=me.start, boot=me.boot)
    project = ralph.project
    ledger = project.ledger()
    try:
        assert stale.process.alive
        assert run_state(ledger, stale, project) == ENDED
    finally:
        ledger.close()


def test_there_is_nothing_to_cancel_without_a_run(ralph: Ralph) -> None:
    assert ralph("cancel").code == 2
