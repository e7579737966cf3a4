"""Beside something of the agent's that still lives nothing counts, and work that could not be saved stops the run."""

from __future__ import annotations

from ralphproof.base.value import replace
from ralphproof.engine.agent import Turn
from ralphproof.engine.check import CheckReport
from ralphproof.engine.claim import Claim, ClaimRule
from ralphproof.engine.next_action import EndRun, RunChecks, RunConditions, RunRules, next_action
from ralphproof.engine.outcome import Failed
from ralphproof.engine.plan import Iteration, Job, Pipeline, Stage, Task
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.state import Checking, RunInfo, State
from ralphproof.engine.workspace import Change, Snapshot

STAGE = Stage("work", ClaimRule("DONE"), ("make test",))
RULES = RunRules(Pipeline((STAGE,)))
FACTS = Iteration(
    1, Job(Task("t", ""), STAGE), Turn(Exit(0), "x"), Snapshot("c", "t"), Change(("a",)), CheckReport(), Claim("DONE")
)


def after(facts: Iteration) -> object:
    return next_action(State(RunInfo("run"), Checking(facts), iteration=1, turn=1), RULES, RunConditions(1.0))


def test_with_everything_in_order_the_checks_are_asked() -> None:
    assert after(FACTS) == RunChecks("make test")


def test_a_survivor_ends_the_run_before_any_check() -> None:
    action = after(replace(FACTS, turn=Turn(Exit(0, survivors=(41, 42)), "x")))
    assert isinstance(action, EndRun)
    assert isinstance(action.outcome, Failed)
    assert "41, 42" in action.outcome.error
    assert (action.outcome.exit_code, action.outcome.iterations) == (3, 1)


def test_work_that_could_not_be_saved_ends_the_run_before_any_check() -> None:
    unsaved = replace(FACTS, snapshot=Snapshot(None, None, problem="no room"), change=Change(known=False))
    action = after(unsaved)
    assert isinstance(action, EndRun)
    assert isinstance(action.outcome, Failed)
    assert "no room" in action.outcome.error
