"""SQLite databases: opening, schema, transactions and exclusive sections."""

from __future__ import annotations

import os
import sys
import time

from ralphproof.base.errors import DiskFull, HarnessFailed, LedgerBroken, RalphError, Refused
from ralphproof.base.files import NO_SPACE_ERRNOS, explain_os_error, make_private_folder
from ralphproof.base.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from _sqlite3 import Connection, Error
    from collections.abc import Callable
    from typing import Any, TypeVar

    T = TypeVar("T")


@value
class DatabaseSchema:
    """The version of a database file (`PRAGMA user_version`) and the statements that create it.

    Increase `version` with every change of the statements or of the values that are stored (names of `@value` classes
    and their fields): files of another version are refused, there are no migrations.
    """

    version: int
    statements: tuple[str, ...]


# - A run's `seq`, not its time, tells which run is newer: clocks are set back.
# - The index on record(run) contains seq too, so a run's records come out in order and its last one is found at once.
# - `run_stats` has one row per finished run. Triggers update the sums by group and day (`stats_sum`) in the same
#   transaction, so a report over a million runs adds up some thousand rows. The indexes by iterations and by cost cover
#   the percentile queries. A run that ends a second time has its row replaced, and the old one leaves the sums.
# - Few runs have a parent, so the index of parents is partial.
# - `review_stats` has rows for runs with stories only, one per day; they are deleted with the run's row in `run_stats`.
# - A task's `status` is what the user set after attempt number `said_after`; a later attempt overrides it. A
#   resumed run becomes the latest attempt, so its attempt number grows.
# - `landing` is append-only: the last step of an item tells where it is.
LEDGER_SCHEMA = DatabaseSchema(
    8,
    (
        """CREATE TABLE run (
            seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, began_at REAL NOT NULL, directory TEXT NOT NULL,
            host TEXT NOT NULL, pid INTEGER NOT NULL, pid_start TEXT NOT NULL, boot TEXT NOT NULL,
            parent TEXT NOT NULL)""",
        """CREATE TABLE record (
            seq INTEGER PRIMARY KEY, run TEXT NOT NULL REFERENCES run(id), iteration INTEGER NOT NULL,
            turn INTEGER NOT NULL, step TEXT NOT NULL, kind TEXT NOT NULL, at REAL NOT NULL, data TEXT NOT NULL,
            digest TEXT NOT NULL, UNIQUE (run, iteration, turn, step))""",
        "CREATE INDEX record_of_run ON record(run)",
        """CREATE TABLE control_request (
            seq INTEGER PRIMARY KEY, run TEXT NOT NULL REFERENCES run(id), kind TEXT NOT NULL, at REAL NOT NULL)""",
        "CREATE INDEX control_request_of_run ON control_request(run)",
        """CREATE TABLE run_stats (
            run INTEGER PRIMARY KEY REFERENCES run(seq), day INTEGER NOT NULL, began REAL NOT NULL, ended REAL NOT NULL,
            status TEXT NOT NULL, reason TEXT NOT NULL, skill TEXT NOT NULL, type TEXT NOT NULL, agent TEXT NOT NULL,
            model TEXT NOT NULL, preset TEXT NOT NULL, iterations INTEGER NOT NULL, milliseconds INTEGER NOT NULL,
            micro_usd INTEGER, at_least INTEGER NOT NULL, tokens INTEGER NOT NULL, files INTEGER NOT NULL,
            tests_fixed INTEGER, claimed INTEGER NOT NULL, verified INTEGER NOT NULL, saved INTEGER)""",
        "CREATE INDEX run_stats_by_day ON run_stats(day, iterations, micro_usd)",
        "CREATE INDEX run_stats_by_iterations ON run_stats(iterations, day)",
        "CREATE INDEX run_stats_by_cost ON run_stats(micro_usd, day) WHERE micro_usd IS NOT NULL",
        """CREATE TABLE stats_group (
            id INTEGER PRIMARY KEY, skill TEXT NOT NULL, agent TEXT NOT NULL, status TEXT NOT NULL,
            reason TEXT NOT NULL, UNIQUE (skill, agent, status, reason))""",
        """CREATE TABLE stats_sum (
            kind INTEGER NOT NULL REFERENCES stats_group(id), day INTEGER NOT NULL, runs INTEGER NOT NULL,
            iterations INTEGER NOT NULL, milliseconds INTEGER NOT NULL, priced INTEGER NOT NULL,
            micro_usd INTEGER NOT NULL, at_least INTEGER NOT NULL, tokens INTEGER NOT NULL, verified INTEGER NOT NULL,
            saved INTEGER NOT NULL, PRIMARY KEY (kind, day)) WITHOUT ROWID""",
        """CREATE TRIGGER run_stats_added AFTER INSERT ON run_stats BEGIN
            INSERT INTO stats_group (skill, agent, status, reason)
                VALUES (new.skill, new.agent, new.status, new.reason) ON CONFLICT DO NOTHING;
            INSERT INTO stats_sum SELECT
                id, new.day, 1, new.iterations, new.milliseconds, new.micro_usd IS NOT NULL,
                ifnull(new.micro_usd, 0), new.at_least, new.tokens, new.verified, ifnull(new.saved, 0)
            FROM stats_group
            WHERE (skill, agent, status, reason) = (new.skill, new.agent, new.status, new.reason)
            ON CONFLICT (kind, day) DO UPDATE SET
                runs = runs + 1, iterations = iterations + excluded.iterations,
                milliseconds = milliseconds + excluded.milliseconds, priced = priced + excluded.priced,
                micro_usd = micro_usd + excluded.micro_usd, at_least = at_least + excluded.at_least,
                tokens = tokens + excluded.tokens, verified = verified + excluded.verified,
                saved = saved + excluded.saved;
        END""",
        """CREATE TRIGGER run_stats_removed AFTER DELETE ON run_stats BEGIN
            UPDATE stats_sum SET
                runs = runs - 1, iterations = iterations - old.iterations,
                milliseconds = milliseconds - old.milliseconds, priced = priced - (old.micro_usd IS NOT NULL),
                micro_usd = micro_usd - ifnull(old.micro_usd, 0), at_least = at_least - old.at_least,
                tokens = tokens - old.tokens, verified = verified - old.verified,
                saved = saved - ifnull(old.saved, 0)
            WHERE day = old.day AND kind = (SELECT id FROM stats_group
                WHERE (skill, agent, status, reason) = (old.skill, old.agent, old.status, old.reason));
            DELETE FROM stats_sum
            WHERE runs = 0 AND day = old.day AND kind = (SELECT id FROM stats_group
                WHERE (skill, agent, status, reason) = (old.skill, old.agent, old.status, old.reason));
        END""",
        "CREATE INDEX run_of_parent ON run(parent) WHERE parent != ''",
        """CREATE TABLE user_message (
            seq INTEGER PRIMARY KEY, run TEXT NOT NULL REFERENCES run(id), at REAL NOT NULL, data TEXT NOT NULL)""",
        "CREATE INDEX user_message_of_run ON user_message(run)",
        """CREATE TABLE task (
            seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, spec_id TEXT NOT NULL, title TEXT NOT NULL,
            description TEXT NOT NULL, status TEXT NOT NULL, said_after INTEGER NOT NULL, priority INTEGER NOT NULL,
            dependencies TEXT NOT NULL, assignee TEXT NOT NULL, created_at REAL NOT NULL, updated_at REAL NOT NULL,
            metadata TEXT NOT NULL, completion_spec TEXT)""",
        """CREATE TABLE attempt (
            seq INTEGER PRIMARY KEY, run TEXT NOT NULL UNIQUE REFERENCES run(id),
            task INTEGER NOT NULL REFERENCES task(seq))""",
        "CREATE INDEX attempt_of_task ON attempt(task)",
        """CREATE TABLE review_stats (
            day INTEGER NOT NULL, run INTEGER NOT NULL REFERENCES run(seq), stories INTEGER NOT NULL,
            reviews INTEGER NOT NULL, changes_requested INTEGER NOT NULL, capped INTEGER NOT NULL,
            first INTEGER NOT NULL, counted INTEGER NOT NULL, once INTEGER NOT NULL, twice INTEGER NOT NULL,
            thrice INTEGER NOT NULL, four_times INTEGER NOT NULL, oftener INTEGER NOT NULL,
            PRIMARY KEY (day, run)) WITHOUT ROWID""",
        """CREATE TRIGGER review_stats_removed AFTER DELETE ON run_stats BEGIN
            DELETE FROM review_stats WHERE day = old.day AND run = old.run;
        END""",
        """CREATE TABLE landing (
            seq INTEGER PRIMARY KEY, target TEXT NOT NULL, run TEXT NOT NULL, named TEXT NOT NULL, at REAL NOT NULL,
            item TEXT NOT NULL, step TEXT NOT NULL)""",
        "CREATE INDEX landing_of_target ON landing(target)",
    ),
)


def schema_version(database: Connection) -> int:
    """The schema version of a file; 0 for a file without tables."""
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def require_schema_version(found: int, expected: int, path: str) -> None:
    """Raise Refused for a file of another schema version, with the command that moves the state folder away."""
    if found in (0, expected):
        return
    import shlex

    folder = _state_folder(path)
    target = _unused_path(f"{folder}.old")
    writer = "an older version of ralph;" if found < expected else "a newer version of ralph; use that version, or"
    raise Refused(f"{folder} was written by {writer} move it away: mv {shlex.quote(folder)} {shlex.quote(target)}")


def _state_folder(path: str) -> str:
    """The state folder of a database: its own folder, or the one above `repos/<id>`."""
    folder = os.path.dirname(path)
    parent = os.path.dirname(folder)
    return os.path.dirname(parent) if os.path.basename(parent) == "repos" else folder


def _unused_path(path: str) -> str:
    name, number = path, 1
    while os.path.lexists(name):
        number += 1
        name = f"{path}-{number}"
    return name


def create_tables(database: Connection, schema: DatabaseSchema = LEDGER_SCHEMA) -> None:
    """Create the tables of an empty file in one transaction. The caller holds a lock against concurrent creation."""
    if schema_version(database):
        return
    database.execute("BEGIN IMMEDIATE")
    for statement in schema.statements:
        database.execute(statement)
    database.execute(f"PRAGMA user_version = {schema.version}")
    database.execute("COMMIT")


# SQLite files: connections, retries, write-ahead log, repair of damaged files, error messages.


BUSY_TIMEOUT_S = 10.0
MAX_TRIES = 3
STATE_DIR_REMEDY = "make it writable, or set RALPH_STATE_DIR to another directory"
SUSPECT_SUFFIX = ".suspect"  # of an empty file that requests a full check of the ledger before its next use
_BUSY, _LOCKED, _READONLY, _IOERR, _CORRUPT, _FULL, _CANTOPEN, _NOTADB = 5, 6, 8, 10, 11, 13, 14, 26
_READONLY_ROLLBACK = 776


def connect(path: str, busy_s: float, read_only: bool = False) -> Connection:
    """A connection to an existing file, in autocommit mode."""
    import _sqlite3  # without its wrapper, which costs 5 ms to import

    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    mode = "ro" if read_only else "rw"
    try:
        return _sqlite3.connect(f"file:{quoted}?mode={mode}", timeout=busy_s, isolation_level=None, uri=True)
    except _sqlite3.Error as error:
        raise explain_sqlite_error(error, path) from error


def run_with_retries(database: Connection, path: str, work: Callable[[], T]) -> T:
    """Do work that may be repeated. If it fails, it is rolled back, and the error is a RalphError."""
    import _sqlite3

    for tries_left in reversed(range(MAX_TRIES)):
        try:
            return work()
        except _sqlite3.Error as error:
            _roll_back(database)
            if not is_busy(error) or not tries_left:
                raise explain_sqlite_error(error, path) from error
        except BaseException:
            _roll_back(database)
            raise
    raise AssertionError("the last try returns or raises")


class DatabaseTables:
    """Some tables of an open database file: queries and transactions, with retries."""

    def __init__(self, connection: Connection, path: str) -> None:
        self._database, self._path = connection, path

    def _query(self, query: str, *values: object) -> list[Any]:
        def fetch() -> list[Any]:
            return self._database.execute(query, values).fetchall()

        return fetch() if self._database.in_transaction else run_with_retries(self._database, self._path, fetch)

    def _transaction(self, work: Callable[[], T], begin: str = "BEGIN IMMEDIATE") -> T:
        """Do work that may be repeated: all of it or nothing. Inside another transaction it is part of that one."""
        if self._database.in_transaction:
            return work()

        def transaction() -> T:
            self._database.execute(begin)
            result = work()
            self._database.execute("COMMIT")
            return result

        return run_with_retries(self._database, self._path, transaction)


def explain_sqlite_error(error: Error, path: str) -> RalphError:
    """The error to raise for an SQLite error, with a message of one line."""
    code = _error_code(error)
    if code == _FULL or (code in (_IOERR, _CANTOPEN) and _is_disk_full(path)):
        return DiskFull(f"cannot write {path}: no space left on the disk")
    if code in (_READONLY, _CANTOPEN):
        return Refused(f"cannot use {path}: {error}; {STATE_DIR_REMEDY}")
    if is_busy(error):
        return HarnessFailed(f"{path} was locked by another process for too long; end that process and try again")
    if code in (_CORRUPT, _NOTADB):
        _mark_suspect(path)
        return LedgerBroken(f"{path} is damaged ({error}); the next run keeps it aside and begins a new one")
    return HarnessFailed(f"cannot use {path}: {error}")


def is_busy(error: Error) -> bool:
    """Whether another connection holds the lock."""
    return _error_code(error) in (_BUSY, _LOCKED)


def is_half_made(error: RalphError) -> bool:
    """Whether only a writing connection can open the file: the process that created it died before it was done."""
    return getattr(error.__cause__, "sqlite_errorcode", 0) == _READONLY_ROLLBACK


def _error_code(error: Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 1)) & 0xFF


def _roll_back(database: Connection) -> None:
    import _sqlite3

    try:
        if database.in_transaction:
            database.execute("ROLLBACK")
    except _sqlite3.Error:
        pass  # the first error is the one to report; without a COMMIT nothing is stored


def _mark_suspect(path: str) -> None:
    try:
        os.close(os.open(path + SUSPECT_SUFFIX, os.O_WRONLY | os.O_CREAT, 0o600))
    except OSError:
        pass  # the damage is reported in any case


def _is_disk_full(path: str) -> bool:
    """Whether the disk, or the user's quota, is full: SQLite reports only the former, and not always."""
    probe = f"{path}.{os.getpid()}.tmp"
    try:
        file = os.open(probe, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            return os.pwrite(file, bytes(65536), 0) < 65536
        finally:
            os.close(file)
            os.unlink(probe)
    except OSError as error:
        return error.errno in NO_SPACE_ERRNOS


_CHECKED_BYTES = 4 * 1024 * 1024  # takes 2 ms; a larger file is checked only if it is marked suspect


def create_database_file(path: str) -> bool:
    """Create an empty file of mode 0600, which SQLite takes for a new database; its companion files get the same mode.

    False where there was one. An existing file is never opened here: closing it would drop the locks that this process
    has on it through SQLite.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    os.fchmod(file, 0o600)
    os.close(file)
    return not _is_nonempty(f"{path}-wal")


def repair_database(path: str, busy_s: float) -> str:
    """Move a damaged file aside byte for byte and create an empty one; returns a message, empty for a sound file."""
    message = run_exclusively(path, lambda: _move_aside(path, busy_s)) if _find_damage(path, busy_s) else ""
    if os.path.lexists(path + SUSPECT_SUFFIX):
        os.unlink(path + SUSPECT_SUFFIX)
    return message


def run_exclusively(path: str, work: Callable[[], T]) -> T:
    """Do something while no other process does the like in this file's folder."""
    import fcntl

    lock = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return work()
    finally:
        os.close(lock)


def _find_damage(path: str, busy_s: float) -> str:
    """What is wrong with an existing file; empty if nothing is. Read-only, so not one byte changes.

    A writing connection would copy the write-ahead log into the file when it is closed.
    """
    if not _is_nonempty(path):
        return "it was empty beside its write-ahead log" if _is_nonempty(f"{path}-wal") else ""
    database = connect(path, busy_s, read_only=True)
    try:
        version = run_with_retries(database, path, lambda: schema_version(database))
        require_schema_version(version, LEDGER_SCHEMA.version, path)
        if os.path.getsize(path) > _CHECKED_BYTES and not os.path.lexists(path + SUSPECT_SUFFIX):
            return ""
        found: str = run_with_retries(database, path, lambda: database.execute("PRAGMA quick_check(1)").fetchone()[0])
        return "" if found == "ok" else " ".join(found.split())
    except LedgerBroken as error:
        return str(error.__cause__)
    except RalphError as error:
        if is_half_made(error):
            return ""
        raise
    finally:
        database.close()


def _move_aside(path: str, busy_s: float) -> str:
    if not (damage := _find_damage(path, busy_s)):
        return ""  # another process was first
    target = _unused_path(f"{path}.corrupt-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}")
    for ending in ("-wal", "-shm", "-journal", ""):
        if os.path.lexists(path + ending):
            os.rename(path + ending, target + ending)
    create_database_file(path)
    return f"the ledger was damaged ({damage}); it is kept as {target}, and a new one was begun"


def _is_nonempty(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except FileNotFoundError:
        return False


_WAL_PAUSE_S = 0.005


def make_durable(database: Connection, path: str) -> None:
    """Set up a connection whose commits are on disk when they return. The first one to a new file enables its
    write-ahead log, for good.
    """
    if not _uses_wal(database, "PRAGMA journal_mode"):
        run_exclusively(path, lambda: _enable_wal(database, path))
    database.execute("PRAGMA synchronous = FULL")
    if sys.platform == "darwin":  # its fsync leaves data in the drive's cache
        database.execute("PRAGMA fullfsync = ON")
        database.execute("PRAGMA checkpoint_fullfsync = ON")


def _enable_wal(database: Connection, path: str) -> None:
    """SQLite refuses this at once, without its usual timeout, while any other connection reads the file."""
    import _sqlite3

    until = time.monotonic() + BUSY_TIMEOUT_S / MAX_TRIES
    while True:
        try:
            if _uses_wal(database, "PRAGMA journal_mode = WAL"):
                return
            raise HarnessFailed(f"{path} cannot have a write-ahead log: the disk failed, or does not support one")
        except _sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > until:
                raise
        time.sleep(_WAL_PAUSE_S)


def _uses_wal(database: Connection, pragma: str) -> bool:
    return bool(database.execute(pragma).fetchone()[0] == "wal")  # where WAL is not possible, SQLite keeps another mode


def open_read_only(path: str, busy_s: float) -> Connection:
    """A read-only connection to a ledger. A missing ledger is seen as an empty one, and no file is created."""
    if not os.path.exists(path):
        return _empty_database()
    database = connect(path, busy_s, read_only=True)
    try:
        version = run_with_retries(database, path, lambda: schema_version(database))
        require_schema_version(version, LEDGER_SCHEMA.version, path)
    except RalphError as error:
        database.close()
        if not is_half_made(error):
            raise
        version = 0
    if version == 0:  # another process is creating it, or died doing so
        database.close()
        return _empty_database()
    return database


def open_writable(path: str, busy_s: float) -> tuple[Connection, str]:
    """A connection to a sound ledger, created if it is missing, and what had to be repaired for it."""
    try:
        make_private_folder(os.path.dirname(path))
        repaired = "" if create_database_file(path) else repair_database(path, busy_s)
        database = connect(path, busy_s)
        try:
            run_with_retries(database, path, lambda: _prepare_file(database, path))
        except BaseException:
            database.close()
            raise
    except OSError as error:
        raise explain_os_error(error, os.path.dirname(path), STATE_DIR_REMEDY) from error
    return database, repaired


def _prepare_file(database: Connection, path: str) -> None:
    make_durable(database, path)
    database.execute("PRAGMA foreign_keys = ON")
    if not schema_version(database):
        run_exclusively(path, lambda: create_tables(database))


def open_in_memory() -> Connection:
    """An empty ledger without a file. It may be handed from one thread to another."""
    import _sqlite3

    database: Connection = _sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    create_tables(database)
    return database


def _empty_database() -> Connection:
    database = open_in_memory()
    database.execute("PRAGMA query_only = ON")
    return database
