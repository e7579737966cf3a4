"""Progress of a loop between its steps, and how it ended."""

from __future__ import annotations

from typing import Any

from ralphproof.base.value import Json, replace, unpack, value
from ralphproof.engine.limits import CANCELLED, Spend
from ralphproof.engine.outcome import Aborted, Completed, Failed, Outcome

MAX_MESSAGE_CHARS = 500
NOT_LANDED = "NOT_LANDED"  # completed, but the work could not land on the target as it is now


@value
class LoopEnd:
    """How a loop ended: its run's outcome words and exit code."""

    status: str
    reason: str = ""
    message: str = ""
    exit_code: int = 0
    proof: str = ""


@value
class LoopProgress:
    """State of a loop between two steps.

    `number` counts steps, and is the number of the next permit. `epoch` identifies the worker that has the loop: each
    takeover increases it. `head` is the commit of its record, empty before the first one. `next` is the action that the
    last step reported as next, not before `until`.
    """

    number: int = 1
    epoch: int = 1
    worker: str = ""
    iterations: int = 0
    spend: Spend = Spend()
    next: str = "PickNextJob"
    until: float | None = None
    head: str = ""
    end: LoopEnd | None = None

    def after(self, report: dict[str, Any]) -> LoopProgress:
        """Progress after a step that rested."""
        fields = ("iterations", "spend", "next", "until", "head", "end")
        return replace(self, number=self.number + 1, **{name: unpack(report[name]) for name in fields})

    def wait_s(self, now: float) -> float:
        """Seconds to wait before the next step."""
        return 0.0 if self.until is None else max(0.0, self.until - now)

    def remaining_budget(self, budget: int | None) -> int | None:
        """What the loop may still spend of its budget."""
        return None if budget is None else max(0, budget - self.spend.micro_usd)

    def with_end(self, end: LoopEnd) -> LoopProgress:
        """The loop after its end."""
        return replace(self, end=end, next="Finish", until=None)

    def without_worker(self) -> LoopProgress:
        """The loop taken away from its worker; the next one has a higher epoch."""
        return replace(self, worker="", epoch=self.epoch + 1)

    @property
    def published(self) -> dict[str, Json]:
        """The JSON form in the command line's and the API's output."""
        end = self.end
        return {
            "iterations": self.iterations,
            "next": self.next,
            "until": self.until,
            "worker": self.worker,
            "head": self.head,
            "costUSD": self.spend.usd,
            "knownCostUSD": self.spend.micro_usd / 1_000_000,
            "tokens": self.spend.tokens,
            "status": end.status if end else "",
            "reason": end.reason if end else "",
            "message": end.message if end else "",
            "proof": end.proof if end else "",
            "exitCode": end.exit_code if end else None,
        }


def loop_end(outcome: Outcome) -> LoopEnd:
    """The end of a loop whose run ended with this outcome."""
    match outcome:
        case Completed():
            return LoopEnd(outcome.status, "", _shorten("; ".join(outcome.concerns)), 0, outcome.proof)
        case Aborted(breach):
            return LoopEnd(outcome.status, breach.reason, _shorten(breach.message), outcome.exit_code)
        case Failed(error):
            return LoopEnd(outcome.status, "", _shorten(error), outcome.exit_code)


def end_after_landing(end: LoopEnd, commit: str, why: str) -> LoopEnd:
    """The end of a completed loop with a target branch: it counts as completed only if the work landed as a commit."""
    if commit:
        return replace(end, message=_shorten(f"landed as {commit[:12]}; {end.message}".rstrip("; ")))
    return LoopEnd("ABORTED", NOT_LANDED, _shorten(why), 1, end.proof)


def _shorten(text: str) -> str:
    return text[:MAX_MESSAGE_CHARS]


def cost_between(before: Spend, after: Spend) -> tuple[int | None, int]:
    """Cost of a step: micro-dollars (None if unknown) and tokens."""
    known = after.unpriced == before.unpriced
    return after.micro_usd - before.micro_usd if known else None, max(0, after.tokens - before.tokens)


def cancelled_end() -> LoopEnd:
    """The end of a loop that was cancelled before it started."""
    return LoopEnd("ABORTED", CANCELLED, "the loop was cancelled", 130)


def out_of_money_end(reason: str, message: str) -> LoopEnd:
    """The end of a loop that cannot be paid for."""
    return LoopEnd("ABORTED", reason, _shorten(message), 1)


def failed_end(message: str, exit_code: int = 3) -> LoopEnd:
    """The end of a loop that could not be continued."""
    return LoopEnd("ERROR", "", _shorten(message), exit_code)
