"""Progress of a loop: the fold of its steps' reports."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, replace, unpack, value
from ralphproof.engine.actions import (
    AwaitChildRuns,
    Finish,
    HoldPaused,
    PickNextJob,
    RunConditions,
    RunRules,
    WaitForService,
)
from ralphproof.engine.budget import Spend
from ralphproof.engine.limits import CANCELLED
from ralphproof.engine.next_action import next_action
from ralphproof.engine.outcome import Aborted, Completed, Failed, Outcome
from ralphproof.engine.plan import Pipeline
from ralphproof.engine.records import Judged, RunEnded
from ralphproof.engine.state import BetweenIterations, RunOver, State

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.base.value import Json

CONTINUE, FINISH = PickNextJob.__name__, Finish.__name__
WAIT_ACTIONS, HOLD_RETRY_S = (WaitForService.__name__, HoldPaused.__name__, AwaitChildRuns.__name__), 30.0
MAX_MESSAGE_CHARS = 500
NOT_LANDED = "NOT_LANDED"  # completed, but the work could not land on the target as it is now
NO_RULES = RunRules(Pipeline(()))  # sufficient where only the phase matters


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
    takeover increases it. `known` is the number of records that are included here; `next` is the action that the last
    step reported as next, not before `until`.
    """

    number: int = 1
    epoch: int = 1
    worker: str = ""
    known: int = 0
    iterations: int = 0
    spend: Spend = Spend()
    next: str = CONTINUE
    until: float | None = None
    head: str = ""
    end: LoopEnd | None = None

    def after(self, rest: dict[str, Any], spend: Spend) -> LoopProgress:
        """Progress after a successful step; `spend` is that of the whole loop."""
        records = [unpack(one) for one in rest["records"]]
        judged = [one.iteration for one in records if isinstance(one, Judged)]
        ends = [one.outcome for one in records if isinstance(one, RunEnded)]
        end = _loop_end(ends[-1]) if ends else self.end
        finished = rest["next"] == FINISH
        if end is not None and "landed" in rest:
            end = _end_after_landing(end, rest["landed"])
        if finished and end is None:
            end = LoopEnd("ERROR", message="the loop is over, and no record says how", exit_code=3)
        return replace(
            self,
            number=self.number + 1,
            known=self.known + rest.get("skipped", len(records)),
            iterations=ends[-1].iterations if ends else max([self.iterations, *judged]),
            spend=spend,
            next=rest["next"],
            until=rest["until"],
            head=rest["head"],
            end=end if finished else None,
        )

    def wait_s(self, now: float) -> float:
        """Seconds to wait before the next step. A paused run has no end time, and is polled."""
        if self.until is not None:
            return max(0.0, self.until - now)
        return HOLD_RETRY_S if self.next in WAIT_ACTIONS else 0.0

    def remaining_budget(self, budget: int | None) -> int | None:
        """What the loop may still spend of its budget."""
        return None if budget is None else max(0, budget - self.spend.micro_usd)

    def with_end(self, end: LoopEnd) -> LoopProgress:
        """The loop after its end."""
        return replace(self, end=end, next=FINISH, until=None)

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


def _loop_end(outcome: Outcome) -> LoopEnd:
    match outcome:
        case Completed():
            return LoopEnd(outcome.status, "", _shorten("; ".join(outcome.concerns)), 0, outcome.proof)
        case Aborted(breach):
            return LoopEnd(outcome.status, breach.reason, _shorten(breach.message), outcome.exit_code)
        case Failed(error):
            return LoopEnd(outcome.status, "", _shorten(error), outcome.exit_code)


def _end_after_landing(end: LoopEnd, landed: dict[str, Any]) -> LoopEnd:
    """The end of a completed loop with a target branch: it counts as completed only if the work landed."""
    if landed["commit"]:
        return replace(end, message=_shorten(f"landed as {landed['commit'][:12]}; {end.message}".rstrip("; ")))
    return LoopEnd("ABORTED", NOT_LANDED, _shorten(str(landed["why"])), 1, end.proof)


def _shorten(text: str) -> str:
    return text[:MAX_MESSAGE_CHARS]


def cost_between(before: Spend, after: Spend) -> tuple[int | None, int]:
    """Cost of a step by the records before and after it: micro-dollars (None if unknown) and tokens."""
    known = after.unpriced == before.unpriced
    return after.micro_usd - before.micro_usd if known else None, max(0, after.tokens - before.tokens)


def contradiction(state: State, word: str) -> str:
    """What a step reported that its records contradict; empty if they agree or are inconclusive."""
    expected: str | None = None
    if isinstance(state.phase, RunOver | BetweenIterations):
        expected = type(next_action(state, NO_RULES, RunConditions(state.run.elapsed_s))).__name__
    if (expected == FINISH) != (word == FINISH):
        return f"the step says {word}, and its records end in {type(state.phase).__name__}"
    return ""


def cancelled_end(message: str = "the loop was cancelled") -> LoopEnd:
    """The end of a loop that was cancelled before it started."""
    return LoopEnd("ABORTED", CANCELLED, message, 130)


def out_of_money_end(reason: str, message: str) -> LoopEnd:
    """The end of a loop that cannot be paid for."""
    return LoopEnd("ABORTED", reason, _shorten(message), 1)


def failed_end(message: str, exit_code: int = 3) -> LoopEnd:
    """The end of a loop that could not be continued."""
    return LoopEnd("ERROR", "", _shorten(message), exit_code)
