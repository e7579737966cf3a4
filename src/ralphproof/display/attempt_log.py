"""A supervised command as a log: one dated line for each start, end and decision."""

from __future__ import annotations

import time

from ralphproof.base.value import TYPE_CHECKING, assert_never
from ralphproof.display import phrases
from ralphproof.display.agent_output import hindrance_lines, one_line, turn_line
from ralphproof.display.console import NOTICE_PREFIX, ConsoleObserver
from ralphproof.display.style import GREEN, RED, YELLOW
from ralphproof.engine import records as told
from ralphproof.engine.agent import AgentFault, ConfigFault, HarnessFault, ServiceFault, SignalFault, classify_fault
from ralphproof.engine.limits import CANCELLED, INTERRUPTED, MAX_ITERATIONS, WAITING
from ralphproof.engine.outcome import Aborted, Completed, Failed, Retry

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from ralphproof.display.style import Line, Style
    from ralphproof.engine.agent import Turn
    from ralphproof.engine.claim import Claim
    from ralphproof.engine.outcome import Outcome

DONE_MESSAGE = "task completed (DONE marker present, no active children)"
WAIT_MESSAGE = "Wait-without-restart signal detected"
KILLED_MESSAGE = "Process group killed, treating as failure"


PROOF_MESSAGES = {
    "verified": "Verified by its checks",
    "judged": "Judged by a model; no check of a machine verified it",
    "claimed": "Claimed only: nothing verified it",
}


class AttemptLog(ConsoleObserver):
    """Tells a run by its attempts. An attempt starts an agent: a marker that is judged without one is none."""

    def __init__(
        self, out: TextIO, style: Style, mask: Callable[[str], str] = str, timeout_s: float = float("inf"), *,
        epoch: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """`timeout_s` is how long an attempt may take: ending one takes some time more."""
        super().__init__(out, style, mask, epoch=epoch, monotonic=monotonic)
        self._timeout_s = timeout_s
        self._attempt = 0
        self._found = False  # a marker was there before a start
        self._reply: Turn | None = None  # the end of an attempt, until its markers are known

    def _tell(self, record: told.Record) -> None:
        match record:
            case told.RunBegan() | told.TurnRetried() | told.CheckBegan() | told.ScmBegan() | told.HookBegan():
                super()._tell(record)
            case told.Resumed():
                self._line("Run taken up again")
            case told.TurnBegan():
                self._started(record)
            case told.TurnEnded(reply=reply):
                self._ended(reply)
            case told.ClaimFound():
                self._unstarted, self._found = self._unstarted + 1, True
            case told.Saved():
                self._saved(record)
            case told.ChildRunsAwaited(children=children):
                self._line(f"DONE marker present, waiting for active children: {', '.join(children)}")
            case told.ChildWorkJoined():
                self._line("No active children any more")
            case told.CheckEnded() | told.ScmEnded() | told.Warned() | told.Escalated() | told.HookEnded():
                super()._tell(record)
            case told.Judged(verdict=Retry(feedback)) if feedback.refused:
                self._line(f"DONE refused: {phrases.format_count(len(feedback.findings), 'check')} failed", YELLOW)
            case told.Paused():
                self._begin("rests")
                self._line("Paused on request")
            case told.UserChangesSaved():
                super()._tell(record)
            case told.UserMessageAdded(_, _, text):
                self._line(f"You say to the agent: {one_line(text, self._style.width, self._marks.cut, self._mask)}")
            case told.Noticed(_, _, message) if not message.startswith(NOTICE_PREFIX):
                self._line(f"Note: {message}")
            case told.RunEnded(outcome):
                self._over(outcome)
            case _:
                pass

    def _started(self, record: told.TurnBegan) -> None:
        self._attempt = record.iteration - self._unstarted
        of = f"/{self._style.maximum}" if self._style.maximum else ""
        if record.turn == 1:
            first = self._attempt == 1
            self._line(f"{'Starting' if first else 'Restarting'} agent (attempt {self._attempt}{'' if first else of})")
        self._remark(self._waits.began(record, self._epoch()))
        if self._stream is not None:
            self._stream.begin()
        self._begin("the agent works")

    def _ended(self, reply: Turn) -> None:
        if self._stream is not None:
            self._stream.end()
        self._reply = reply
        if reply.exit.why in ("timeout", "idle"):
            after = format_go_duration(min(reply.exit.seconds, self._timeout_s))
            why = f"timeout after {after}" if reply.exit.why == "timeout" else "silent for too long"
            self._line(f"Agent {why}, killing process group", YELLOW)
            self._line(KILLED_MESSAGE, YELLOW)
        if reply.usage is not None or reply.micro_usd is not None:
            self._own(turn_line(reply, self._marks))
        for line in hindrance_lines(reply, self._marks):
            self._own(line)

    def _saved(self, record: told.Saved) -> None:
        """Now the markers are known, and with them whether the agent will be started anew."""
        reply, self._reply = self._reply, None
        claim, sprung = record.heard.claim, record.sprung
        marked = claim is not None and claim.source != "tag"
        stops = any(one.stops for one in sprung.touched) or record.change.rewritten
        if reply is not None and claim is not None and claim.source == "exit":
            self._line(f"Attempt {self._attempt}: Agent stopped ({_describe_failure(reply)})")
        elif reply is not None:
            self._attempted(reply, last=marked or stops or self._attempt == self._style.maximum)
        self._lines(f"not saved (over 50 MiB): {path}" for path in record.snapshot.left_out)
        self._lines((*phrases.describe_touched_paths(sprung), *phrases.describe_altered_checks(record.altered)), YELLOW)
        if claim is not None and marked:
            self._claimed(claim)

    def _attempted(self, reply: Turn, last: bool) -> None:
        match classify_fault(reply):
            case None:
                self._line(f"Attempt {self._attempt}: Agent succeeded", GREEN)
            case ConfigFault():
                pass  # the end tells it
            case ServiceFault(message):
                self._line(f"Transient error: {message}", YELLOW)
            case SignalFault():
                why = f" ({reply.error})" if reply.error else ""
                self._line(f"Attempt {self._attempt}: Agent stopped{why}", YELLOW)
            case AgentFault() | HarnessFault():
                self._failed(reply, last)

    def _failed(self, reply: Turn, last: bool) -> None:
        by_itself = reply.exit.why in ("exit", "lingered")
        if reply.error is not None:
            self._line(f"Transient error: {reply.error}" if by_itself else f"Note: {reply.error}", YELLOW)
        onward = "" if last or (reply.error is not None and not by_itself) else ", restarting..."
        self._line(f"Attempt {self._attempt}: Agent failed ({_describe_failure(reply)}){onward}", RED)

    def _claimed(self, claim: Claim) -> None:
        found, self._found = self._found, False
        if claim.waiting:
            self._line(WAIT_MESSAGE, YELLOW)
        else:
            self._line("DONE marker present before a start, agent not started" if found else "DONE marker present")

    def _over(self, outcome: Outcome) -> None:
        match outcome:
            case Completed():
                self._line(DONE_MESSAGE, GREEN)
                how = PROOF_MESSAGES[outcome.proof]
                self._line(how, GREEN if outcome.verified else YELLOW)
            case Aborted(breach) if breach.reason == MAX_ITERATIONS:
                self._line(f"Attempt {self._attempt}: Max restarts exceeded, stopping", RED)
            case Aborted(breach) if breach.reason == WAITING:
                self._line(f"Stopped, waiting for: {breach.message}", YELLOW)
            case Aborted(breach) if breach.reason in (INTERRUPTED, CANCELLED):
                self._line(f"{breach.reason.capitalize()}, stopping", YELLOW)
            case Aborted(breach):
                self._line(f"{breach.reason}: {breach.message}, stopping", RED)
            case Failed(error):
                self._line(f"Fatal error: {error}", RED)
            case _:
                assert_never(outcome)

    def _line(self, text: str, colour: str = "") -> None:
        super()._line(text.strip(), colour)

    def _put(self, line: Line) -> None:
        self._screen.line(line, time.strftime("[%Y-%m-%d %H:%M:%S] ", time.localtime(self._epoch())))


def _describe_failure(reply: Turn) -> str:
    """How an agent ended that failed, in a word or two."""
    end = reply.exit
    if end.why != "exit":
        return end.why
    if end.signal is not None:
        return f"signal {end.signal}"
    return f"exit {end.code}" if end.code else "error"


def format_go_duration(seconds: float) -> str:
    """`0.5s`, `45s`, `5m0s`, `1h0m0s`."""
    whole = round(seconds, 1) if seconds < 60 else round(seconds)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{f'{hours}h' if hours else ''}{f'{minutes}m' if hours or minutes else ''}{rest:g}s"
