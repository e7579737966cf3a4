"""What follows from one iteration, and the form in which an outcome is published."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ralphproof.base.value import replace
from ralphproof.engine.check import CheckReport, Finding
from ralphproof.engine.claim import Claim
from ralphproof.engine.limits import Breach, Budget, Limits, Spend
from ralphproof.engine.outcome import (
    Aborted,
    Completed,
    Failed,
    Outcome,
    Passed,
    Retry,
    Stopped,
    Verdict,
    Waiting,
    judge_iteration,
    money_json,
    outcome_json,
)
from ralphproof.engine.plan import Iteration
from ralphproof.engine.prompt import Feedback
from ralphproof.engine.workspace import Change, TouchedPath, TripwireReport
from tests.engine.fake_environment import CRASHING, STAGE, make_finding
from tests.engine.test_iteration import made, of

if TYPE_CHECKING:
    from ralphproof.base.value import Json

GREEN, RED = CheckReport((make_finding(True),)), CheckReport((make_finding(False),))
DONE = Claim("done")
NOT_YET = Claim("CONTINUE")
HOLD = Claim("needs a password", waiting=True, source="marker")
PROTECTED = TripwireReport((TouchedPath("secret/x", "protectedPaths: secret", stops=True),))
REWRITTEN = Change((), rewritten=True)
LIMITS = Limits(Budget(micro_usd=1_000))
TRIPPED = Breach("PROHIBITED_PATH", "protected paths were changed: secret/x; their files were put back", ("secret/x",))
BROKE = Breach("COST_LIMIT", "spent $0.0011 of $0.0010")
POOR, RICH = Spend(1_100), Spend(1_000)
SAYS_DONE = 'Your last reply said that the work is done. The checks say that it is not: "tests".'
OTHER_WORD = "Your last reply said 'CONTINUE'; completion is claimed with <response>DONE</response>."


@pytest.mark.parametrize(
    ("report", "claim", "sprung", "spend", "verdict"),
    [
        pytest.param(GREEN, DONE, TripwireReport(), RICH, Passed(GREEN), id="green and claimed"),
        pytest.param(CheckReport(), DONE, TripwireReport(), RICH, Passed(CheckReport()), id="claimed, nothing asked"),
        pytest.param(GREEN, None, TripwireReport(), RICH, Retry(Feedback()), id="green, not claimed"),
        pytest.param(
            RED, DONE, TripwireReport(), RICH, Retry(Feedback(RED.findings, (SAYS_DONE,), True)), id="claimed and red"
        ),
        pytest.param(RED, None, TripwireReport(), RICH, Retry(Feedback(RED.findings)), id="red"),
        pytest.param(GREEN, NOT_YET, TripwireReport(), RICH, Retry(Feedback((), (OTHER_WORD,))), id="another word"),
        pytest.param(RED, NOT_YET, TripwireReport(), RICH, Retry(Feedback(RED.findings, (OTHER_WORD,))), id="both"),
        pytest.param(GREEN, HOLD, TripwireReport(), RICH, Waiting("needs a password"), id="waiting"),
        pytest.param(GREEN, HOLD, TripwireReport(), POOR, Waiting("needs a password"), id="waiting beats money"),
        pytest.param(GREEN, DONE, TripwireReport(), POOR, Stopped(BROKE), id="money beats a pass"),
        pytest.param(RED, DONE, TripwireReport(), POOR, Stopped(BROKE), id="money, and red"),
        pytest.param(CheckReport(), DONE, TripwireReport(), POOR, Stopped(BROKE), id="money, and nothing proved"),
        pytest.param(GREEN, DONE, PROTECTED, RICH, Stopped(TRIPPED), id="a tripwire beats success"),
        pytest.param(GREEN, DONE, PROTECTED, POOR, Stopped(TRIPPED), id="a tripwire beats money"),
        pytest.param(GREEN, HOLD, PROTECTED, RICH, Stopped(TRIPPED), id="a tripwire beats waiting"),
    ],
)
def test_the_first_rule_that_matches_decides(
    report: CheckReport, claim: Claim | None, sprung: TripwireReport, spend: Spend, verdict: Verdict
) -> None:
    now = replace(made(report=report), claim=claim, tripwires=sprung)
    assert judge_iteration(of(now), spend, LIMITS) == verdict


def test_rewritten_history_beats_success() -> None:
    verdict = judge_iteration(of(replace(made(REWRITTEN, GREEN), claim=DONE)), RICH, LIMITS)
    assert isinstance(verdict, Stopped)
    assert verdict.breach.reason == "HISTORY_REWRITTEN"


def test_only_the_latest_iteration_is_judged_so_a_claim_never_carries_over() -> None:
    claimed = replace(made(report=RED), claim=DONE)
    assert judge_iteration(of(claimed, made(report=GREEN)), RICH, LIMITS) == Retry(Feedback())


def test_a_stage_that_asks_for_no_word_passes_on_its_checks_alone() -> None:
    wordless = replace(made().job, stage=replace(STAGE, claim=replace(STAGE.claim, word=None)))
    assert judge_iteration(of(made(report=GREEN, job=wordless)), RICH, LIMITS) == Passed(GREEN)
    assert judge_iteration(of(made(report=GREEN, job=wordless, turn=CRASHING)), RICH, LIMITS) == Passed(GREEN)
    assert isinstance(judge_iteration(of(made(report=RED, job=wordless)), RICH, LIMITS), Retry)


def feedback_of(now: Iteration) -> Feedback:
    verdict = judge_iteration(of(now), RICH, LIMITS)
    assert isinstance(verdict, Retry)
    return verdict.feedback


def test_a_tag_that_was_not_counted_is_named_in_the_feedback() -> None:
    now = replace(made(report=RED), rejected_tags=("'<promise>DONE</promise>' stands inside a code fence",))
    assert feedback_of(now).notes == (
        "A completion tag in your last reply was not counted: '<promise>DONE</promise>' stands inside a code fence.",
    )


def test_a_novel_instead_of_a_word_is_quoted_in_short() -> None:
    (note,) = feedback_of(replace(made(), claim=Claim("x" * 50_000))).notes
    assert len(note) < 500


def test_feedback_holds_only_what_is_required_and_failed() -> None:
    optional = Finding("lint", False, required=False)
    assert feedback_of(
        made(report=CheckReport((make_finding(True, "a"), optional, make_finding(False, "b"))))
    ).findings == (make_finding(False, "b"),)


SPEND = Spend(1_230_000, 5)
ABORTED = Aborted(Breach("STALL", "5 idle"), 5, SPEND, 9.12345, "last words")


@pytest.mark.parametrize(
    ("outcome", "published"),
    [
        pytest.param(
            Completed(3, SPEND, 9.12345, "words", True, ("a concern",)),
            {
                "status": "COMPLETED", "iterations": 3, "costUSD": 1.23, "durationSeconds": 9.123, "exitCode": 0,
                "output": "words", "verificationPassed": True, "proof": "verified", "concerns": ["a concern"],
            },
            id="verified",
        ),
        pytest.param(
            Completed(1, Spend(unpriced=1), 0.0, "", False),
            {
                "status": "COMPLETED", "iterations": 1, "costUSD": None, "durationSeconds": 0.0,
                "exitCode": 0, "output": "", "verificationPassed": False, "proof": "claimed", "concerns": [],
            },
            id="claimed, and the cost is unknown",
        ),
        pytest.param(
            ABORTED,
            {
                "status": "ABORTED", "reason": "STALL", "iterations": 5, "costUSD": 1.23, "durationSeconds": 9.123,
                "exitCode": 1, "lastOutput": "last words", "details": {"message": "5 idle", "checksPassed": False},
            },
            id="a limit",
        ),
        pytest.param(
            Aborted(Breach("PROHIBITED_PATH", "no", ("a", "b")), 1, SPEND, 1.0, "", True),
            {
                "status": "ABORTED", "reason": "PROHIBITED_PATH", "iterations": 1, "costUSD": 1.23,
                "durationSeconds": 1.0, "exitCode": 1, "lastOutput": "",
                "details": {"message": "no", "checksPassed": True, "files": ["a", "b"]},
            },
            id="a tripwire names the files",
        ),
        pytest.param(
            Failed("not logged in", 2, 2, Spend(4_500_000), 3.25),
            {
                "status": "ERROR", "error": "not logged in", "iterations": 2, "costUSD": 4.5, "durationSeconds": 3.25,
                "exitCode": 2,
            },
            id="an error",
        ),
    ],
)  # fmt: skip
def test_an_outcome_is_published_field_by_field(outcome: Outcome, published: dict[str, Json]) -> None:
    cost = money_json(outcome.spend)
    assert outcome_json(outcome, "r") == {"v": 1, "type": "outcome", "run": "r", "cost": cost, **published}


@pytest.mark.parametrize(
    ("spend", "usd", "at_least"),
    [(Spend(1_500_000), 1.5, False), (Spend(1_500_000, unpriced=1), 1.5, True), (Spend(unpriced=1), None, True)],
)
def test_money_says_whether_a_part_is_unknown(spend: Spend, usd: float | None, at_least: bool) -> None:
    money = money_json(spend)
    assert (money["type"], money["usd"], money["atLeast"]) == ("money", usd, at_least)


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Completed(1, SPEND, 0.0, "", True), 0),
        (Completed(1, SPEND, 0.0, "", False), 0),
        (ABORTED, 1),
        (replace(ABORTED, breach=Breach("WAITING", "")), 4),
        (replace(ABORTED, breach=Breach("INTERRUPTED", "")), 130),
        (replace(ABORTED, breach=Breach("CANCELLED", "")), 130),
        (replace(ABORTED, breach=Breach("DISK_FULL", "")), 1),
        (Failed("", 0), 3),
        (Failed("", 0, 2), 2),
    ],
    ids=["verified", "claimed", "limit", "waiting", "interrupted", "cancelled", "disk full", "ours", "configuration"],
)
def test_each_outcome_has_its_exit_code(outcome: Outcome, code: int) -> None:
    assert outcome.exit_code == code
