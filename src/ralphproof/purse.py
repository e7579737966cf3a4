"""What all runs of a user cost in a day, in whichever project. The day is the UTC day in which a call ended."""

from __future__ import annotations

from ralphproof.event import Spent
from ralphproof.value import Protocol, value

DAY_S = 86400


@value
class Day:
    """What was spent in one day. A `doubt` says why the sum cannot be believed: then nothing more may be spent."""

    micro_usd: int = 0
    doubt: str = ""


NOTHING_SPENT = Day()


class Purse(Protocol):
    """Keeps what was spent."""

    def book(self, run: str, call: str, spent: Spent, epoch_s: float) -> None:
        """Count what a call of a run cost; durable when this returns. The same call is never counted twice."""

    def day(self, epoch_s: float) -> Day:
        """What was spent in the UTC day of this moment."""


class Pocket:
    """A purse for as long as the program runs, for runs that are nobody's expense."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str, str], tuple[int, int]] = {}

    def book(self, run: str, call: str, spent: Spent, epoch_s: float) -> None:
        self._calls.setdefault((run, call), (day_of(epoch_s), spent.micro_usd or 0))

    def day(self, epoch_s: float) -> Day:
        return Day(sum(micro_usd for day, micro_usd in self._calls.values() if day == day_of(epoch_s)))


def day_of(epoch_s: float) -> int:
    """The number of the UTC day, counted from 1970; no zone and no daylight saving takes part in it."""
    return int(epoch_s // DAY_S)
