"""A run that rests, and goes on."""

from __future__ import annotations

import signal

import pytest

from ralphproof.engine.check import CheckReport
from ralphproof.engine.outcome import Passed
from ralphproof.engine.plan import AllDone
from ralphproof.engine.records import Judged, Paused, Picked, Resumed, RunBegan, TurnBegan, UserChangesSaved
from ralphproof.engine.workspace import Snapshot
from ralphproof.views.run_status import active_seconds
from tests.cli.steering import detached, let, lose_harness, over, reached, rests, waits_for
from tests.ralph import Ralph, done, say, until, write


@pytest.fixture(autouse=True)
def _project(ralph: Ralph) -> None:
    ralph.commit()


def test_a_pause_takes_effect_after_the_turn_that_runs_and_its_checks(ralph: Ralph) -> None:
    run = detached(ralph, ralph.script([waits_for("one"), write(a="1")], [done()]), "--check", "test -f a")
    reached(ralph, "one")
    told = ralph("pause")
    assert (told.code, told.err) == (0, "")
    assert told.out == f"run {run} will pause before its next turn; continue it: ralph resume {run}\n"
    status = ralph("status")
    assert status.out.splitlines()[0].endswith("; it will rest before its next turn")
    assert ralph("status", "--json").json["requested"] == "pause"
    let(ralph, "one")
    assert ralph("pause", "--wait").out == f"run {run} is paused; continue it: ralph resume {run}\n"
    records = ralph.records(run)
    assert isinstance(records[-1], Paused)
    assert [isinstance(record, Judged) for record in records].count(True) == 1
    assert sum(isinstance(record, TurnBegan) for record in records) == 1
    first = ralph("status").out.splitlines()[0]
    assert first.startswith(f"run {run} rests since ")
    assert first.endswith(f"; go on: ralph resume {run}")
    data = ralph("status", "--json").json
    assert (data["state"], data["activity"]) == ("paused", "iteration 2: rests before its turn")
    assert data["pid"] == ralph.runs()[0].pid
    assert "  paused" in ralph("runs").out
    assert ralph("resume", run).out == f"run {run} goes on\n"
    assert over(ralph, run)["status"] == "COMPLETED"


@pytest.mark.thorough
def test_the_forms_for_programs(ralph: Ralph) -> None:
    run = detached(ralph, ralph.script([waits_for("one"), say("no")], [done()]))
    reached(ralph, "one")
    head = {"v": 1, "run": run}
    assert ralph("pause", "--json").json == head | {"type": "pause", "rests": False, "already": False}
    assert ralph("pause", "--json").json == head | {"type": "pause", "rests": False, "already": True}
    assert ralph("resume", "--json").json == head | {"type": "resume", "rested": False, "wasAsked": True}
    assert ralph("resume", "--json").json == head | {"type": "resume", "rested": False, "wasAsked": False}
    waiting = ralph.start("pause", "--wait", "--json")
    until(lambda: ralph("status", "--json").json["requested"] == "pause", "it is asked to rest")
    let(ralph, "one")
    assert waiting.end().json == head | {"type": "pause", "rests": True, "already": False}
    assert ralph("resume", "--json").json == head | {"type": "resume", "rested": True, "wasAsked": True}
    over(ralph, run)


def test_a_run_that_was_not_paused_is_told_so_and_takes_no_flags(ralph: Ralph) -> None:
    run = detached(ralph, ralph.script([waits_for("one"), done()]))
    told = ralph("resume")
    assert (told.code, told.out) == (0, f"run {run} was not paused; it is at work, ralph attach {run} looks on\n")
    told = ralph("resume", run, "-m", "30")
    assert told.code == 2
    assert f"run {run} is live, and --maximum-iterations cannot change it" in told.err


@pytest.mark.thorough
def test_whoever_waits_for_a_rest_that_does_not_come_is_told(ralph: Ralph) -> None:
    run = detached(ralph, ralph.script([waits_for("one"), done()]))
    reached(ralph, "one")
    waiting = ralph.start("pause", "--wait")
    until(lambda: ralph("status", "--json").json["requested"] == "pause", "it is asked to rest")
    let(ralph, "one")
    ended = waiting.end()
    assert ended.code == 1
    assert ended.out.startswith(f"run {run} was not paused: ")


def test_who_cannot_rest_is_refused_with_the_way_on(ralph: Ralph) -> None:
    assert "no run yet" in ralph("pause").err
    assert ralph("run", "-p", "x", "--agent", ralph.script([done()])).code == 0
    told = ralph("pause")
    assert (told.code, told.out) == (2, "")
    assert "is completed; there is nothing to pause" in told.err
    assert ralph("run", "-p", "x", "--agent", ralph.script([say("no")]), "-m", "1").code == 1
    run = ralph.runs()[0].id
    told = ralph("pause")
    assert told.code == 2
    assert f"run {run} has ended; go on: ralph run --resume {run}" in told.err
    lost = detached(ralph, ralph.script([waits_for("one"), done()]))
    reached(ralph, "one")
    lose_harness(ralph, lost)
    told = ralph("pause", lost)
    assert told.code == 2
    assert f"run {lost} lost its harness, and what it started is still at work: its harness died" in told.err
    assert f"take it up: ralph run --resume {lost}; close it: ralph cancel {lost}" in told.err


def test_a_run_that_rests_can_be_cancelled(ralph: Ralph) -> None:
    run = detached(ralph, ralph.script([waits_for("one"), say("no")], [done()]))
    reached(ralph, "one")
    assert ralph("pause").code == 0
    let(ralph, "one")
    rests(ralph, run)
    told = ralph("cancel")
    assert told.code == 0
    assert "ABORTED, CANCELLED" in told.out
    assert "ended for good (CANCELLED)" in ralph("pause").err
    assert ralph("resume").code == 2


def test_a_rest_outlives_the_harness_and_ends_with_the_resume(ralph: Ralph) -> None:
    run = detached(ralph, ralph.script([waits_for("one"), write(a="1")], [done()]))
    reached(ralph, "one")
    assert ralph("pause").code == 0
    let(ralph, "one")
    rests(ralph, run)
    lose_harness(ralph, run)
    told = ralph("status").out
    assert f"run {run} crashed" in told
    assert "found: its harness died while it rested before iteration 2" in told
    assert f"take it up: ralph run --resume {run}; close it: ralph cancel {run}" in told
    ralph.write({"mine": "x"})
    resumed = ralph("resume", run, "-m", "5")
    assert resumed.code == 0
    assert "Taken up again, for the 1st time" in resumed.err
    assert "changed while the run rested, so it counts as yours: mine" in resumed.err
    assert "taken up 1 time" in ralph("status").out
    assert ralph("status", "--json").json["sessions"] == 2


def test_any_run_but_a_live_one_is_taken_up_as_by_run_resume(ralph: Ralph) -> None:
    agent = ralph.script([waits_for("one"), say("no")], [done()])
    live = ralph.start("run", "-p", "x", "--agent", agent, env={"RALPH__SHUTDOWN_GRACE_SECONDS": "0.1"})
    reached(ralph, "one")
    live.process.send_signal(signal.SIGINT)
    assert live.end().code == 130
    run = ralph.runs()[0].id
    told = ralph("resume", run[:15], "--json")
    assert told.code == 0
    assert told.lines[0]["type"] == "run.resumed"
    assert [row.id for row in ralph.runs()] == [run]
    told = ralph("resume")
    assert told.code == 2
    assert f"run {run} is completed; there is nothing to resume" in told.err
    for prompt in (["-p", "other"], ["-f", "other.md"]):
        assert "ralph say RUN TEXT" in ralph("resume", *prompt).err


def test_there_is_nothing_to_resume_without_a_run(ralph: Ralph) -> None:
    told = ralph("resume")
    assert told.code == 2
    assert "there is no run to resume" in told.err


def test_what_a_user_does_during_a_rest_is_no_work_of_the_agents(ralph: Ralph) -> None:
    """U is edited, V is committed by the user; the run's commits hold neither, and touch neither."""
    ralph.write({"U": "first\n", "README": "x\n"})
    ralph.settings(scm={"command": "git", "tasks": ["commit"]})
    ralph.commit()
    ralph.git("config", "user.name", "user")
    ralph.git("config", "user.email", "user@localhost")
    one = [waits_for("one"), write(one="1"), say("not yet")]
    two = [waits_for("two"), write(one="1, and more", two="2"), done()]
    agent = ralph.script(one, two, message=[say("agent's work")])
    run = detached(ralph, agent, "--check", "test -f one")
    reached(ralph, "one")
    assert ralph("pause").code == 0
    let(ralph, "one")
    rests(ralph, run)
    ralph.write({"U": "edited by the user\n", "V": "new\n"})
    ralph.git("add", "V")
    ralph.git("commit", "-qm", "user's V")
    assert ralph("resume").code == 0
    reached(ralph, "two")
    (regained,) = [record for record in ralph.records(run) if isinstance(record, UserChangesSaved)]
    assert regained.paths == ("U", "V")
    let(ralph, "two")
    assert over(ralph, run)["status"] == "COMPLETED"
    log = ralph.git("log", "--format=%s", "--name-only", "-3").split("\n")
    assert [line for line in log if line] == ["agent's work", "one", "two", "user's V", "V", "agent's work", "one"]
    assert (ralph.root / "U").read_text() == "edited by the user\n"
    assert ralph.git("status", "--porcelain", "U", "V", "one", "two") == " M U\n"
    second = ralph("status", "--json").json["timeline"][1]
    assert second["files"] == ["one", "two"]
    assert ralph.outcome(run)["concerns"] == []


TREE = Snapshot("c", "t")


def judged(iteration: int, elapsed_s: float) -> Judged:
    return Judged(iteration, 1, Passed(CheckReport()), elapsed_s)


def test_a_rest_is_no_part_of_a_runs_age(ralph: Ralph) -> None:
    began, rest, on = RunBegan("r", TREE, {}), Paused(2, 0), UserChangesSaved(2, 0, TREE)
    picked = Picked(2, AllDone())
    stamped = ((0.0, began), (10.0, judged(1, 10.0)), (11.0, rest))
    assert active_seconds(ralph.project, "r", stamped, 5000.0) == 11.0
    assert active_seconds(ralph.project, "r", (*stamped, (1000.0, on), (1002.0, picked)), 5000.0) == 13.0
    resumed = (*stamped, (900.0, Resumed(2, 900.0, 11.0)), (901.0, on), (903.0, picked))
    assert active_seconds(ralph.project, "r", resumed, 5000.0) == 14.0
