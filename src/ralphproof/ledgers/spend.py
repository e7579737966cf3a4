"""What this user spent per day, over all repositories and processes: one SQLite file in the state directory."""

from __future__ import annotations

import os

from ralphproof.budget import Spend
from ralphproof.errors import HarnessFailed, LedgerBroken, RalphError
from ralphproof.ledgers import bookings
from ralphproof.ledgers.connection import BUSY_S, REMEDY, SUSPECT, TRIES, attempt, connect
from ralphproof.ledgers.files import explain, private_folder
from ralphproof.ledgers.live_spend import LiveSpend
from ralphproof.ledgers.repair import create
from ralphproof.ledgers.text import plain
from ralphproof.purse import Day, day_of
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from _sqlite3 import Connection
    from collections.abc import Callable
    from typing import TypeVar

    from ralphproof.event import Spent

    T = TypeVar("T")

_ADD = """INSERT INTO booking (run, call, day, at, micro_usd, tokens, at_least, notional, digest)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"""
_ROWS = """SELECT run, call, day, at, micro_usd, tokens, at_least, notional, seq, digest FROM booking
    WHERE seq > ? ORDER BY seq"""
# Where to begin for all rows since a day: not with the first of them, but with the row before it, since it may be one
# of them whose day was changed. This is what that row is bound to. Without the `+` SQLite 3.40 reads the whole table.
_ANCHOR = """SELECT seq, digest FROM booking WHERE seq < (
        SELECT max(seq) FROM booking WHERE seq < ifnull(
            (SELECT min(+seq) FROM booking WHERE day >= ?), 9223372036854775807))
    ORDER BY seq DESC LIMIT 1"""
_DAYS = """SELECT day, ifnull(sum(micro_usd), 0), sum(micro_usd IS NULL) FROM booking
    WHERE day BETWEEN ? AND ? GROUP BY day ORDER BY day"""
_SPEND = """SELECT ifnull(CAST(sum(micro_usd) AS INTEGER), 0), ifnull(CAST(sum(tokens) AS INTEGER), 0),
        count(*) FILTER (WHERE micro_usd IS NULL OR at_least),
        ifnull(CAST(sum(micro_usd) FILTER (WHERE notional) AS INTEGER), 0)
    FROM booking WHERE run = ?"""
_LIVE = "SELECT micro_usd, tokens, notional FROM live WHERE run = ? AND call = ?"
_LIVE_OF_DAY = "SELECT ifnull(sum(micro_usd), 0), count(*) FROM live WHERE day = ? AND call != ?"
_LIVE_OF_RUN = """SELECT ifnull(sum(micro_usd), 0), ifnull(sum(tokens), 0), count(*),
        ifnull(sum(micro_usd) FILTER (WHERE notional), 0)
    FROM live WHERE run = ?"""
_LESS = "UPDATE live SET micro_usd = max(0, micro_usd - ?) WHERE run = ? AND call = ?"
_OVER = "DELETE FROM live WHERE run = ? AND call = ?"
_NEVER = 1 << 62
_ERROR, _CONSTRAINT, _MISMATCH = 1, 19, 20
_ODD = (_ERROR, _CONSTRAINT, _MISMATCH)  # what a table gives that is not the one that we made


def spend_file(state_dir: str) -> str:
    """The file of the book in a state directory."""
    return os.path.join(os.path.abspath(state_dir), "spend.db")


class SpendBook:
    """Keeps bookings in `<state_dir>/spend.db`, opened when first needed. What `book` was given is on disk afterwards.

    Many processes may use one file at a time; one object belongs to one thread. A row that was verified is remembered:
    to change it afterwards changes no sum here, and is found when the file is next opened. Once in doubt, an object
    stays so; it goes on to book, and leaves the witness as it is.
    """

    def __init__(self, path: str, busy_s: float = BUSY_S) -> None:
        self._path, self._busy_s, self._doubt = path, busy_s, ""
        self._database: Connection | None = None
        self._file: tuple[int, int] | None = None
        self._seen: bookings.Place | None = None
        self._version, self._since = -1, _NEVER
        self._sums: dict[int, int] = {}
        self._live = LiveSpend(path)

    @classmethod
    def open(cls, state_dir: str, busy_s: float = BUSY_S) -> SpendBook:
        """The book in a state directory. Nothing is touched yet."""
        return cls(spend_file(state_dir), busy_s)

    def close(self) -> None:
        """Let go of the file."""
        self._live.close()
        if self._database is not None:
            self._database.close()
            self._database = None

    def book(self, run: str, call: str, spent: Spent, epoch_s: float, live: str = "") -> None:
        """Count what a call of a run cost, once: its first day and amount stay. A figure that is none is unknown.

        What was told of the call while it was not over goes in the same moment.
        """
        row = bookings.row_of(run, call, spent, epoch_s)
        self._work(lambda database: self._add(database, row, plain(live or call)))

    def day(self, epoch_s: float, but: str = "") -> Day:
        """What was spent in the UTC day of this moment, and why that cannot be believed, where it cannot."""
        day, live = day_of(bookings.moment(epoch_s)), 0
        if not self._doubt:
            try:
                live = self._work(lambda database: self._read(database, day, plain(but)))
            except LedgerBroken:
                pass  # the doubt says it
        return Day(self._sums.get(day, 0) + live, self._doubt)

    def so_far(self, run: str, call: str, spent: Spent, epoch_s: float) -> int | None:
        """Tell what a call has cost that is not over; what all others have spent in this day, as far as rows say."""
        if self._database is None:
            try:
                self._opened()
            except RalphError:
                return None
        return self._live.tell(run, call, spent, epoch_s)

    def settle(self, run: str, call: str) -> None:
        """Forget what was told of a call: all of it is booked."""
        self._work(lambda database: database.execute(_OVER, (plain(run), plain(call))))

    def days(self, first_day: int, last_day: int) -> list[tuple[int, int, int]]:
        """(day, micro-dollars, calls of unknown cost) for each day with bookings. For reports: nothing is verified."""
        if not os.path.exists(self._path):
            return []
        return self._work(lambda database: database.execute(_DAYS, (first_day, last_day)).fetchall())

    def spend_of(self, runs: tuple[str, ...]) -> Spend:
        """What these runs have spent, by the rows that are there: a doubt about the book does not change it."""
        if not runs or not os.path.exists(self._path):
            return Spend()
        return self._work(lambda database: _sum(database, runs))

    def booked_by(self, run: str) -> Spend:
        """What the calls of a run have cost that are over."""
        if not os.path.exists(self._path):
            return Spend()
        return self._work(lambda database: _sum(database, (run,), live=False))

    def share(self, run: str, name: str, micro_usd: int) -> None:
        """A run shares this much with all others of this name."""
        values = (plain(run), plain(name), micro_usd)
        self._work(lambda database: database.execute("INSERT OR REPLACE INTO shared VALUES (?, ?, ?)", values))

    def _read(self, database: Connection, day: int, but: str) -> int:
        """Take in what is new; what calls have cost that are not over, at the same moment."""
        database.execute("BEGIN")
        live = int(database.execute(_LIVE_OF_DAY, (day, but)).fetchone()[0])
        self._look(database, day)
        database.execute("COMMIT")
        return live

    def _add(self, database: Connection, row: bookings.Row, live: str) -> None:
        do = database.execute
        do("BEGIN IMMEDIATE")
        self._look(database, row[2])
        row = _settled(database, row, live)
        last = do("SELECT digest FROM booking ORDER BY seq DESC LIMIT 1").fetchone()
        digest = bookings.bound(last[0] if last else bookings.START[1], row)
        added = do(_ADD, (*row, digest))
        do("COMMIT")
        if added.rowcount:
            self._sums[row[2]] = self._sums.get(row[2], 0) + (row[4] or 0)
            if not self._doubt:
                self._seen = int(added.lastrowid or 0), digest
                bookings.testify(self._path, self._seen)

    def _is_known(self, database: Connection, day: int) -> bool:
        """Whether no other connection wrote since the last look, and it went back as far as this day."""
        return day >= self._since and database.execute("PRAGMA data_version").fetchone()[0] == self._version

    def _look(self, database: Connection, day: int) -> None:
        """Take in what is new, inside a transaction: rows after the last one seen, or all since the day before."""
        if self._doubt or self._is_known(database, day):
            return
        (version,) = database.execute("PRAGMA data_version").fetchone()
        seen = self._seen or bookings.START
        found = database.execute("SELECT digest FROM booking WHERE seq = ?", (seen[0],)).fetchone()
        if seen != bookings.START and found != (seen[1],):
            self._disbelieve("bookings that were there are gone or replaced")
        elif day >= self._since:
            self._count(database, seen, dict(self._sums))
        else:
            anchor = database.execute(_ANCHOR, (day - 1,)).fetchone() or bookings.START
            self._count(database, anchor, {})
            self._since = day - 1
        self._version = version

    def _count(self, database: Connection, place: bookings.Place, sums: dict[int, int]) -> None:
        """Verify all rows after this one, and add them to the sums of their days."""
        seq, previous = place
        for *row, seq, digest in database.execute(_ROWS, (seq,)):  # noqa: B020 (the one that is left is the last)
            if bookings.bound(previous, row) != digest:
                return self._disbelieve(f"booking {seq} was changed, or one before it is missing")
            if not bookings.believable(row):
                return self._disbelieve(f"booking {seq} has a day or an amount that cannot be")
            sums[row[2]] = sums.get(row[2], 0) + (row[4] or 0)
            previous = digest
        self._seen, self._sums = (seq, previous), sums

    def _work(self, work: Callable[[Connection], T]) -> T:
        """Do something with the open file. Damage is a doubt, and LedgerBroken says it too."""
        try:
            database = self._opened()
            return attempt(database, self._path, lambda: work(database))
        except HarnessFailed as error:
            if not _is_damage(error):
                raise
            self._disbelieve(f"it is damaged ({error.__cause__})")
            _unsuspect(self._path)
            raise LedgerBroken(self._doubt) from error

    def _opened(self) -> Connection:
        if self._database is not None and _identity(self._path) != self._file:
            self._disbelieve("it was deleted or replaced while it was in use")
            self.close()
        if self._database is None:
            try:
                self._database = self._begun()
            except OSError as error:
                raise explain(error, os.path.dirname(self._path), REMEDY) from error
        return self._database

    def _begun(self) -> Connection:
        """The file, made if it is missing. The witness is read before any row is, so it can only lag behind them."""
        private_folder(os.path.dirname(self._path))
        create(self._path)
        database = connect(self._path, self._busy_s / TRIES)
        try:
            attempt(database, self._path, lambda: bookings.settle(database, self._path, not self._doubt))
            self._seen = self._seen or bookings.witnessed(self._path)
        except BaseException:
            database.close()
            raise
        if self._seen is None:
            self._disbelieve(f"its witness {bookings.witness_of(self._path)} is missing or damaged")
        self._file, self._version = _identity(self._path), -1
        return database

    def _disbelieve(self, why: str) -> None:
        folder = os.path.dirname(self._path)
        self._doubt = self._doubt or (
            f"what was spent cannot be known from {self._path}: {why}; to begin a new count, end all runs and move "
            f"spend.head, spend.db and what else begins with spend.db out of {folder}"
        )


def _settled(database: Connection, row: bookings.Row, live: str) -> bookings.Row:
    """The row to book for a call, which leaves those that are not over. Unknown is what was last told of it."""
    run, call, day, at, micro_usd, tokens, _, notional = row
    told = database.execute(_LIVE, (run, live)).fetchone()
    if micro_usd is None and told is not None:
        row = (run, call, day, at, told[0], told[1] if tokens is None else tokens, 1, notional or told[2])
    if micro_usd is None or live == call:
        database.execute(_OVER, (run, live))
    else:
        database.execute(_LESS, (micro_usd, run, live))
    return row


def _sum(database: Connection, runs: tuple[str, ...], live: bool = True) -> Spend:
    """What runs have booked, and what their calls have cost that are not over: that is a lower bound."""
    spend = Spend()
    database.execute("BEGIN")
    for run in {plain(run) for run in runs}:
        for question in (_SPEND, _LIVE_OF_RUN) if live else (_SPEND,):
            spend = spend.beside(Spend(*map(int, database.execute(question, (run,)).fetchone())))
    database.execute("COMMIT")
    return spend


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_damage(error: HarnessFailed) -> bool:
    """Whether the file is not what we made. SQLite has no number for text that is not UTF-8."""
    import _sqlite3

    cause = error.__cause__
    if isinstance(cause, _sqlite3.ProgrammingError):
        return False
    code = getattr(cause, "sqlite_errorcode", _ERROR) & 0xFF
    return isinstance(error, LedgerBroken) or (isinstance(cause, _sqlite3.Error) and code in _ODD)


def _unsuspect(path: str) -> None:
    """Nothing repairs this file by itself, so no mark is left that asks for it."""
    try:
        os.unlink(path + SUSPECT)
    except OSError:
        pass


def spent_on(state_dir: str, day: int) -> Spend | None:
    """What was spent in a day by now, for whoever only looks: nothing is made, verified or held. None: unknown."""

    def look(database: Connection) -> Spend:
        database.execute("BEGIN")
        found = database.execute(_DAYS, (day, day)).fetchall()
        live, calls = database.execute(_LIVE_OF_DAY, (day, "")).fetchone()
        database.execute("COMMIT")
        booked = Spend(int(found[0][1]), unpriced=int(found[0][2])) if found else Spend()
        return booked.beside(Spend(int(live), unpriced=int(calls)))

    return _seen(state_dir, look, Spend())


def spent_by(state_dir: str, runs: tuple[str, ...]) -> Spend | None:
    """What these runs have spent, by calls that are not over too, for whoever only looks."""
    return _seen(state_dir, lambda database: _sum(database, runs), Spend())


def at_work(state_dir: str) -> dict[str, int]:
    """What calls have cost that are not over, by their runs, in micro-dollars."""

    def look(database: Connection) -> dict[str, int]:
        found = database.execute("SELECT run, sum(micro_usd) FROM live GROUP BY run").fetchall()
        return {str(run): int(cost) for run, cost in found}

    return _seen(state_dir, look, {}) or {}


def told_of(state_dir: str, run: str, call: str) -> Spend | None:
    """What was last told of a call that is not booked; None where nothing was."""

    def look(database: Connection) -> Spend:
        found = database.execute(_LIVE, (plain(run), plain(call))).fetchone()
        return Spend(int(found[0]), int(found[1] or 0), 1, int(found[0]) if found[2] else 0) if found else Spend()

    told = _seen(state_dir, look, Spend())
    return told if told is not None and told.unpriced else None


def _seen(state_dir: str, look: Callable[[Connection], T], nothing: T) -> T | None:
    """What is seen in the book: `nothing` where there is none, None where it cannot be read."""
    path = spend_file(state_dir)
    if not os.path.exists(path):
        return nothing
    try:
        database = connect(path, BUSY_S, read_only=True)
        try:
            return attempt(database, path, lambda: look(database))
        finally:
            database.close()
    except RalphError:
        return None
