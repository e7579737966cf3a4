"""What the buses are told of a run, and that telling them never disturbs it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ralphproof.base.value import replace
from ralphproof.engine.agent import THE_CONFIGURATION, THE_SERVICE, Turn
from ralphproof.engine.check import CheckReport, Finding
from ralphproof.engine.claim import Claim, ParsedClaim
from ralphproof.engine.limits import Breach, Spend
from ralphproof.engine.outcome import Aborted, Completed, Failed, Outcome, Passed, Retry, Stopped
from ralphproof.engine.prompt import Feedback
from ralphproof.engine.records import (
    CheckEnded,
    ChildRunsAwaited,
    ClaimFound,
    Judged,
    Record,
    Resumed,
    RunBegan,
    RunEnded,
    Saved,
    TurnEnded,
)
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.workspace import Change
from ralphproof.reports.bus_observer import BusObserver
from ralphproof.store.message_bus import Message, MessageBus, open_project_bus, open_task_bus
from tests.store.samples import SNAPSHOT, one_of_each

RUN = "20261115-210507-k3f9"
BEGAN = RunBegan(RUN, SNAPSHOT, {"preset": "harness", "agent": "claude", "checks": ["make test", "make lint"]})
RESTARTS = "max restarts exceeded: 100 of 100"
SUPERVISED = replace(BEGAN, facts={"preset": "supervise"})
MARKED = Saved(1, 1, SNAPSHOT, Change(), ParsedClaim(Claim("DONE", source="marker")))
TAGGED = Saved(1, 1, SNAPSHOT, Change(), ParsedClaim(Claim("DONE")))
SILENT = Saved(1, 1, SNAPSHOT, Change(), ParsedClaim())
BY_MARKER = "task completed (DONE marker present, no active children)"


class Desk:
    """Both buses of a run, and the observer."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "task"
        self.folder.mkdir()
        mask = lambda text: text.replace("hunter22", "***")  # noqa: E731
        self.task, self.project = open_task_bus(str(self.folder), mask), open_project_bus(str(root), mask)
        self.poster = BusObserver(self.task, self.project, RUN, project="calc", task="parser")

    def saw(self, *records: Record) -> tuple[list[Message], list[Message]]:
        """What stands on the task's bus and on the project's after these records."""
        for record in records:
            self.poster.on_record(record)
        return list(self.task.messages()), list(self.project.messages())


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def completed(verified: bool, output: str = "", concerns: tuple[str, ...] = ()) -> Completed:
    return Completed(1, Spend(), 2.0, output, verified, concerns)


def aborted(reason: str, message: str) -> Aborted:
    return Aborted(Breach(reason, message), 7, Spend(), 100.0, "output")


def last(messages: list[Message]) -> tuple[str, str]:
    return messages[-1].kind, messages[-1].body


def test_the_beginning_is_told_to_the_task_alone(desk: Desk) -> None:
    task, project = desk.saw(BEGAN)
    assert last(task) == ("INFO", f"run {RUN} began (agent claude, checks: make test, make lint)")
    assert (task[0].run, task[0].iteration, task[0].project, task[0].task) == (RUN, None, "calc", "parser")
    assert project == []


@pytest.mark.parametrize(
    ("reply", "kind", "text"),
    [
        (Turn(Exit(0), "said"), "PROGRESS", "attempt 2: agent ended (exit 0)"),
        (Turn(Exit(None, "lingered", 15), "said"), "PROGRESS", "attempt 2: agent ended (lingered)"),
        (Turn(Exit(1)), "WARNING", "attempt 2: agent failed (exit 1)"),
        (Turn(Exit(1), error="no such model"), "WARNING", "attempt 2: agent failed (exit 1)\nno such model"),
        (Turn(Exit(0), error="gave up"), "WARNING", "attempt 2: agent failed (exit 0)\ngave up"),
        (Turn(Exit(None, signal=9)), "WARNING", "attempt 2: agent failed (signal 9)"),
        (Turn(Exit(None, "timeout", 15)), "WARNING", "attempt 2: agent failed (timeout)"),
        (Turn(Exit(None, "idle", 15)), "WARNING", "attempt 2: agent failed (idle)"),
        (Turn(Exit(1), error="529 overloaded", blame=THE_SERVICE), "WARNING",
         "attempt 2: the agent's service refused\n529 overloaded"),
        (Turn(Exit(1), error="not logged in", blame=THE_CONFIGURATION), "WARNING",
         "attempt 2: the agent cannot be used\nnot logged in"),
        (Turn(Exit(None, "stopped", 15)), "WARNING", "attempt 2: the agent was ended on request"),
        (Turn(Exit(None, "interrupted")), "WARNING", "attempt 2: the agent's keeper died in mid-turn"),
    ],
)  # fmt: skip
def test_each_turn_is_told_with_what_became_of_it(desk: Desk, reply: Turn, kind: str, text: str) -> None:
    task, project = desk.saw(TurnEnded(2, 1, reply))
    assert (last(task), task[0].iteration, project) == ((kind, text), 2, [])


GREEN, RED = Finding("make lint", True), Finding("make test", False)
STOPPED = Stopped(Breach("STALL", "nothing changes"))


@pytest.mark.parametrize(
    ("findings", "verdict", "text"),
    [
        ([], Retry(Feedback()), "no check was asked"),
        ([GREEN], Passed(CheckReport((GREEN,))), "checks passed (1)"),
        ([GREEN, RED], Retry(Feedback((RED,))), "1 of 2 checks failed: make test"),
        ([GREEN], STOPPED, "checks passed (1); stopped by STALL"),
    ],
)
def test_what_the_checks_said_is_told(
    desk: Desk, findings: list[Finding], verdict: Passed | Retry | Stopped, text: str
) -> None:
    before = (CheckEnded(0, 1, RED), TurnEnded(3, 1, Turn(Exit(0), "x")))
    asked = [CheckEnded(3, 1, finding) for finding in findings]
    task, project = desk.saw(*before, *asked, Judged(3, 1, verdict, 4.0))
    assert (last(task), task[-1].iteration, project) == (("PROGRESS", f"attempt 3: {text}"), 3, [])


def test_checks_of_an_iteration_without_a_turn_are_told_without_those_before_it(desk: Desk) -> None:
    task, _ = desk.saw(CheckEnded(0, 1, RED), ClaimFound(1, 1), CheckEnded(1, 1, GREEN), Judged(1, 1, STOPPED, 1.0))
    assert last(task) == ("PROGRESS", "attempt 1: checks passed (1); stopped by STALL")


@pytest.mark.parametrize(
    ("before", "outcome", "kind", "text"),
    [
        ([MARKED], completed(True), "FACT", f"{BY_MARKER}\nverified by checks"),
        ([MARKED], completed(False), "FACT", f"{BY_MARKER}\nclaimed, nothing verified it"),
        ([ClaimFound(1, 1)], completed(False), "FACT", f"{BY_MARKER}\nclaimed, nothing verified it"),
        ([TAGGED], completed(True), "FACT", "task completed\nverified by checks"),
        ([MARKED, SILENT], completed(True), "FACT", "task completed\nverified by checks"),
        ([], completed(True, " I did it. \n", ("slow",)), "FACT",
         "task completed\nverified by checks\nconcern: slow\n\nI did it."),
        ([SUPERVISED], aborted("MAX_ITERATIONS", RESTARTS), "ERROR", RESTARTS),
        ([BEGAN], aborted("MAX_ITERATIONS", "10 of 10"), "ERROR", "max iterations: 10 of 10"),
        ([SUPERVISED], aborted("WAITING", "for the review"), "INFO", "waiting: for the review"),
        ([], aborted("STALL", "nothing changes"), "ERROR", "STALL: nothing changes"),
        ([], aborted("INTERRUPTED", "a signal"), "ERROR", "INTERRUPTED: a signal"),
        ([], Failed("the disk is gone", 2), "ERROR", "the disk is gone"),
    ],
)  # fmt: skip
def test_the_end_is_told_to_both(desk: Desk, before: list[Record], outcome: Outcome, kind: str, text: str) -> None:
    task, project = desk.saw(*before, RunEnded(outcome))
    assert last(task) == last(project) == (kind, text)
    assert (project[0].run, project[0].project, project[0].task, len(project)) == (RUN, "calc", "parser", 1)


def test_a_run_that_is_taken_up_again_knows_what_was_before(desk: Desk) -> None:
    desk.poster = BusObserver(desk.task, desk.project, RUN, earlier=(SUPERVISED, MARKED))
    assert desk.saw() == ([], [])
    task, _ = desk.saw(Resumed(2, 1.0, 60.0), RunEnded(aborted("MAX_ITERATIONS", RESTARTS), session=2))
    assert [message.body for message in task] == [
        f"run {RUN} was taken up again, for session 2",
        RESTARTS,
    ]
    assert last(desk.saw(RunEnded(completed(True)))[0])[1].startswith(BY_MARKER)


def test_that_children_are_waited_for_is_told(desk: Desk) -> None:
    task, _ = desk.saw(ChildRunsAwaited(2, 1, ("a", "b"), 1.0))
    assert last(task) == ("PROGRESS", "attempt 2: done is claimed; active children are waited for: a, b")


def test_what_an_agent_said_is_clipped_and_masked(desk: Desk) -> None:
    task, project = desk.saw(
        TurnEnded(1, 1, Turn(Exit(1), error="e" * 9999)),
        RunEnded(completed(True, "hunter22 " + "x" * 100_000, ("c" * 100_000,))),
        RunEnded(aborted("WAITING", "hunter22 " + "w" * 9999)),
    )
    assert task[0].body == "attempt 1: agent failed (exit 1)\n" + "e" * 1999 + "…"
    assert len(task[1].body) == 8000
    assert "hunter22" not in "".join(message.body for message in project)
    assert project[1].body.startswith("waiting: *** ww")
    desk.poster.on_record(RunEnded(completed(True, "y" * 9999)))
    assert list(desk.task.messages())[-1].body == "task completed\nverified by checks\n\n" + "y" * 1999 + "…"


def test_a_whole_run_is_told_in_order(desk: Desk) -> None:
    records = one_of_each()
    task, project = desk.saw(*records)
    assert [message.kind for message in task][:2] == ["INFO", "WARNING"]
    assert len(project) == sum(isinstance(record, RunEnded) for record in records)
    assert last(task) == last(project)
    assert last(task)[0] == "FACT"
    assert desk.poster.on_events([]) is desk.poster.tick() is None  # type: ignore[func-returns-value]


def gone(path: Path) -> None:
    path.parent.rmdir()


@pytest.mark.parametrize("put", [os.mkfifo, Path.mkdir, gone], ids=["fifo", "directory", "no folder"])
def test_whatever_an_agent_put_in_its_place_disturbs_nothing(desk: Desk, put: Callable[[Path], object]) -> None:
    put(Path(desk.task.path))
    for record in (BEGAN, TurnEnded(1, 1, Turn(Exit(0), "x")), RunEnded(completed(True))):
        desk.poster.on_record(record)
    assert [message.kind for message in desk.project.messages()] == ["FACT"]


def test_a_bus_that_somebody_holds_is_not_waited_for(desk: Desk) -> None:
    buses: tuple[MessageBus, ...] = (desk.task, desk.project)
    for bus in buses:
        bus.post("INFO", "x")
    with open(desk.task.path, "rb") as one, open(desk.project.path, "rb") as other:
        for file in (one, other):
            fcntl.flock(file, fcntl.LOCK_EX)
        began = time.monotonic()
        desk.poster.on_record(RunEnded(completed(True)))
        assert time.monotonic() - began < 1
    assert [len(list(bus.messages())) for bus in buses] == [1, 1]
