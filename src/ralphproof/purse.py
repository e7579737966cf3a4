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


def day_of(epoch_s: float) -> int:
    """The number of the UTC day, counted from 1970; no zone and no daylight saving takes part in it."""
    return int(epoch_s // DAY_S)
