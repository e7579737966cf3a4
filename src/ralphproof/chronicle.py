"""A run as it is told: into the state at once, into the ledger before anything else happens, then to observers."""

from __future__ import annotations

from ralphproof.record import Noticed, Record
from ralphproof.state import State
from ralphproof.world import World


class Chronicle:
    """Where a run stands, and the records of it that are not durable yet."""

    def __init__(self, run: str, world: World, state: State) -> None:
        self.id, self.world, self.state = run, world, state
        self._pending: list[Record] = []

    def notice(self, message: str) -> None:
        """Record something worth knowing that changes nothing."""
        self._tell(Noticed(self.state.iteration, self.state.notices, message))

    def _tell(self, record: Record) -> None:
        self.state = self.state.after(record)
        self._pending.append(record)

    def _flush(self) -> None:
        """Make what was told durable, then visible. Called before anything else touches the world."""
        records, self._pending = tuple(self._pending), []
        if records:
            self.world.ledger.append(self.id, records)
        for record in records:
            self.world.show(record)
