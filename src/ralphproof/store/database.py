"""SQLite files: connections, retries, write-ahead log, repair of damaged files, errors in our words."""

from __future__ import annotations

import os
import sys
import time

from ralphproof.base.errors import DiskFull, HarnessFailed, LedgerBroken, RalphError, Refused
from ralphproof.base.files import NO_SPACE_ERRNOS, explain_os_error, make_private_folder
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.store import schema

if TYPE_CHECKING:
    from _sqlite3 import Connection, Error
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")


BUSY_TIMEOUT_S = 10.0
MAX_TRIES = 3
STATE_DIR_REMEDY = "make it writable, or set RALPH_STATE_DIR to another directory"
SUSPECT_SUFFIX = (
    ".suspect"  # the ending of an empty file that says: look through the whole ledger before it is next used
)
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
    """Do work that may be repeated. If it fails, nothing of it stays, and the error is one of ours."""
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


def explain_sqlite_error(error: Error, path: str) -> RalphError:
    """The error to raise for one of SQLite's, in one line."""
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
    """Whether only a writing connection can go on: the process that created the file died before it was done."""
    return getattr(error.__cause__, "sqlite_errorcode", 0) == _READONLY_ROLLBACK


def _error_code(error: Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 1)) & 0xFF


def _roll_back(database: Connection) -> None:
    import _sqlite3

    try:
        if database.in_transaction:
            database.execute("ROLLBACK")
    except _sqlite3.Error:
        pass  # the first error is the one to tell; without a COMMIT nothing of the work stays


def _mark_suspect(path: str) -> None:
    try:
        os.close(os.open(path + SUSPECT_SUFFIX, os.O_WRONLY | os.O_CREAT, 0o600))
    except OSError:
        pass  # the damage is told in any case


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


_CHECKED_BYTES = 4 * 1024 * 1024  # 2 ms; a larger file is read through only when it is suspected


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
    """Move a damaged file aside byte for byte and create an empty one; what was done, empty for a sound file."""
    said = run_exclusively(path, lambda: _move_aside(path, busy_s)) if _find_damage(path, busy_s) else ""
    if os.path.lexists(path + SUSPECT_SUFFIX):
        os.unlink(path + SUSPECT_SUFFIX)
    return said


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
        version = run_with_retries(database, path, lambda: schema.schema_version(database))
        schema.require_schema_version(version, schema.LEDGER_SCHEMA.version, path)
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
    kept = _unused_name(path)
    for ending in ("-wal", "-shm", "-journal", ""):
        if os.path.lexists(path + ending):
            os.rename(path + ending, kept + ending)
    create_database_file(path)
    return f"the ledger was damaged ({damage}); it is kept as {kept}, and a new one was begun"


def _unused_name(path: str) -> str:
    import time

    name = f"{path}.corrupt-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    kept, number = name, 1
    while os.path.lexists(kept):
        number += 1
        kept = f"{name}-{number}"
    return kept


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
    return bool(database.execute(pragma).fetchone()[0] == "wal")  # where it can have none, SQLite goes on without


def open_read_only(path: str, busy_s: float) -> Connection:
    """A read-only connection to a ledger. A missing ledger is seen as an empty one, and no file is created."""
    if not os.path.exists(path):
        return _empty_database()
    database = connect(path, busy_s, read_only=True)
    try:
        version = run_with_retries(database, path, lambda: schema.schema_version(database))
        schema.require_schema_version(version, schema.LEDGER_SCHEMA.version, path)
    except RalphError as error:
        database.close()
        if not is_half_made(error):
            raise
        version = 0
    if version == 0:  # somebody makes it at this moment, or died over it
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
    if not schema.schema_version(database):
        run_exclusively(path, lambda: schema.create_tables(database))


def _empty_database() -> Connection:
    import _sqlite3

    database: Connection = _sqlite3.connect(":memory:", isolation_level=None)
    schema.create_tables(database)
    database.execute("PRAGMA query_only = ON")
    return database
