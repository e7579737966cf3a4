"""Budgets and spend of a run, of a day, and of runs that share a budget."""

from __future__ import annotations

from ralphproof.base.value import Protocol, value
from ralphproof.engine.agent import Turn
from ralphproof.engine.events import Spent

# Money is whole micro-dollars, so sums are exact.


@value
class Budget:
    """Upper bounds of a run or stage. None is no limit."""

    iterations: int | None = None
    micro_usd: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    daily_micro_usd: int | None = None  # of all runs of the user together


@value
class Spend:
    """Resources used. `unpriced` counts turns whose cost is not fully known: the sum is then a lower bound. `notional`
    is the part that a subscription covers.
    """

    micro_usd: int = 0
    tokens: int = 0
    unpriced: int = 0
    notional: int = 0

    def plus_turn(self, turn: Turn) -> Spend:
        """This spend plus one more turn of any kind. A turn that never started cost nothing."""
        if turn.exit.why == "unstartable" or not turn.taken:
            return self
        return self.plus(Spend.of(turn.spent))

    @staticmethod
    def of(spent: Spent) -> Spend:
        """The spend of one agent call."""
        tokens, unpriced = spent.usage.total if spent.usage else 0, spent.micro_usd is None or spent.at_least
        return Spend(spent.micro_usd or 0, tokens, int(unpriced), spent.micro_usd or 0 if spent.notional else 0)

    def plus(self, other: Spend) -> Spend:
        """This spend plus that of others on the same account."""
        return Spend(
            self.micro_usd + other.micro_usd, self.tokens + other.tokens, self.unpriced + other.unpriced,
            self.notional + other.notional,
        )  # fmt: skip

    @property
    def known_usd(self) -> float | None:
        """Dollars as far as known; None where something was spent and no cost is known."""
        return None if self.unpriced and not self.micro_usd else self.micro_usd / 1_000_000

    @property
    def usd(self) -> float | None:
        """Dollars, where every turn's cost is known."""
        return None if self.unpriced else self.micro_usd / 1_000_000


@value
class ChildRunsStatus:
    """Runs started by a run's agent, and by their agents: the unfinished ones, and the cost of all."""

    active: tuple[str, ...] = ()
    spend: Spend = Spend()


def format_usd(micro_usd: int) -> str:
    """Money for display: cents, and more digits only below one cent."""
    return f"${micro_usd / 1_000_000:.2f}" if micro_usd >= 10_000 or not micro_usd else f"${micro_usd / 1_000_000:.4f}"


# The daily spend covers all runs of a user in all projects. A call counts in the UTC day in which it ended.


SECONDS_PER_DAY = 86400


@value
class SharedSpend:
    """What the runs sharing a budget have spent so far, running ones included, and their limit."""

    micro_usd: int
    limit: int


@value
class DaySpend:
    """The spend of one day. A non-empty `unknown_reason` says why the sum is unreliable: then nothing more may be
    spent. `shared` is the spend of the runs that share a budget with this one, on any day; None where none is shared.
    """

    micro_usd: int = 0
    unknown_reason: str = ""
    shared: SharedSpend | None = None


NOTHING_SPENT = DaySpend()


class DailySpend(Protocol):
    """Stores the spend of a user's runs, including calls still running."""

    def book(self, run: str, call: str, spent: Spent, epoch_s: float, live: str = "") -> None:
        """Record the cost of a call of a run; durable on return. The same call is never counted twice. Where the cost
        is unknown, the last live figure counts. `live` is the live call under which its cost was published so far.
        """

    def day_spend(self, epoch_s: float, without_call: str = "") -> DaySpend:
        """The spend in the UTC day of this moment, including running calls except `without_call`."""

    def update_live(self, run: str, call: str, spent: Spent, epoch_s: float) -> int | None:
        """Publish what a running call has cost so far to all runs of the user. Returns what all others have spent in
        this day; None where it cannot be determined right now. Never waits.
        """

    def close_call(self, run: str, call: str) -> None:
        """Remove the live entry of a call: nothing more will be recorded for it."""


class SharedBudget(Protocol):
    """A budget shared by several runs. Thread-safe."""

    def update_live(self, run: str, spent: Spent) -> None:
        """Publish what a running call of this run has cost so far."""

    def record_call(self, run: str, spent: Spent) -> None:
        """Record the final cost of a call."""

    def total(self) -> SharedSpend | None:
        """What all of the runs have spent so far; None where there is no limit."""


class NoSharedBudget:
    """The run shares no budget."""

    def update_live(self, run: str, spent: Spent) -> None:
        """Do nothing."""

    def record_call(self, run: str, spent: Spent) -> None:
        """Do nothing."""

    def total(self) -> SharedSpend | None:
        return None


def utc_day(epoch_s: float) -> int:
    """The number of the UTC day since 1970, independent of time zones and daylight saving."""
    return int(epoch_s // SECONDS_PER_DAY)


@value
class RemainingBudget:
    """The budget left for a turn. None is no limit."""

    micro_usd: int | None = None
    tokens: int | None = None
    daily_micro_usd: int | None = None  # the daily limit of all the user's runs, not reduced by their spend

    @staticmethod
    def of(budget: Budget, spend: Spend, day: DaySpend) -> RemainingBudget:
        """The budget left for a run's next turn, given the run's and the day's spend."""
        money = [] if budget.micro_usd is None else [budget.micro_usd - spend.micro_usd]
        money += [] if budget.daily_micro_usd is None else [budget.daily_micro_usd - day.micro_usd]
        money += [] if day.shared is None else [day.shared.limit - day.shared.micro_usd]
        tokens = None if budget.tokens is None else budget.tokens - spend.tokens
        return RemainingBudget(min(money, default=None), tokens, budget.daily_micro_usd)

    def exceeded_by(self, spent: Spent) -> bool:
        """Whether this spend exceeds it."""
        if self.micro_usd is not None and spent.micro_usd is not None and spent.micro_usd > self.micro_usd:
            return True
        return self.tokens is not None and spent.usage is not None and spent.usage.total > self.tokens

    def reduced_by(self, micro_usd: int, tokens: int) -> RemainingBudget:
        """The budget left after others have spent this."""
        return RemainingBudget(
            None if self.micro_usd is None else self.micro_usd - micro_usd,
            None if self.tokens is None else self.tokens - tokens,
            self.daily_micro_usd,
        )

    def day_exceeded_by(self, others_micro_usd: int | None, spent: Spent) -> bool:
        """Whether this spend, with that of others in the day, exceeds the daily limit."""
        if self.daily_micro_usd is None or others_micro_usd is None:
            return False
        return others_micro_usd + (spent.micro_usd or 0) > self.daily_micro_usd


UNLIMITED_BUDGET = RemainingBudget()


def format_utc_day(day: int) -> str:
    """A day number since 1970 as `2026-02-20`."""
    era, rest = divmod(day + 719_468, 146_097)  # from the first of March of a year that 400 divides
    year = (rest - rest // 1460 + rest // 36_524 - rest // 146_096) // 365
    rest -= 365 * year + year // 4 - year // 100
    month = (5 * rest + 2) // 153  # counted from March
    after_december = month > 9
    number = month - 9 if after_december else month + 3
    return f"{era * 400 + year + after_december:04d}-{number:02d}-{rest - (153 * month + 2) // 5 + 1:02d}"
