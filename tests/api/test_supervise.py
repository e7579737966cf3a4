"""`supervise`: a function is called repeatedly until it leaves DONE and the checks pass."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import ralphproof
from ralphproof.agents.function import AgentContext, AgentReply
from ralphproof.api import supervise
from ralphproof.base.errors import Refused
from ralphproof.engine.check import Inspection
from ralphproof.engine.outcome import Aborted, Completed, Failed, Outcome
from ralphproof.engine.records import Noticed, Record, RunBegan, TurnEnded
from ralphproof.runs.open_project import open_project

Root = Callable[[AgentContext, int], object]
PATIENCE_S = 20.0


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RALPH__SUPERVISE__RESTART_DELAY_SECONDS", "0")


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """A task folder."""
    folder = tmp_path / "task"
    folder.mkdir()
    return folder


def leave_marker(context: AgentContext, name: str = "DONE", text: str = "") -> None:
    Path(context.task_folder, name).write_text(text)


def wait_until(condition: Callable[[], bool]) -> bool:
    """Wait for something; whether it came."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def aborted(outcome: Outcome) -> Aborted:
    assert isinstance(outcome, Aborted), outcome
    return outcome


def test_a_function_that_leaves_done_is_called_once(project: Path, task: Path) -> None:
    seen: list[tuple[str, int, str, int]] = []

    def run_root(context: AgentContext, attempt: int) -> None:
        seen.append((context.run, context.iteration, context.task_folder, attempt))
        leave_marker(context)

    outcome = supervise(run_root, task, project_dir=project)
    assert isinstance(outcome, Completed)
    assert (outcome.iterations, outcome.verified, outcome.cost_usd) == (1, False, None)
    assert seen == [(seen[0][0], 1, str(task), 0)]
    assert seen[0][0]


def test_it_is_called_anew_whether_it_fails_or_not_until_it_leaves_done(project: Path, task: Path) -> None:
    attempts: list[int] = []

    def run_root(context: AgentContext, attempt: int) -> None:
        attempts.append(attempt)
        if attempt == 0:
            raise ConnectionError("no route")
        if attempt == 2:
            leave_marker(context)
            raise ValueError("failed, and done all the same")

    assert isinstance(supervise(run_root, task, project_dir=project), Completed)
    assert attempts == [0, 1, 2]


def test_too_many_restarts_end_it(project: Path, task: Path) -> None:
    attempts: list[int] = []
    outcome = aborted(supervise(attempts.append, task, max_restarts=3, project_dir=project))
    assert (outcome.reason, outcome.exit_code, attempts) == ("MAX_ITERATIONS", 1, [0, 1, 2])
    assert outcome.details["message"] == "max restarts exceeded: 3 of 3 iterations are used"


def test_done_before_a_start_is_checked_without_one(project: Path, task: Path) -> None:
    attempts: list[int] = []
    (task / "DONE").touch()
    outcome = supervise(attempts.append, task, checks=[lambda inspection: True], project_dir=project)
    assert isinstance(outcome, Completed)
    assert (outcome.verified, attempts) == (True, [])


def test_done_does_not_complete_while_checks_fail(project: Path, task: Path) -> None:
    made: list[int] = []

    def run_root(context: AgentContext, attempt: int) -> None:
        leave_marker(context)
        made.append(attempt)

    def enough(inspection: Inspection) -> bool:
        return len(made) >= 3

    outcome = supervise(run_root, task, checks=enough, project_dir=project)
    assert isinstance(outcome, Completed)
    assert (outcome.verified, made) == (True, [0, 1, 2])
    never = aborted(supervise(run_root, task / "other", checks="false", max_restarts=2, project_dir=project))
    assert (never.reason, never.exit_code) == ("MAX_ITERATIONS", 1)


def test_the_task_folder_may_be_the_runs_own(project: Path) -> None:
    def run_root(context: AgentContext, attempt: int) -> None:
        assert context.task_folder == str(project / ".ralph" / "runs" / context.run / "task")
        leave_marker(context)

    assert isinstance(supervise(run_root, project_dir=project), Completed)


# Ways to call, and to answer.


def test_a_function_of_the_attempt_alone_is_called_with_it(project: Path, task: Path) -> None:
    def run_root(attempt: int) -> None:
        if attempt == 1:
            (task / "DONE").touch()

    outcome = supervise(run_root, task, project_dir=project)
    assert isinstance(outcome, Completed)
    assert outcome.iterations == 2


def test_a_coroutine_function_is_awaited(project: Path, task: Path) -> None:
    async def run_root(context: AgentContext, attempt: int) -> None:
        await asyncio.sleep(0)
        leave_marker(context)

    async def inside() -> Outcome:
        return supervise(run_root, task / "other", project_dir=project)

    assert isinstance(supervise(run_root, task, project_dir=project), Completed)
    assert isinstance(asyncio.run(inside()), Completed)


def exits(code: object) -> Root:
    def run_root(context: AgentContext, attempt: int) -> None:
        sys.exit(code)  # type: ignore[arg-type]

    return run_root


def returns(code: object) -> Root:
    return lambda context, attempt: code


@pytest.mark.parametrize(
    ("run_root", "end"),
    [
        (returns(None), (0, None, None)),
        (returns(0), (0, None, None)),
        (returns(7), (7, None, None)),
        (returns(-9), (None, 9, None)),
        (returns(True), (0, None, None)),
        (returns("words"), (0, None, None)),
        (returns(AgentReply("words", error="out of ideas")), (0, None, "out of ideas")),
        (exits(None), (0, None, None)),
        (exits(3), (3, None, None)),
        (exits("out of ideas"), (1, None, "out of ideas")),
    ],
)
def test_return_values_decide_the_attempt(project: Path, run_root: Root, end: tuple[object, ...]) -> None:
    seen: list[Record] = []
    supervise(run_root, project_dir=project, max_restarts=1, observers=seen.append)
    (reply,) = (record.reply for record in seen if isinstance(record, TurnEnded))
    assert (reply.exit.code, reply.exit.signal, reply.error) == end


def test_a_reply_tells_what_it_cost(project: Path, task: Path) -> None:
    def run_root(context: AgentContext, attempt: int) -> AgentReply:
        return AgentReply("on it", cost_usd=0.4)

    outcome = aborted(supervise(run_root, task, project_dir=project, settings={"limits": {"maxCostUsd": 1}}))
    assert (outcome.reason, outcome.spend.micro_usd) == ("COST_LIMIT", 1_200_000)


def test_exit_code_42_waits_and_resume_continues_with_the_next_attempt(project: Path, task: Path) -> None:
    attempts: list[int] = []

    def run_root(context: AgentContext, attempt: int) -> int:
        attempts.append(attempt)
        if attempt == 1:
            leave_marker(context)
        return 42 if attempt == 0 else 0

    outcome = aborted(supervise(run_root, task, project_dir=project))
    assert (outcome.reason, outcome.exit_code) == ("WAITING", 4)
    assert isinstance(supervise(run_root, task, project_dir=project, resume="latest"), Completed)
    assert attempts == [0, 1]


def test_a_marker_with_a_reason_waits(project: Path, task: Path) -> None:
    outcome = supervise(
        lambda context, attempt: leave_marker(context, "WAIT_WITHOUT_RESTART", "for the review\n"),
        task,
        project_dir=project,
    )
    assert (aborted(outcome).reason, aborted(outcome).breach.message) == ("WAITING", "for the review")


# Errors that are fatal, and errors that are not.


def missing_program() -> None:
    subprocess.run(["no-such-program-anywhere"], check=True)


def wrapped() -> None:
    try:
        missing_program()
    except FileNotFoundError as error:
        raise RuntimeError("start agent") from error


async def missing_in_a_coroutine() -> None:
    await asyncio.create_subprocess_exec("no-such-program-anywhere")


def missing_after_exec() -> None:
    os.execvp("no-such-program-anywhere", ["x"])


def raising(error: Exception) -> Callable[[], None]:
    def function() -> None:
        raise error

    return function


@pytest.mark.parametrize(
    ("fails", "words"),
    [
        (missing_program, "no-such-program-anywhere"),
        (wrapped, "start agent"),
        (missing_in_a_coroutine, "no-such-program-anywhere"),
        (missing_after_exec, "No such file"),
        (raising(FileNotFoundError("agent-cli")), "FileNotFoundError: agent-cli"),
        (raising(PermissionError(13, "Permission denied", "agent-cli")), "Permission denied"),
        (raising(Refused("the configuration is wrong")), "the configuration is wrong"),
    ],
)
def test_a_fatal_error_ends_it_at_once(project: Path, fails: Callable[[], object], words: str) -> None:
    attempts: list[int] = []

    def run_root(context: AgentContext, attempt: int) -> object:
        attempts.append(attempt)
        return fails()

    outcome = supervise(run_root, project_dir=project)
    assert isinstance(outcome, Failed)
    assert (outcome.exit_code, attempts) == (2, [0])
    assert words in outcome.error


@pytest.mark.parametrize(
    "fails",
    [
        raising(ValueError("boom")),
        raising(TimeoutError("slow")),
        raising(ralphproof.RalphError("odd")),
        lambda: Path("/no/such/file").read_text(),
        lambda: subprocess.run(["false"], check=True),
        lambda: [][0],
    ],
)
def test_any_other_error_is_transient(project: Path, fails: Callable[[], object]) -> None:
    attempts: list[int] = []

    def run_root(context: AgentContext, attempt: int) -> object:
        attempts.append(attempt)
        return fails()

    assert aborted(supervise(run_root, project_dir=project, max_restarts=2)).reason == "MAX_ITERATIONS"
    assert attempts == [0, 1]


# Cancellation.


def interrupt(times: int = 1) -> None:
    assert threading.main_thread().is_alive()
    for _ in range(times):
        os.kill(os.getpid(), signal.SIGINT)


def test_a_signal_is_seen_by_the_function_and_ends_the_run(project: Path, task: Path) -> None:
    seen: list[bool] = []

    def run_root(context: AgentContext, attempt: int) -> None:
        seen.append(context.cancelled())
        interrupt()
        seen.append(wait_until(context.cancelled))

    outcome = aborted(supervise(run_root, task, project_dir=project, settings={"shutdownGraceSeconds": 600}))
    assert (outcome.reason, outcome.exit_code, seen) == ("INTERRUPTED", 130, [False, True])


def test_a_cancel_from_elsewhere_is_seen_too(project: Path, task: Path) -> None:
    seen: list[bool] = []

    def run_root(context: AgentContext, attempt: int) -> None:
        ledger = open_project(str(project), os.environ).ledger(read_only=False)
        ledger.request_control(context.run, "cancel")
        ledger.close()
        seen.append(wait_until(context.cancelled))

    outcome = aborted(supervise(run_root, task, project_dir=project))
    assert (outcome.reason, outcome.exit_code, seen) == ("CANCELLED", 130, [True])


def test_a_signal_between_two_attempts_ends_the_run_in_its_delay(project: Path, task: Path) -> None:
    def seen(record: Record) -> None:
        if isinstance(record, TurnEnded):
            interrupt()

    began_s = time.monotonic()
    outcome = aborted(
        supervise(returns(None), task, project_dir=project, restart_delay_s=600, observers=seen, max_restarts=5)
    )
    assert (outcome.reason, outcome.iterations) == ("INTERRUPTED", 1)
    assert time.monotonic() - began_s < 60


def test_a_second_signal_does_not_wait_for_a_function_that_stays(project: Path, task: Path) -> None:
    go, over = threading.Event(), threading.Event()

    def run_root(context: AgentContext, attempt: int) -> None:
        interrupt()
        wait_until(context.cancelled)
        interrupt()
        go.wait(PATIENCE_S)
        over.set()

    try:
        outcome = aborted(supervise(run_root, task, project_dir=project))
        assert not over.is_set()
    finally:
        go.set()
    assert outcome.reason == "INTERRUPTED"


def test_an_attempt_whose_time_is_up_is_asked_to_leave_and_has_failed(project: Path, task: Path) -> None:
    seen: list[Record] = []

    def run_root(context: AgentContext, attempt: int) -> None:
        wait_until(context.cancelled)

    settings = {"agent": {"timeoutSeconds": 1}}
    supervise(run_root, task, project_dir=project, max_restarts=1, settings=settings, observers=seen.append)
    assert [record.reply.exit.why for record in seen if isinstance(record, TurnEnded)] == ["timeout"]


# Options.


def test_the_delay_between_two_attempts_is_kept(project: Path, task: Path) -> None:
    called_s: list[float] = []
    supervise(
        lambda attempt: called_s.append(time.monotonic()), task, project_dir=project, max_restarts=2,
        restart_delay_s=0.2,
    )  # fmt: skip
    assert called_s[1] - called_s[0] >= 0.2


def test_options_are_settings_of_the_run(project: Path, task: Path) -> None:
    seen: list[Record] = []
    supervise(
        lambda context, attempt: leave_marker(context), task, project_dir=project, max_restarts=70, wait_timeout_s=9,
        poll_interval_s=0.5, project_task=("shop", "17"), observers=[seen.append],
    )  # fmt: skip
    facts = next(record.facts for record in seen if isinstance(record, RunBegan))
    assert facts["maximumIterations"] == 70
    assert (facts["project"], facts["task"], facts["taskFolder"]) == ("shop", "17", str(task))
    assert "project=shop" in (task / "TASK-MESSAGE-BUS.md").read_text()
    assert not [record for record in seen if isinstance(record, Noticed) and "cost" in record.message]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"run_root": "sh"}, "run_root must be a coroutine function or a function, not 'sh'"),
        ({"run_root": lambda: None}, "run_root must be a function of"),
        ({"run_dir": 3}, "run_dir must be a path"),
        ({"run_dir": __file__}, "is not a directory"),
        ({"max_restarts": 0}, r"^max_restarts must be [^\n]*$"),
        ({"restart_delay_s": -1}, "^restart_delay_s must be"),
        ({"wait_timeout_s": "soon"}, "^wait_timeout_s must be"),
        ({"project_task": "shop"}, "project_task must be two names"),
        ({"project_task": ("shop", 17)}, "project_task must be text"),
        ({"max_restarts": 3, "settings": {"supervise": 3}}, "supervise"),
        ({"settings": {"maximumIterations": 5, "supervise": {"maxRestarts": 6}}}, "are one limit and differ"),
        ({"resume": "latest"}, "there is no run to resume"),
    ],
)
def test_bad_input_is_refused_with_what_is_wrong(project: Path, options: dict[str, object], problem: str) -> None:
    arguments = {"run_root": returns(None), "project_dir": project} | options
    with pytest.raises(Refused, match=problem):
        supervise(**arguments)  # type: ignore[arg-type]


def test_signal_handlers_of_the_caller_are_restored(project: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    supervise(returns(None), project_dir=project, max_restarts=1)
    assert signal.getsignal(signal.SIGINT) is before
