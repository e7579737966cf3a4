"""What all runs of a user cost in a day, in whichever project. The day is the UTC day in which a call ended."""

from __future__ import annotations

from ralphproof.event import Spent
from ralphproof.value import Protocol, value

DAY_S = 86400


@value
class Together:
    """What several runs have spent so far, those of them that are at work included, and what they may."""

    micro_usd: int
    limit: int


@value
class Day:
    """What was spent in one day. A `doubt` says why the sum cannot be believed: then nothing more may be spent.

    `together` is what the runs that share a budget with this one have spent, on whatever day; None: it shares none.
    """

    micro_usd: int = 0
    doubt: str = ""
    together: Together | None = None


NOTHING_SPENT = Day()


class Purse(Protocol):
    """Keeps what was spent, by calls that are not over too."""

    def book(self, run: str, call: str, spent: Spent, epoch_s: float, live: str = "") -> None:
        """Count what a call of a run cost; durable when this returns. The same call is never counted twice.

        Where nobody knows what it cost, what was last told of it counts. `live` is what it was part of until now.
        """

    def day(self, epoch_s: float, but: str = "") -> Day:
        """What was spent in the UTC day of this moment, also by calls that are not over, `but` one of these."""

    def so_far(self, run: str, call: str, spent: Spent, epoch_s: float) -> int | None:
        """A call that is not over has cost so much: all runs of the user see that from now on.

        What all others have spent in this day; None where it cannot be told at this moment. Never waits.
        """

    def settle(self, run: str, call: str) -> None:
        """Nothing more will be booked of this call."""


class Kitty(Protocol):
    """A budget that several runs share. Any thread may call it."""

    def so_far(self, run: str, spent: Spent) -> None:
        """A call of this run that is not over has cost so much."""

    def settle(self, run: str, spent: Spent) -> None:
        """It is over, and has cost this."""

    def together(self) -> Together | None:
        """What all of them have spent by now; None where there is no limit."""


class NoKitty:
    """Every run has its own money."""

    def so_far(self, run: str, spent: Spent) -> None:
        """Nobody else pays."""

    def settle(self, run: str, spent: Spent) -> None:
        """Nobody else pays."""

    def together(self) -> Together | None:
        return None


def day_of(epoch_s: float) -> int:
    """The number of the UTC day, counted from 1970; no zone and no daylight saving takes part in it."""
    return int(epoch_s // DAY_S)
