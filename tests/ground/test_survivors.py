"""Beside something of the agent's that still lives nothing counts, and work that could not be saved stops the run."""

from __future__ import annotations

from ralphproof.action import Ask, End, Moment, Rules
from ralphproof.agent import Turn
from ralphproof.check import Report
from ralphproof.claim import Claim, ClaimRule
from ralphproof.decision import next_action
from ralphproof.iteration import Iteration
from ralphproof.phase import Checking
from ralphproof.plan import Task
from ralphproof.sandbox import Exit
from ralphproof.stage import Job, Pipeline, Stage
from ralphproof.state import State
from ralphproof.value import replace
from ralphproof.verdict import Failed
from ralphproof.workspace import Change, Snapshot

STAGE = Stage("work", ClaimRule("DONE"), ("make test",))
RULES = Rules(Pipeline((STAGE,)))
FACTS = Iteration(
    1, Job(Task("t", ""), STAGE), Turn(Exit(0), "x"), Snapshot("c", "t"), Change(("a",)), Report(), Claim("DONE")
)


def after(facts: Iteration) -> object:
    return next_action(State("run", Checking(facts), 1, 1), RULES, Moment(1.0))


def test_with_everything_in_order_the_checks_are_asked() -> None:
    assert after(FACTS) == Ask("make test")


def test_a_survivor_ends_the_run_before_any_check() -> None:
    action = after(replace(FACTS, turn=Turn(Exit(0, survivors=(41, 42)), "x")))
    assert isinstance(action, End)
    assert isinstance(action.outcome, Failed)
    assert "41, 42" in action.outcome.error
    assert (action.outcome.exit_code, action.outcome.iterations) == (3, 1)


def test_work_that_could_not_be_saved_ends_the_run_before_any_check() -> None:
    unsaved = replace(FACTS, snapshot=Snapshot(None, None, problem="no room"), change=Change(known=False))
    action = after(unsaved)
    assert isinstance(action, End)
    assert isinstance(action.outcome, Failed)
    assert "no room" in action.outcome.error
