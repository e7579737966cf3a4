"""The next action in every phase of a run, and whole runs in a fake environment."""

from __future__ import annotations

import pytest

from ralphproof.base.value import replace
from ralphproof.engine.agent import BACK_OFF_S, MAX_FAILURES, AgentRotation, Limited, Spent, Turn, Usage
from ralphproof.engine.check import CheckReport
from ralphproof.engine.claim import Claim, ClaimRule, ParsedClaim
from ralphproof.engine.limits import Breach, Budget, Limits, Spend
from ralphproof.engine.next_action import (
    Action,
    AgentRules,
    CheckRules,
    CommitWork,
    Conclude,
    EndRun,
    Finish,
    PickNextJob,
    RetryTurn,
    RunChecks,
    RunConditions,
    RunRules,
    SaveWork,
    TakeTurn,
    WaitForService,
    next_action,
)
from ralphproof.engine.outcome import Aborted, Completed, Failed, Passed, Retry, Stopped, Verdict, Waiting
from ralphproof.engine.plan import AllDone, Blocked, Job, Pipeline, Stage, Task
from ralphproof.engine.prompt import Feedback
from ralphproof.engine.records import (
    CheckEnded,
    Judged,
    Picked,
    Record,
    RunBegan,
    RunEnded,
    Saved,
    ScmBegan,
    ScmEnded,
    TurnBegan,
    TurnEnded,
    TurnRetried,
)
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.state import State, build_state
from ralphproof.engine.workspace import Change, CommitResult, Snapshot, TouchedPath
from tests.engine.fake_environment import (
    CLAIMING,
    CRASHING,
    EDITED,
    EMPTY,
    JOB,
    LIMITED,
    NOTHING,
    RULES,
    STAGE,
    TASK,
    UNSTARTABLE,
    WORKING,
    FakeEnvironment,
    Step,
    make_finding,
    with_limits,
)

NOW = RunConditions(7.0, 1_000.0)
BEGAN = RunBegan("r1", Snapshot("began", "t0"), {})
DONE = ParsedClaim(Claim("DONE"))
SILENT = ParsedClaim()
GREEN, RED = CheckReport((make_finding(True),)), CheckReport((make_finding(False),))


def picked(*before: Record) -> list[Record]:
    return [BEGAN, *before, Picked(1, JOB)]


def turned(reply: Turn) -> list[Record]:
    return [*picked(), TurnBegan(1, 1, "digest"), TurnEnded(1, 1, reply)]


def saved(reply: Turn = WORKING, change: Change = EDITED, heard: ParsedClaim = SILENT) -> list[Record]:
    return [*turned(reply), Saved(1, 1, Snapshot("s", "t1"), change, heard)]


def asked(passed: bool, heard: ParsedClaim = DONE, change: Change = EDITED) -> list[Record]:
    return [*saved(CLAIMING, change, heard), CheckEnded(1, 1, make_finding(passed))]


def judged(verdict: Verdict, passed: bool = True, change: Change = EDITED) -> list[Record]:
    return [*asked(passed, change=change), Judged(1, 1, verdict, 5.0)]


def step(records: list[Record], rules: RunRules = RULES, now: RunConditions = NOW) -> Action:
    return next_action(build_state(records), rules, now)


def ended(records: list[Record], rules: RunRules = RULES, now: RunConditions = NOW) -> Aborted:
    action = step(records, rules, now)
    assert isinstance(action, EndRun)
    assert isinstance(action.outcome, Aborted)
    return action.outcome


def test_an_iteration_is_a_straight_line() -> None:
    assert step([BEGAN]) == PickNextJob(1)
    assert step(picked()) == TakeTurn(JOB)
    assert step([*picked(), TurnBegan(1, 1, "digest")]) == TakeTurn(JOB)
    assert step(turned(WORKING)) == SaveWork()
    assert step(saved()) == RunChecks("tests")
    assert step(asked(True)) == Conclude(Passed(GREEN))
    assert step(judged(Passed(GREEN))) == PickNextJob(2)


def test_the_pause_stands_between_iterations_only() -> None:
    rules = replace(RULES, agent=replace(RULES.agent, pause_s=0.5))
    assert step(picked(), rules) == TakeTurn(JOB)
    assert step([*judged(Retry(Feedback())), Picked(2, JOB)], rules) == TakeTurn(JOB, pause_s=0.5)


def test_all_checks_are_asked_in_order_the_red_ones_too() -> None:
    job = replace(JOB, stage=replace(STAGE, checks=("a", "b")))
    rules = replace(RULES, pipeline=Pipeline((job.stage,)))
    begun: list[Record] = [BEGAN, Picked(1, job), TurnBegan(1, 1, ""), TurnEnded(1, 1, WORKING)]
    begun.append(Saved(1, 1, Snapshot("s", "t"), EDITED, ParsedClaim()))
    assert step(begun, rules) == RunChecks("a")
    begun.append(CheckEnded(1, 1, make_finding(False, "a")))
    assert step(begun, rules) == RunChecks("b")
    begun.append(CheckEnded(1, 1, make_finding(True, "b")))
    assert step(begun, rules) == Conclude(Retry(Feedback((make_finding(False, "a"),))))


@pytest.mark.parametrize(
    ("heard", "action"),
    [
        pytest.param(DONE, RunChecks("tests"), id="the claim is made"),
        pytest.param(ParsedClaim(), Conclude(Retry(Feedback())), id="no claim"),
    ],
)
def test_with_checks_on_claim_only_a_claim_has_them_asked(heard: ParsedClaim, action: Action) -> None:
    assert step(saved(heard=heard), replace(RULES, checks=replace(RULES.checks, when="claim"))) == action
    assert step(saved(heard=heard)) == RunChecks("tests")


def test_with_checks_on_claim_another_stages_word_has_nothing_asked() -> None:
    action = step(saved(heard=ParsedClaim(Claim("TESTED"))), replace(RULES, checks=replace(RULES.checks, when="claim")))
    assert isinstance(action, Conclude)
    assert isinstance(action.verdict, Retry)


PHASES = {
    "ready": [BEGAN],
    "picked": picked(),
    "picked, all done": [BEGAN, Picked(1, AllDone())],
    "saved": saved(),
    "saved, empty": saved(EMPTY, NOTHING),
    "saved, limited": saved(LIMITED, NOTHING),
    "saved, unstartable": saved(UNSTARTABLE, NOTHING),
    "asked": asked(True),
    "judged": judged(Passed(GREEN)),
    "to be taken again": [*saved(EMPTY, NOTHING), TurnRetried(1, 1, True, "")],
}


@pytest.mark.parametrize("wish", ["INTERRUPTED", "CANCELLED"])
@pytest.mark.parametrize("records", PHASES.values(), ids=PHASES.keys())
def test_a_wish_to_end_is_heard_wherever_no_work_is_unsaved(records: list[Record], wish: str) -> None:
    outcome = ended(records, now=replace(NOW, stop_reason=wish))
    assert outcome.breach == Breach(wish, "the run was asked to end")
    assert outcome.exit_code == 130
    assert outcome.seconds == 7.0


def test_a_wish_never_comes_between_a_turns_beginning_and_the_saving_of_its_work() -> None:
    wish = replace(NOW, stop_reason="CANCELLED")
    assert step([*picked(), TurnBegan(1, 1, "")], now=wish) == TakeTurn(JOB)
    for reply in (WORKING, EMPTY, LIMITED, UNSTARTABLE, CRASHING):
        assert step(turned(reply), now=wish) == SaveWork()


def test_a_run_that_is_over_has_nothing_left_to_do_not_even_to_be_cancelled() -> None:
    outcome = Failed("x", 0)
    assert step([BEGAN, RunEnded(outcome)]) == Finish(outcome)
    assert step([BEGAN, RunEnded(outcome)], now=replace(NOW, stop_reason="CANCELLED")) == Finish(outcome)


def empties(count: int) -> list[Record]:
    records = picked()
    for turn in range(1, count + 1):
        records += [
            TurnBegan(1, turn, ""),
            TurnEnded(1, turn, EMPTY),
            Saved(1, turn, Snapshot("s", "t0"), NOTHING, ParsedClaim()),
            TurnRetried(1, turn, True, "empty"),
        ]
    return records[:-1]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_an_empty_reply_is_taken_again_and_is_no_iteration(count: int) -> None:
    assert step(empties(count)) == RetryTurn(empty=True, why="the agent ended well and said nothing")
    state = build_state([*empties(count), TurnRetried(1, count, True, "empty")])
    assert (state.iteration, state.turn, len(state.history.iterations)) == (1, count + 1, 0)


def test_the_fourth_empty_reply_in_a_row_ends_the_run() -> None:
    outcome = ended(empties(4))
    assert outcome.breach == Breach("EMPTY_REPLIES", "4 empty replies in a row")
    assert outcome.exit_code == 1


def test_how_often_an_empty_reply_is_taken_again_is_a_rule() -> None:
    outcome = ended(empties(1), replace(RULES, agent=replace(RULES.agent, max_empty_replies=0)))
    assert outcome.breach == Breach("EMPTY_REPLIES", "1 empty replies in a row")
    assert isinstance(step(empties(4), replace(RULES, agent=replace(RULES.agent, max_empty_replies=4))), RetryTurn)


@pytest.mark.parametrize(
    ("reply", "change"),
    [
        pytest.param(EMPTY, EDITED, id="it changed files"),
        pytest.param(EMPTY, Change(known=False), id="what it changed is unknown"),
        pytest.param(replace(EMPTY, exit=Exit(1)), NOTHING, id="it ended badly"),
        pytest.param(WORKING, NOTHING, id="it said something"),
    ],
)
def test_a_turn_with_any_trace_of_work_is_an_iteration(reply: Turn, change: Change) -> None:
    assert step(saved(reply, change)) == RunChecks("tests")


def test_a_silent_turn_that_left_a_marker_is_no_empty_reply() -> None:
    assert step(saved(EMPTY, NOTHING, ParsedClaim(Claim("DONE", source="marker")))) == RunChecks("tests")
    waiting = step(
        [*saved(EMPTY, NOTHING, ParsedClaim(Claim("later", True, "marker"))), CheckEnded(1, 1, make_finding(True))]
    )
    assert waiting == Conclude(Waiting("later"))


def limits(count: int, resets_at: float | None = None) -> list[Record]:
    reply = replace(LIMITED, limited=Limited("usage limit", resets_at))
    records = picked()
    for turn in range(1, count + 1):
        records += [
            TurnBegan(1, turn, ""),
            TurnEnded(1, turn, reply),
            Saved(1, turn, Snapshot("s", "t0"), NOTHING, ParsedClaim()),
            TurnRetried(1, turn, False, "usage limit"),
        ]
    return records[:-1]


@pytest.mark.parametrize(
    ("count", "resets_at", "wait_s"),
    [
        pytest.param(1, None, BACK_OFF_S[0], id="backing off"),
        pytest.param(2, None, BACK_OFF_S[1], id="longer each time"),
        pytest.param(MAX_FAILURES - 1, None, BACK_OFF_S[-1], id="up to the longest"),
        pytest.param(1, 900.0, BACK_OFF_S[0], id="a reset that is past tells nothing"),
        pytest.param(2, 1_000.0, BACK_OFF_S[1], id="a reset that is now tells nothing"),
    ],
)
def test_a_service_that_is_away_is_left_alone_for_a_while(count: int, resets_at: float | None, wait_s: float) -> None:
    again = step(limits(count, resets_at))
    assert isinstance(again, RetryTurn)
    assert (again.empty, again.why) == (False, "usage limit")
    assert wait_s * 0.75 <= again.until - NOW.epoch_s <= wait_s * 1.25


def test_a_stated_reset_is_waited_for() -> None:
    assert step(limits(1, 1_060.0)) == RetryTurn(empty=False, why="usage limit", until=1_061.0, wait_s=61.0)


def waiting(until: float, agents: int = 1) -> Action:
    records = [*limits(1), TurnRetried(1, 1, False, "usage limit", until)]
    return step(records, replace(RULES, agent=replace(RULES.agent, rotation=AgentRotation(fallbacks=agents - 1))))


def test_until_then_nothing_is_asked() -> None:
    assert waiting(1_000.25) == WaitForService(0.25)
    assert waiting(9_000.0) == WaitForService(1.0)
    assert waiting(1_000.0) == TakeTurn(JOB)


def test_somebody_who_wants_the_run_to_end_does_not_wait() -> None:
    records = [*limits(1), TurnRetried(1, 1, False, "usage limit", 9_000.0)]
    assert ended(records, now=replace(NOW, stop_reason="INTERRUPTED")).exit_code == 130


def test_a_service_that_stays_away_ends_the_run() -> None:
    outcome = ended(limits(MAX_FAILURES))
    assert outcome.breach == Breach("SERVICE_UNAVAILABLE", "usage limit (8 times in a row)")
    assert outcome.exit_code == 1


def test_a_run_that_is_gone_on_with_has_given_up_the_same_services() -> None:
    records = [*limits(MAX_FAILURES), TurnRetried(1, MAX_FAILURES, False, "usage limit", 0.0)]
    assert ended(records).breach == Breach("SERVICE_UNAVAILABLE", "no agent's service answers")
    assert step(records, replace(RULES, agent=replace(RULES.agent, rotation=AgentRotation(fallbacks=1)))) == TakeTurn(
        JOB, agent_index=1
    )


def test_a_reset_after_the_end_of_the_run_is_not_waited_for() -> None:
    rules = with_limits(Limits(Budget(seconds=60.0)))
    assert isinstance(step(limits(1, 1_040.0), rules), RetryTurn)
    outcome = ended(limits(1, 1_600.0), rules)
    assert outcome.breach.reason == "TIME_LIMIT"
    assert outcome.breach.message == "usage limit, for another 10 minutes, and the run's time ends before"


def test_a_reset_in_days_is_not_waited_for() -> None:
    assert ended(limits(1, 1_000.0 + 3 * 86_400)).breach.message == "usage limit, for another 72 hours"


def test_another_agent_goes_on_at_once_and_the_first_is_tried_again_when_its_time_has_come() -> None:
    assert waiting(1_060.0, agents=2) == TakeTurn(JOB, agent_index=1)
    assert waiting(1_000.0, agents=2) == TakeTurn(JOB, agent_index=0)


def test_a_reset_in_days_matters_to_nobody_while_another_agent_is_there() -> None:
    assert isinstance(
        step(
            limits(1, 1_000.0 + 3 * 86_400),
            replace(RULES, agent=replace(RULES.agent, rotation=AgentRotation(fallbacks=1))),
        ),
        RetryTurn,
    )


def test_an_agent_that_cannot_be_used_ends_the_run_at_once_by_configuration() -> None:
    assert step(saved(UNSTARTABLE, NOTHING)) == EndRun(Failed("fake: not found", 0, exit_code=2, seconds=7.0))


def test_what_a_run_has_cost_is_told_however_it_ends() -> None:
    broke = replace(CRASHING, error="no credit", blame="config", micro_usd=4_500_000)
    assert step(saved(broke)) == EndRun(Failed("no credit", 1, 2, Spend(4_500_000), 7.0))


def test_an_iteration_that_waits_to_be_taken_again_was_begun() -> None:
    records = [*limits(1), TurnRetried(1, 1, False, "usage limit", 9_000.0)]
    assert ended(records, now=replace(NOW, stop_reason="CANCELLED")).iterations == 1


@pytest.mark.parametrize("reply", [CRASHING, replace(CRASHING, exit=Exit(None, "interrupted"))])
def test_the_work_of_an_agent_that_crashed_is_checked_all_the_same(reply: Turn) -> None:
    assert step(saved(reply)) == RunChecks("tests")


@pytest.mark.parametrize(
    ("choice", "breach"),
    [
        (
            Blocked(("a", "b"), "each waits for another"),
            Breach("BLOCKED", "nothing can be worked on (each waits for another): a, b", ("a", "b")),
        ),
    ],
)
def test_a_blocked_plan_ends_the_run_naming_its_tasks(choice: Blocked, breach: Breach) -> None:
    outcome = ended([BEGAN, Picked(1, choice)])
    assert outcome.breach == breach
    assert outcome.exit_code == 1


def test_a_plan_that_is_done_beats_every_limit() -> None:
    rules = with_limits(Limits(Budget(iterations=1, micro_usd=0, seconds=0.0)))
    action = step([*judged(Passed(GREEN)), Picked(2, AllDone())], rules)
    assert isinstance(action, EndRun)
    assert isinstance(action.outcome, Completed)
    assert (action.outcome.iterations, action.outcome.verified, action.outcome.exit_code) == (1, True, 0)
    assert action.outcome.output == CLAIMING.text
    assert action.outcome.spend.micro_usd == 1_000


@pytest.mark.parametrize(
    ("records", "verified"),
    [
        pytest.param(judged(Passed(GREEN)), True, id="the checks passed"),
        pytest.param(
            [record for record in judged(Passed(CheckReport())) if not isinstance(record, CheckEnded)],
            False,
            id="nothing was asked",
        ),
        pytest.param([BEGAN], False, id="nothing was ever worked on"),
        pytest.param(judged(Retry(Feedback()), passed=False), False, id="the plan says done and the checks say no"),
    ],
)
def test_a_finished_plan_is_verified_only_where_checks_showed_it(records: list[Record], verified: bool) -> None:
    action = step([*records, Picked(9, AllDone())])
    assert isinstance(action, EndRun)
    assert isinstance(action.outcome, Completed)
    assert action.outcome.verified is verified


def test_one_unproved_task_leaves_the_whole_run_unproved() -> None:
    other = replace(JOB, task=replace(TASK, id="t2"))
    records = [*believed(), *passed_by_checks(2, other), Picked(3, AllDone())]
    assert completion(records).proof == "claimed"


def test_what_counts_of_a_task_is_what_its_last_stage_was_verified_by() -> None:
    last = replace(JOB, stage=replace(JOB.stage, name="qa"))
    outcome = completion([*believed(), *passed_by_checks(2, last), Picked(3, AllDone())])
    assert outcome.proof == "verified"
    assert outcome.concerns == ("stage work: it was claimed; nothing verified it",)


def believed() -> list[Record]:
    """A first iteration that passes where nothing was asked."""
    return [record for record in judged(Passed(CheckReport())) if not isinstance(record, CheckEnded)]


def passed_by_checks(number: int, job: Job) -> list[Record]:
    return [
        Picked(number, job), TurnBegan(number, 1, ""), TurnEnded(number, 1, CLAIMING),
        Saved(number, 1, Snapshot("s", "t"), EDITED, DONE), CheckEnded(number, 1, make_finding(True)),
        Judged(number, 1, Passed(GREEN), 6.0),
    ]  # fmt: skip


def completion(records: list[Record]) -> Completed:
    action = step(records)
    assert isinstance(action, EndRun)
    assert isinstance(action.outcome, Completed)
    return action.outcome


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(Budget(iterations=1)), "MAX_ITERATIONS"),
        (Limits(Budget(micro_usd=999)), "COST_LIMIT"),
        (Limits(Budget(tokens=14)), "TOKEN_LIMIT"),
        (Limits(Budget(seconds=7.0)), "TIME_LIMIT"),
        (Limits(same_error_iterations=1), "SAME_ERROR_5X"),
    ],
)
def test_a_limit_is_looked_at_before_the_next_turn(limits: Limits, reason: str) -> None:
    records = [*judged(Retry(Feedback()), passed=False), Picked(2, JOB)]
    outcome = ended(records, with_limits(limits))
    assert outcome.breach.reason == reason
    assert (outcome.iterations, outcome.output) == (1, CLAIMING.text)
    assert step(records) == TakeTurn(JOB)


def test_a_stage_that_was_tried_often_enough_ends_the_run() -> None:
    job = replace(JOB, stage=replace(JOB.stage, max_iterations=1))
    outcome = ended([*judged(Retry(Feedback())), Picked(2, job)])
    assert outcome.breach == Breach("MAX_ITERATIONS", "stage work of t1 was tried once, and may be tried no more")


@pytest.mark.parametrize(
    ("verdict", "breach", "code"),
    [
        (Stopped(Breach("COST_LIMIT", "x")), Breach("COST_LIMIT", "x"), 1),
        (Waiting("needs a password"), Breach("WAITING", "needs a password"), 4),
    ],
)
def test_a_verdict_that_stops_ends_the_run(verdict: Verdict, breach: Breach, code: int) -> None:
    outcome = ended(judged(verdict), replace(RULES, scm=True))
    assert outcome.breach == breach
    assert outcome.exit_code == code
    assert outcome.checks_passed


WITH_SCM = replace(RULES, scm=True)


@pytest.mark.parametrize(
    ("records", "rules", "kept"),
    [
        pytest.param(judged(Passed(GREEN)), WITH_SCM, True, id="green and changed"),
        pytest.param(judged(Retry(Feedback())), WITH_SCM, True, id="green and changed, not claimed"),
        pytest.param(judged(Passed(GREEN)), RULES, False, id="not asked for"),
        pytest.param(judged(Retry(Feedback()), passed=False), WITH_SCM, False, id="red"),
        pytest.param(judged(Passed(GREEN), change=NOTHING), WITH_SCM, False, id="nothing changed"),
        pytest.param(judged(Passed(GREEN), change=Change(known=False)), WITH_SCM, False, id="unknown what changed"),
        pytest.param(
            [*saved(), Judged(1, 1, Retry(Feedback()), 5.0)],
            replace(WITH_SCM, checks=CheckRules(when="claim")),
            False,
            id="the checks were not asked",
        ),
    ],
)
def test_the_scm_gets_only_changed_work_whose_checks_passed(records: list[Record], rules: RunRules, kept: bool) -> None:
    assert step(records, rules) == (CommitWork() if kept else PickNextJob(2))


def test_a_message_that_cost_too_much_ends_the_run_though_its_work_is_green() -> None:
    records = [
        *judged(Passed(GREEN)),
        ScmBegan(1),
        ScmEnded(1, CommitResult("c"), replace(WORKING, micro_usd=9_000_000)),
    ]
    assert step(records, WITH_SCM) == PickNextJob(2)
    outcome = ended(records, with_limits(Limits(Budget(micro_usd=1_000_000)), WITH_SCM))
    assert (outcome.breach.reason, outcome.checks_passed) == ("COST_LIMIT", True)


LEFT_OUT = "scm: left out, because it was not the run's alone:"


@pytest.mark.parametrize(
    ("committed", "concerns"),
    [
        (CommitResult("c"), ()),
        (CommitResult(error="no luck"), ("scm: no luck",)),
        (CommitResult("c", "no luck", ("a", "b")), ("scm: no luck", f"{LEFT_OUT} a, b")),
        (CommitResult("c", left=tuple("abcdefghijkl")), (f"{LEFT_OUT} a, b, c, d, e, f, g, h, i, j and 2 more",)),
    ],
)
def test_what_is_not_where_the_user_keeps_their_work_is_a_concern(
    committed: CommitResult, concerns: tuple[str, ...]
) -> None:
    records = [*judged(Passed(GREEN)), ScmBegan(1), ScmEnded(1, committed), Picked(2, AllDone())]
    action = step(records, WITH_SCM)
    assert isinstance(action, EndRun)
    assert isinstance(action.outcome, Completed)
    assert action.outcome.concerns == concerns


# ── whole runs ──


def test_the_last_allowed_iteration_may_win() -> None:
    env = FakeEnvironment(Step(failing=("tests",)), Step(CLAIMING), rules=with_limits(Limits(Budget(iterations=2))))
    outcome = env.run()
    assert isinstance(outcome, Completed)
    assert (outcome.iterations, outcome.verified) == (2, True)
    assert env.run_files.result["status"] == "COMPLETED"


def test_a_liar_never_completes_and_reads_the_failure_in_its_next_prompt() -> None:
    env = FakeEnvironment(Step(CLAIMING, failing=("tests",)), rules=with_limits(Limits(Budget(iterations=3))))
    outcome = env.run()
    assert isinstance(outcome, Aborted)
    assert (outcome.breach.reason, outcome.iterations, outcome.exit_code) == ("MAX_ITERATIONS", 3, 1)
    assert 'Guardrail "make test" failed' not in env.run_files.prompts["prompt_001"]
    assert 'Guardrail "make test" failed with exit code 2.' in env.run_files.prompts["prompt_002"]
    assert 'The checks say that it is not: "tests".' in env.run_files.prompts["prompt_003"]


def test_without_any_check_a_claim_ends_the_run_and_the_outcome_says_claimed() -> None:
    outcome = FakeEnvironment(
        Step(CLAIMING), rules=replace(RULES, pipeline=Pipeline((replace(STAGE, checks=()),)))
    ).run()
    assert isinstance(outcome, Completed)
    assert outcome.verified is False


def test_a_claim_in_an_errored_turn_does_not_count_and_is_named() -> None:
    env = FakeEnvironment(Step(replace(CLAIMING, exit=Exit(1))), Step(CLAIMING))
    outcome = env.run()
    assert isinstance(outcome, Completed)
    assert outcome.iterations == 2
    assert "'DONE' was said in a turn that failed" in env.run_files.prompts["prompt_002"]


def test_an_echo_of_the_prompt_is_no_claim_in_a_run() -> None:
    env = FakeEnvironment(Step(), rules=with_limits(Limits(Budget(iterations=1))))
    env.run()
    echo = env.run_files.prompts["prompt_001"] + "\nworking"
    again = FakeEnvironment(Step(replace(WORKING, text=echo)), rules=with_limits(Limits(Budget(iterations=2))))
    outcome = again.run()
    assert isinstance(outcome, Aborted)
    assert outcome.breach.reason == "MAX_ITERATIONS"


def test_money_beats_a_pass_and_says_that_the_work_is_green() -> None:
    outcome = FakeEnvironment(Step(CLAIMING), rules=with_limits(Limits(Budget(micro_usd=999)))).run()
    assert isinstance(outcome, Aborted)
    assert (outcome.breach.reason, outcome.checks_passed, outcome.exit_code) == ("COST_LIMIT", True, 1)


def test_a_tripwire_beats_success() -> None:
    outcome = FakeEnvironment(
        Step(CLAIMING, touched=(TouchedPath("src/a.py", "protectedPaths: src", stops=True),))
    ).run()
    assert isinstance(outcome, Aborted)
    assert (outcome.breach.reason, outcome.breach.paths) == ("PROHIBITED_PATH", ("src/a.py",))


def test_what_an_iteration_changed_is_counted_from_its_beginning_however_many_turns_it_took() -> None:
    env = FakeEnvironment(Step(LIMITED), Step(EMPTY, NOTHING), Step(CLAIMING))
    outcome = env.run()
    assert isinstance(outcome, Completed)
    assert outcome.iterations == 1
    assert {before.id for before, _ in env.between} == {"began"}


def test_a_wait_is_rested_and_burns_no_iteration() -> None:
    limited = replace(LIMITED, limited=Limited("limit", 1_060.0))
    env = FakeEnvironment(Step(limited, NOTHING), Step(CLAIMING), rules=with_limits(Limits(Budget(iterations=1))))
    assert isinstance(env.run(), Completed)
    assert sum(env.clock.sleeps) == 61.0
    assert [brief.log_base for brief in env.turn_inputs] == env.run_files.published == ["agent_001", "agent_001_2"]


def test_work_that_a_service_broke_off_goes_on_in_its_own_session_and_is_billed_once() -> None:
    broken = replace(LIMITED, session="s1", tools=3, micro_usd=20, usage=Usage(10))
    again = replace(broken, micro_usd=5, usage=Usage(1))
    env = FakeEnvironment(Step(broken), Step(again), Step(CLAIMING))
    assert isinstance(env.run(), Completed)
    told = [(brief.session, brief.session_spent) for brief in env.turn_inputs]
    assert told == [(None, None), ("s1", Spent(20, Usage(10))), ("s1", Spent(25, Usage(11)))]


@pytest.mark.parametrize("reply", [replace(LIMITED, session="s1"), replace(LIMITED, tools=3)])
def test_a_session_without_work_is_not_gone_on_with(reply: Turn) -> None:
    env = FakeEnvironment(Step(reply), Step(CLAIMING))
    assert isinstance(env.run(), Completed)
    assert [brief.session for brief in env.turn_inputs] == [None, None]


def test_another_agent_cannot_go_on_with_a_session() -> None:
    env = FakeEnvironment(
        Step(replace(LIMITED, session="s1", tools=3)),
        Step(CLAIMING),
        rules=replace(RULES, agent=replace(RULES.agent, rotation=AgentRotation(fallbacks=1))),
    )
    assert isinstance(env.run(), Completed)
    assert [brief.session for brief in env.turn_inputs] == [None, None]
    assert [record.place for record in env.ledger.appended if isinstance(record, TurnBegan)] == [0, 1]


FOUR = tuple(
    Stage(name, ClaimRule(name.upper()), (f"check {name}",), max_iterations=2)
    for name in ("coder", "reviewer", "tester", "qa")
)


def saying(*words: str) -> tuple[Step, ...]:
    return tuple(Step(replace(WORKING, text=f"<promise>{word}</promise>")) for word in words)


def stages_of(env: FakeEnvironment) -> list[str]:
    return [iteration.job.stage.name for iteration in env.rebuilt().history.iterations]


def test_a_pipeline_walks_its_stages_in_order_each_with_its_own_checks_word_and_counter() -> None:
    steps = saying("CODER", "CODER", "REVIEWER", "TESTER", "QA")  # the reviewer first says the coder's word
    env = FakeEnvironment(*steps, rules=replace(RULES, pipeline=Pipeline(FOUR)))
    outcome = env.run()
    assert isinstance(outcome, Completed)
    assert stages_of(env) == ["coder", "reviewer", "reviewer", "tester", "qa"]
    assert [check for _, check in env.checks_run] == [f"check {name}" for name in stages_of(env)]
    history = env.rebuilt().history
    assert [history.attempts(Job(TASK, stage)) for stage in FOUR] == [1, 2, 1, 1]
    assert "completion is claimed with <response>REVIEWER</response>" in env.run_files.prompts["prompt_003"]


def test_a_stage_that_has_used_its_own_limit_ends_the_run() -> None:
    env = FakeEnvironment(*saying("CODER", "CODER"), rules=replace(RULES, pipeline=Pipeline(FOUR)))
    outcome = env.run()
    assert isinstance(outcome, Aborted)
    assert outcome.breach == Breach("MAX_ITERATIONS", "stage reviewer of t1 was tried 2 times")
    assert stages_of(env) == ["coder", "reviewer", "reviewer"]


def test_stage_first_reviews_before_it_begins_new_work() -> None:
    review, write = Stage("review", ClaimRule("OK")), Stage("write", ClaimRule("OK"))

    def tasks(env: FakeEnvironment) -> tuple[Task, ...]:
        written = len(env.turns)
        moves = [("write", "write"), ("review", "write"), ("done", "write"), ("done", "review"), ("done", "done")]
        return tuple(
            Task(name, "x", done=at == "done", stage=None if at == "done" else at)
            for name, at in zip("ab", moves[written], strict=True)
        )

    pipeline = Pipeline((review, write), stage_first=True)
    env = FakeEnvironment(*saying("OK"), rules=replace(RULES, pipeline=pipeline), tasks=tasks)
    assert isinstance(env.run(), Completed)
    jobs = [iteration.job.key for iteration in env.rebuilt().history.iterations]
    assert jobs == [("a", "write"), ("a", "review"), ("b", "write"), ("b", "review")]


def test_stages_that_pass_without_a_change_are_progress_and_no_stall() -> None:
    names = "abcdefgh"
    stages = tuple(Stage(name, ClaimRule("OK")) for name in names)
    step = replace(saying("OK")[0], change=NOTHING)
    env = FakeEnvironment(step, rules=replace(RULES, pipeline=Pipeline(stages)))
    assert isinstance(env.run(), Completed)
    assert stages_of(env) == list(names)


def test_five_idle_iterations_are_a_stall() -> None:
    outcome = FakeEnvironment(Step(change=NOTHING)).run()
    assert isinstance(outcome, Aborted)
    assert (outcome.breach.reason, outcome.iterations) == ("STALL", 5)


def test_passed_work_goes_to_the_scm_under_the_agents_message_and_the_calls_cost_counts() -> None:
    env = FakeEnvironment(Step(), Step(failing=("tests",)), Step(CLAIMING), rules=WITH_SCM)
    outcome = env.run()
    assert isinstance(outcome, Completed)
    assert env.commits == ["Fix it", "Fix it"]
    assert outcome.iterations == 3
    assert outcome.spend.micro_usd == 5_000
    assert [name for name in env.run_files.prompts if "scm" in name] == ["scm_001_prompt", "scm_003_prompt"]
    assert env.run_files.published == ["agent_001", "scm_001", "agent_002", "agent_003", "scm_003"]


def test_without_a_message_nothing_is_committed_and_the_run_goes_on() -> None:
    env = FakeEnvironment(Step(CLAIMING), rules=WITH_SCM, message=" ")
    assert isinstance(env.run(), Completed)
    assert env.commits == []


@pytest.mark.parametrize("at", ["turn", "save", "check", "scm"])
def test_a_wish_in_the_middle_of_something_ends_the_run_after_its_work_is_saved(at: str) -> None:
    env = FakeEnvironment(Step(stop_during=at), rules=WITH_SCM)
    outcome = env.run()
    assert isinstance(outcome, Aborted)
    assert (outcome.breach.reason, outcome.iterations) == ("INTERRUPTED", 1)
    assert env.saves >= 1
    assert len(env.turns) == 1


def test_a_wish_before_anything_began_starts_nothing() -> None:
    env = FakeEnvironment()
    env.clock.requested_stop = "CANCELLED"
    outcome = env.run()
    assert isinstance(outcome, Aborted)
    assert (outcome.breach.reason, outcome.iterations, env.turn_inputs) == ("CANCELLED", 0, [])


def test_every_turn_is_told_the_time_that_is_left() -> None:
    agent = AgentRules(timeout_s=60.0, pause_s=50.0)
    rules = replace(with_limits(Limits(Budget(seconds=90.0))), agent=agent)
    env = FakeEnvironment(Step(), rules=rules)
    env.run()
    assert [brief.timeout_s for brief in env.turn_inputs][:2] == [60.0, 40.0]


def test_the_state_of_a_run_that_was_never_begun_has_no_job_no_reply_and_no_facts() -> None:
    for name in ("job", "reply", "facts"):
        with pytest.raises(ValueError, match=r"no (job|turn|iteration)"):
            getattr(State(), name)
