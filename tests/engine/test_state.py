"""A state is the fold of its records and nothing else; laws that hold for whatever agents, checks and people do."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ralphproof.base.value import pack, replace, unpack
from ralphproof.engine import records as record_types
from ralphproof.engine.agent import AgentRotation, Turn
from ralphproof.engine.limits import Budget, Limits, Spend, find_tripwire_breach
from ralphproof.engine.next_action import AgentRules, CheckRules, PromptRules, RunRules
from ralphproof.engine.outcome import Completed, Failed, Outcome, Passed
from ralphproof.engine.plan import AllDone, Pipeline, Stage, Task
from ralphproof.engine.records import Record, record_key
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.state import BetweenIterations, IterationJudged, RunOver, State, build_state
from ralphproof.engine.workspace import Change, TouchedPath
from tests.engine.fake_environment import (
    CLAIMING,
    CRASHING,
    EDITED,
    EMPTY,
    LIMITED,
    NOTHING,
    RULE,
    RULES,
    STAGE,
    UNSTARTABLE,
    WORKING,
    Crash,
    FakeEnvironment,
    Step,
)

REPLIES = (
    WORKING,
    CLAIMING,
    replace(CLAIMING, exit=Exit(1)),
    replace(CLAIMING, micro_usd=None),
    replace(CLAIMING, micro_usd=9_000_000),
    EMPTY,
    LIMITED,
    CRASHING,
    UNSTARTABLE,
    replace(WORKING, exit=Exit(None, "interrupted")),
)
PUT_BACK = TouchedPath(".mcp.json", "tools of the agent's")
STOPS = TouchedPath("secret/x", "protectedPaths: secret", stops=True)
CHANGES = (EDITED, NOTHING, Change(known=False), Change(("secret/x",)), Change(rewritten=True))
STEPS = st.builds(
    Step,
    st.sampled_from(REPLIES[:6] + REPLIES),
    st.sampled_from((EDITED, *CHANGES)),
    st.sampled_from([(), (), ("tests",), ("lint",), ("tests", "lint")]),
    st.sampled_from([(), (), (), (), (PUT_BACK,), (STOPS,)]),
    st.sampled_from(["", "", "", "", "turn", "save", "check", "scm"]),
)
PIPELINES = (
    Pipeline((STAGE,)),
    Pipeline((replace(STAGE, checks=()),)),
    Pipeline((replace(STAGE, checks=("tests", "lint")), Stage("review", RULE, ("lint",), edits=False))),
    Pipeline((Stage("a", RULE, ("tests",), max_iterations=2), Stage("b", RULE)), stage_first=True),
)
RULE_SETS = st.builds(
    RunRules,
    st.sampled_from(PIPELINES),
    st.builds(
        Limits,
        st.builds(Budget, st.integers(1, 6), st.sampled_from([None, 4_000])),
        st.sampled_from([2, 5, None]),
        st.sampled_from([2, 5, None]),
    ),
    agent=st.builds(
        AgentRules,
        rotation=st.sampled_from([AgentRotation(), AgentRotation(rungs=2), AgentRotation(rotating=2, fallbacks=1)]),
    ),
    checks=st.builds(CheckRules, st.sampled_from(["always", "claim"]), baseline=st.booleans()),
    prompt=st.builds(
        PromptRules, st.booleans(), st.booleans(), debug_advice=st.sampled_from(["", "Find the cause first."])
    ),
    scm=st.booleans(),
)
PLANS = (
    (Task("t1", "Make it so."),),
    (Task("t1", "x", depends_on=("t2",)), Task("t2", "y")),
    (Task("t1", "x"), Task("t2", "y", depends_on=("ghost",))),
    (Task("t1", "x", done=True),),
)
WORLDS = st.builds(
    lambda steps, rules, plan: FakeEnvironment(*steps, rules=rules, tasks=lambda env: plan),
    st.lists(STEPS, min_size=1, max_size=7),
    RULE_SETS,
    st.sampled_from(PLANS[:1] * 3 + PLANS),
)
LAW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def ended(env: FakeEnvironment) -> tuple[Outcome, State, list[Record]]:
    loop = env.loop()
    return loop.run(), loop.state, env.ledger.appended


@given(WORLDS)
@LAW
def test_the_state_rebuilt_from_records_is_the_state_that_the_loop_had(env: FakeEnvironment) -> None:
    outcome, state, records = ended(env)
    assert build_state(records) == state
    assert state.phase == RunOver(outcome)
    assert build_state([unpack(json.loads(json.dumps(pack(record)))) for record in records]) == state


@given(WORLDS)
@LAW
def test_no_turn_is_taken_past_the_iteration_limit(env: FakeEnvironment) -> None:
    outcome, state, records = ended(env)
    most = env.rules.limits.budget.iterations
    assert most is not None
    assert (
        max((record.iteration for record in records if isinstance(record, record_types.TurnBegan)), default=0) <= most
    )
    assert len(state.history.iterations) <= outcome.iterations <= most


@given(WORLDS)
@LAW
def test_work_is_saved_before_anything_else_is_recorded(env: FakeEnvironment) -> None:
    _, _, records = ended(env)
    for one, following in pairwise(records):
        if isinstance(one, record_types.TurnBegan):
            assert isinstance(following, record_types.TurnEnded)
        if isinstance(one, record_types.TurnEnded):
            assert isinstance(following, record_types.Saved)
    assert not isinstance(records[-1], record_types.TurnEnded)


@given(WORLDS)
@LAW
def test_exit_code_0_comes_only_of_passed_verdicts_or_of_a_plan_that_is_done(env: FakeEnvironment) -> None:
    outcome, _, records = ended(env)
    if outcome.exit_code != 0:
        return
    assert isinstance(outcome, Completed)
    assert any(isinstance(record, record_types.Picked) and record.choice == AllDone() for record in records)
    verdicts = [record.verdict for record in records if isinstance(record, record_types.Judged)]
    if not all(task.done for task in env.read().tasks):
        assert isinstance(verdicts[-1], Passed)
    proved = [verdict.report.verified for verdict in verdicts if isinstance(verdict, Passed)]
    assert outcome.verified == (bool(proved) and all(proved))


@given(WORLDS)
@LAW
def test_a_pass_never_has_a_red_check_a_protected_path_or_a_missing_claim(env: FakeEnvironment) -> None:
    _, state, _ = ended(env)
    passed = [facts for facts in state.history.iterations if facts.job.key in state.passed]
    for key in state.passed:
        last = [facts for facts in passed if facts.job.key == key][-1]
        assert last.report.passed
        assert last.job.stage.claim.accepts(last.claim)
        assert not last.change.rewritten
        assert find_tripwire_breach(last) is None


@given(WORLDS)
@LAW
def test_everything_spent_is_counted_once(env: FakeEnvironment) -> None:
    outcome, state, records = ended(env)
    spend = Spend()
    for record in records:
        if isinstance(record, record_types.TurnEnded) or (isinstance(record, record_types.ScmEnded) and record.reply):
            assert record.reply is not None
            spend = spend.plus_turn(record.reply)
    assert state.spend == spend
    if not isinstance(outcome, Failed):
        assert outcome.spend == spend


@given(WORLDS)
@LAW
def test_nothing_is_recorded_twice_and_the_last_record_is_the_outcome(env: FakeEnvironment) -> None:
    outcome, _, records = ended(env)
    keys = [record_key(record) for record in records]
    assert len(set(keys)) == len(keys)
    assert isinstance(records[0], record_types.RunBegan)
    assert isinstance(records[-1], record_types.RunEnded)
    assert records[-1].outcome == outcome


@given(WORLDS, st.integers(0, 30), st.booleans())
@LAW
def test_a_run_that_is_killed_at_any_append_goes_on_to_the_same_end(env: FakeEnvironment, at: int, after: bool) -> None:
    env.steps = tuple(replace(step, stop_during="") for step in env.steps)
    whole = FakeEnvironment(*env.steps, rules=env.rules, tasks=env.tasks)
    expected = whole.run()
    env.ledger.crash_at, env.ledger.crash_after = at, after
    try:
        outcome = env.run()
    except Crash:
        phase = env.rebuilt().phase
        outcome = phase.outcome if isinstance(phase, RunOver) else env.run()
    assert (type(outcome), outcome.exit_code, outcome.iterations) == (
        type(expected),
        expected.exit_code,
        expected.iterations,
    )
    assert list(env.turns) == list(whole.turns)
    assert steps(env.ledger.appended) == steps(whole.ledger.appended)


def steps(records: list[Record]) -> list[tuple[int, int, str]]:
    """What was done, whoever did it."""
    keys = [
        record_key(record)
        for record in records
        if not isinstance(record, record_types.Resumed | record_types.UserChangesSaved)
    ]
    return [(iteration, turn, step.removesuffix(" 2")) for iteration, turn, step in keys]


def test_a_check_that_a_crash_interrupted_is_asked_again_and_begun_once() -> None:
    env = FakeEnvironment(Step(CLAIMING))
    env.ledger.crash_on = record_types.CheckBegan
    with pytest.raises(Crash):
        env.run()
    assert isinstance(env.ledger.appended[-1], record_types.CheckBegan)
    assert isinstance(env.run(), Completed)


def test_a_commit_that_a_crash_interrupted_is_taken_up_and_begun_once() -> None:
    env = FakeEnvironment(Step(CLAIMING), rules=replace(RULES, scm=True))
    env.ledger.crash_on = record_types.ScmBegan
    with pytest.raises(Crash):
        env.run()
    assert isinstance(env.ledger.appended[-1], record_types.ScmBegan)
    assert isinstance(env.run(), Completed)
    assert env.commits == ["Fix it"]


@pytest.mark.parametrize("again", [EMPTY, LIMITED], ids=["empty", "service"])
def test_every_change_after_our_commit_is_measured_from_behind_it(again: Turn) -> None:
    rules = replace(RULES, scm=True)
    env = FakeEnvironment(Step(), Step(again, NOTHING), Step(again, NOTHING), Step(CLAIMING, NOTHING), rules=rules)
    assert isinstance(env.run(), Completed)
    assert [before.head for before, _ in env.between] == [None, "commit 1", "commit 1", "commit 1"]


def test_a_new_iteration_forgets_empty_replies_sessions_and_turns_but_not_what_was_spent() -> None:
    env = FakeEnvironment(
        Step(EMPTY, NOTHING),
        Step(replace(LIMITED, session="s", tools=1), NOTHING),
        Step(failing=("tests",)),
        Step(CLAIMING),
    )
    env.run()
    keys = [record_key(record) for record in env.ledger.appended]
    at = keys.index((2, 0, "Picked"))
    before, state = build_state(env.ledger.appended[:at]), build_state(env.ledger.appended[: at + 1])
    assert (before.agent.empty_replies, before.agent.session, before.turn) == (1, "s", 3)
    assert (state.agent.empty_replies, state.agent.session, state.turn, state.iteration) == (0, None, 1, 2)
    assert state.spend == before.spend == Spend(1_000, 15, 1)
    assert isinstance(before.phase, IterationJudged)


def test_records_of_prompts_hold_no_text_only_the_files_do() -> None:
    env = FakeEnvironment(Step(CLAIMING))
    env.run()
    assert "Make it so." not in json.dumps([pack(record) for record in env.ledger.appended])
    assert env.run_files.prompts["prompt_001"].startswith("Make it so.")


def test_a_notice_changes_nothing_but_its_number() -> None:
    state = build_state([record_types.Noticed(1, 0, "a"), record_types.Noticed(1, 1, "b")])
    assert state == replace(State(), notices=2)
    assert state.phase == BetweenIterations()
