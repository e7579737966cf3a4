"""What the log of a restart manager says."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO

import pytest

from ralphproof.display.attempt_log import create_attempt_log, format_go_duration
from ralphproof.display.terminal import Style
from ralphproof.engine import records as told
from ralphproof.engine.agent import THE_CONFIGURATION, THE_SERVICE, Limited, Said, Turn, Usage
from ralphproof.engine.check import Finding
from ralphproof.engine.claim import Claim, ParsedClaim
from ralphproof.engine.limits import Breach, Spend
from ralphproof.engine.outcome import Aborted, Completed, Failed, Outcome, Retry
from ralphproof.engine.prompt import Feedback
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.workspace import Change, Snapshot, TouchedPath, TripwireReport
from tests.display.watched_console import zone

BEGAN_S = 1_770_285_600.0  # 2026-02-05 10:00:00 UTC
DONE = Claim("DONE", source="marker", stamp="1")
WAIT = Claim("for the review", waiting=True, source="marker", stamp="2")
NOTHING, TREE, UNTOUCHED = Change(), Snapshot("id", "tree"), TripwireReport()
RED = Finding("tests", False, "make test", 2, log="guardrail_001.log")
MOST = 100


class Log:
    """Somebody who reads the log; its clock stands still until it is moved."""

    def __init__(self, style: Style | None = None, mask: Callable[[str], str] = str, timeout_s: float = 300.0) -> None:
        self.out, self.now_s = StringIO(), BEGAN_S
        style = style or Style(maximum=MOST)
        self.people = create_attempt_log(
            self.out, style, mask, timeout_s, epoch=lambda: self.now_s, monotonic=lambda: self.now_s
        )  # fmt: skip

    def saw(self, *records: told.Record) -> list[str]:
        """All lines so far, without their date."""
        with zone("UTC0"):
            for record in records:
                self.people.on_record(record)
        return [line.removeprefix("[2026-02-05 10:00:00] ") for line in self.out.getvalue().splitlines()]


def attempt(
    number: int, reply: Turn, claim: Claim | None = None, sprung: TripwireReport = UNTOUCHED
) -> list[told.Record]:
    """The records of one attempt."""
    return [
        told.TurnBegan(number, 1, ""),
        told.TurnEnded(number, 1, reply),
        told.Saved(number, 1, TREE, NOTHING, ParsedClaim(claim), sprung),
    ]


def exited(code: int | None, **more: object) -> Turn:
    return Turn(Exit(code, **more))  # type: ignore[arg-type]


def aborted(reason: str, message: str = "why") -> Outcome:
    return Aborted(Breach(reason, message), 1, Spend(), 1.0, "")


def completed(verified: bool) -> Outcome:
    return Completed(1, Spend(), 1.0, "", verified)


def test_every_line_begins_with_its_date() -> None:
    log = Log()
    with zone("UTC0"):
        for number, code in ((1, 1), (2, 1), (3, 0)):
            for record in attempt(number, exited(code)):
                log.people.on_record(record)
            log.now_s += 5
    told_by = [line for line in log.out.getvalue().splitlines() if "Attempt" in line]
    assert told_by == [
        "[2026-02-05 10:00:00] Attempt 1: Agent failed (exit 1), restarting...",
        "[2026-02-05 10:00:05] Attempt 2: Agent failed (exit 1), restarting...",
        "[2026-02-05 10:00:10] Attempt 3: Agent succeeded",
    ]


def test_the_first_attempt_is_a_start_and_the_others_are_restarts() -> None:
    lines = Log().saw(*attempt(1, exited(0)), *attempt(2, exited(0)))
    assert [line for line in lines if "attempt" in line] == [
        "Starting agent (attempt 1)", "Restarting agent (attempt 2/100)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("reply", "lines"),
    [
        (exited(0), ["Attempt 1: Agent succeeded"]),
        (exited(3), ["Attempt 1: Agent failed (exit 3), restarting..."]),
        (exited(None, signal=9), ["Attempt 1: Agent failed (signal 9), restarting..."]),
        (exited(None, why="interrupted"), ["Attempt 1: Agent failed (interrupted), restarting..."]),
        (exited(None, why="stopped"), ["Attempt 1: Agent stopped"]),
        (exited(None, why="killed"), ["Attempt 1: Agent stopped"]),
        (
            exited(None, why="timeout", seconds=304.2),  # it did not want to go
            [
                "Agent timeout after 5m0s, killing process group", "Process group killed, treating as failure",
                "Attempt 1: Agent failed (timeout), restarting...",
            ],
        ),
        (
            exited(None, why="idle", seconds=20.0),
            [
                "Agent silent for too long, killing process group", "Process group killed, treating as failure",
                "Attempt 1: Agent failed (idle), restarting...",
            ],
        ),
        (
            Turn(Exit(0), error="ValueError: boom"),
            ["Transient error: ValueError: boom", "Attempt 1: Agent failed (error), restarting..."],
        ),
        (Turn(Exit(1), error="overloaded", blame=THE_SERVICE), ["Transient error: overloaded"]),
        (Turn(Exit(1), limited=Limited("usage limit.")), ["Transient error: usage limit"]),
        (Turn(Exit(1), error="not logged in", blame=THE_CONFIGURATION), []),  # the end tells it
        (exited(None, why="unstartable", error="no such file"), []),
        (
            Turn(Exit(None, "timeout", seconds=7.04), error="the run's time is up"),
            [
                "Agent timeout after 7s, killing process group", "Process group killed, treating as failure",
                "Note: the run's time is up", "Attempt 1: Agent failed (timeout)",
            ],
        ),
    ],
)  # fmt: skip
def test_how_an_attempt_ended_is_told_with_what_follows(reply: Turn, lines: list[str]) -> None:
    assert Log().saw(*attempt(1, reply))[1:] == lines


@pytest.mark.parametrize(
    ("reply", "claim", "lines"),
    [
        (exited(0), DONE, ["Attempt 1: Agent succeeded", "DONE marker present"]),
        (exited(1), DONE, ["Attempt 1: Agent failed (exit 1)", "DONE marker present"]),
        (exited(1), WAIT, ["Attempt 1: Agent failed (exit 1)", "Wait-without-restart signal detected"]),
        (
            exited(42), Claim("exit code 42", waiting=True, source="exit"),
            ["Attempt 1: Agent stopped (exit 42)", "Wait-without-restart signal detected"],
        ),
        (exited(0), Claim("?", waiting=True, source="bus"),
         ["Attempt 1: Agent succeeded", "Wait-without-restart signal detected"]),
        (exited(1), Claim("DONE"), ["Attempt 1: Agent failed (exit 1), restarting..."]),  # a word claims nothing here
    ],
)  # fmt: skip
def test_a_marker_says_that_nothing_is_restarted(reply: Turn, claim: Claim, lines: list[str]) -> None:
    assert Log().saw(*attempt(1, reply, claim))[1:] == lines


def test_the_last_attempt_is_not_followed_by_a_restart() -> None:
    lines = Log(Style(maximum=2)).saw(
        *attempt(1, exited(1)), *attempt(2, exited(1)), told.RunEnded(aborted("MAX_ITERATIONS"))
    )
    assert lines == [
        "Starting agent (attempt 1)", "Attempt 1: Agent failed (exit 1), restarting...",
        "Restarting agent (attempt 2/2)", "Attempt 2: Agent failed (exit 1)",
        "Attempt 2: Max restarts exceeded, stopping",
    ]  # fmt: skip


def test_a_protected_path_is_named_and_nothing_is_restarted() -> None:
    touched = TouchedPath("secret", "secret", stops=True)
    lines = Log().saw(*attempt(1, exited(1), sprung=TripwireReport((touched,))))
    assert lines[1:] == ["Attempt 1: Agent failed (exit 1)", "protected: secret (secret); put back"]


def test_a_marker_that_was_there_before_is_no_attempt() -> None:
    lines = Log().saw(
        told.ClaimFound(1, 1),
        told.Saved(1, 1, TREE, NOTHING, ParsedClaim(DONE)),
        told.CheckEnded(1, 1, RED),
        told.Judged(1, 1, Retry(Feedback((RED,), refused=True)), 1.0),
        *attempt(2, exited(0)),
    )
    assert lines == [
        "DONE marker present before a start, agent not started",
        "[ERR] guardrail make test failed with exit code 2 after 0.0 s; APPEND; log: guardrail_001.log",
        "DONE refused: 1 check failed",
        "Starting agent (attempt 1)", "Attempt 1: Agent succeeded",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("outcome", "lines"),
    [
        (completed(True), ["task completed (DONE marker present, no active children)", "Verified by its checks"]),
        (
            completed(False),
            ["task completed (DONE marker present, no active children)", "Claimed only: nothing verified it"],
        ),
        (aborted("WAITING", "for the review"), ["Stopped, waiting for: for the review"]),
        (aborted("INTERRUPTED"), ["Interrupted, stopping"]),
        (aborted("CANCELLED"), ["Cancelled, stopping"]),
        (aborted("TIME_LIMIT", "2 of 2 minutes are used"), ["TIME_LIMIT: 2 of 2 minutes are used, stopping"]),
        (Failed("agent nope was not found", 0, 2), ["Fatal error: agent nope was not found"]),
    ],
)
def test_every_end_is_told(outcome: Outcome, lines: list[str]) -> None:
    assert Log().saw(told.RunEnded(outcome)) == lines


def test_all_else_is_told_in_lines_of_the_same_form() -> None:
    lines = Log().saw(
        told.RunBegan("r1", TREE, {"agent": "sh"}),
        told.Noticed(0, 0, "no git here"),
        told.Noticed(0, 1, "[Ralph] was said before"),
        told.CheckEnded(0, 1, RED),
        told.Warned(1, "cost", "[Ralph] Cost at 80% of limit: $0.80 / $1"),
        told.ChildRunsAwaited(1, 1, ("r2", "r3"), 1.0),
        told.ChildWorkJoined(1, 1, TREE, NOTHING),
        told.Paused(1, 0),
        told.Resumed(2, BEGAN_S, 1.0),
    )
    assert lines == [
        "Run r1: agent sh, sandbox unknown, no checks: the agent's word alone will end it",
        "Note: no git here",
        "before the first iteration guardrail make test fails with exit code 2",
        "[Ralph] Cost at 80% of limit: $0.80 / $1",
        "DONE marker present, waiting for active children: r2, r3",
        "No active children any more",
        "Paused on request",
        "Run taken up again",
    ]


def test_what_an_agent_costs_is_told_where_it_is_known() -> None:
    reply = Turn(Exit(0, seconds=3.0), usage=Usage(1000, 200), micro_usd=120_000, tools=2)
    lines = Log().saw(*attempt(1, reply))
    assert lines[1:] == [
        "[OK] Complete (cost: $0.12, tokens: 1K in / 200 out, tools: 2, errors: 0, time: 3.0s)",
        "Attempt 1: Agent succeeded",
    ]


@pytest.mark.parametrize(("stream", "shown"), [(True, ["at work"]), (False, [])])
def test_the_agents_own_words_are_shown_as_they_are(stream: bool, shown: list[str]) -> None:
    log = Log(Style(stream=stream))
    log.saw(told.TurnBegan(1, 1, ""))
    log.people.on_events([Said("at work\n")])
    assert log.saw(told.TurnEnded(1, 1, exited(0)))[1:] == shown


def test_a_setting_stamps_the_agents_words_and_changes_no_date() -> None:
    log = Log(Style(timestamps=True))
    log.saw(told.TurnBegan(1, 1, ""))
    with zone("UTC0"):
        log.people.on_events([Said("at work\n")])
    assert log.saw(*attempt(1, exited(0))[1:])[1:] == ["[10:00:00] at work", "Attempt 1: Agent succeeded"]


def test_a_quiet_log_has_only_warnings() -> None:
    log = Log(Style(quiet=True))
    lines = log.saw(*attempt(1, exited(1)), told.RunEnded(aborted("MAX_ITERATIONS")), told.Warned(1, "cost", "near"))
    assert lines == ["near"]


def test_secrets_and_what_a_terminal_would_obey_are_not_shown() -> None:
    log = Log(mask=lambda text: text.replace("hunter2", "***"))
    lines = log.saw(*attempt(1, Turn(Exit(0), error="key hunter2 \x1b[2J refused")))
    assert lines[1] == "Transient error: key ***  refused"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.5, "0.5s"), (1.0, "1s"), (59.96, "1m0s"), (90, "1m30s"), (300, "5m0s"), (3600, "1h0m0s"), (3661.4, "1h1m1s")],
)
def test_times_are_short(seconds: float, shown: str) -> None:
    assert format_go_duration(seconds) == shown


def test_a_rest_and_the_users_words_are_told() -> None:
    log = Log()
    lines = log.saw(told.Paused(2, 0), told.UserChangesSaved(2, 0, TREE), told.UserMessageAdded(2, 7, "be\nkind"))
    assert lines == ["Paused on request", "goes on", "You say to the agent: be kind"]
