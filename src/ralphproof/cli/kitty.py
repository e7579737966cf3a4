"""A budget that the runs of one call share."""

from __future__ import annotations

from _thread import allocate_lock

from ralphproof.purse import Together
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphproof.event import Spent


class Shared:
    """Adds up what all runs have spent, those that are at work included. Without a limit it only adds up."""

    def __init__(self, limit: int | None = None) -> None:
        """`limit` is in micro-dollars."""
        self._limit, self._lock = limit, allocate_lock()
        self._settled: dict[str, int] = {}
        self._open: dict[str, int] = {}

    def join(self, run: str, micro_usd: int) -> None:
        """A run takes part that has spent this before, by the book."""
        with self._lock:
            self._settled[run] = micro_usd

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
