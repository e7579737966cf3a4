"""The log of a supervised command: a dated line for each start, end and decision."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from ralphproof.base.value import assert_never
from ralphproof.display import phrases
from ralphproof.display.agent_output import turn_line, warning_lines
from ralphproof.display.console import NOTICE_PREFIX, PAUSED_ACTIVITY, Console, ConsoleObserver, IterationReport
from ralphproof.display.terminal import GREEN, RED, YELLOW, Style
from ralphproof.engine import records
from ralphproof.engine.agent import (
    AgentFault,
    ConfigFault,
    HarnessFault,
    ServiceFault,
    SignalFault,
    Turn,
    classify_fault,
)
from ralphproof.engine.claim import Claim
from ralphproof.engine.limits import CANCELLED, INTERRUPTED, MAX_ITERATIONS, WAITING
from ralphproof.engine.outcome import Aborted, Completed, Failed, Outcome, Retry
from ralphproof.engine.records import Record

DONE_MESSAGE = "task completed (DONE marker present, no active children)"
WAIT_MESSAGE = "Wait-without-restart signal detected"
KILLED_MESSAGE = "Process group killed, treating as failure"
PROOF_MESSAGES = {
    "verified": "Verified by its checks",
    "judged": "Judged by a model; no check of a machine verified it",
    "claimed": "Claimed only: nothing verified it",
}


def create_attempt_log(
    out: TextIO, style: Style, mask: Callable[[str], str] = str, timeout_s: float = float("inf"), *,
    epoch: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic,
) -> ConsoleObserver:  # fmt: skip
    """The observer of a supervised command. `timeout_s` is the time limit of an attempt, without the time to end it."""
    return ConsoleObserver(
        out, style, mask, report=lambda console: AttemptReport(console, timeout_s), dated=True,
        epoch=epoch, monotonic=monotonic,
    )  # fmt: skip


class AttemptReport:
    """Report of a run by attempts. Only iterations that start an agent are attempts."""

    def __init__(self, console: Console, timeout_s: float) -> None:
        self._console, self._timeout_s = console, timeout_s
        self._iterations = IterationReport(console)
        self._attempt = 0
        self._unstarted = 0  # iterations in which no agent was started
        self._marker_found = False  # before the agent was started
        self._reply: Turn | None = None  # of an attempt whose markers are not read yet

    def show(self, record: Record) -> None:
        console = self._console
        match record:
            case (
                records.RunBegan() | records.TurnRetried() | records.CheckBegan() | records.CheckEnded()
                | records.ScmBegan() | records.ScmEnded() | records.HookBegan() | records.HookEnded()
                | records.Warned() | records.Escalated() | records.UserChangesSaved()
            ):  # fmt: skip
                self._iterations.show(record)
            case records.Resumed():
                console.line("Run taken up again")
            case records.TurnBegan():
                self._show_start(record)
            case records.TurnEnded(reply=reply):
                self._show_end(reply)
            case records.ClaimFound():
                self._unstarted, self._marker_found = self._unstarted + 1, True
            case records.Saved():
                self._show_work(record)
            case records.ChildRunsAwaited(children=children):
                console.line(f"DONE marker present, waiting for active children: {', '.join(children)}")
            case records.ChildWorkJoined():
                console.line("No active children any more")
            case records.Judged(verdict=Retry(feedback)) if feedback.refused:
                console.line(f"DONE refused: {phrases.format_count(len(feedback.findings), 'check')} failed", YELLOW)
            case records.Paused():
                console.begin(PAUSED_ACTIVITY)
                console.line("Paused on request")
            case records.UserMessageAdded(_, _, text):
                console.line(f"You say to the agent: {console.one_line(text)}")
            case records.Noticed(_, _, message) if not message.startswith(NOTICE_PREFIX):
                console.line(f"Note: {message}")
            case records.RunEnded(outcome):
                self._show_outcome(outcome)
            case _:
                pass

    def _show_start(self, record: records.TurnBegan) -> None:
        console = self._console
        self._attempt = record.iteration - self._unstarted
        of = f"/{console.style.maximum}" if console.style.maximum else ""
        if record.turn == 1 and self._attempt == 1:
            console.line("Starting agent (attempt 1)")
        elif record.turn == 1:
            console.line(f"Restarting agent (attempt {self._attempt}{of})")
        console.begin_turn(record)

    def _show_end(self, reply: Turn) -> None:
        console = self._console
        console.end_turn()
        self._reply = reply
        if reply.exit.why in ("timeout", "idle"):
            after = format_go_duration(min(reply.exit.seconds, self._timeout_s))
            why = f"timeout after {after}" if reply.exit.why == "timeout" else "silent for too long"
            console.line(f"Agent {why}, killing process group", YELLOW)
            console.line(KILLED_MESSAGE, YELLOW)
        if reply.usage is not None or reply.micro_usd is not None:
            console.turn_line(turn_line(reply, console.marks))
        for line in warning_lines(reply, console.marks):
            console.turn_line(line)

    def _show_work(self, record: records.Saved) -> None:
        """Show the result of an attempt; its markers decide whether the agent is started again."""
        console = self._console
        reply, self._reply = self._reply, None
        claim, sprung = record.heard.claim, record.sprung
        marked = claim is not None and claim.source != "tag"
        stops = any(path.stops for path in sprung.touched) or record.change.rewritten
        if reply is not None and claim is not None and claim.source == "exit":
            console.line(f"Attempt {self._attempt}: Agent stopped ({_describe_failure(reply)})")
        elif reply is not None:
            self._show_result(reply, last=marked or stops or self._attempt == console.style.maximum)
        console.lines(f"not saved (over 50 MiB): {path}" for path in record.snapshot.left_out)
        console.lines(phrases.describe_touched_paths(sprung), YELLOW)
        console.lines(phrases.describe_altered_checks(record.altered), YELLOW)
        if claim is not None and marked:
            self._show_claim(claim)

    def _show_result(self, reply: Turn, last: bool) -> None:
        line = self._console.line
        match classify_fault(reply):
            case None:
                line(f"Attempt {self._attempt}: Agent succeeded", GREEN)
            case ConfigFault():
                pass  # the outcome says it
            case ServiceFault(message):
                line(f"Transient error: {message}", YELLOW)
            case SignalFault():
                why = f" ({reply.error})" if reply.error else ""
                line(f"Attempt {self._attempt}: Agent stopped{why}", YELLOW)
            case AgentFault() | HarnessFault():
                self._show_failure(reply, last)

    def _show_failure(self, reply: Turn, last: bool) -> None:
        by_itself = reply.exit.why in ("exit", "lingered")
        if reply.error is not None:
            self._console.line(f"Transient error: {reply.error}" if by_itself else f"Note: {reply.error}", YELLOW)
        restart = "" if last or (reply.error is not None and not by_itself) else ", restarting..."
        self._console.line(f"Attempt {self._attempt}: Agent failed ({_describe_failure(reply)}){restart}", RED)

    def _show_claim(self, claim: Claim) -> None:
        before_start, self._marker_found = self._marker_found, False
        if claim.waiting:
            self._console.line(WAIT_MESSAGE, YELLOW)
        elif before_start:
            self._console.line("DONE marker present before a start, agent not started")
        else:
            self._console.line("DONE marker present")

    def _show_outcome(self, outcome: Outcome) -> None:
        line = self._console.line
        match outcome:
            case Completed():
                line(DONE_MESSAGE, GREEN)
                line(PROOF_MESSAGES[outcome.proof], GREEN if outcome.verified else YELLOW)
            case Aborted(breach) if breach.reason == MAX_ITERATIONS:
                line(f"Attempt {self._attempt}: Max restarts exceeded, stopping", RED)
            case Aborted(breach) if breach.reason == WAITING:
                line(f"Stopped, waiting for: {breach.message}", YELLOW)
            case Aborted(breach) if breach.reason in (INTERRUPTED, CANCELLED):
                line(f"{breach.reason.capitalize()}, stopping", YELLOW)
            case Aborted(breach):
                line(f"{breach.reason}: {breach.message}, stopping", RED)
            case Failed(error):
                line(f"Fatal error: {error}", RED)
            case _:
                assert_never(outcome)


def _describe_failure(reply: Turn) -> str:
    """How a failed agent ended, in a word or two."""
    end = reply.exit
    if end.why != "exit":
        return end.why
    if end.signal is not None:
        return f"signal {end.signal}"
    return f"exit {end.code}" if end.code else "error"


def format_go_duration(seconds: float) -> str:
    """A duration as Go prints it: `0.5s`, `45s`, `5m0s`, `1h0m0s`."""
    rounded = round(seconds, 1) if seconds < 60 else round(seconds)
    minutes, rest = divmod(rounded, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{f'{hours}h' if hours else ''}{f'{minutes}m' if hours or minutes else ''}{rest:g}s"
