"""A run as its record grows."""

from __future__ import annotations

from ralphproof.state import State
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.standing import standing

if TYPE_CHECKING:
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.record import Record
    from ralphproof.views.project import Project


class Trail:
    """Reads each record of a run once, as soon as it is durable; `state` is where they have led so far."""

    def __init__(self, ledger: Sqlite, row: RunRow) -> None:
        self._ledger, self.row, self._number = ledger, row, 0
        self.state = State()
        self.last: Record | None = None
        self.earlier = self.more()

    def more(self) -> tuple[Record, ...]:
        """What has come since this was last asked."""
        found = self._ledger.look.since(self.row.id, self._number)
        for number, _, record in found:
            self._number, self.last, self.state = number, record, self.state.after(record)
        return tuple(record for _, _, record in found)

    @property
    def grown(self) -> bool:
        """Whether there is more."""
        return self._ledger.look.last_of(self.row.id) > self._number

    def standing(self, project: Project) -> str:
        """Whether it goes on, has ended, or lost its harness. Another process may have it by now."""
        self.row = self._ledger.row(self.row.id) or self.row
        return standing(self._ledger, self.row, project)
