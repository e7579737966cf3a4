"""A state is the fold of its records and nothing else; laws that hold for whatever agents, checks and people do."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ralphproof.base.value import pack, replace, unpack
from ralphproof.engine import records as told
from ralphproof.engine.actions import RunRules
from ralphproof.engine.agent import Turn
from ralphproof.engine.budget import Budget, Spend
from ralphproof.engine.limits import Limits, find_tripwire_breach
from ralphproof.engine.outcome import Completed, Failed, Outcome, Passed
from ralphproof.engine.plan import AllDone, Pipeline, Stage, Task
from ralphproof.engine.records import Record, record_key
from ralphproof.engine.retry import AgentRotation
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.state import BetweenIterations, IterationJudged, RunOver, State, build_state
from ralphproof.engine.workspace import Change, TouchedPath
from tests.engine.small_world import (
    CLAIMING,
    CRASHING,
    EDITED,
    EMPTY,
    LIMITED,
    NOTHING,
    RULE,
    STAGE,
    UNSTARTABLE,
    WORKING,
    Crash,
    SmallWorld,
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
    st.booleans(),
    st.sampled_from(["always", "claim"]),
    st.booleans(),
    st.just(0.5),
    agent_rotation=st.sampled_from([AgentRotation(), AgentRotation(rungs=2), AgentRotation(rotating=2, fallbacks=1)]),
    baseline=st.booleans(),
    show_previous=st.booleans(),
    debug_advice=st.sampled_from(["", "Find the cause first."]),
)
PLANS = (
    (Task("t1", "Make it so."),),
    (Task("t1", "x", depends_on=("t2",)), Task("t2", "y")),
    (Task("t1", "x"), Task("t2", "y", depends_on=("ghost",))),
    (Task("t1", "x", done=True),),
)
WORLDS = st.builds(
    lambda steps, rules, plan: SmallWorld(*steps, rules=rules, tasks=lambda world: plan),
    st.lists(STEPS, min_size=1, max_size=7),
    RULE_SETS,
    st.sampled_from(PLANS[:1] * 3 + PLANS),
)
LAW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def ended(world: SmallWorld) -> tuple[Outcome, State, list[Record]]:
    loop = world.loop()
    return loop.run(), loop.state, world.ledger.kept


@given(WORLDS)
@LAW
def test_the_state_rebuilt_from_records_is_the_state_that_the_loop_had(world: SmallWorld) -> None:
    outcome, state, records = ended(world)
    assert build_state(records) == state
    assert state.phase == RunOver(outcome)
    assert build_state([unpack(json.loads(json.dumps(pack(record)))) for record in records]) == state


@given(WORLDS)
@LAW
def test_no_turn_is_taken_past_the_iteration_limit(world: SmallWorld) -> None:
    outcome, state, records = ended(world)
    most = world.rules.limits.budget.iterations
    assert most is not None
    assert max((record.iteration for record in records if isinstance(record, told.TurnBegan)), default=0) <= most
    assert len(state.history.iterations) <= outcome.iterations <= most


@given(WORLDS)
@LAW
def test_work_is_saved_before_anything_else_is_recorded(world: SmallWorld) -> None:
    _, _, records = ended(world)
    for one, following in pairwise(records):
        if isinstance(one, told.TurnBegan):
            assert isinstance(following, told.TurnEnded)
        if isinstance(one, told.TurnEnded):
            assert isinstance(following, told.Saved)
    assert not isinstance(records[-1], told.TurnEnded)


@given(WORLDS)
@LAW
def test_exit_code_0_comes_only_of_passed_verdicts_or_of_a_plan_that_is_done(world: SmallWorld) -> None:
    outcome, _, records = ended(world)
    if outcome.exit_code != 0:
        return
    assert isinstance(outcome, Completed)
    assert any(isinstance(record, told.Picked) and record.choice == AllDone() for record in records)
    verdicts = [record.verdict for record in records if isinstance(record, told.Judged)]
    if not all(task.done for task in world.read().tasks):
        assert isinstance(verdicts[-1], Passed)
    proved = [verdict.report.verified for verdict in verdicts if isinstance(verdict, Passed)]
    assert outcome.verified == (bool(proved) and all(proved))


@given(WORLDS)
@LAW
def test_a_pass_never_has_a_red_check_a_protected_path_or_a_missing_claim(world: SmallWorld) -> None:
    _, state, _ = ended(world)
    passed = [facts for facts in state.history.iterations if facts.job.key in state.passed]
    for key in state.passed:
        last = [facts for facts in passed if facts.job.key == key][-1]
        assert last.report.passed
        assert last.job.stage.claim.accepts(last.claim)
        assert not last.change.rewritten
        assert find_tripwire_breach(last) is None


@given(WORLDS)
@LAW
def test_everything_spent_is_counted_once(world: SmallWorld) -> None:
    outcome, state, records = ended(world)
    spend = Spend()
    for record in records:
        if isinstance(record, told.TurnEnded) or (isinstance(record, told.ScmEnded) and record.reply):
            assert record.reply is not None
            spend = spend.plus_turn(record.reply)
    assert state.spend == spend
    if not isinstance(outcome, Failed):
        assert outcome.spend == spend


@given(WORLDS)
@LAW
def test_nothing_is_recorded_twice_and_the_last_record_is_the_outcome(world: SmallWorld) -> None:
    outcome, _, records = ended(world)
    keys = [record_key(record) for record in records]
    assert len(set(keys)) == len(keys)
    assert isinstance(records[0], told.RunBegan)
    assert isinstance(records[-1], told.RunEnded)
    assert records[-1].outcome == outcome


@given(WORLDS, st.integers(0, 30), st.booleans())
@LAW
def test_a_run_that_is_killed_at_any_append_goes_on_to_the_same_end(world: SmallWorld, at: int, after: bool) -> None:
    world.steps = tuple(replace(step, wish_at="") for step in world.steps)
    whole = SmallWorld(*world.steps, rules=world.rules, tasks=world.tasks)
    expected = whole.run()
    world.ledger.crash_at, world.ledger.crash_after = at, after
    try:
        outcome = world.run()
    except Crash:
        phase = world.rebuilt().phase
        outcome = phase.outcome if isinstance(phase, RunOver) else world.run()
    assert (type(outcome), outcome.exit_code, outcome.iterations) == (
        type(expected),
        expected.exit_code,
        expected.iterations,
    )
    assert list(world.turns) == list(whole.turns)
    assert steps(world.ledger.kept) == steps(whole.ledger.kept)


def steps(records: list[Record]) -> list[tuple[int, int, str]]:
    """What was done, whoever did it."""
    keys = [record_key(record) for record in records if not isinstance(record, told.Resumed | told.UserChangesSaved)]
    return [(iteration, turn, step.removesuffix(" 2")) for iteration, turn, step in keys]


def test_a_check_that_a_crash_interrupted_is_asked_again_and_begun_once() -> None:
    world = SmallWorld(Step(CLAIMING))
    world.ledger.crash_on = told.CheckBegan
    with pytest.raises(Crash):
        world.run()
    assert isinstance(world.ledger.kept[-1], told.CheckBegan)
    assert isinstance(world.run(), Completed)


def test_a_commit_that_a_crash_interrupted_is_taken_up_and_begun_once() -> None:
    world = SmallWorld(Step(CLAIMING), rules=replace(RunRules(Pipeline((STAGE,)), pause_s=0.0), scm=True))
    world.ledger.crash_on = told.ScmBegan
    with pytest.raises(Crash):
        world.run()
    assert isinstance(world.ledger.kept[-1], told.ScmBegan)
    assert isinstance(world.run(), Completed)
    assert world.commits == ["Fix it"]


@pytest.mark.parametrize("again", [EMPTY, LIMITED], ids=["empty", "service"])
def test_every_change_after_our_commit_is_measured_from_behind_it(again: Turn) -> None:
    rules = replace(RunRules(Pipeline((STAGE,)), pause_s=0.0), scm=True)
    world = SmallWorld(Step(), Step(again, NOTHING), Step(again, NOTHING), Step(CLAIMING, NOTHING), rules=rules)
    assert isinstance(world.run(), Completed)
    assert [before.head for before, _ in world.between] == [None, "commit 1", "commit 1", "commit 1"]


def test_a_new_iteration_forgets_empty_replies_sessions_and_turns_but_not_what_was_spent() -> None:
    world = SmallWorld(
        Step(EMPTY, NOTHING),
        Step(replace(LIMITED, session="s", tools=1), NOTHING),
        Step(failing=("tests",)),
        Step(CLAIMING),
    )
    world.run()
    keys = [record_key(record) for record in world.ledger.kept]
    at = keys.index((2, 0, "Picked"))
    before, state = build_state(world.ledger.kept[:at]), build_state(world.ledger.kept[: at + 1])
    assert (before.empty_replies, before.agent_session, before.turn) == (1, "s", 3)
    assert (state.empty_replies, state.agent_session, state.turn, state.iteration) == (0, None, 1, 2)
    assert state.spend == before.spend == Spend(1_000, 15, 1)
    assert isinstance(before.phase, IterationJudged)


def test_records_of_prompts_hold_no_text_only_the_files_do() -> None:
    world = SmallWorld(Step(CLAIMING))
    world.run()
    assert "Make it so." not in json.dumps([pack(record) for record in world.ledger.kept])
    assert world.folder.prompts["prompt_001"].startswith("Make it so.")


def test_a_notice_changes_nothing_but_its_number() -> None:
    state = build_state([told.Noticed(1, 0, "a"), told.Noticed(1, 1, "b")])
    assert state == replace(State(), notices=2)
    assert state.phase == BetweenIterations()
