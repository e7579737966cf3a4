"""Runs that an agent begins: inside its turn, or asked for to outlive it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from ralphproof.budget import Spend
from ralphproof.ledgers.runs import RunRow
from ralphproof.ledgers.spend import SpendBook
from ralphproof.phase import Over
from ralphproof.record import Awaited, Joined, RunBegan
from ralphproof.verdict import Aborted, Completed
from tests.misbehaviour.invariants import no_traceback, unlocked
from tests.misbehaviour.machine import there
from tests.ralph import PROGRAM, Ended, Ralph, Step, done, until, write

ENDLESS: list[Step] = [write(**{"../child-works": ""}), {"until": "../never"}]


@pytest.fixture(autouse=True)
def _project(ralph: Ralph) -> None:
    ralph.write({"readme": "hello"})
    ralph.commit()


def child(ralph: Ralph, steps: list[Step], *flags: str, name: str = "child") -> Step:
    """A step of the parent's script: begin a run with this script."""
    agent = ralph.script(steps, name=name)
    return {"run": [*PROGRAM, "run", "-p", "a part of it", "--agent", agent, *flags]}


def parent_and_child(ralph: Ralph) -> tuple[RunRow, RunRow]:
    newest, oldest = ralph.runs()
    assert newest.parent == oldest.id
    return oldest, newest


def outcome_of(ralph: Ralph, run: str) -> object:
    phase = ralph.state(run).phase
    assert isinstance(phase, Over), phase
    return phase.outcome


def ended(ralph: Ralph, *argv: str) -> Ended:
    result = ralph(*argv)
    no_traceback(result)
    assert [run.id for run in ralph.runs() if ralph.processes(run.id)] == []
    assert there(ralph.folder / "child.json") == []
    unlocked(ralph)
    return result


def test_a_run_inside_a_turn_knows_its_parent_and_shares_its_directory(ralph: Ralph) -> None:
    inside = child(ralph, [write(part="1"), done()], "--check", "test -f part")
    result = ended(ralph, "run", "-p", "all", "--agent", ralph.script([inside, done()]), "--check", "test -f part")
    assert result.code == 0, result
    parent, inner = parent_and_child(ralph)
    assert isinstance(outcome_of(ralph, inner.id), Completed)
    began = next(record for record in ralph.records(inner.id) if isinstance(record, RunBegan))
    assert began.facts["parent"] == parent.id


def test_a_second_child_at_the_same_time_in_the_same_directory_is_refused(ralph: Ralph) -> None:
    agent = ralph.script([write(**{"../first": ""}), {"until": "../tried"}, done()], name="child")
    first = {"spawn": {"argv": [*PROGRAM, "run", "-p", "x", "--agent", agent, "--check", "true"]}}
    other = ralph.script([done()], name="other")
    command = " ".join(map(str, (*PROGRAM, "run", "-p", "y", "--agent", f"'{other}'")))
    second = {"run": ["sh", "-c", f"{command} 2>../refused; echo $? >../code; touch ../tried"]}
    script = ralph.script([first, {"until": "../first"}, second, {"sleep": 0.5}, done()])
    result = ended(ralph, "run", "-p", "all", "--agent", script, "--check", "true")
    assert result.code == 0, result
    assert (ralph.folder / "code").read_text().strip() == "2"
    assert "works in" in (ralph.folder / "refused").read_text()


def test_done_waits_for_a_child_and_the_checks_see_its_work(ralph: Ralph) -> None:
    """FC-14: the claim comes first, the child's work later; only then anything is judged."""
    asked = child(ralph, [{"until": "../go"}, write(part="1"), done()], "--check", "test -f part", "--detach")
    agent = ralph.script([asked, done()])
    live = ralph.start("run", "-p", "all", "--agent", agent, "--check", "test -f part", "-m", "1")
    until(lambda: len(ralph.runs()) == 2, "the child is begun")
    parent, inner = parent_and_child(ralph)
    until(lambda: any(isinstance(record, Awaited) for record in ralph.records(parent.id)), "the parent waits")
    (ralph.folder / "go").touch()
    result = live.end()
    assert result.code == 0, result
    assert isinstance(outcome_of(ralph, inner.id), Completed)
    assert any(isinstance(record, Joined) for record in ralph.records(parent.id))
    assert ralph.outcome(parent.id)["verificationPassed"] is True
    unlocked(ralph)


def test_a_child_that_is_never_over_ends_the_run_and_is_ended(ralph: Ralph) -> None:
    """PR-32: a bounded wait, then the failure that is documented."""
    ralph.settings(supervise={"waitTimeoutSeconds": 1, "pollIntervalSeconds": 0.1})
    agent = ralph.script([child(ralph, ENDLESS, "--detach"), {"until": "../child-works"}, done()])
    result = ended(ralph, "run", "-p", "all", "--agent", agent, "--check", "true")
    assert result.code == 1, result
    assert "CHILDREN_TIMEOUT" in result.out
    _, inner = parent_and_child(ralph)
    assert inner.id in result.out
    cancelled = outcome_of(ralph, inner.id)
    assert isinstance(cancelled, Aborted)
    assert cancelled.reason == "CANCELLED"


def test_cancel_reaches_children(ralph: Ralph) -> None:
    agent = ralph.script([child(ralph, ENDLESS, "--detach"), {"until": "../never"}])
    live = ralph.start("run", "-p", "all", "--agent", agent, "--check", "true")
    until((ralph.folder / "child-works").exists, "the child works")
    parent, inner = parent_and_child(ralph)
    assert ralph("cancel", parent.id).code == 0
    assert live.end().code == 130
    for run in (parent, inner):
        outcome = outcome_of(ralph, run.id)
        assert isinstance(outcome, Aborted)
        assert outcome.reason == "CANCELLED"
    assert there(ralph.folder / "child.json") == []


def test_an_interrupt_of_the_parent_ends_its_children(ralph: Ralph) -> None:
    agent = ralph.script([child(ralph, ENDLESS, "--detach"), {"until": "../child-works"}, {"until": "../never"}])
    live = ralph.start("run", "-p", "all", "--agent", agent, "--check", "true")
    until((ralph.folder / "child-works").exists, "the child works")
    live.process.send_signal(signal.SIGINT)
    until(lambda: "shutting down" in Path(live.err.name).read_text(), "the first signal is heard")
    live.process.send_signal(signal.SIGINT)
    assert live.end().code == 130
    _, inner = parent_and_child(ralph)
    assert isinstance(outcome_of(ralph, inner.id), Aborted)
    assert there(ralph.folder / "child.json") == []


def test_what_a_child_spends_counts_to_its_parent(ralph: Ralph) -> None:
    spending: list[Step] = [{"cost": 0.6}, write(part="1"), done()]
    asked = child(ralph, spending, "--check", "test -f part", "--detach")
    agent = ralph.script([{"cost": 0.5}, asked, done()])
    result = ended(ralph, "run", "-p", "all", "--agent", agent, "--check", "test -f part", "--max-cost-usd", "1")
    assert result.code == 1, result
    parent, inner = parent_and_child(ralph)
    assert "COST_LIMIT" in result.out
    assert ralph.outcome(parent.id)["costUSD"] == pytest.approx(1.1)
    book = SpendBook.open(str(ralph.state_dir))
    assert book.spend_of((parent.id,)) == Spend(500_000, 0)
    assert book.spend_of((inner.id,)) == Spend(600_000, 0)
    book.close()


def test_a_child_may_spend_no_more_than_its_parent_has_left(ralph: Ralph) -> None:
    greedy: list[Step] = [{"cost": 0.9}, {"sleep": 30}, done()]
    asked = child(ralph, greedy, "--max-cost-usd", "5", "--detach")
    first: list[Step] = [{"cost": 0.8}, write(a="1")]
    agent = ralph.script(first, [{"cost": 0.05}, asked, {"until": "../never"}])
    result = ended(ralph, "run", "-p", "all", "--agent", agent, "--check", "test -f b", "--max-cost-usd", "1")
    assert result.code == 1, result
    _, inner = parent_and_child(ralph)
    outcome = outcome_of(ralph, inner.id)
    assert isinstance(outcome, Aborted)
    assert outcome.reason in ("COST_LIMIT", "CANCELLED")
    assert "COST_LIMIT" in result.out


def test_a_child_outlives_a_killed_harness_and_the_resumed_run_waits_for_it(ralph: Ralph) -> None:
    asked = child(ralph, [write(**{"../child-works": ""}), {"until": "../go"}, write(part="1"), done()], "--detach")
    agent = ralph.script([asked, {"until": "../child-works"}, done()])
    live = ralph.start("run", "-p", "all", "--agent", agent, "--check", "test -f part")
    until((ralph.folder / "child-works").exists, "the child works")
    parent, inner = parent_and_child(ralph)
    os.kill(live.process.pid, signal.SIGKILL)
    live.end()
    again = ralph.start("run", "--resume", parent.id)
    until(lambda: any(isinstance(record, Awaited) for record in ralph.records(parent.id)), "the parent waits")
    (ralph.folder / "go").touch()
    result = again.end()
    assert result.code == 0, result
    assert isinstance(outcome_of(ralph, inner.id), Completed)
    assert ralph.outcome(parent.id)["verificationPassed"] is True


SENSELESS: dict[str, str] = {
    "garbage": "{",
    "a list": "[]",
    "no wish": '{"flags": {}}',
    "odd fields": json.dumps({"wish": {"is": "Wish", "prompt": 3, "flags": {}, "checks": "rm"}, "flags": {}}),
    "another value": json.dumps({"wish": {"is": "Exit", "code": 0}, "flags": {}}),
}


@pytest.mark.parametrize("text", SENSELESS.values(), ids=SENSELESS)
def test_a_request_that_makes_no_sense_begins_nothing(ralph: Ralph, text: str) -> None:
    plant = f"mkdir -p $TASK_FOLDER/children && printf '%s' '{text}' > $TASK_FOLDER/children/20261116-000000-abcd.json"
    result = ended(
        ralph, "run", "-p", "x", "--agent", ralph.script([{"run": ["sh", "-c", plant]}, done()]), "--check", "true"
    )
    assert result.code == 0, result
    assert len(ralph.runs()) == 1
    assert list((ralph.root / ".ralph").glob("runs/*/task/children/*")) == []


def test_requests_that_are_no_files_hold_nothing_up(ralph: Ralph) -> None:
    plant = (
        "cd $TASK_FOLDER && mkdir -p children/20261116-000000-aaaa.json && mkfifo children/20261116-000000-bbbb.json "
        "&& ln -s /etc/passwd children/20261116-000000-cccc.json"
    )
    result = ended(
        ralph, "run", "-p", "x", "--agent", ralph.script([{"run": ["sh", "-c", plant]}, done()]), "--check", "true"
    )
    assert result.code == 0, result
    assert len(ralph.runs()) == 1


def test_a_stranger_in_the_environment_is_no_parent(ralph: Ralph) -> None:
    result = ralph(
        "run", "-p", "x", "--agent", ralph.script([done()]), "--check", "true",
        env={"RALPH_RUN_ID": "20200101-000000-aaaa", "TASK_FOLDER": str(ralph.folder)},
    )  # fmt: skip
    assert result.code == 0, result
    (run,) = ralph.runs()
    assert run.parent == ""
