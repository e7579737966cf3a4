"""Runs that the agent of a run began: how they are shown, and how they are steered with it."""

from __future__ import annotations

import shutil

import pytest

from ralphproof.engine.outcome import Aborted
from ralphproof.engine.state import RunOver
from tests.cli.steering import detached, let, lose_harness, reached, shows, waits_for
from tests.ralph import PROGRAM, Ralph, Step, done, say, until, write


@pytest.fixture(autouse=True)
def _project(ralph: Ralph) -> None:
    ralph.commit()


def child(ralph: Ralph, name: str, *steps: Step) -> list[str]:
    """The command that begins a run of this script."""
    return [*PROGRAM, "run", "-p", "a part", "--agent", ralph.script([*steps], name=name)]


def family(ralph: Ralph) -> tuple[str, str, str]:
    """A run with a child that has ended, and one that is at work and outlives the turn."""
    first: Step = {"run": child(ralph, "first", {"cost": 0.25}, done())}
    second: Step = {"run": [*child(ralph, "second", waits_for("inside"), done()), "--detach"]}
    parent = detached(ralph, ralph.script([{"cost": 1.5}, first, second, waits_for("outside"), done()]))
    reached(ralph, "inside")
    younger, elder, _ = (row.id for row in ralph.runs())
    return parent, elder, younger


def test_a_family_is_shown_as_a_tree(ralph: Ralph) -> None:
    parent, elder, younger = family(ralph)
    reached(ralph, "outside")
    told = ralph("status", "--tree")
    assert (told.code, told.err) == (0, "")
    assert told.out.splitlines() == [
        f"{parent}  running  1 iteration  cost at least $1.50, with those below it cost at least $1.75",
        f"  {elder}  COMPLETED, claimed: nothing verified it  1 iteration  cost $0.25",
        f"  {younger}  running  1 iteration  cost unknown",
    ]
    (tree,) = ralph("status", parent, "--tree", "--json").json["runs"]
    assert (tree["id"], tree["state"], tree["iterations"], tree["status"]) == (parent, "running", 1, None)
    first, second = tree["runs"]
    assert (first["id"], first["state"], first["cost"]["usd"]) == (elder, "ended", 0.25)
    assert first["status"] == "COMPLETED"
    assert (second["id"], second["state"], second["runs"]) == (younger, "running", [])
    assert ralph("runs", "--tree").out == ralph("status", "--all", "--tree").out == told.out
    assert ralph("status", younger, "--tree").out.splitlines() == [f"{younger}  running  1 iteration  cost unknown"]


def test_the_status_of_a_run_tells_of_its_own_runs_and_their_end_with_it(ralph: Ralph) -> None:
    parent, elder, younger = family(ralph)
    told = ralph("status")
    assert told.out.startswith(f"run {parent} is running"), "what an agent begins is not the latest run"
    assert (ralph.root / ".ralph/latest").readlink().name == parent
    assert "runs of its own: 2, one at work" in told.out.splitlines()
    data = ralph("status", "--json").json
    assert [(one["run"], one["state"]) for one in data["children"]] == [(elder, "ended"), (younger, "running")]
    assert ralph("status", younger, "--json").json["parent"] == parent
    assert [run["parent"] for run in ralph("runs", "--json").json["runs"]] == [parent, parent, None]
    lines = ralph("cancel").out.splitlines()
    assert lines[0] == f"run {parent} is over"
    assert lines[-1] == f"its child runs that ended too: {younger}"
    assert "runs of its own: 2, none at work" in ralph("status").out


@pytest.mark.thorough
def test_a_run_that_waits_for_its_own_says_for_whom(ralph: Ralph) -> None:
    parent, _, younger = family(ralph)
    live = ralph.start("attach")
    shows(live, "the agent works")
    let(ralph, "outside")
    until(lambda: "waits" in ralph("status", "--json").json["activity"], "it waits")
    assert ralph("status", "--json").json["activity"] == f"iteration 1: waits for a run of its own: {younger}"
    let(ralph, "inside")
    ended = live.end()
    assert ended.code == 0
    assert f"  waits for a run of its own: {younger}\n  they are over; with their work: " in ended.err
    assert ended.err.endswith(f"run {parent} is over; ralph status, logs and diff say more\n")


def test_runs_is_the_same_as_status_all(ralph: Ralph) -> None:
    assert ralph("runs").out == "no run yet\n"
    assert ralph("run", "-p", "x", "--agent", ralph.script([done()])).code == 0
    assert ralph("run", "-p", "x", "--agent", ralph.script([say("no")]), "-m", "1").code == 1
    assert ralph("runs").out == ralph("status", "--all").out
    assert len(ralph("runs").out.splitlines()) == 2
    assert ralph("runs", "--json").json == ralph("status", "--all", "--json").json


def reason(ralph: Ralph, run: str) -> str:
    phase = ralph.state(run).phase
    assert isinstance(phase, RunOver)
    assert isinstance(phase.outcome, Aborted)
    return phase.outcome.reason


@pytest.mark.thorough
@pytest.mark.parametrize("lost", [[], [0], [1], [0, 1]], ids=["none", "parent", "child", "both"])
def test_a_cancel_ends_the_whole_family_whoever_lost_its_harness(ralph: Ralph, lost: list[int]) -> None:
    parent, elder, younger = family(ralph)
    reached(ralph, "outside")
    for place in lost:
        lose_harness(ralph, (parent, younger)[place])
    told = ralph("cancel", "--json")
    assert told.code == 0, told
    assert (told.json["run"], told.json["outcome"]["reason"]) == (parent, "CANCELLED")
    assert told.json["children"] == [{"run": younger, "ended": True}]
    assert [reason(ralph, run) for run in (parent, younger)] == ["CANCELLED", "CANCELLED"]
    assert all(ralph.processes(run) == [] for run in (parent, elder, younger))
    until(lambda: not any(row.process.alive for row in ralph.runs()), "nobody is left")
    assert ralph("run", "-p", "x", "--agent", ralph.script([done()])).code == 0


@pytest.mark.thorough
def test_a_child_alone_can_be_cancelled(ralph: Ralph) -> None:
    parent, _, younger = family(ralph)
    told = ralph("cancel", younger)
    assert told.code == 0
    assert told.out.startswith(f"run {younger} is over\n")
    assert ralph("status", parent, "--json").json["state"] == "running"
    assert "its child runs that ended too" not in told.out


def test_what_a_child_changed_can_be_looked_at(ralph: Ralph) -> None:
    """Beside its parent it keeps its trees in a place of its own, in a folder without git too."""
    shutil.rmtree(ralph.root / ".git")
    part: Step = {"run": child(ralph, "part", write(part="of the work\n"), done())}
    agent = ralph.script([part, {"delete": ["part"]}, done()])
    assert ralph("run", "-p", "all", "--agent", agent).code == 0
    told = ralph("diff", ralph.runs()[0].id)
    assert told.code == 0, told
    assert "+of the work" in told.out
