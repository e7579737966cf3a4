"""Daily spend over all projects of a user: the SQLite file, its bookings, and running calls."""

from __future__ import annotations

import _sqlite3
import hashlib
import os
from _sqlite3 import Connection
from _thread import allocate_lock
from collections.abc import Callable
from typing import TypeVar

from ralphproof.base.errors import HarnessFailed, LedgerBroken, RalphError
from ralphproof.base.files import explain_os_error, make_private_folder, replace_file
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.agent import Spent
from ralphproof.engine.limits import DaySpend, SharedSpend, Spend, utc_day
from ralphproof.store.database import (
    BUSY_TIMEOUT_S,
    MAX_TRIES,
    STATE_DIR_REMEDY,
    SUSPECT_SUFFIX,
    DatabaseSchema,
    connect,
    create_database_file,
    create_tables,
    make_durable,
    require_schema_version,
    run_exclusively,
    run_with_retries,
    schema_version,
)
from ralphproof.store.serialization import to_valid_utf8

Row = tuple[str, str, int, float, int | None, int | None, int, int]
Place = tuple[int, str]  # seq and digest of a row
Figure = tuple[str, str, int, int, int | None, int]  # run, call, day, micro_usd, tokens, notional

if TYPE_CHECKING:
    T = TypeVar("T")


class InProcessSharedBudget:
    """A budget that the runs of one command share (`--total-cost-usd`). Without a limit it only adds up."""

    def __init__(self, limit: int | None = None) -> None:
        """`limit` is in micro-dollars."""
        self._limit, self._lock, self._name = limit, allocate_lock(), os.urandom(8).hex()
        self._booked: dict[str, int] = {}
        self._live: dict[str, int] = {}

    def join(self, run: str, state_dir: str) -> None:
        """Add a run, with what it has spent before. The spend file records it too, for the process that monitors the
        run if its harness dies.
        """
        if self._limit is None:
            return

        store = SpendStore.open(state_dir)
        try:
            spent = store.booked_by(run)  # the cost of a running call comes from its events
            store.share(run, self._name, self._limit)
        finally:
            store.close()
        with self._lock:
            self._booked[run] = spent.micro_usd

    def update_live(self, run: str, spent: Spent) -> None:
        with self._lock:
            self._live[run] = max(0, spent.micro_usd or 0)

    def record_call(self, run: str, spent: Spent) -> None:
        with self._lock:
            self._live.pop(run, None)
            self._booked[run] = self._booked.get(run, 0) + max(0, spent.micro_usd or 0)

    def total(self) -> SharedSpend | None:
        if self._limit is None:
            return None
        with self._lock:
            return SharedSpend(sum(self._booked.values()) + sum(self._live.values()), self._limit)


# A call that is not over has a row in `live` with its cost so far; the transaction that books it deletes the row. The
# runs with the same `name` in `shared` have a budget together.
SPEND_SCHEMA = DatabaseSchema(
    3,
    (
        """CREATE TABLE booking (
            seq INTEGER PRIMARY KEY, run TEXT NOT NULL, call TEXT NOT NULL, day INTEGER NOT NULL, at REAL NOT NULL,
            micro_usd INTEGER, tokens INTEGER, at_least INTEGER NOT NULL, notional INTEGER NOT NULL,
            digest TEXT NOT NULL, UNIQUE (run, call))""",
        "CREATE INDEX booking_of_day ON booking(day, micro_usd)",
        """CREATE TABLE live (
            run TEXT NOT NULL, call TEXT NOT NULL, day INTEGER NOT NULL, micro_usd INTEGER NOT NULL,
            tokens INTEGER, notional INTEGER NOT NULL, PRIMARY KEY (run, call)) WITHOUT ROWID""",
        "CREATE TABLE shared (run TEXT PRIMARY KEY, name TEXT NOT NULL, micro_usd INTEGER NOT NULL) WITHOUT ROWID",
    ),
)
MAX_AMOUNT = 10**12  # a larger amount for a call (a million dollars, or as many tokens) is taken as unknown
MAX_EPOCH_S = 10**15  # beyond any clock; its day number fits into SQLite
CHAIN_START: Place = (0, "0" * 64)  # what the first row is chained to


def booking_row(run: str, call: str, spent: Spent, epoch_s: float) -> Row:
    """The row for a call. An impossible amount is stored as unknown."""
    tokens = None if spent.usage is None else spent.usage.total
    at = clamp_epoch(epoch_s)
    known = (_clamp_amount(spent.micro_usd), _clamp_amount(tokens), int(spent.at_least), int(spent.notional))
    return (to_valid_utf8(run), to_valid_utf8(call), utc_day(at), at, *known)


def clamp_epoch(epoch_s: float) -> float:
    """A time that has a day: clamped to what clocks can show, 1970 for NaN."""
    return float(min(max(epoch_s, -MAX_EPOCH_S), MAX_EPOCH_S)) if epoch_s == epoch_s else 0.0


def _clamp_amount(number: int | None) -> int | None:
    return number if number is not None and 0 <= number < MAX_AMOUNT else None


def booking_digest(previous: str, row: Row) -> str:
    """The digest of a row that follows the row with digest `previous`."""
    return hashlib.sha256(ascii((previous, *row)).encode()).hexdigest()


def is_valid_booking(row: Row) -> bool:
    """Whether a row has what `booking_row` makes. SQLite accepts any type in any column."""
    day, micro_usd = row[2], row[4]
    return type(day) is int and (micro_usd is None or (type(micro_usd) is int and 0 <= micro_usd < MAX_AMOUNT))


def prepare_spend_file(database: Connection, path: str, trusted: bool) -> None:
    """Make the file usable and durable. Its head file is created before its tables.

    A file that replaces a lost one is not `trusted`, and gets no head file.
    """
    version = schema_version(database)
    require_schema_version(version, SPEND_SCHEMA.version, path)
    make_durable(database, path)
    if not version:
        run_exclusively(path, lambda: _create_spend_tables(database, path, trusted))


def _create_spend_tables(database: Connection, path: str, trusted: bool) -> None:
    if trusted and not os.path.lexists(head_file_path(path)):
        replace_file(head_file_path(path), _format_head(CHAIN_START))
    create_tables(database, SPEND_SCHEMA)


def head_file_path(path: str) -> str:
    """The small file that names the last row of the spend file: `spend.head` beside `spend.db`."""
    return f"{os.path.splitext(path)[0]}.head"


def write_head_file(path: str, last: Place) -> None:
    """Write the position of a row that is on disk. An older position is still valid, so a failed write is ignored."""
    try:
        run_exclusively(path, lambda: _overwrite(head_file_path(path), _format_head(last)))
    except OSError:
        pass


def _overwrite(path: str, data: bytes) -> None:
    """Overwrite in place. All head files have the same length, so neither a crash nor a full disk leaves a part."""
    file = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.pwrite(file, data, 0)
    finally:
        os.close(file)


def read_head_file(path: str) -> Place | None:
    """The row that the head file names; None if there is none that can be read."""
    try:
        data = run_exclusively(path, lambda: _read_head_bytes(head_file_path(path)))
        seq, digest = data.decode("ascii").split()
        return (int(seq), digest) if int(seq) < 1 << 63 else None
    except (OSError, ValueError):
        return None


def _read_head_bytes(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read(1000)


def _format_head(place: Place) -> bytes:
    return f"{place[0]:020d} {place[1]}\n".encode()


_UPSERT_LIVE = """INSERT INTO live VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (run, call) DO UPDATE SET
    day = excluded.day, micro_usd = excluded.micro_usd, tokens = excluded.tokens, notional = excluded.notional"""
_SELECT_OTHERS = """SELECT (SELECT ifnull(sum(micro_usd), 0) FROM booking WHERE day = ?1)
    + (SELECT ifnull(sum(micro_usd), 0) FROM live WHERE day = ?1 AND call != ?2)"""
_SELECT_SHARED_REMAINDER = """SELECT micro_usd
        - (SELECT ifnull(sum(micro_usd), 0) FROM booking WHERE run IN (SELECT run FROM shared WHERE name = own.name))
        - (SELECT ifnull(sum(micro_usd), 0) FROM live
            WHERE call != ?2 AND run IN (SELECT run FROM shared WHERE name = own.name))
    FROM shared AS own WHERE run = ?1"""
_LIVE_BUSY_TIMEOUT_S = 0.05


class LiveSpend:
    """The cost of calls that are not over, updated about once a second and seen by all runs of the user.

    A second connection to an existing spend file, which neither syncs nor waits long for a lock: the caller monitors a
    running agent. A row outlives the process that wrote it, until its call is booked, and counts for the day of its
    last update. One object belongs to one thread.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._database: Connection | None = None
        self._published: Figure | None = None

    def update(self, run: str, call: str, spent: Spent, epoch_s: float) -> int | None:
        """Store what a call has cost so far, if it changed; returns what all others have spent on this day.

        None if that is not possible now: the next update will do it.
        """
        row = booking_row(run, call, spent, epoch_s)
        figure = None if row[4] is None else (row[0], row[1], row[2], row[4], row[5], row[7])
        if figure is not None and figure != self._published:
            if self._query(_UPSERT_LIVE, *figure) is None:
                return None
            self._published = figure
        return self.others(call, epoch_s)

    def others(self, call: str, epoch_s: float) -> int | None:
        """What all others have spent on this day."""
        return self._number(_SELECT_OTHERS, utc_day(clamp_epoch(epoch_s)), to_valid_utf8(call))

    def left_of_shared(self, run: str, call: str) -> int | None:
        """What this call may spend of the budget that its run shares; None if it shares none."""
        return self._number(_SELECT_SHARED_REMAINDER, to_valid_utf8(run), to_valid_utf8(call))

    def _number(self, query: str, *values: object) -> int | None:
        found = self._query(query, *values)
        return int(found[0][0]) if found else None

    def _query(self, query: str, *values: object) -> list[tuple[int]] | None:
        """The result; None if that is not possible now."""
        try:
            return self._opened().execute(query, values).fetchall()
        except (RalphError, _sqlite3.Error, OverflowError):
            self.close()
            return None

    def close(self) -> None:
        """Close the file."""
        if self._database is not None:
            self._database.close()
        self._database = self._published = None

    def _opened(self) -> Connection:
        if self._database is None:
            self._database = connect(self._path, _LIVE_BUSY_TIMEOUT_S)
            self._database.execute("PRAGMA synchronous = NORMAL")  # the write-ahead log is not synced at a commit
        return self._database


_ADD = """INSERT INTO booking (run, call, day, at, micro_usd, tokens, at_least, notional, digest)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"""
_ROWS = """SELECT run, call, day, at, micro_usd, tokens, at_least, notional, seq, digest FROM booking
    WHERE seq > ? ORDER BY seq"""
# Where to start reading for all rows since a day: not at the first of them, but at the row before it, which may be one
# of them with a changed day. This selects what that row is chained to. Without the `+` SQLite 3.40 reads the whole
# table.
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
_REDUCE_LIVE = "UPDATE live SET micro_usd = max(0, micro_usd - ?) WHERE run = ? AND call = ?"
_DELETE_LIVE = "DELETE FROM live WHERE run = ? AND call = ?"
_NO_ROW = 1 << 62
_ERROR, _CONSTRAINT, _MISMATCH = 1, 19, 20
_DAMAGE_CODES = (_ERROR, _CONSTRAINT, _MISMATCH)  # errors from tables with another definition than ours


def spend_path(state_dir: str) -> str:
    """The spend file of a state directory."""
    return os.path.join(os.path.abspath(state_dir), "spend.db")


class SpendStore:
    """What this user spent per day, over all repositories: bookings in `<state_dir>/spend.db`, durable after `book`.

    The file is opened when first needed. Many processes may use it at a time; one object belongs to one thread. Each
    row is chained to the one before by its digest, and the head file names the last. A verified row is remembered: to
    change it afterwards changes no sum here, and is detected when the file is next opened. Once an object distrusts the
    file, it stays so; it still books, and leaves the head file as it is.
    """

    def __init__(self, path: str, busy_s: float = BUSY_TIMEOUT_S) -> None:
        self._path, self._busy_s, self._distrust_reason = path, busy_s, ""
        self._database: Connection | None = None
        self._file: tuple[int, int] | None = None
        self._seen: Place | None = None
        self._version, self._since = -1, _NO_ROW
        self._sums: dict[int, int] = {}
        self._live = LiveSpend(path)

    @classmethod
    def open(cls, state_dir: str, busy_s: float = BUSY_TIMEOUT_S) -> SpendStore:
        """The spend file of a state directory. Nothing is opened yet."""
        return cls(spend_path(state_dir), busy_s)

    def close(self) -> None:
        """Close the file."""
        self._live.close()
        if self._database is not None:
            self._database.close()
            self._database = None

    def book(self, run: str, call: str, spent: Spent, epoch_s: float, live: str = "") -> None:
        """Record what a call of a run cost, once: its first day and amount stay. Its live row is removed in the same
        transaction.
        """
        row = booking_row(run, call, spent, epoch_s)
        self._with_database(lambda database: self._add(database, row, to_valid_utf8(live or call)))

    def day_spend(self, epoch_s: float, without_call: str = "") -> DaySpend:
        """What was spent on the UTC day of this moment, and why that cannot be trusted, if it cannot."""
        day, live = utc_day(clamp_epoch(epoch_s)), 0
        if not self._distrust_reason:
            try:
                live = self._with_database(lambda database: self._read(database, day, to_valid_utf8(without_call)))
            except LedgerBroken:
                pass  # the reason is returned below
        return DaySpend(self._sums.get(day, 0) + live, self._distrust_reason)

    def update_live(self, run: str, call: str, spent: Spent, epoch_s: float) -> int | None:
        """Store the cost so far of a running call; returns what all others have spent on this day, without
        verification.
        """
        if self._database is None:
            try:
                self._opened()
            except RalphError:
                return None
        return self._live.update(run, call, spent, epoch_s)

    def close_call(self, run: str, call: str) -> None:
        """Remove the live row of a call: all of it is booked."""
        self._with_database(lambda database: database.execute(_DELETE_LIVE, (to_valid_utf8(run), to_valid_utf8(call))))

    def days(self, first_day: int, last_day: int) -> list[tuple[int, int, int]]:
        """(day, micro-dollars, calls of unknown cost) for each day with bookings, without verification."""
        if not os.path.exists(self._path):
            return []
        return self._with_database(lambda database: database.execute(_DAYS, (first_day, last_day)).fetchall())

    def spend_of(self, runs: tuple[str, ...]) -> Spend:
        """What these runs have spent, whether or not the file can be trusted."""
        if not runs or not os.path.exists(self._path):
            return Spend()
        return self._with_database(lambda database: _sum_spend(database, runs))

    def booked_by(self, run: str) -> Spend:
        """What the finished calls of a run have cost."""
        if not os.path.exists(self._path):
            return Spend()
        return self._with_database(lambda database: _sum_spend(database, (run,), live=False))

    def share(self, run: str, name: str, micro_usd: int) -> None:
        """A run shares this budget with all others of this name."""
        values = (to_valid_utf8(run), to_valid_utf8(name), micro_usd)
        self._with_database(lambda database: database.execute("INSERT OR REPLACE INTO shared VALUES (?, ?, ?)", values))

    def _read(self, database: Connection, day: int, without_call: str) -> int:
        """Read new rows; returns the cost of live calls at the same moment."""
        database.execute("BEGIN")
        live = int(database.execute(_LIVE_OF_DAY, (day, without_call)).fetchone()[0])
        self._read_new_rows(database, day)
        database.execute("COMMIT")
        return live

    def _add(self, database: Connection, row: Row, live: str) -> None:
        do = database.execute
        do("BEGIN IMMEDIATE")
        self._read_new_rows(database, row[2])
        row = _row_to_book(database, row, live)
        last = do("SELECT digest FROM booking ORDER BY seq DESC LIMIT 1").fetchone()
        digest = booking_digest(last[0] if last else CHAIN_START[1], row)
        added = do(_ADD, (*row, digest))
        do("COMMIT")
        if added.rowcount:
            self._sums[row[2]] = self._sums.get(row[2], 0) + (row[4] or 0)
            if not self._distrust_reason:
                self._seen = int(added.lastrowid or 0), digest
                write_head_file(self._path, self._seen)

    def _is_known(self, database: Connection, day: int) -> bool:
        """Whether no other connection wrote since the last read, which went back as far as this day."""
        return day >= self._since and database.execute("PRAGMA data_version").fetchone()[0] == self._version

    def _read_new_rows(self, database: Connection, day: int) -> None:
        """Read new rows, inside a transaction: those after the last one seen, or all since the day before."""
        if self._distrust_reason or self._is_known(database, day):
            return
        (version,) = database.execute("PRAGMA data_version").fetchone()
        seen = self._seen or CHAIN_START
        found = database.execute("SELECT digest FROM booking WHERE seq = ?", (seen[0],)).fetchone()
        if seen != CHAIN_START and found != (seen[1],):
            self._mark_untrusted("bookings that were there are gone or replaced")
        elif day >= self._since:
            self._count(database, seen, dict(self._sums))
        else:
            anchor = database.execute(_ANCHOR, (day - 1,)).fetchone() or CHAIN_START
            self._count(database, anchor, {})
            self._since = day - 1
        self._version = version

    def _count(self, database: Connection, place: Place, sums: dict[int, int]) -> None:
        """Verify all rows after this one, and add them to the sums of their days."""
        seq, previous = place
        for *row, seq, digest in database.execute(_ROWS, (seq,)):  # noqa: B020 (the one that is left is the last)
            if booking_digest(previous, row) != digest:
                return self._mark_untrusted(f"booking {seq} was changed, or one before it is missing")
            if not is_valid_booking(row):
                return self._mark_untrusted(f"booking {seq} has an impossible day or amount")
            sums[row[2]] = sums.get(row[2], 0) + (row[4] or 0)
            previous = digest
        self._seen, self._sums = (seq, previous), sums

    def _with_database(self, work: Callable[[Connection], T]) -> T:
        """Do something with the open file. For a damaged file it raises LedgerBroken, and distrusts it from then on."""
        try:
            database = self._opened()
            return run_with_retries(database, self._path, lambda: work(database))
        except HarnessFailed as error:
            if not _is_damage(error):
                raise
            self._mark_untrusted(f"it is damaged ({error.__cause__})")
            _clear_suspect_mark(self._path)
            raise LedgerBroken(self._distrust_reason) from error

    def _opened(self) -> Connection:
        if self._database is not None and _file_identity(self._path) != self._file:
            self._mark_untrusted("it was deleted or replaced while it was in use")
            self.close()
        if self._database is None:
            try:
                self._database = self._begun()
            except OSError as error:
                raise explain_os_error(error, os.path.dirname(self._path), STATE_DIR_REMEDY) from error
        return self._database

    def _begun(self) -> Connection:
        """Open the file, created if it is missing. The head file is read before any row, so it can only lag behind
        them.
        """
        make_private_folder(os.path.dirname(self._path))
        create_database_file(self._path)
        database = connect(self._path, self._busy_s / MAX_TRIES)
        try:
            run_with_retries(
                database, self._path, lambda: prepare_spend_file(database, self._path, not self._distrust_reason)
            )
            self._seen = self._seen or read_head_file(self._path)
        except BaseException:
            database.close()
            raise
        if self._seen is None:
            self._mark_untrusted(f"its witness {head_file_path(self._path)} is missing or damaged")
        self._file, self._version = _file_identity(self._path), -1
        return database

    def _mark_untrusted(self, why: str) -> None:
        folder = os.path.dirname(self._path)
        self._distrust_reason = self._distrust_reason or (
            f"what was spent cannot be known from {self._path}: {why}; to begin a new count, end all runs and move "
            f"spend.head, spend.db and what else begins with spend.db out of {folder}"
        )


def _row_to_book(database: Connection, row: Row, live: str) -> Row:
    """The row to book for a call, whose live row is removed. An unknown cost becomes the last one of the live row."""
    run, call, day, at, micro_usd, tokens, _, notional = row
    last = database.execute(_LIVE, (run, live)).fetchone()
    if micro_usd is None and last is not None:
        row = (run, call, day, at, last[0], last[1] if tokens is None else tokens, 1, notional or last[2])
    if micro_usd is None or live == call:
        database.execute(_DELETE_LIVE, (run, live))
    else:
        database.execute(_REDUCE_LIVE, (micro_usd, run, live))
    return row


def _sum_spend(database: Connection, runs: tuple[str, ...], live: bool = True) -> Spend:
    """What runs have booked, and the cost so far of their live calls, which is a lower bound."""
    spend = Spend()
    database.execute("BEGIN")
    for run in {to_valid_utf8(run) for run in runs}:
        for question in (_SPEND, _LIVE_OF_RUN) if live else (_SPEND,):
            spend = spend.plus(Spend(*map(int, database.execute(question, (run,)).fetchone())))
    database.execute("COMMIT")
    return spend


def _file_identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _is_damage(error: HarnessFailed) -> bool:
    """Whether the file is damaged or foreign. SQLite has no error code for text that is not UTF-8."""
    cause = error.__cause__
    if isinstance(cause, _sqlite3.ProgrammingError):
        return False
    code = getattr(cause, "sqlite_errorcode", _ERROR) & 0xFF
    return isinstance(error, LedgerBroken) or (isinstance(cause, _sqlite3.Error) and code in _DAMAGE_CODES)


def _clear_suspect_mark(path: str) -> None:
    """Remove the request for a repair: the spend file is never repaired automatically."""
    try:
        os.unlink(path + SUSPECT_SUFFIX)
    except OSError:
        pass


def require_spend_version(state_dir: str) -> None:
    """Raise Refused where the spend file was written by another version; any other error is raised at its first use."""
    version = _query_read_only(state_dir, schema_version, 0)
    require_schema_version(version or 0, SPEND_SCHEMA.version, spend_path(state_dir))


def spend_on_day(state_dir: str, day: int) -> Spend | None:
    """What was spent on a day so far, read-only and without verification. None if it cannot be read."""

    def look(database: Connection) -> Spend:
        database.execute("BEGIN")
        found = database.execute(_DAYS, (day, day)).fetchall()
        live, calls = database.execute(_LIVE_OF_DAY, (day, "")).fetchone()
        database.execute("COMMIT")
        booked = Spend(int(found[0][1]), unpriced=int(found[0][2])) if found else Spend()
        return booked.plus(Spend(int(live), unpriced=int(calls)))

    return _query_read_only(state_dir, look, Spend())


def spend_of_runs(state_dir: str, runs: tuple[str, ...]) -> Spend | None:
    """What these runs have spent, live calls included, read-only."""
    return _query_read_only(state_dir, lambda database: _sum_spend(database, runs), Spend())


def live_spend_by_run(state_dir: str) -> dict[str, int]:
    """The cost so far of live calls by run, in micro-dollars."""

    def look(database: Connection) -> dict[str, int]:
        found = database.execute("SELECT run, sum(micro_usd) FROM live GROUP BY run").fetchall()
        return {str(run): int(cost) for run, cost in found}

    return _query_read_only(state_dir, look, {}) or {}


def last_reported_spend(state_dir: str, run: str, call: str) -> Spend | None:
    """The last cost of a call that is not booked; None if there is none."""

    def look(database: Connection) -> Spend:
        found = database.execute(_LIVE, (to_valid_utf8(run), to_valid_utf8(call))).fetchone()
        return Spend(int(found[0]), int(found[1] or 0), 1, int(found[0]) if found[2] else 0) if found else Spend()

    spend = _query_read_only(state_dir, look, Spend())
    return spend if spend is not None and spend.unpriced else None


def _query_read_only(state_dir: str, look: Callable[[Connection], T], nothing: T) -> T | None:
    """The result of a read-only query: `nothing` if there is no file, None if it cannot be read."""
    path = spend_path(state_dir)
    if not os.path.exists(path):
        return nothing
    try:
        database = connect(path, BUSY_TIMEOUT_S, read_only=True)
        try:
            return run_with_retries(database, path, lambda: look(database))
        finally:
            database.close()
    except RalphError:
        return None
