"""Loops from Python: functions for agent, checks, limits and observers."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

import ralphproof
from ralphproof.agents.function import AgentReply
from ralphproof.base.errors import Refused
from ralphproof.engine.check import Finding, Inspection
from ralphproof.engine.limits import Breach
from ralphproof.engine.outcome import Aborted, Completed, Failed
from ralphproof.engine.records import Record, RunBegan, RunEnded, Warned


def test_functions_make_a_whole_loop(project: Path) -> None:
    prompts: list[str] = []
    seen: list[Record] = []

    def worker(prompt: str) -> AgentReply:
        prompts.append(prompt)
        (project / "answer").write_text(str(40 + len(prompts)))
        return AgentReply("Done.\n\n<promise>COMPLETE</promise>", cost_usd=0.25, tokens=10)

    def answer_is_42(inspection: Inspection) -> tuple[bool, str]:
        said = (project / "answer").read_text() if (project / "answer").exists() else "nothing"
        return said == "42", f"the answer is {said}"

    outcome = ralphproof.run(
        "Find the answer.", agent=worker, checks=[answer_is_42], observers=[seen.append], project_dir=project,
        max_iterations=5, max_cost_usd=2.0, completion_promise="COMPLETE",
    )  # fmt: skip
    assert isinstance(outcome, Completed)
    assert (outcome.status, outcome.iterations, outcome.cost_usd) == ("COMPLETED", 2, 0.5)
    assert outcome.verification_passed
    assert outcome.output.startswith("Done.")
    assert outcome.duration_seconds > 0
    assert "the answer is 41" in prompts[1]
    assert any(isinstance(record, RunBegan) for record in seen)
    assert isinstance(seen[-1], RunEnded)
    end = seen[-1].metrics
    assert end is not None
    assert (end.iterations, end.micro_usd, end.claimed, end.verified) == (2, 500_000, True, True)


def test_a_false_claim_does_not_complete_the_run(project: Path) -> None:
    outcome = ralphproof.run(
        "Work.", agent=lambda prompt: "<promise>DONE</promise>", checks=[lambda inspection: False], project_dir=project,
        max_iterations=2,
    )  # fmt: skip
    assert isinstance(outcome, Aborted)
    assert (outcome.status, outcome.reason, outcome.exit_code) == ("ABORTED", "MAX_ITERATIONS", 1)
    assert outcome.details["checksPassed"] is False
    assert outcome.last_output == "<promise>DONE</promise>"
    assert outcome.cost_usd is None


def test_a_limit_function_ends_the_run(project: Path) -> None:
    outcome = ralphproof.run(
        "Work.", agent=lambda prompt: "on it", limits=[lambda state: "it is late" if state.iteration > 1 else None],
        project_dir=project,
    )  # fmt: skip
    assert isinstance(outcome, Aborted)
    assert outcome.breach == Breach("LIMIT", "it is late")


def test_a_limit_function_that_raises_fails_the_run(project: Path) -> None:
    def broken(state: object) -> str:
        raise RuntimeError("no clock")

    outcome = ralphproof.run("Work.", agent=lambda prompt: "on it", limits=[broken], project_dir=project)
    assert isinstance(outcome, Failed)
    assert outcome.error == "the limit broken cannot be asked: RuntimeError: no clock"
    assert (outcome.exit_code, outcome.iterations) == (3, 0)


def test_exceptions_of_functions_become_results(project: Path) -> None:
    def agent(prompt: str) -> str:
        raise ValueError("out of ideas")

    def check(inspection: Inspection) -> bool:
        raise KeyError("nowhere")

    outcome = ralphproof.run("Work.", agent=agent, checks=[check], project_dir=project, max_iterations=2)
    assert isinstance(outcome, Aborted)
    assert outcome.reason == "MAX_ITERATIONS"


@pytest.mark.parametrize("answer", [None, "yes", 1, (True,), object()])
def test_a_check_function_with_another_result_has_failed(project: Path, answer: object) -> None:
    outcome = ralphproof.run(
        "Work.", agent=lambda prompt: "<promise>DONE</promise>", checks=[lambda inspection: answer],
        project_dir=project, max_iterations=1,
    )  # fmt: skip
    assert isinstance(outcome, Aborted)


def test_a_check_function_may_return_a_finding(project: Path) -> None:
    outcome = ralphproof.run(
        "Work.", agent=lambda prompt: "<promise>DONE</promise>", checks=[lambda inspection: Finding("mine", True)],
        project_dir=project,
    )  # fmt: skip
    assert isinstance(outcome, Completed)
    assert outcome.verified


def test_an_asynchronous_function_is_awaited(project: Path) -> None:
    async def agent(prompt: str) -> str:
        return "<promise>DONE</promise>"

    outcome = ralphproof.run("Work.", agent=agent, checks=["true"], project_dir=project)
    assert isinstance(outcome, Completed)


@pytest.mark.parametrize("cost", [float("nan"), float("inf"), -1.0, True, "0.5"])
def test_a_cost_that_is_not_a_number_is_unknown(project: Path, cost: object) -> None:
    outcome = ralphproof.run(
        "Work.", agent=lambda prompt: AgentReply("<promise>DONE</promise>", cost_usd=cost),  # type: ignore[arg-type]
        checks=["true"], project_dir=project, max_cost_usd=1.0,
    )  # fmt: skip
    assert isinstance(outcome, Completed)
    assert outcome.cost_usd is None


def test_an_observer_that_fails_stops_nothing(project: Path) -> None:
    def observer(record: Record) -> None:
        raise RuntimeError("tired")

    outcome = ralphproof.run(
        "Work.", agent=lambda prompt: "<promise>DONE</promise>", observers=[observer], project_dir=project
    )
    assert isinstance(outcome, Completed)
    assert not outcome.verified


def test_a_command_line_and_shell_commands_work_as_well(project: Path) -> None:
    outcome = ralphproof.run(
        "Work.", agent="sh -c 'echo hi > made; echo \"<response>DONE</response>\"'", project_dir=project,
        verification_command="test -e made",
    )  # fmt: skip
    assert isinstance(outcome, Completed)
    assert outcome.verified


def test_costs_are_warned_of_and_limited(project: Path) -> None:
    seen: list[Record] = []
    outcome = ralphproof.run(
        "Work.", agent=lambda prompt: AgentReply("on it", cost_usd=0.45), observers=[seen.append], project_dir=project,
        max_cost_usd=1.0, stall_detection_threshold=None,
    )  # fmt: skip
    assert isinstance(outcome, Aborted)
    assert (outcome.reason, outcome.iterations, outcome.cost_usd) == ("COST_LIMIT", 3, 1.35)
    assert [record.message for record in seen if isinstance(record, Warned)] == [
        "[Ralph] Cost at 80% of limit: $0.90 / $1"
    ]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"max_iteration": 3}, "no such option: max_iteration"),
        ({"max_iterations": 0}, "^max_iterations must be"),
        ({"max_cost_usd": float("nan")}, "^max_cost_usd must be"),
        ({"stall_detection_threshold": -1}, "^stall_detection_threshold must be"),
        ({"skill": "tddd"}, "no skill is called 'tddd'"),
        ({"preset": "wrapper"}, "must be explicit in preset wrapper"),
        ({"settings": {"nonsense": 1}}, "nonsense"),
        ({"project_dir": "/nowhere/at/all"}, "is not a directory; name a project with project_dir="),
    ],
)
def test_bad_input_is_refused_with_what_is_wrong(project: Path, options: dict[str, object], problem: str) -> None:
    arguments = {"agent": lambda prompt: "x", "project_dir": project} | options
    with pytest.raises(ralphproof.RalphError, match=problem):
        ralphproof.Loop("Work.", **arguments)  # type: ignore[arg-type]


def test_signal_handlers_of_the_caller_are_restored(project: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    ralphproof.run("Work.", agent=lambda prompt: "<promise>DONE</promise>", project_dir=project)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_nested_run_restores_the_signal_listener_of_the_outer_one(project: Path, tmp_path: Path) -> None:
    inner: list[str] = []

    def check(inspection: Inspection) -> bool:
        other = tmp_path / "other"
        other.mkdir(exist_ok=True)
        inner.append(ralphproof.run("Work.", agent=lambda prompt: "<promise>DONE</promise>", project_dir=other).status)
        signal.raise_signal(signal.SIGINT)
        return True

    outcome = ralphproof.run("Work.", agent=lambda prompt: "on it", checks=check, project_dir=project)
    assert (outcome.reason, inner) == ("INTERRUPTED", ["COMPLETED"])


def test_a_run_in_another_thread_leaves_signals_alone(project: Path) -> None:
    outcomes: list[object] = []
    thread = threading.Thread(
        target=lambda: outcomes.append(
            ralphproof.run("Work.", agent=lambda prompt: "<promise>DONE</promise>", project_dir=project)
        )
    )
    thread.start()
    thread.join()
    assert isinstance(outcomes[0], Completed)


def test_two_runs_in_one_project_are_refused(project: Path) -> None:
    def nested(prompt: str) -> str:
        with pytest.raises(Refused):
            ralphproof.run("Work.", agent=lambda prompt: "x", project_dir=project)
        return "<promise>DONE</promise>"

    assert isinstance(ralphproof.run("Work.", agent=nested, project_dir=project), Completed)


def test_a_program_that_ignores_sigchld_is_refused(project: Path) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(Refused, match="ignores SIGCHLD"):
            ralphproof.run("x", agent=lambda prompt: "y", project_dir=project)
        assert signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGCHLD, before)
