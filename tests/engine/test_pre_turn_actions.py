"""What a run does before and between its turns: a first look, warnings, and other ways to go on when it is stuck."""

from __future__ import annotations

import pytest

from ralphproof.base.value import replace
from ralphproof.engine.agent import AgentRotation, Spent, Usage
from ralphproof.engine.limits import Breach, Budget, Limits
from ralphproof.engine.next_action import RunRules
from ralphproof.engine.outcome import Aborted, Completed, Failed
from ralphproof.engine.plan import Pipeline
from ralphproof.engine.records import BaselineSaved, CheckEnded, Escalated, TurnBegan, Warned
from ralphproof.engine.workspace import Snapshot, TouchedPath
from tests.engine.fake_environment import (
    CLAIMING,
    EDITED,
    NOTHING,
    RULES,
    STAGE,
    WORKING,
    FakeEnvironment,
    Step,
    with_limits,
)

LOOKING = replace(RULES, checks=replace(RULES.checks, baseline=True))
IDLE = Step(WORKING, NOTHING)


def told(env: FakeEnvironment, kind: type) -> list[object]:
    return [record for record in env.ledger.appended if isinstance(record, kind)]


def test_all_checks_are_asked_once_before_the_first_turn() -> None:
    stages = (replace(STAGE, checks=("tests", "lint")), replace(STAGE, name="review", checks=("lint", "types")))
    env = FakeEnvironment(Step(CLAIMING), rules=replace(LOOKING, pipeline=Pipeline(stages)))
    assert isinstance(env.run(), Completed)
    assert env.checks_run[:3] == [(0, "tests"), (0, "lint"), (0, "types")]
    assert all(iteration > 0 for iteration, _ in env.checks_run[3:])
    kinds = [type(record) for record in env.ledger.appended]
    assert kinds.index(CheckEnded) < kinds.index(BaselineSaved) < kinds.index(TurnBegan)


def test_a_run_without_checks_has_no_first_look() -> None:
    env = FakeEnvironment(Step(CLAIMING), rules=replace(LOOKING, pipeline=Pipeline((replace(STAGE, checks=()),))))
    env.run()
    assert not told(env, BaselineSaved)


def test_what_the_checks_wrote_before_the_first_turn_is_not_the_agents_work() -> None:
    env = FakeEnvironment(Step(CLAIMING), rules=LOOKING)
    env.run()
    assert [before.id for before, _ in env.between] == ["began", "saved 0-checked"]
    assert told(env, BaselineSaved) == [BaselineSaved(Snapshot("saved 0-checked", "tree 0"), EDITED.paths)]


def test_checks_that_leave_a_tree_that_cannot_be_saved_let_no_agent_begin() -> None:
    env = FakeEnvironment(Step(CLAIMING), rules=LOOKING)
    env.unsaved = "no object store"
    outcome = env.run()
    assert isinstance(outcome, Failed)
    assert (outcome.exit_code, env.turn_inputs) == (2, [])
    assert "no object store" in outcome.error


def test_a_budget_that_is_used_up_at_the_start_lets_nothing_begin() -> None:
    rules = replace(LOOKING, limits=Limits(Budget(daily_micro_usd=1_000)))
    env = FakeEnvironment(Step(CLAIMING), rules=rules)
    env.daily_spend.book("another run", "agent_001", Spent(1_000), env.clock.now)
    outcome = env.run()
    assert isinstance(outcome, Aborted)
    assert (outcome.reason, outcome.exit_code, outcome.iterations) == ("DAILY_COST_LIMIT", 1, 0)
    assert (env.turn_inputs, env.checks_run) == ([], [])


def test_a_run_spends_what_is_left_of_the_day_and_no_turn_more() -> None:
    env = FakeEnvironment(Step(WORKING), rules=with_limits(Limits(Budget(50, daily_micro_usd=3_500), None, None)))
    outcome = env.run()
    assert isinstance(outcome, Aborted)
    assert (outcome.reason, outcome.iterations) == ("DAILY_COST_LIMIT", 4)
    assert env.daily_spend.day_spend(env.clock.now).micro_usd == 4_000


def test_a_call_for_a_commit_message_is_booked_too() -> None:
    env = FakeEnvironment(Step(CLAIMING), rules=replace(RULES, scm=True))
    assert isinstance(env.run(), Completed)
    assert env.daily_spend.day_spend(env.clock.now).micro_usd == 2_000


def test_each_limit_is_warned_of_once() -> None:
    env = FakeEnvironment(Step(WORKING), rules=with_limits(Limits(Budget(10, 10_500), None, None)))
    env.run()
    warned = [(record.iteration, record.what) for record in env.ledger.appended if isinstance(record, Warned)]
    assert warned == [(9, "iterations"), (9, "cost")]


def test_a_limit_that_is_passed_at_once_is_not_warned_of() -> None:
    env = FakeEnvironment(Step(WORKING), rules=with_limits(Limits(Budget(micro_usd=999))))
    env.run()
    assert not told(env, Warned)


def prompts(env: FakeEnvironment) -> list[str]:
    return [text for name, text in env.run_files.prompts.items() if name.startswith("prompt_")]


DEEP = "Find the root cause first."


def test_after_a_stall_one_prompt_tells_how_to_debug_and_the_next_stall_ends_the_run() -> None:
    rules = replace(
        RULES, limits=Limits(Budget(20), stall_iterations=2), prompt=replace(RULES.prompt, debug_advice=DEEP)
    )
    env = FakeEnvironment(IDLE, rules=rules)
    outcome = env.run()
    assert isinstance(outcome, Aborted)
    assert (outcome.reason, outcome.iterations) == ("STALL", 4)
    assert [DEEP in prompt for prompt in prompts(env)] == [False, False, True, False]
    assert told(env, Escalated) == [Escalated(3, 0, True, "2 iterations in a row changed no file")]


def test_a_repeated_error_is_not_answered_with_a_debugging_prompt() -> None:
    rules = replace(
        RULES, limits=Limits(Budget(20), same_error_iterations=2), prompt=replace(RULES.prompt, debug_advice=DEEP)
    )
    env = FakeEnvironment(Step(replace(WORKING, error="boom")), rules=rules)
    outcome = env.run()
    assert isinstance(outcome, Aborted)
    assert outcome.breach == Breach(
        "SAME_ERROR_5X", "2 iterations in a row failed in the same way (the agent itself failed)", error="boom"
    )
    assert not told(env, Escalated)


def test_a_ladder_is_climbed_at_each_stall_and_the_last_one_ends_the_run() -> None:
    rules = replace(
        RULES,
        limits=Limits(Budget(20), stall_iterations=2),
        agent=replace(RULES.agent, rotation=AgentRotation(rungs=3)),
    )
    env = FakeEnvironment(IDLE, rules=rules)
    outcome = env.run()
    assert isinstance(outcome, Aborted)
    assert (outcome.reason, outcome.iterations) == ("STALL", 6)
    assert [record.place for record in env.ledger.appended if isinstance(record, TurnBegan)] == [0, 0, 1, 1, 2, 2]


def test_a_ladder_comes_before_the_debugging_prompt() -> None:
    rules = replace(
        RULES,
        limits=Limits(Budget(20), stall_iterations=1),
        agent=replace(RULES.agent, rotation=AgentRotation(rungs=2)),
        prompt=replace(RULES.prompt, debug_advice=DEEP),
    )
    env = FakeEnvironment(IDLE, rules=rules)
    env.run()
    steps = [(record.rung, record.deep) for record in env.ledger.appended if isinstance(record, Escalated)]
    assert steps == [(1, False), (1, True)]


def test_agents_take_turns() -> None:
    rules = replace(RULES, limits=Limits(Budget(4)), agent=replace(RULES.agent, rotation=AgentRotation(rotating=3)))
    env = FakeEnvironment(Step(WORKING), rules=rules)
    env.run()
    assert [record.place for record in env.ledger.appended if isinstance(record, TurnBegan)] == [0, 1, 2, 0]


@pytest.mark.parametrize(
    ("crew", "iteration", "rung", "order"),
    [
        (AgentRotation(), 7, 0, (0,)),
        (AgentRotation(fallbacks=2), 1, 0, (0, 1, 2)),
        (AgentRotation(rungs=3, fallbacks=1), 1, 1, (1, 3)),
        (AgentRotation(rungs=3), 1, 9, (2,)),
        (AgentRotation(rotating=3, fallbacks=1), 2, 0, (1, 2, 0, 3)),
    ],
)
def test_who_is_asked_in_which_order(crew: AgentRotation, iteration: int, rung: int, order: tuple[int, ...]) -> None:
    assert crew.order(iteration, rung) == order


def test_files_that_were_put_back_make_a_retry_that_names_the_rule() -> None:
    touched = (TouchedPath(".mcp.json", "tools of the agent's"),)
    env = FakeEnvironment(Step(CLAIMING, touched=touched), Step(CLAIMING))
    outcome = env.run()
    assert isinstance(outcome, Completed)
    assert outcome.iterations == 2
    assert "- .mcp.json (tools of the agent's)" in prompts(env)[1]


def test_after_a_tripwire_no_check_is_run() -> None:
    env = FakeEnvironment(Step(CLAIMING, touched=(TouchedPath("src/auth/a", "protectedPaths: src/auth/", stops=True),)))
    outcome = env.run()
    assert isinstance(outcome, Aborted)
    assert (outcome.reason, env.checks_run) == ("PROHIBITED_PATH", [])


def test_a_limit_of_the_callers_own_ends_the_run() -> None:
    rules: RunRules = replace(
        RULES, custom_limits=(lambda state: Breach("LIMIT", "enough") if state.iteration > 2 else None,)
    )
    env = FakeEnvironment(Step(WORKING), rules=rules)
    outcome = env.run()
    assert isinstance(outcome, Aborted)
    assert (outcome.breach, outcome.iterations) == (Breach("LIMIT", "enough"), 2)


def test_old_failures_are_told_from_new_ones() -> None:
    env = FakeEnvironment(Step(WORKING, EDITED, ("tests",)), rules=replace(LOOKING, limits=Limits(Budget(2))))
    env.run()
    assert '"make test" failed in the same way before' not in prompts(env)[1]  # each failure here is another one
    green = FakeEnvironment(
        Step(WORKING), Step(WORKING, EDITED, ("tests",)), rules=replace(LOOKING, limits=Limits(Budget(3)))
    )
    green.run()
    assert 'Guardrail "make test" passed before the run began: what fails in it is new.' in prompts(green)[2]


def test_a_cost_that_stays_unknown_under_a_limit_of_the_users_is_warned_of_once() -> None:
    unknown = replace(WORKING, micro_usd=None)
    rules = replace(RULES, limits=Limits(Budget(3, 1_000_000)), warn_unknown_cost=True)
    env = FakeEnvironment(Step(unknown), rules=rules)
    env.run()
    warned = [record.message for record in env.ledger.appended if isinstance(record, Warned)]
    assert warned[0] == "[Ralph] What iteration 1 cost is not known: the limit on cost can no longer be held"
    assert len([message for message in warned if "not known" in message]) == 1
    quiet = FakeEnvironment(Step(unknown), rules=replace(rules, warn_unknown_cost=False))
    quiet.run()
    assert all("not known" not in record.message for record in quiet.ledger.appended if isinstance(record, Warned))


def test_green_work_is_not_lost_to_the_price_of_a_commit_message() -> None:
    env = FakeEnvironment(Step(CLAIMING), rules=replace(RULES, limits=Limits(Budget(micro_usd=1_000)), scm=True))
    outcome = env.run()
    assert isinstance(outcome, Completed)
    assert outcome.concerns == ("scm: no money is left to ask for a commit message; the work is saved, not committed",)
    assert (len(env.turn_inputs), env.commits) == (1, [])


@pytest.mark.parametrize(
    ("left", "spent", "passed"),
    [
        (Budget(), Spent(10**9, Usage(10**9)), False),
        (Budget(micro_usd=100), Spent(100), False),
        (Budget(micro_usd=100), Spent(101), True),
        (Budget(micro_usd=100), Spent(None, Usage(10**9)), False),
        (Budget(tokens=10), Spent(None, Usage(10)), False),
        (Budget(tokens=10), Spent(None, Usage(10, 1)), True),
        (Budget(micro_usd=100, tokens=10), Spent(5, Usage(11)), True),
        (Budget(tokens=10), Spent(5), False),
    ],
)
def test_what_a_turn_may_still_spend(left: Budget, spent: Spent, passed: bool) -> None:
    assert left.exceeded_by(spent) == passed
