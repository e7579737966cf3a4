"""Writes the proof of a run down when the run is completed."""

from __future__ import annotations

from ralphproof.record import RunEnded
from ralphproof.value import TYPE_CHECKING
from ralphproof.verdict import Completed

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.event import Event
    from ralphproof.record import Record


class ProofWriter:
    """Looks on until the run has ended: its record is durable then, and `write` can read all of it."""

    def __init__(self, write: Callable[[], None]) -> None:
        self._write = write

    def saw(self, record: Record) -> None:
        """A record that is now durable."""
        if isinstance(record, RunEnded) and isinstance(record.outcome, Completed):
            self._write()

    def heard(self, events: list[Event]) -> None:
        """What agents say proves nothing."""

    def tick(self) -> None:
        """Nothing is proved before the end."""
