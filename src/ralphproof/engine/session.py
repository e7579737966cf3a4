"""The run as this process drives it: state, records that are not durable yet, clock, and spend."""

from __future__ import annotations

from ralphproof.base.errors import RalphError
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.engine.actions import RunConditions, RunRules
from ralphproof.engine.budget import DaySpend, RemainingBudget
from ralphproof.engine.environment import LoopEnvironment
from ralphproof.engine.events import Spent
from ralphproof.engine.plan import Plan
from ralphproof.engine.records import Noticed, Record
from ralphproof.engine.retry import RetryClock
from ralphproof.engine.state import State

if TYPE_CHECKING:
    from collections.abc import Callable

EMPTY_PLAN = Plan(())


class RunSession:
    """What all parts of a loop share."""

    def __init__(self, run: str, rules: RunRules, environment: LoopEnvironment, state: State) -> None:
        self.id, self.rules, self.environment, self.state = run, rules, environment, state
        self.plan = EMPTY_PLAN
        self.is_halted: Callable[[], bool] = lambda: False  # asked beside the signals
        self.began_s = environment.clock.monotonic() - state.elapsed_s  # less the time for which the run was paused
        self.retry_clock = RetryClock()
        # How the run was resumed:
        self.quiet_since_ns = 0  # since when none of its processes was alive
        self.command_ended_ns = 0  # when the command ended that was open, if it ended by itself
        self.turn_was_open = False
        self._pending: list[Record] = []

    def notice(self, message: str) -> None:
        """Record something worth knowing that changes nothing."""
        self.record(Noticed(self.state.iteration, self.state.notices, message))

    def record(self, record: Record) -> None:
        """Apply a record to the state; `flush` makes it durable."""
        self.state = self.state.after(record)
        self._pending.append(record)

    def flush(self) -> None:
        """Make the records durable, then visible. Called before anything outside of this process is touched."""
        records, self._pending = tuple(self._pending), []
        if records:
            self.environment.ledger.append(self.id, records)
        for record in records:
            self.environment.notify_record(record)

    def exports(self, iterations: int | None = None) -> dict[str, str]:
        """The `RALPH_*` variables for agents, hooks and prompts: in the iteration, or after so many iterations."""
        most = self.rules.limits.budget.iterations
        number = self.state.attempt if iterations is None else iterations
        exports = {"RALPH_RUN_ID": self.id, "RALPH_ITERATION": str(number)}
        exports |= {"RALPH_MAX_ITERATIONS": str(most)} if most is not None else {}
        staged = iterations is None and len(self.rules.pipeline.stages) > 1
        return exports | ({"RALPH_STAGE": self.state.job.stage.name} if staged else {})

    @property
    def is_stopping(self) -> bool:
        """Whether the command that runs is to be ended."""
        return bool(self.environment.clock.stop_reason()) or self.is_halted()

    def now(self) -> RunConditions:
        """Time and signals. `Loop.conditions` adds what is asked of others."""
        clock, now_s = self.environment.clock, self.environment.clock.monotonic()
        epoch_s = self.retry_clock.now(self.state.services, clock.epoch(), now_s)
        return RunConditions(
            now_s - self.began_s, epoch_s, clock.stop_reason(), open_command_ended=bool(self.command_ended_ns)
        )


class SpendAccount:
    """What the calls of a run cost, and what may still be spent."""

    def __init__(self, session: RunSession) -> None:
        self._session, self._environment = session, session.environment
        self.problem = ""  # why something that was spent could not be counted
        self.step_limit_micro_usd: int | None = None  # of the run's own spend; beside the limits of the run
        self._unbooked: list[tuple[str, Spent, float, str]] = []

    def book(self, call: str, spent: Spent, live_call: str) -> None:
        """Count what a call has cost. `live_call` is the name by which its running cost was reported."""
        self._unbooked.append((call, spent, self._environment.clock.epoch(), live_call))
        self.problem = self.book_pending()

    @property
    def is_booked(self) -> bool:
        """Whether everything that was spent is counted."""
        return not self._unbooked

    def book_pending(self) -> str:
        """Count what is not counted yet. Returns why that failed: the work is saved before the run ends over it."""
        try:
            while self._unbooked:
                self._environment.daily_spend.book(self._session.id, *self._unbooked[0])
                self._environment.shared_budget.record_call(self._session.id, self._unbooked[0][1])
                del self._unbooked[0]
        except RalphError as error:
            return str(error)
        return ""

    def remaining(self, call: str) -> RemainingBudget:
        """What may still be spent, by this run and by all of today's. What a call has spent already is part of that."""
        spend = self._session.state.spend.plus(self._environment.child_runs.status().spend)
        left = RemainingBudget.of(self._session.rules.limits.budget, spend, self.day_spend(call))
        if self.step_limit_micro_usd is None:
            return left
        own = self.step_limit_micro_usd - self._session.state.spend.micro_usd
        return replace(left, micro_usd=own if left.micro_usd is None else min(own, left.micro_usd))

    def day_spend(self, call: str = "") -> DaySpend:
        together = self._environment.shared_budget.total()
        if self._session.rules.limits.budget.daily_micro_usd is None:
            return DaySpend(shared=together)
        day = (
            DaySpend(0, self.problem)
            if self.problem
            else self._environment.daily_spend.day_spend(self._environment.clock.epoch(), call)
        )
        return replace(day, shared=together)
