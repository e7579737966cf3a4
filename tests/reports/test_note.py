from __future__ import annotations

import pytest

from ralphproof.engine.limits import Breach, Spend
from ralphproof.engine.outcome import Aborted, Completed, Failed, Outcome
from ralphproof.engine.records import Noticed, Record, RunEnded, TurnRetried, Warned
from ralphproof.reports.notifications import Notification, notification_for
from tests.display.watched_console import zone

NOW = 1_800_000_000.0  # 2027-01-15 08:00:00 UTC
SPENT = Spend(micro_usd=1_250_000, tokens=10)


def note(record: Record, project: str = "calc", secret: str = "") -> Notification | None:
    return notification_for(record, "run-1", project, lambda text: text.replace(secret, "***") if secret else text, NOW)


def told(record: Record, project: str = "calc", secret: str = "") -> Notification:
    made = note(record, project, secret)
    assert made is not None
    return made


def aborted(reason: str, message: str = "spent $1.25 of $1", spend: Spend = SPENT, green: bool = False) -> Aborted:
    return Aborted(Breach(reason, message), 7, spend, 100.0, "output", green)


@pytest.mark.parametrize(
    ("outcome", "status", "reason", "title", "body"),
    [
        (Completed(3, SPENT, 100.0, "output", True), "COMPLETED", "",
         "calc: COMPLETED, verified", "3 iterations, 2 min, cost $1.25"),
        (Completed(3, Spend(), 100.0, "output", False, ("at the cap",)), "COMPLETED", "",
         "calc: COMPLETED, claimed; nothing verified it", "3 iterations, 2 min, cost $0.00\nconcern: at the cap"),
        (aborted("COST_LIMIT"), "ABORTED", "COST_LIMIT",
         "calc: ABORTED, COST_LIMIT", "spent $1.25 of $1\n7 iterations, 2 min, cost $1.25"),
        (aborted("STALL", "nothing", Spend(unpriced=1), green=True), "ABORTED", "STALL",
         "calc: ABORTED, STALL", "nothing\nThe checks passed all the same.\n7 iterations, 2 min, cost unknown"),
        (aborted("WAITING", "for the review", Spend(20_000, unpriced=1)), "ABORTED", "WAITING",
         "calc: waits for somebody", "for the review\n7 iterations, 2 min, cost at least $0.02"),
        (Failed("the disk is gone", 2, 3, Spend(20_000, notional=10_000), 6.0), "ERROR", "",
         "calc: ERROR", "the disk is gone\n2 iterations, 6 s, cost $0.02 ($0.01 of it notional)"),
    ],
)  # fmt: skip
def test_the_end_of_a_run_is_told(outcome: Outcome, status: str, reason: str, title: str, body: str) -> None:
    made = told(RunEnded(outcome))
    assert (made.event, made.run, made.project) == ("run.ended", "run-1", "calc")
    assert (made.status, made.reason, made.title, made.body) == (status, reason, title, body)


COST = {"v": 1, "type": "money", "usd": 1.25, "atLeast": False, "notional": False}


def test_programs_get_figures_and_nothing_that_the_agent_said() -> None:
    assert told(RunEnded(aborted("COST_LIMIT"))).published() == {
        "v": 1, "event": "run.ended", "at": "2027-01-15T08:00:00.000Z", "run": "run-1", "project": "calc",
        "title": "calc: ABORTED, COST_LIMIT",
        "message": "spent $1.25 of $1\n7 iterations, 2 min, cost $1.25", "status": "ABORTED",
        "reason": "COST_LIMIT", "iterations": 7, "costUSD": 1.25, "cost": COST, "durationSeconds": 100.0, "exitCode": 1,
    }  # fmt: skip


def test_an_unknown_cost_is_null_for_programs() -> None:
    assert told(RunEnded(Completed(1, Spend(unpriced=1), 1.0, "", True))).published()["costUSD"] is None


def test_a_limit_that_comes_near_is_told() -> None:
    made = told(Warned(4, "cost", "[Ralph] Cost at 80% of limit: $0.80 / $1"))
    assert (made.event, made.status, made.reason) == ("run.warned", "RUNNING", "cost")
    assert (made.title, made.body) == ("calc: a limit comes near", "Cost at 80% of limit: $0.80 / $1")
    assert dict(made.facts) == {"iteration": 4}


@pytest.mark.parametrize(("seconds", "worth"), [(-5.0, False), (0.0, False), (60.0, False), (61.0, True)])
def test_only_a_long_wait_is_told(seconds: float, worth: bool) -> None:
    assert (note(TurnRetried(2, 1, False, "usage limit", NOW + seconds)) is not None) is worth


def test_a_wait_is_told_with_its_end() -> None:
    with zone("UTC"):
        made = told(TurnRetried(2, 1, False, "usage limit.", NOW + 3600))
    assert (made.event, made.status) == ("run.waiting", "WAITING")
    assert made.title == "calc: waits until 2027-01-15 09:00 UTC"
    assert made.body == "usage limit. At 2027-01-15 09:00 UTC iteration 2 is taken again."
    assert dict(made.facts) == {"iteration": 2, "until": "2027-01-15T09:00:00Z"}


def test_nothing_else_is_told() -> None:
    assert note(Noticed(1, 1, "something")) is None


def test_texts_are_masked_and_without_control_characters() -> None:
    made = told(RunEnded(Failed("\x1b[31mtoken hunter22\x1b[0m\r\nin \x07\u202efile\ud800", 1)), "my\ncalc", "hunter22")
    assert made.body.startswith("token ***\nin file\n1 iteration, 0 s")
    assert made.title == "my calc: ERROR"


def test_texts_are_short_and_their_secrets_are_masked_before_the_cut() -> None:
    made = told(RunEnded(Failed("x" * 995 + "hunter22" + "y" * 5000, 1)), "p" * 500, "hunter22")
    assert len(made.body) == 1000
    assert made.body.endswith("x***y…")
    assert len(made.title) <= 120
    assert made.title.endswith("…: ERROR")
