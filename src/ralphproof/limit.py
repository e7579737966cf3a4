"""What may not be exceeded, repeated or touched."""

from __future__ import annotations

from ralphproof.budget import Budget, Spend, dollars
from ralphproof.iteration import History, Iteration, alternating
from ralphproof.stage import Job
from ralphproof.value import value

# Why a run was aborted: these words are in the last line, in the record and in --json.
MAX_ITERATIONS = "MAX_ITERATIONS"
COST_LIMIT = "COST_LIMIT"
TOKEN_LIMIT = "TOKEN_LIMIT"  # noqa: S105
TIME_LIMIT = "TIME_LIMIT"
STALL = "STALL"
SAME_ERROR = "SAME_ERROR_5X"
OSCILLATION = "OSCILLATION"
PROHIBITED_PATH = "PROHIBITED_PATH"
HISTORY_REWRITTEN = "HISTORY_REWRITTEN"
BLOCKED = "BLOCKED"
SERVICE_UNAVAILABLE = "SERVICE_UNAVAILABLE"
EMPTY_REPLIES = "EMPTY_REPLIES"
DISK_FULL = "DISK_FULL"
WORKSPACE_GONE = "WORKSPACE_GONE"
WAITING = "WAITING"
INTERRUPTED = "INTERRUPTED"
CANCELLED = "CANCELLED"


@value
class Breach:
    """A limit that was reached: which, and the facts in one sentence."""

    reason: str
    message: str
    paths: tuple[str, ...] = ()


@value
class Limits:
    """All limits of a run. A pattern of None is not looked for."""

    budget: Budget = Budget()
    stall: int | None = 5
    same_error: int | None = 5
    protected: tuple[str, ...] = ()

    def ahead(self, history: History, spend: Spend, elapsed_s: float) -> Breach | None:
        """What forbids another iteration."""
        return self._used_up(history, elapsed_s) or self.overspent(spend) or self._repeated(history)

    def stage_used_up(self, history: History, job: Job) -> Breach | None:
        """A stage that was tried as often as it may be."""
        criteria = job.task.criteria_of(job.stage.name)
        most = (criteria.max_iterations if criteria else None) or job.stage.max_iterations
        if most is None or history.tried(job) < most:
            return None
        return Breach(MAX_ITERATIONS, f"stage {job.stage.name} of {job.task.id} was tried {most} times")

    def tripped(self, latest: Iteration) -> Breach | None:
        """What the latest iteration touched and may not touch; beats success."""
        if latest.change.rewritten:
            return Breach(HISTORY_REWRITTEN, "the commit that the run began on is no longer in the history of HEAD")
        touched = tuple(path for path in latest.change.paths if self._protects(path))
        if touched:
            return Breach(PROHIBITED_PATH, f"protected paths were changed: {', '.join(touched[:10])}", touched)
        return None

    def overspent(self, spend: Spend) -> Breach | None:
        """Money or tokens gone; the limit itself may be used up to the last cent."""
        budget = self.budget
        if budget.micro_usd is not None and spend.micro_usd > budget.micro_usd:
            return Breach(COST_LIMIT, f"spent {dollars(spend.micro_usd)} of {dollars(budget.micro_usd)}")
        if budget.tokens is not None and spend.tokens > budget.tokens:
            return Breach(TOKEN_LIMIT, f"used {spend.tokens} of {budget.tokens} tokens")
        return None

    def _used_up(self, history: History, elapsed_s: float) -> Breach | None:
        budget, count = self.budget, len(history.iterations)
        if budget.iterations is not None and count >= budget.iterations:
            return Breach(MAX_ITERATIONS, f"{count} of {budget.iterations} iterations are used")
        if budget.seconds is not None and elapsed_s >= budget.seconds:
            return Breach(TIME_LIMIT, f"{elapsed_s / 60:.1f} of {budget.seconds / 60:g} minutes are used")
        return None

    def _repeated(self, history: History) -> Breach | None:
        if self.stall is not None and history.idle() >= self.stall:
            return Breach(STALL, f"{self.stall} iterations in a row changed no file")
        if self.same_error is not None and history.same_error() >= self.same_error:
            return Breach(SAME_ERROR, f"{self.same_error} iterations in a row failed in the same way")
        for what, marks, most in (
            ("the tree", history.trees(), self.stall),
            ("the failure", history.failures(), self.same_error),
        ):
            if most is not None and alternating(marks) >= 2 * most:
                return Breach(OSCILLATION, f"{what} went back and forth between two states {2 * most} times")
        return None

    def _protects(self, path: str) -> bool:
        return any(path == item.rstrip("/") or path.startswith(item.rstrip("/") + "/") for item in self.protected)
