"""How a task stands: by the user's word and by its runs; and ending one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from ralphproof.base.processes import current_process
from ralphproof.checks.judge import Judgement, Ruling, format_judgement
from ralphproof.engine import limits
from ralphproof.engine.check import CheckReport, Finding
from ralphproof.engine.outcome import Outcome, Passed, SentBack, Verdict
from ralphproof.engine.plan import AllDone, Job, Stage, Task
from ralphproof.engine.prompt import Feedback
from ralphproof.engine.records import Picked, Resumed, RunEnded
from ralphproof.store.tasks import TaskRow
from ralphproof.views.tasks import CUT_OFF_REASON, TaskView, load_task_views
from tests.cli.tasking import (
    CODER,
    COMPLETION,
    FAILED,
    NOBODY,
    PASSED,
    RETRY,
    TESTER,
    Command,
    aborted,
    command_line,
    completed,
    iteration,
    keep,
    opened,
    worked,
)
from tests.ralph import Live, Ralph, done, until, write


@pytest.fixture
def run(ralph: Ralph, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return command_line(ralph, monkeypatch, capsys)


def view(ralph: Ralph, id: str = "a") -> TaskView:
    return next(view for view in load_task_views(ralph.project) if view.id == id)


def say(ralph: Ralph, status: str, id: str = "a") -> None:
    with opened(ralph) as ledger:
        ledger.tasks.change(id, {"status": status})


@pytest.fixture
def task(ralph: Ralph) -> str:
    keep(ralph, TaskRow("a", "auth", "The title", "why\nand how", completion=COMPLETION, assignee="me"))
    return "a"


# By the last run

ENDS: dict[str, tuple[Outcome, str, str, str, bool]] = {
    # how the run ended; status, reason, proof, whether it goes on
    "verified": (completed(), "done", "", "verified", False),
    "judged": (completed(verified=False, judged=True), "done", "", "judged", False),
    "claimed": (completed(verified=False), "done", "", "claimed", False),
    "waiting": (aborted(limits.WAITING), "waiting", "the facts of WAITING", "", True),
    "cancelled": (aborted(limits.CANCELLED), "cancelled", "", "", False),
    "interrupted": (aborted(limits.INTERRUPTED), "todo", CUT_OFF_REASON, "", True),
    "a limit": (aborted(limits.MAX_ITERATIONS), "failed", "MAX_ITERATIONS: the facts of MAX_ITERATIONS", "", False),
    "a fault": (FAILED, "todo", "ERROR: the machine is gone; ralph work goes on with it", "", True),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_task_stands_as_its_last_run_ended(ralph: Ralph, task: str, how: str) -> None:
    end, status, reason, proof, goes_on = ENDS[how]
    past = (*iteration(1, task, CODER, (), RETRY), *iteration(2, task, CODER, (), PASSED))
    worked(ralph, "r", task, *past, Picked(3, AllDone()), end=end)
    found = view(ralph)
    assert (found.status, found.reason, found.proof, found.goes_on) == (status, reason, proof, goes_on)
    assert (found.stage, found.iteration, found.most, found.run) == ("coder", 2, 15, "r")
    assert (found.iterations, found.assignee) == (end.iterations, "claude")
    assert (found.item.status, found.item.task.id) == (status, "a")


def test_a_task_that_nobody_worked_on_stands_as_the_user_says(ralph: Ralph, task: str) -> None:
    assert view(ralph) == TaskView("a", "todo", "The title", "auth", assignee="me")
    for word in ("done", "cancelled", "todo"):
        say(ralph, word)
        assert (view(ralph).status, view(ralph).run) == (word, "")


def test_a_task_is_working_while_its_run_lives_whatever_the_user_said(ralph: Ralph, task: str) -> None:
    say(ralph, "done")
    worked(ralph, "r", task, *iteration(1, task, CODER, (), PASSED), *iteration(2, task, TESTER))
    found = view(ralph)
    assert (found.status, str(found.count), found.iterations, found.goes_on) == ("working", "tester 1/10", 2, False)
    say(ralph, "done")
    assert view(ralph).status == "working"


def test_a_task_whose_harness_died_is_to_be_gone_on_with(ralph: Ralph, task: str) -> None:
    worked(ralph, "r", task, *iteration(1, task, CODER), process=NOBODY)
    found = view(ralph)
    assert (found.status, found.reason, found.goes_on, str(found.count)) == ("todo", CUT_OFF_REASON, True, "coder 1/15")


@pytest.mark.parametrize("word", ["todo", "done", "cancelled"])
@pytest.mark.parametrize("how", ENDS)
def test_what_the_user_says_after_a_run_holds_until_the_next(ralph: Ralph, task: str, how: str, word: str) -> None:
    worked(ralph, "r1", task, *iteration(1, task, CODER, (), RETRY), end=ENDS[how][0])
    say(ralph, word)
    found = view(ralph)
    why = "" if word == "todo" else "by your word"
    assert (found.status, found.reason, found.stage, found.goes_on, found.proof) == (word, why, "", False, "")
    assert (found.run, found.iterations) == ("r1", ENDS[how][0].iterations)
    worked(ralph, "r2", task, end=aborted(limits.STALL))
    assert (view(ralph).status, view(ralph).run) == ("failed", "r2")


def test_a_run_that_is_taken_up_and_ends_counts_again(ralph: Ralph, task: str) -> None:
    worked(ralph, "r1", task, *iteration(1, task, CODER, (), RETRY), end=aborted(limits.MAX_ITERATIONS))
    say(ralph, "todo")
    with opened(ralph) as ledger:
        ledger.assign_process("r1", current_process())
        ledger.append("r1", (Resumed(2, 2.0, 1.0),))
    assert view(ralph).status == "working"
    with opened(ralph) as ledger:
        ledger.append("r1", (RunEnded(completed(), session=2),))
    assert (view(ralph).status, view(ralph).proof) == ("done", "verified")


def test_a_dead_run_that_is_closed_later_does_not_unsay_what_the_user_said(ralph: Ralph, task: str) -> None:
    worked(ralph, "r1", task, *iteration(1, task, CODER), process=NOBODY)
    say(ralph, "done")
    assert view(ralph).status == "done"
    with opened(ralph) as ledger:
        ledger.append("r1", (RunEnded(FAILED),))
    assert view(ralph).status == "done"


def test_iterations_are_counted_within_their_stage(ralph: Ralph, task: str) -> None:
    back = SentBack(("coder", "tester"), Feedback())
    past: list[tuple[Stage, Verdict]] = [
        (CODER, RETRY),
        (CODER, PASSED),
        (TESTER, back),
        (CODER, PASSED),
        (TESTER, RETRY),
    ]
    records = [
        record for n, (stage, verdict) in enumerate(past, 1) for record in iteration(n, task, stage, (), verdict)
    ]
    worked(ralph, "r", task, *records, *iteration(6, task, TESTER))
    assert (str(view(ralph).count), view(ralph).iterations) == ("tester 3/10", 6)


# ralph status


def test_status_without_tasks_says_nothing_of_them_and_loads_no_code_for_them(ralph: Ralph, run: Command) -> None:
    ralph.project.ledger(read_only=False).close()
    assert "tasks" not in run("status").out
    assert run("status", "--json").json["runs"] == []
    code = "import sys; from ralphproof.cli.dispatch import dispatch; dispatch(['status']); print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], cwd=ralph.root, capture_output=True, text=True, check=True)
    loaded = told.stdout.split()
    assert "ralphproof.cli.status" in loaded
    assert not [name for name in loaded if "task" in name or name.startswith("ralphproof.plans")]


def test_status_tells_of_tasks_after_the_run(ralph: Ralph, run: Command, task: str) -> None:
    keep(ralph, TaskRow("longer", title="another"))
    told = run("status").out.splitlines()
    assert told[0].startswith("no run yet")
    assert told[1:] == ["", "tasks", "  a       todo    The title", "  longer  todo    another"]
    worked(ralph, "r", task, *iteration(1, task, CODER, (), RETRY), *iteration(2, task, CODER))
    told = run("status").out.splitlines()
    assert told[0].startswith("run r is running")
    assert told[1] == "task a: stage coder, iteration 2 of 15"
    assert told[-3:] == [
        "tasks",
        "  a       working  coder 2/15  The title",
        "  longer  todo                 another",
    ]
    data = run("status", "--json").json
    assert data["task"] == "a"


def test_of_many_tasks_those_come_first_that_are_not_over(ralph: Ralph, run: Command) -> None:
    keep(ralph, *(TaskRow(f"t{n:02}", title="x", status="done" if n % 2 else "todo") for n in range(60)))
    lines = run("status").out.splitlines()
    shown = [line.split()[:2] for line in lines[lines.index("tasks") + 1 : -1]]
    assert shown == [[f"t{n:02}", "todo"] for n in range(0, 40, 2)]
    assert lines[-1] == "  and 40 more: ralph task list"


# ralph task show

JUDGED = format_judgement(
    Judgement((Ruling(1, "it is fast", True, "x = 1", "It is."), Ruling(2, "it is right", False, "", "No.")))
)


def test_show_has_every_verification_of_every_run(ralph: Ralph, run: Command, task: str) -> None:
    findings = (
        Finding("make", False, "make test", 2),
        Finding("lint", False, "lint", 1, required=False),
        Finding("judge", False, why="1 of 2 criteria not met", output=JUDGED, judged=True),
        Finding(
            "other judge", False, why="a timeout", judged=True, errored=True, output="met: 1. it is right | why: x"
        ),
    )
    back = SentBack(("coder", "tester"), Feedback())
    worked(ralph, "r1", task, *iteration(1, task, CODER, findings, RETRY), end=aborted(limits.STALL))
    ok = (Finding("make", True, "make test", 0),)
    worked(
        ralph, "r2", task, *iteration(1, task, CODER, ok, Passed(CheckReport(ok))),
        *iteration(2, task, TESTER, findings[:1], back), *iteration(3, task, CODER),
    )  # fmt: skip
    lines = run("task", "show", task).out.splitlines()
    assert lines[:4] == [
        "a: The title", "status: working, coder 2/15", "spec auth, priority 0, claude", lines[3],
    ]  # fmt: skip
    assert lines[4:8] == ["", "    why", "    and how", ""]
    at = lines.index("acceptance criteria:")
    assert lines[at + 1 : at + 3] == [
        "  [x] it is fast: met (run r1, iteration 1: It is.)",
        "  [ ] it is right: not met (run r1, iteration 1: No.)",
    ]
    first = next(n for n, line in enumerate(lines) if line.startswith("run r1, began "))
    assert lines[first].endswith("ABORTED, STALL: the facts of STALL (3 iterations, 1.0 s, cost $0.00)")
    assert lines[first + 1].startswith("  iteration 1, coder: not done (")
    assert lines[first + 2 : first + 6] == [
        "    failed    machine  make test: exit code 2",
        "    advisory  machine  lint: exit code 1",
        "    failed    judged   judge: 1 of 2 criteria not met",
        "    errored   judged   other judge: a timeout",
    ]
    rest = [line.partition(" (")[0] for line in lines[first + 6 :]]
    assert rest[2:6] == [
        "  iteration 1, coder: done", "    passed    machine  make test: exit code 0",
        "  iteration 2, tester: back to coder", "    failed    machine  make test: exit code 2",
    ]  # fmt: skip
    assert rest[-1].startswith("  iteration 3, coder: not judged")


def test_show_for_programs_has_all_of_it(ralph: Ralph, run: Command, task: str) -> None:
    keep(ralph, TaskRow("b", dependencies=("a", "gone"), metadata='{"k": [1]}', completion=COMPLETION))
    found = (Finding("judge", False, why="1 of 2 criteria not met", output=JUDGED, judged=True, log="judge.log"),)
    worked(ralph, "r", "b", *iteration(1, "b", CODER, found, RETRY), end=completed())
    data = run("task", "show", "b", "--json").json
    assert (data["status"], data["proof"], data["iterations"], data["run"]) == ("done", "verified", 2, "r")
    assert [(one["task"], one["status"]) for one in data["dependsOn"]] == [("a", "todo"), ("gone", None)]
    assert data["metadata"] == {"k": [1]}
    assert [(one["text"], one["met"], one["run"], one["iteration"], one["reason"]) for one in data["criteria"]] == [
        ("it is fast", True, "r", 1, "It is."), ("it is right", False, "r", 1, "No."),
    ]  # fmt: skip
    (passage,) = data["timeline"]
    assert (passage["run"], passage["number"], passage["stage"], passage["verdict"]["result"]) == (
        "r",
        1,
        "coder",
        "retry",
    )
    (check,) = passage["checks"]
    assert (check["name"], check["state"], check["judged"], check["log"]) == ("judge", "failed", True, "judge")
    assert check["startedAt"] > "2020"
    assert "depends on a (todo), gone (there is none)" in run("task", "show", "b").out


def test_an_iteration_that_a_limit_kept_from_being_begun_is_shown_to_nobody(
    ralph: Ralph, run: Command, task: str
) -> None:
    first, job = iteration(1, task, CODER, (), RETRY), Job(Task(task, ""), CODER)
    worked(ralph, "r", task, *first, Picked(2, job), end=aborted(limits.MAX_ITERATIONS))
    data = run("task", "show", task, "--json").json
    assert [one["number"] for one in data["timeline"]] == [1]
    assert (data["stage"], data["stageIterations"], data["stageMaximumIterations"]) == ("coder", 1, 15)
    assert "not judged" not in run("task", "show", task).out


def test_a_criterion_is_judged_by_the_last_judgement_that_names_the_whole_of_it(ralph: Ralph, run: Command) -> None:
    long = "long " * 100
    criteria = ["it is", "it is fast", long, "never judged"]
    spec = json.dumps({"outcome": "o", "acceptance_criteria": criteria})
    keep(ralph, TaskRow("a", title="t", completion=spec))

    def judged(*rulings: Ruling) -> tuple[Finding, ...]:
        return (Finding("judge", False, output=format_judgement(Judgement(rulings)), judged=True),)

    first = judged(Ruling(1, "it is fast", True, "", "yes"), Ruling(2, long, True, "", "seen"))
    second = judged(Ruling(1, "it is fast", False, "", "no longer | quoted: x"))
    worked(ralph, "r", "a", *iteration(1, "a", CODER, first, RETRY), *iteration(2, "a", CODER, second, RETRY))
    known = [one["met"] for one in run("task", "show", "a", "--json").json["criteria"]]
    assert known == [None, False, True, None]


# ralph cancel


def begun(ralph: Ralph, task: str) -> tuple[str, Live]:
    """A run that works on a task, and would do so for long."""
    ralph.commit()
    agent = ralph.script([write(started="yes"), {"sleep": 120}, done()])
    live = ralph.start("run", "-p", "x", "--agent", agent)
    until(lambda: (ralph.root / "started").exists(), "the agent is at work")
    run = ralph.runs()[0].id
    with opened(ralph) as ledger:
        ledger._database.execute("INSERT INTO attempt (run, task) SELECT ?, seq FROM task WHERE id = ?", (run, task))
    return run, live


@pytest.mark.parametrize("crashed", [False, True])
def test_a_task_is_cancelled_with_its_run(ralph: Ralph, run: Command, task: str, crashed: bool) -> None:
    name, live = begun(ralph, task)
    assert view(ralph).status == "working"
    if crashed:
        os.kill(live.process.pid, signal.SIGKILL)
        live.process.wait()
    told = run("cancel", task)
    assert told.code == 0
    assert told.out.splitlines()[0] == f"run {name} is over"
    assert told.out.splitlines()[-1] == "task a is cancelled"
    assert crashed or live.end().code == 130
    assert ralph.processes(name) == []
    assert (view(ralph).status, ralph.outcome(name)["reason"]) == ("cancelled", "CANCELLED")
    with opened(ralph) as ledger:
        row = ledger.tasks.row(task)
    assert row
    assert (row.status, row.said) == ("cancelled", True)
    assert run("cancel", task).out == "task a was cancelled already\n"


def test_without_waiting_the_run_is_asked_and_decides(ralph: Ralph, run: Command, task: str) -> None:
    name, live = begun(ralph, task)
    told = run("cancel", task, "--no-wait", "--json").json
    assert (told["run"], told["task"], told["ended"]) == (name, "a", False)
    assert live.end().code == 130
    assert view(ralph).status == "cancelled"


def test_a_task_without_a_run_is_just_marked(ralph: Ralph, run: Command, task: str) -> None:
    keep(ralph, TaskRow("b"), TaskRow("c"))
    assert run("cancel", task).out == "task a is cancelled\n"
    assert run("cancel", "b", "--json").json == {
        "v": 1, "type": "cancel", "task": "b", "run": None, "status": "cancelled", "alreadyEnded": False,
    }  # fmt: skip
    worked(ralph, "r", "c", end=aborted(limits.STALL))
    assert run("cancel", "c").code == 0
    assert [one.status for one in load_task_views(ralph.project)] == ["cancelled"] * 3


def test_a_task_that_is_done_stays_so(ralph: Ralph, run: Command, task: str) -> None:
    worked(ralph, "r", task, end=completed())
    told = run("cancel", task)
    assert (told.code, told.out) == (0, "task a was done already\n")
    assert view(ralph).status == "done"


def test_a_name_that_means_a_task_and_a_run_is_refused(ralph: Ralph, run: Command) -> None:
    keep(ralph, TaskRow("2026"), TaskRow("latest"), TaskRow("b"))
    worked(ralph, "20261115-1", "b", end=completed())
    for name, other in (("2026", "20261115-1"), ("latest", "latest")):
        told = run("cancel", name)
        assert (told.code, told.out) == (2, "")
        assert told.err.startswith(f"ralph: {name} is a task, and also matches run {other}; ")
    assert run("cancel", "20261115-1").out.splitlines()[0] == "run 20261115-1 had ended already"
    assert run("cancel", "nothing").code == 2
    assert [one.status for one in load_task_views(ralph.project)] == ["todo", "todo", "done"]
