"""What calls have cost that are not over, in the spend book: told about once a second, seen by all runs of the user.

Nothing here waits for the disk, nor for another process for long: an agent is watched meanwhile. A figure survives the
process that told it. It stays until its call is booked, and counts for the day in which it was last told.
"""

from __future__ import annotations

from ralphproof.errors import RalphError
from ralphproof.ledgers import bookings
from ralphproof.ledgers.connection import connect
from ralphproof.ledgers.text import plain
from ralphproof.purse import day_of
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from _sqlite3 import Connection

    from ralphproof.event import Spent

    Figure = tuple[str, str, int, int, int | None, int]  # run, call, day, micro_usd, tokens, notional

_TELL = """INSERT INTO live VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (run, call) DO UPDATE SET
    day = excluded.day, micro_usd = excluded.micro_usd, tokens = excluded.tokens, notional = excluded.notional"""
_OTHERS = """SELECT (SELECT ifnull(sum(micro_usd), 0) FROM booking WHERE day = ?1)
    + (SELECT ifnull(sum(micro_usd), 0) FROM live WHERE day = ?1 AND call != ?2)"""
_SHARED = """SELECT micro_usd
        - (SELECT ifnull(sum(micro_usd), 0) FROM booking WHERE run IN (SELECT run FROM shared WHERE name = own.name))
        - (SELECT ifnull(sum(micro_usd), 0) FROM live
            WHERE call != ?2 AND run IN (SELECT run FROM shared WHERE name = own.name))
    FROM shared AS own WHERE run = ?1"""
_BUSY_S = 0.05


class LiveSpend:
    """A second connection to a spend book that exists, which never waits. One object belongs to one thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._database: Connection | None = None
        self._told: Figure | None = None

    def tell(self, run: str, call: str, spent: Spent, epoch_s: float) -> int | None:
        """Tell what a call has cost so far, where that is news; what all others have spent in this day.

        None where that cannot be told now: then it is for the next time.
        """
        import _sqlite3

        row = bookings.row_of(run, call, spent, epoch_s)
        try:
            database = self._opened()
            if row[4] is not None and (figure := (row[0], row[1], row[2], row[4], row[5], row[7])) != self._told:
                database.execute(_TELL, figure)
                self._told = figure
            return int(database.execute(_OTHERS, (row[2], row[1])).fetchone()[0])
        except (RalphError, _sqlite3.Error, OverflowError):
            self.close()
            return None

    def others(self, call: str, epoch_s: float) -> int | None:
        """The same without telling anything."""
        import _sqlite3

        try:
            day = day_of(bookings.moment(epoch_s))
            return int(self._opened().execute(_OTHERS, (day, plain(call))).fetchone()[0])
        except (RalphError, _sqlite3.Error, OverflowError):
            self.close()
            return None

    def left_of_shared(self, run: str, call: str) -> int | None:
        """What this call may spend of the budget that its run shares with others; None where it shares none."""
        import _sqlite3

        try:
            found = self._opened().execute(_SHARED, (plain(run), plain(call))).fetchone()
        except (RalphError, _sqlite3.Error):
            self.close()
            return None
        return int(found[0]) if found else None

    def close(self) -> None:
        """Let go of the file."""
        if self._database is not None:
            self._database.close()
        self._database = self._told = None

    def _opened(self) -> Connection:
        if self._database is None:
            self._database = connect(self._path, _BUSY_S)
            self._database.execute("PRAGMA synchronous = NORMAL")  # the write-ahead log is not synced at a commit
        return self._database
