"""Budgets and spend of a run, of a day, and of runs that share a budget."""

from __future__ import annotations

from ralphproof.base.value import Protocol, value
from ralphproof.engine.agent import Turn
from ralphproof.engine.events import Spent

# The numbers that a stage or a run may use up, and what was used. Money is whole micro-dollars: sums are exact.


@value
class Budget:
    """What may be used. None is no limit."""

    iterations: int | None = None
    micro_usd: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    daily_micro_usd: int | None = None  # of all runs of the user together


@value
class Spend:
    """What has been used. `unpriced` counts turns whose cost is not wholly known: the sum is then a lower bound.

    `notional` is the part of it that a subscription pays for.
    """

    micro_usd: int = 0
    tokens: int = 0
    unpriced: int = 0
    notional: int = 0

    def plus_turn(self, turn: Turn) -> Spend:
        """With one more turn, of whatever kind. One that never started cost nothing."""
        if turn.exit.why == "unstartable" or not turn.taken:
            return self
        return self.plus(Spend.of(turn.spent))

    @staticmethod
    def of(spent: Spent) -> Spend:
        """What one call of an agent has used."""
        tokens, unpriced = spent.usage.total if spent.usage else 0, spent.micro_usd is None or spent.at_least
        return Spend(spent.micro_usd or 0, tokens, int(unpriced), spent.micro_usd or 0 if spent.notional else 0)

    def plus(self, other: Spend) -> Spend:
        """With what others spent on the same account."""
        return Spend(
            self.micro_usd + other.micro_usd, self.tokens + other.tokens, self.unpriced + other.unpriced,
            self.notional + other.notional,
        )  # fmt: skip

    @property
    def known_usd(self) -> float | None:
        """Dollars as far as they are known; None where nothing is, and something was spent."""
        return None if self.unpriced and not self.micro_usd else self.micro_usd / 1_000_000

    @property
    def usd(self) -> float | None:
        """Dollars, where every turn's cost is known."""
        return None if self.unpriced else self.micro_usd / 1_000_000


@value
class ChildRunsStatus:
    """Runs that a run's agent began, theirs too: those that are not over, and what all of them have cost."""

    active: tuple[str, ...] = ()
    spend: Spend = Spend()


def format_usd(micro_usd: int) -> str:
    """Money for people: cents, and more digits only for less than a cent."""
    return f"${micro_usd / 1_000_000:.2f}" if micro_usd >= 10_000 or not micro_usd else f"${micro_usd / 1_000_000:.4f}"


# What all runs of a user cost in a day, in whichever project. The day is the UTC day in which a call ended.


SECONDS_PER_DAY = 86400


@value
class SharedSpend:
    """What several runs have spent so far, those of them that are at work included, and what they may."""

    micro_usd: int
    limit: int


@value
class DaySpend:
    """What was spent in one day. A `doubt` says why the sum cannot be believed: then nothing more may be spent.

    `together` is what the runs that share a budget with this one have spent, on whatever day; None: it shares none.
    """

    micro_usd: int = 0
    unknown_reason: str = ""
    shared: SharedSpend | None = None


NOTHING_SPENT = DaySpend()


class DailySpend(Protocol):
    """Keeps what was spent, by calls that are not over too."""

    def book(self, run: str, call: str, spent: Spent, epoch_s: float, live: str = "") -> None:
        """Count what a call of a run cost; durable when this returns. The same call is never counted twice.

        Where nobody knows what it cost, what was last told of it counts. `live` is what it was part of until now.
        """

    def day_spend(self, epoch_s: float, but: str = "") -> DaySpend:
        """What was spent in the UTC day of this moment, also by calls that are not over, `but` one of these."""

    def update_live(self, run: str, call: str, spent: Spent, epoch_s: float) -> int | None:
        """A call that is not over has cost so much: all runs of the user see that from now on.

        What all others have spent in this day; None where it cannot be told at this moment. Never waits.
        """

    def close_call(self, run: str, call: str) -> None:
        """Nothing more will be booked of this call."""


class SharedBudget(Protocol):
    """A budget that several runs share. Any thread may call it."""

    def update_live(self, run: str, spent: Spent) -> None:
        """A call of this run that is not over has cost so much."""

    def record_call(self, run: str, spent: Spent) -> None:
        """It is over, and has cost this."""

    def total(self) -> SharedSpend | None:
        """What all of them have spent by now; None where there is no limit."""


class NoSharedBudget:
    """Every run has its own money."""

    def update_live(self, run: str, spent: Spent) -> None:
        """Nobody else pays."""

    def record_call(self, run: str, spent: Spent) -> None:
        """Nobody else pays."""

    def total(self) -> SharedSpend | None:
        return None


def utc_day(epoch_s: float) -> int:
    """The number of the UTC day, counted from 1970; no zone and no daylight saving takes part in it."""
    return int(epoch_s // SECONDS_PER_DAY)


@value
class RemainingBudget:
    """What a turn may still spend. None is no limit."""

    micro_usd: int | None = None
    tokens: int | None = None
    daily_micro_usd: int | None = None  # what all runs of the user may spend in a day, whatever they have spent

    @staticmethod
    def of(budget: Budget, spend: Spend, day: DaySpend) -> RemainingBudget:
        """What a run leaves to its next turn that has spent this, on a day on which so much was spent."""
        money = [] if budget.micro_usd is None else [budget.micro_usd - spend.micro_usd]
        money += [] if budget.daily_micro_usd is None else [budget.daily_micro_usd - day.micro_usd]
        money += [] if day.shared is None else [day.shared.limit - day.shared.micro_usd]
        tokens = None if budget.tokens is None else budget.tokens - spend.tokens
        return RemainingBudget(min(money, default=None), tokens, budget.daily_micro_usd)

    def exceeded_by(self, spent: Spent) -> bool:
        """Whether this is more."""
        if self.micro_usd is not None and spent.micro_usd is not None and spent.micro_usd > self.micro_usd:
            return True
        return self.tokens is not None and spent.usage is not None and spent.usage.total > self.tokens

    def reduced_by(self, micro_usd: int, tokens: int) -> RemainingBudget:
        """What is left when others have spent this."""
        return RemainingBudget(
            None if self.micro_usd is None else self.micro_usd - micro_usd,
            None if self.tokens is None else self.tokens - tokens,
            self.daily_micro_usd,
        )

    def day_exceeded_by(self, others_micro_usd: int | None, spent: Spent) -> bool:
        """Whether this and what others have spent in the day is more than a day may cost."""
        if self.daily_micro_usd is None or others_micro_usd is None:
            return False
        return others_micro_usd + (spent.micro_usd or 0) > self.daily_micro_usd


UNLIMITED_BUDGET = RemainingBudget()


def format_utc_day(day: int) -> str:
    """A day, counted from 1970, as `2026-02-20`, by the Gregorian calendar."""
    era, rest = divmod(day + 719_468, 146_097)  # from the first of March of a year that 400 divides
    year = (rest - rest // 1460 + rest // 36_524 - rest // 146_096) // 365
    rest -= 365 * year + year // 4 - year // 100
    month = (5 * rest + 2) // 153  # counted from March
    after_december = month > 9
    number = month - 9 if after_december else month + 3
    return f"{era * 400 + year + after_december:04d}-{number:02d}-{rest - (153 * month + 2) // 5 + 1:02d}"
