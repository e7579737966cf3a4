"""Publishes a run's figures when it ends: a line for programs, and the report of its day for people."""

from __future__ import annotations

from ralphproof.purse import day_of
from ralphproof.reckoning import published
from ralphproof.record import RunEnded
from ralphproof.report import file_name, markdown
from ralphproof.value import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.event import Event
    from ralphproof.figure import Figures
    from ralphproof.record import Record
    from ralphproof.value import Json


class Shelf(Protocol):
    """Where metrics are published."""

    def add(self, line: dict[str, Json]) -> None:
        """Append a line to that of all runs."""

    def put(self, name: str, data: str) -> object:
        """Write a file of this name, in place of an older one."""


class MetricsLog:
    """Looks on until the run has ended. `figures` tells of the days from a first to a last, both included.

    `limit_micro_usd` is what a run may cost. That one thing cannot be written does not keep the other from being tried.
    """

    def __init__(
        self, shelf: Shelf, figures: Callable[[int, int], Figures], limit_micro_usd: int | None = None
    ) -> None:
        self._shelf, self._figures, self._limit = shelf, figures, limit_micro_usd

    def saw(self, record: Record) -> None:
        """A record that is now durable."""
        if not isinstance(record, RunEnded) or record.metrics is None:
            return
        day = day_of(record.metrics.ended_s)
        try:
            self._shelf.add(published(record.metrics))
        finally:
            self._shelf.put(file_name(day, day, "md"), markdown(self._figures(day, day), self._limit))

    def heard(self, events: list[Event]) -> None:
        """What agents say is no figure."""

    def tick(self) -> None:
        """Nothing changes before the end."""
