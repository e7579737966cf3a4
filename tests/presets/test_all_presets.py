"""One iteration of each preset with a scripted agent, a real workspace and real checks."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ralphproof.agents.command import ScriptedAgent
from ralphproof.base.processes import current_process
from ralphproof.checks.command import CommandCheck, CommandCheckSpec
from ralphproof.checks.parallel import run_checks_in_parallel
from ralphproof.engine.claim import Claim
from ralphproof.engine.environment import AgentAccess, CheckAccess, LoopEnvironment, PlanAccess, SpendAccess, WorkAccess
from ralphproof.engine.limits import Budget, Limits
from ralphproof.engine.loop import Loop
from ralphproof.engine.next_action import AgentRules, RunRules
from ralphproof.engine.outcome import Aborted, Completed, Outcome
from ralphproof.engine.plan import Plan, Task
from ralphproof.engine.state import State, build_state
from ralphproof.process.keeper_client import KeeperClient
from ralphproof.process.signals import RunClock
from ralphproof.runs.assembly import build_preset_pipeline
from ralphproof.sandbox.runner import DirectRunner
from ralphproof.settings.loader import load_settings, read_preset
from ralphproof.store.ledger import MemoryLedger
from ralphproof.store.run_folder import RunFolder
from ralphproof.workspace.plain_workspace import PlainWorkspace
from tests.engine.fake_environment import NoHooks, NoTripwires
from tests.in_memory_spend import InMemorySpend

WORD = {"harness": "DONE", "wrapper": "COMPLETE", "pipeline": "IMPLEMENTATION_COMPLETE"}


class FixedPlan:
    """A plan with fixed tasks."""

    def __init__(self, *tasks: Task) -> None:
        self._plan = Plan(tasks)

    def read(self) -> Plan:
        return self._plan


def one_iteration(
    preset: str, task: Task, folder: Path, words: str, claim: Claim | None = None
) -> tuple[Outcome, State]:
    """Run at most one iteration of a preset with an agent that says `words` and a check that passes."""
    project = folder / "project"
    project.mkdir()
    script = folder / "script.json"
    script.write_text(json.dumps({"iterations": [[{"write": {"made": "x"}}, {"text": words}]]}))
    data = read_preset(preset)
    word = data["settings"].get("completionResponse", "DONE")
    flags = {"guardrails": [{"command": "test -f made"}], "completionResponse": word}
    settings = load_settings(str(project), {"HOME": str(folder)}, flags).settings
    pipeline = build_preset_pipeline(data, settings)
    keeper, ledger = KeeperClient(), MemoryLedger()
    run_folder = RunFolder(str(project), "run", str(folder / "state"))
    sandbox, env = DirectRunner(keeper), tuple(os.environ.items())
    name = settings.guardrails[0].name
    check = CommandCheck(CommandCheckSpec("test -f made", "made", name), sandbox, run_folder, str(project), env)
    ledger.begin_run("run", str(project), 0.0, current_process())
    environment = LoopEnvironment(
        AgentAccess((ScriptedAgent(str(script)),), sandbox, env),
        PlanAccess(FixedPlan(task), find_claim=lambda iteration: claim if iteration else None),
        CheckAccess({name: check}, run_checks_in_parallel),
        WorkAccess(PlainWorkspace(str(project), str(folder / "private")), NoTripwires()),
        SpendAccess(InMemorySpend()),
        ledger,
        run_folder,
        RunClock(),
        NoHooks(),
    )
    try:
        outcome = Loop(
            "run", RunRules(pipeline, Limits(Budget(iterations=1)), agent=AgentRules(pause_s=0.0)), environment
        ).run()
    finally:
        keeper.close()
    return outcome, build_state(ledger.records("run"))


@pytest.mark.parametrize("preset", ["harness", "wrapper"])
def test_a_preset_of_one_stage_completes_on_its_promise_and_its_checks(preset: str, tmp_path: Path) -> None:
    outcome, state = one_iteration(preset, Task("t", "do it"), tmp_path, f"<promise>{WORD[preset]}</promise>")
    assert isinstance(outcome, Completed)
    assert outcome.verified
    assert [finding.passed for finding in state.history.latest.report.findings] == [True]


@pytest.mark.parametrize("preset", ["harness", "wrapper", "pipeline"])
def test_the_promise_of_another_preset_completes_nothing(preset: str, tmp_path: Path) -> None:
    outcome, state = one_iteration(preset, Task("t", "do it"), tmp_path, "<promise>SOMETHING_ELSE</promise>")
    assert isinstance(outcome, Aborted)
    assert outcome.breach.reason == "MAX_ITERATIONS"
    assert state.passed == frozenset()


def test_the_pipeline_goes_from_coder_to_reviewer(tmp_path: Path) -> None:
    outcome, state = one_iteration(
        "pipeline", Task("t", "do it"), tmp_path, "<promise>IMPLEMENTATION_COMPLETE</promise>"
    )
    assert isinstance(outcome, Aborted)  # three stages are left, and the one iteration is used
    assert state.passed == {("t", "coder")}


def test_a_story_is_worked_on_in_the_stage_that_its_plan_names(tmp_path: Path) -> None:
    approved = Claim("approved", source="marker")
    _, state = one_iteration("stories", Task("US-1", "do it", stage="review"), tmp_path, "looked at it", approved)
    assert [iteration.job.key for iteration in state.history.iterations] == [("US-1", "review")]
    assert state.passed == {("US-1", "review")}


def test_the_restart_manager_completes_on_no_promise(tmp_path: Path) -> None:
    outcome, state = one_iteration("supervise", Task("t", "do it"), tmp_path, "<promise>DONE</promise>")
    assert isinstance(outcome, Aborted)
    assert state.history.latest.report.verified  # the checks are green: only the marker is missing


def test_the_restart_manager_completes_on_its_marker_and_its_checks(tmp_path: Path) -> None:
    claim = Claim("DONE", source="marker")
    outcome, _ = one_iteration("supervise", Task("t", "do it"), tmp_path, "no word", claim)
    assert isinstance(outcome, Completed)
    assert outcome.verified
