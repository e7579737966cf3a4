"""A budget that the runs of one call share (`--total-cost-usd`)."""

from __future__ import annotations

import os
from _thread import allocate_lock

from ralphproof.purse import Together
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphproof.event import Spent


class Shared:
    """Adds up what all runs have spent, those that are at work included. Without a limit it only adds up."""

    def __init__(self, limit: int | None = None) -> None:
        """`limit` is in micro-dollars."""
        self._limit, self._lock, self._name = limit, allocate_lock(), os.urandom(8).hex()
        self._settled: dict[str, int] = {}
        self._open: dict[str, int] = {}

    def join(self, run: str, state_dir: str) -> None:
        """A run takes part, with what it has spent before. Who looks on in our place, should we die, knows that too."""
        if self._limit is None:
            return
        from ralphproof.ledgers.spend import SpendBook

        book = SpendBook.open(state_dir)
        try:
            spent = book.booked_by(run)  # of a call that is not over its own events tell
            book.share(run, self._name, self._limit)
        finally:
            book.close()
        with self._lock:
            self._settled[run] = spent.micro_usd

    def so_far(self, run: str, spent: Spent) -> None:
        with self._lock:
            self._open[run] = max(0, spent.micro_usd or 0)

    def settle(self, run: str, spent: Spent) -> None:
        with self._lock:
            self._open.pop(run, None)
            self._settled[run] = self._settled.get(run, 0) + max(0, spent.micro_usd or 0)

    def together(self) -> Together | None:
        if self._limit is None:
            return None
        with self._lock:
            return Together(sum(self._settled.values()) + sum(self._open.values()), self._limit)
