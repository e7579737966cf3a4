"""A run that ends and goes on, rests, is spoken to, is done before it starts, or waits for runs of its own."""

from __future__ import annotations

from typing import TypeVar

import pytest

from ralphproof.base.errors import KeeperLost
from ralphproof.base.value import replace
from ralphproof.engine.agent import Limited
from ralphproof.engine.claim import Claim, ClaimRule
from ralphproof.engine.limits import Budget, ChildRunsStatus, Limits, Spend
from ralphproof.engine.next_action import MAX_PAUSE_S, AgentRules, EndRun, RunConditions, RunRules, next_action
from ralphproof.engine.outcome import Aborted, Completed, Failed, Stopped
from ralphproof.engine.plan import Pipeline, Stage
from ralphproof.engine.records import (
    CheckEnded,
    ChildRunsAwaited,
    ChildWorkJoined,
    ClaimFound,
    Judged,
    Paused,
    Resumed,
    RunEnded,
    TurnBegan,
    TurnRetried,
    UserChangesSaved,
    UserMessageAdded,
)
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.state import RunOver
from tests.engine.fake_environment import CLAIMING, EDITED, RULES, STAGE, WORKING, Crash, FakeEnvironment, Step

T = TypeVar("T")
DONE = Claim("DONE", source="marker", stamp="1")
WAIT = Claim("ask the boss", waiting=True, source="marker", stamp="2")
SUPERVISED = RunRules(
    Pipeline((Stage("supervise", ClaimRule("DONE", marker="DONE"), ("tests",)),)),
    Limits(Budget(5), None, None),
    agent=AgentRules(max_empty_replies=None, back_off=True, wait_code=42, pause_s=1.0),
)
UNCHECKED = replace(SUPERVISED, pipeline=Pipeline((replace(SUPERVISED.pipeline.stages[0], checks=()),)))
DIED = replace(WORKING, exit=Exit(1, seconds=0.1))


def told(env: FakeEnvironment, kind: type[T]) -> list[T]:
    return [record for record in env.ledger.appended if isinstance(record, kind)]


def prompts(env: FakeEnvironment) -> list[str]:
    return [brief.prompt for brief in env.turn_inputs]


def test_a_run_that_was_interrupted_goes_on_where_it_stood() -> None:
    env = FakeEnvironment(Step(WORKING), Step(WORKING, stop_during="check"), Step(CLAIMING))
    first = env.run()
    assert isinstance(first, Aborted)
    assert first.reason == "INTERRUPTED"
    env.clock.requested_stop = ""
    outcome = env.run()
    assert isinstance(outcome, Completed)
    assert (outcome.iterations, outcome.spend.micro_usd) == (3, 3_000)
    assert [record.iteration for record in told(env, TurnBegan)] == [1, 2, 3]
    assert env.checks_run == [(1, "tests"), (2, "tests"), (3, "tests")]
    assert len(told(env, RunEnded)) == 2
    assert [record.session for record in told(env, Resumed)] == [2]


def test_the_limit_on_iterations_counts_all_sessions_and_may_be_raised() -> None:
    env = FakeEnvironment(Step(WORKING), rules=replace(RULES, limits=Limits(Budget(2), None, None)))
    assert env.run().iterations == 2
    again = env.run()
    assert isinstance(again, Aborted)
    assert (again.reason, again.iterations, len(env.turns)) == ("MAX_ITERATIONS", 2, 2)
    env.rules = replace(RULES, limits=Limits(Budget(3), None, None))
    assert env.run().iterations == 3
    assert len(env.turns) == 3


def test_what_the_limit_on_money_stopped_is_judged_anew_when_it_is_raised() -> None:
    env = FakeEnvironment(Step(CLAIMING), rules=replace(RULES, limits=Limits(Budget(9, 999))))
    stopped = env.run()
    assert isinstance(stopped, Aborted)
    assert (stopped.reason, stopped.checks_passed) == ("COST_LIMIT", True)
    env.rules = replace(RULES, limits=Limits(Budget(9, 5_000)))
    outcome = env.run()
    assert isinstance(outcome, Completed)
    assert (outcome.verified, outcome.iterations, len(env.turns), env.checks_run) == (True, 1, 1, [(1, "tests")])
    judged = [record for record in env.ledger.appended if isinstance(record, Judged)]
    assert [isinstance(record.verdict, Stopped) for record in judged] == [True, False]


def test_a_run_that_waits_goes_on_with_the_next_iteration_and_the_users_words() -> None:
    env = FakeEnvironment(Step(WORKING), Step(CLAIMING))
    env.claims = [None, WAIT, None]
    waiting = env.run()
    assert isinstance(waiting, Aborted)
    assert (waiting.exit_code, waiting.breach.message) == (4, "ask the boss")
    env.ledger.messages = ["The password is in the safe."]
    outcome = env.run()
    assert isinstance(outcome, Completed)
    assert outcome.iterations == 2
    assert "The password is in the safe." in prompts(env)[1]
    assert "their own word" in prompts(env)[1]


def test_words_reach_one_prompt_and_no_other() -> None:
    env = FakeEnvironment(Step(WORKING), rules=replace(RULES, limits=Limits(Budget(3), None, None)))
    env.ledger.messages = ["Use tabs.", "And be brief."]
    env.run()
    assert [("Use tabs." in text, "And be brief." in text) for text in prompts(env)] == [
        (True, True),
        (False, False),
        (False, False),
    ]
    assert [record.number for record in told(env, UserMessageAdded)] == [1, 2]


def test_words_stay_with_an_iteration_whose_turn_is_taken_again() -> None:
    env = FakeEnvironment(Step(replace(WORKING, text=""), EDITED.__class__()), Step(CLAIMING))
    env.ledger.messages = ["Use tabs."]
    env.run()
    assert ["Use tabs." in text for text in prompts(env)] == [True, True]


def test_a_pause_is_told_once_and_is_no_part_of_the_runs_age() -> None:
    env = FakeEnvironment(Step(CLAIMING))
    env.clock.paused_polls = 5
    outcome = env.run()
    assert isinstance(outcome, Completed)
    assert len(told(env, Paused)) == 1
    assert outcome.seconds == 0.0
    assert sum(env.clock.sleeps) > 0


def test_what_the_user_changed_during_a_pause_is_theirs() -> None:
    env = FakeEnvironment(Step(CLAIMING), rules=replace(RULES, scm=True))
    env.clock.paused_polls, env.user_changes = 3, ("mine.txt",)
    env.run()
    (regained,) = told(env, UserChangesSaved)
    assert isinstance(regained, UserChangesSaved)
    assert regained.paths == ("mine.txt",)
    assert env.between[-1][0].id == regained.snapshot.id, "the agent's change is measured from behind it"
    assert env.rebuilt().user.paths == {"mine.txt"}


def test_a_run_that_is_taken_up_measures_from_what_it_finds() -> None:
    env = FakeEnvironment(Step(WORKING, stop_during="check"), Step(CLAIMING))
    env.run()
    env.clock.requested_stop, env.user_changes = "", ("mine.txt",)
    env.run()
    assert env.rebuilt().user.paths == {"mine.txt"}


@pytest.mark.parametrize(("rules", "verified"), [(SUPERVISED, True), (UNCHECKED, False)], ids=["checked", "unchecked"])
def test_a_marker_before_the_first_start_is_judged_without_a_turn(rules: RunRules, verified: bool) -> None:
    env = FakeEnvironment(rules=rules)
    env.claims = [DONE]
    outcome = env.run()
    assert isinstance(outcome, Completed)
    assert (outcome.iterations, outcome.verified, env.turns) == (0, verified, {})
    assert outcome.spend == Spend()


def test_a_marker_that_the_checks_refute_starts_the_agent_and_counts_no_iteration() -> None:
    env = FakeEnvironment(
        Step(WORKING, failing=("tests",)), rules=replace(SUPERVISED, limits=Limits(Budget(2), None, None))
    )
    env.claims = [DONE]
    outcome = env.run()
    assert isinstance(outcome, Aborted)
    assert (outcome.reason, outcome.iterations, len(env.turns)) == ("MAX_ITERATIONS", 2, 2)
    assert len(told(env, ClaimFound)) == 1, "the same marker is not judged again before a start"


def test_a_marker_that_is_touched_again_is_a_new_claim() -> None:
    env = FakeEnvironment(Step(WORKING, failing=("tests",)), rules=SUPERVISED)
    env.claims = [DONE, DONE, None, None, None, replace(DONE, stamp="9")]
    env.run()
    assert len(told(env, ClaimFound)) == 2


def test_a_marker_beats_the_limit_on_iterations() -> None:
    env = FakeEnvironment(Step(WORKING), rules=replace(UNCHECKED, limits=Limits(Budget(1), None, None)))
    env.claims = [None, None, DONE]
    outcome = env.run()
    assert isinstance(outcome, Completed)
    assert outcome.iterations == 1


@pytest.mark.parametrize(
    ("rules", "code", "waits"), [(SUPERVISED, 42, True), (SUPERVISED, 41, False), (RULES, 42, False)]
)
def test_an_exit_code_means_waiting_only_where_the_rules_say_so(rules: RunRules, code: int, waits: bool) -> None:
    env = FakeEnvironment(
        Step(replace(WORKING, exit=Exit(code))), rules=replace(rules, limits=Limits(Budget(1), None, None))
    )
    outcome = env.run()
    assert isinstance(outcome, Aborted)
    assert (outcome.reason == "WAITING") is waits


def test_silence_is_no_fault_of_a_program_that_is_kept_alive() -> None:
    silent = Step(replace(WORKING, text=""), EDITED.__class__())
    env = FakeEnvironment(silent, rules=replace(SUPERVISED, limits=Limits(Budget(8), None, None)))
    outcome = env.run()
    assert isinstance(outcome, Aborted)
    assert (outcome.reason, outcome.iterations) == ("MAX_ITERATIONS", 8)


def test_the_pause_grows_while_an_agent_dies_at_once_and_is_bounded() -> None:
    env = FakeEnvironment(Step(DIED), rules=replace(SUPERVISED, limits=Limits(Budget(10), None, None)))
    env.run()
    assert env.clock.sleeps == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, MAX_PAUSE_S, MAX_PAUSE_S, MAX_PAUSE_S]
    slow = FakeEnvironment(
        Step(replace(DIED, exit=Exit(1, seconds=60.0))), rules=replace(SUPERVISED, limits=Limits(Budget(3), None, None))
    )
    slow.run()
    assert slow.clock.sleeps == [1.0, 1.0]


ACTIVE = ChildRunsStatus(("child-1",), Spend(500))
OVER = ChildRunsStatus((), Spend(700))


def test_work_that_children_are_at_is_not_judged_before_they_are_over() -> None:
    env = FakeEnvironment(Step(CLAIMING))
    env.children = [ChildRunsStatus(), ChildRunsStatus(), ChildRunsStatus(), ACTIVE, ACTIVE, ACTIVE, OVER]
    outcome = env.run()
    assert isinstance(outcome, Completed)
    kinds = [type(record) for record in env.ledger.appended]
    assert kinds.index(ChildRunsAwaited) < kinds.index(ChildWorkJoined) < len(kinds)
    assert env.checks_run == [(1, "tests")]
    assert outcome.spend.micro_usd == 1_700, "what children cost counts"


def test_children_that_are_never_over_end_the_run_and_are_dismissed() -> None:
    env = FakeEnvironment(Step(CLAIMING), rules=replace(RULES, children=replace(RULES.children, timeout_s=3.0)))
    env.children = [ACTIVE]
    outcome = env.run()
    assert isinstance(outcome, Aborted)
    assert (outcome.reason, outcome.exit_code) == ("CHILDREN_TIMEOUT", 1)
    assert "child-1" in outcome.breach.message
    assert (env.checks_run, env.stop_all_calls) == ([], 1)


def test_children_are_dismissed_at_every_end_but_a_good_one_and_a_wait() -> None:
    for claims, step, dismissed in (
        ([None], Step(CLAIMING), 0),
        ([None, WAIT], Step(WORKING), 0),
        ([None], Step(WORKING, stop_during="turn"), 1),
    ):
        env = FakeEnvironment(step)
        env.claims = list(claims)
        env.run()
        assert env.stop_all_calls == dismissed


def test_what_children_cost_reaches_the_limit() -> None:
    env = FakeEnvironment(Step(WORKING), rules=replace(RULES, limits=Limits(Budget(9, 5_000))))
    env.children = [ChildRunsStatus(), ChildRunsStatus(), ChildRunsStatus(), ChildRunsStatus((), Spend(4_500))]
    outcome = env.run()
    assert isinstance(outcome, Aborted)
    assert (outcome.reason, outcome.spend.micro_usd) == ("COST_LIMIT", 5_500)


def test_an_unjudged_end_is_opened_again_and_ends_with_the_same_reason_where_nothing_changed() -> None:
    env = FakeEnvironment(Step(WORKING), rules=replace(RULES, limits=Limits(Budget(1), None, None)))
    env.run()
    state = env.rebuilt().after(Resumed(2, 0.0, 0.0))
    assert not isinstance(state.phase, RunOver)
    step = next_action(state.attended(), env.rules, RunConditions(0.0))
    assert isinstance(step, EndRun)
    assert isinstance(step.outcome, Aborted)
    assert step.outcome.reason == "MAX_ITERATIONS"


def test_an_error_of_the_configuration_can_be_mended_and_the_run_goes_on() -> None:
    broken = replace(WORKING, exit=Exit(None, "unstartable", error="not found"), text="")
    env = FakeEnvironment(Step(broken), Step(CLAIMING))
    first = env.run()
    assert isinstance(first, Failed)
    assert first.exit_code == 2
    outcome = env.run()
    assert isinstance(outcome, Completed)
    assert [(record.iteration, record.turn) for record in told(env, TurnBegan)] == [(1, 1), (1, 2)]


def test_checks_are_asked_anew_on_a_tree_that_somebody_changed_meanwhile() -> None:
    env = FakeEnvironment(Step(CLAIMING), rules=replace(RULES, limits=Limits(Budget(9, 999))))
    assert isinstance(env.run(), Aborted)
    env.rules, env.user_changes = replace(RULES, limits=Limits(Budget(9, 5_000))), ("mine.txt",)
    outcome = env.run()
    assert isinstance(outcome, Completed)
    assert env.checks_run == [(1, "tests"), (1, "tests")]
    judged = env.rebuilt().history.latest
    assert "theirs" in str(judged.snapshot.id), "what is proved is the tree that the checks saw"


def test_what_children_changed_after_the_checks_is_checked_again() -> None:
    env = FakeEnvironment(Step(CLAIMING))
    env.children = [*[ChildRunsStatus()] * 5, ACTIVE, OVER]  # the sixth look is the one after the check
    outcome = env.run()
    assert isinstance(outcome, Completed)
    steps = [
        type(record)
        for record in env.ledger.appended
        if isinstance(record, CheckEnded | ChildRunsAwaited | ChildWorkJoined)
    ]
    assert steps == [CheckEnded, ChildRunsAwaited, ChildWorkJoined, CheckEnded]
    assert env.checks_run == [(1, "tests"), (1, "tests")]
    assert "joined" in str(env.rebuilt().history.latest.snapshot.id)


def test_a_check_that_was_stopped_on_request_says_nothing_and_is_asked_again() -> None:
    env = FakeEnvironment(Step(CLAIMING, stop_during="check", stopped=True))
    first = env.run()
    assert isinstance(first, Aborted)
    assert first.reason == "INTERRUPTED"
    env.clock.requested_stop, env.steps = "", (Step(CLAIMING),)
    env.turns = {name: Step(CLAIMING) for name in env.turns}
    outcome = env.run()
    assert isinstance(outcome, Completed)
    assert outcome.iterations == 1


def test_checks_that_the_settings_name_now_are_asked() -> None:
    env = FakeEnvironment(Step(CLAIMING, stop_during="turn"))
    env.run()
    env.clock.requested_stop = ""
    other = replace(STAGE, checks=("lint",))
    env.rules = replace(RULES, pipeline=Pipeline((other,)))
    outcome = env.run()
    assert isinstance(outcome, Completed)
    assert env.checks_run == [(1, "lint")]


def test_what_an_agent_did_before_its_service_failed_is_not_the_users() -> None:
    limited = replace(WORKING, exit=Exit(1), text="", limited=Limited("usage limit reached"))
    env = FakeEnvironment(Step(limited), Step(CLAIMING))
    env.ledger.crash_on = TurnRetried
    with pytest.raises(Crash):
        env.run()
    before = env.rebuilt().trees.last_saved
    outcome = env.run()
    assert isinstance(outcome, Completed)
    regained = [record for record in env.ledger.appended if isinstance(record, UserChangesSaved)]
    assert before.id == "saved 1"
    assert env.compared[0] == before, "the user's time began when the work was last kept"
    assert regained[0].paths == ()
    assert env.between[-1][0].id == "began", "all turns of an iteration together make its change"


def test_a_turn_that_was_never_started_begins_with_what_is_found() -> None:
    env = FakeEnvironment(Step(CLAIMING))
    env.ledger.crash_on = TurnBegan
    with pytest.raises(Crash):
        env.run()
    env.never_started, env.user_changes = True, ("mine.txt",)
    outcome = env.run()
    assert isinstance(outcome, Completed)
    assert env.rebuilt().user.paths == {"mine.txt"}
    assert not env.turn_inputs[-1].adopt


def test_limits_hold_while_children_are_waited_for() -> None:
    env = FakeEnvironment(
        Step(CLAIMING),
        rules=replace(RULES, limits=Limits(Budget(9, 5_000)), children=replace(RULES.children, timeout_s=100.0)),
    )
    env.children = [ChildRunsStatus(), ChildRunsStatus(), ChildRunsStatus(), ChildRunsStatus(("c",), Spend(9_000))]
    outcome = env.run()
    assert isinstance(outcome, Aborted)
    assert outcome.reason == "COST_LIMIT"
    slow = FakeEnvironment(
        Step(CLAIMING),
        rules=replace(RULES, limits=Limits(Budget(9, seconds=3.0)), children=replace(RULES.children, timeout_s=100.0)),
    )
    slow.children = [ChildRunsStatus(("c",))]
    outcome = slow.run()
    assert isinstance(outcome, Aborted)
    assert outcome.reason == "TIME_LIMIT"


def test_what_children_touched_between_turns_is_put_back_before_it_is_taken_for_granted() -> None:
    env = FakeEnvironment(Step(WORKING), rules=replace(RULES, limits=Limits(Budget(2), None, None)))
    env.active = True
    env.run()
    assert env.tripwire_calls == [
        "children_001",
        "armed",
        "agent_001",
        "children_002",
        "armed",
        "agent_002",
        "discarded",
    ]
    calm = FakeEnvironment(Step(CLAIMING))
    calm.run()
    assert calm.tripwire_calls == ["armed", "agent_001", "discarded"]


def test_tripwires_outlast_a_run_that_ends_in_the_middle_of_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose_keeper(*_: object) -> object:
        raise KeeperLost("the keeper died")

    env = FakeEnvironment(Step(CLAIMING))
    with monkeypatch.context() as broken:
        broken.setattr(env, "take_turn", lose_keeper)
        assert isinstance(env.run(), Failed)
    assert env.tripwire_calls == ["armed"]
