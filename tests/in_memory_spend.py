"""A daily spend store in memory, for tests."""

from __future__ import annotations

from ralphproof.engine.agent import Spent
from ralphproof.engine.limits import DaySpend, Spend, utc_day


class InMemorySpend:
    """`DailySpend` without a file."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], tuple[int, Spent]] = {}

    def book(self, run: str, call: str, spent: Spent, epoch_s: float, live: str = "") -> None:
        self._calls.setdefault((run, call), (utc_day(epoch_s), spent))

    def day_spend(self, epoch_s: float, without_call: str = "") -> DaySpend:
        return DaySpend(sum(spent.micro_usd or 0 for day, spent in self._calls.values() if day == utc_day(epoch_s)))

    def update_live(self, run: str, call: str, spent: Spent, epoch_s: float) -> int | None:
        return self.day_spend(epoch_s).micro_usd

    def close_call(self, run: str, call: str) -> None:
        """Nothing to release."""

    def spend_of(self, runs: tuple[str, ...]) -> Spend:
        found = [spent for (run, _), (_, spent) in self._calls.items() if run in runs]
        return Spend(
            sum(spent.micro_usd or 0 for spent in found),
            sum(spent.usage.total for spent in found if spent.usage),
            sum(spent.micro_usd is None or spent.at_least for spent in found),
            sum(spent.micro_usd or 0 for spent in found if spent.notional),
        )
