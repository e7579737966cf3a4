"""A purse for as long as a test runs."""

from __future__ import annotations

from ralphproof.event import Spent
from ralphproof.purse import Day, day_of


class Pocket:
    """Keeps what was spent in memory."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], tuple[int, int]] = {}

    def book(self, run: str, call: str, spent: Spent, epoch_s: float) -> None:
        self._calls.setdefault((run, call), (day_of(epoch_s), spent.micro_usd or 0))

    def day(self, epoch_s: float) -> Day:
        return Day(sum(micro_usd for day, micro_usd in self._calls.values() if day == day_of(epoch_s)))
