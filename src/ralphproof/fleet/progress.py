"""Where a loop of the fleet stands, for its engine: the fold of what its steps reported."""

from __future__ import annotations

from ralphproof.action import Await, Finish, Hold, Moment, PickNext, Rest, Rules
from ralphproof.budget import Spend
from ralphproof.decision import next_action
from ralphproof.limit import CANCELLED
from ralphproof.phase import Over, Ready
from ralphproof.record import Judged, RunEnded
from ralphproof.stage import Pipeline
from ralphproof.state import State
from ralphproof.value import TYPE_CHECKING, replace, unpack, value
from ralphproof.verdict import Aborted, Completed, Failed, Outcome

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.value import Json

ONWARD, FINISH = PickNext.__name__, Finish.__name__
WAITS, HOLD_S = (Rest.__name__, Hold.__name__, Await.__name__), 30.0
MESSAGE_CHARS = 500
NOT_LANDED = "NOT_LANDED"  # completed, and turned away by what the target has become
NO_RULES = Rules(Pipeline(()))  # enough where the phase alone decides


@value
class LoopEnd:
    """How a loop ended: the words and the exit code of its run."""

    status: str
    reason: str = ""
    message: str = ""
    exit_code: int = 0
    proof: str = ""


@value
class LoopProgress:
    """Where a loop stands between two steps.

    `number` counts steps, and is the number of the permit for the next one. `epoch` says which worker has the loop:
    each that takes it over has a higher one. `known` is how many of its records are folded in here; `next` the word
    of the last step for what comes now, not before `until`.
    """

    number: int = 1
    epoch: int = 1
    worker: str = ""
    known: int = 0
    iterations: int = 0
    spend: Spend = Spend()
    next: str = ONWARD
    until: float | None = None
    head: str = ""
    end: LoopEnd | None = None

    def after(self, rest: dict[str, Any], spend: Spend) -> LoopProgress:
        """The loop after a step that ended well, with what all of it has cost."""
        records = [unpack(one) for one in rest["records"]]
        judged = [one.iteration for one in records if isinstance(one, Judged)]
        ends = [one.outcome for one in records if isinstance(one, RunEnded)]
        end = _end_of(ends[-1]) if ends else self.end
        finished = rest["next"] == FINISH
        if end is not None and "landed" in rest:
            end = _landed(end, rest["landed"])
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

    def waits(self, now: float) -> float:
        """How many seconds nothing is to be done; somebody who holds a loop up says no time, and is asked again."""
        if self.until is not None:
            return max(0.0, self.until - now)
        return HOLD_S if self.next in WAITS else 0.0

    def left(self, wish: int | None) -> int | None:
        """What the loop may still spend of all that it may."""
        return None if wish is None else max(0, wish - self.spend.micro_usd)

    def ended(self, end: LoopEnd) -> LoopProgress:
        """The loop, which goes no further."""
        return replace(self, end=end, next=FINISH, until=None)

    def taken(self, worker: str) -> LoopProgress:
        """The loop in the hands of a worker. Another one than before is told apart by its epoch."""
        if worker == self.worker:
            return self
        return replace(self, worker=worker, epoch=self.epoch + bool(self.worker))

    @property
    def shown(self) -> dict[str, Json]:
        """For programs."""
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


def _end_of(outcome: Outcome) -> LoopEnd:
    match outcome:
        case Completed():
            return LoopEnd(outcome.status, "", _cut("; ".join(outcome.concerns)), 0, outcome.proof)
        case Aborted(breach):
            return LoopEnd(outcome.status, breach.reason, _cut(breach.message), outcome.exit_code)
        case Failed(error):
            return LoopEnd(outcome.status, "", _cut(error), outcome.exit_code)


def _landed(end: LoopEnd, landed: dict[str, Any]) -> LoopEnd:
    """The end of a completed loop whose work was to land: without that it is none to be glad of."""
    if landed["commit"]:
        return replace(end, message=_cut(f"landed as {landed['commit'][:12]}; {end.message}".rstrip("; ")))
    return LoopEnd("ABORTED", NOT_LANDED, _cut(str(landed["why"])), 1, end.proof)


def _cut(text: str) -> str:
    return text[:MESSAGE_CHARS]


def cost_between(before: Spend, after: Spend) -> tuple[int | None, int]:
    """What a step has cost, by the records before and after it: micro-dollars, None where nobody knows; tokens."""
    known = after.unpriced == before.unpriced
    return after.micro_usd - before.micro_usd if known else None, max(0, after.tokens - before.tokens)


def contradiction(state: State, word: str) -> str:
    """What a step says of the loop that its records do not bear out; empty where they agree, or leave it open."""
    expected: str | None = None
    if isinstance(state.phase, Over | Ready):
        expected = type(next_action(state, NO_RULES, Moment(state.elapsed_s))).__name__
    if (expected == FINISH) != (word == FINISH):
        return f"the step says {word}, and its records end in {type(state.phase).__name__}"
    return ""


def cancelled(message: str = "the loop was cancelled") -> LoopEnd:
    """The end of a loop that was cancelled before it began."""
    return LoopEnd("ABORTED", CANCELLED, message, 130)


def out_of_money(reason: str, message: str) -> LoopEnd:
    """The end of a loop for which there will be no money."""
    return LoopEnd("ABORTED", reason, _cut(message), 1)


def broken(message: str, exit_code: int = 3) -> LoopEnd:
    """The end of a loop that could not be carried on."""
    return LoopEnd("ERROR", "", _cut(message), exit_code)
