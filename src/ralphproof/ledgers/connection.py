"""A connection to SQLite, and its errors in our words."""

from __future__ import annotations

import os

from ralphproof.errors import DiskFull, HarnessFailed, LedgerBroken, RalphError, Refused
from ralphproof.ledgers.files import NO_SPACE
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from _sqlite3 import Connection, Error
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

BUSY_S = 10.0
TRIES = 3
REMEDY = "make it writable, or set RALPH_STATE_DIR to another directory"
SUSPECT = ".suspect"  # the ending of an empty file that says: look through the whole ledger before it is next used
_BUSY, _LOCKED, _READONLY, _IOERR, _CORRUPT, _FULL, _CANTOPEN, _NOTADB = 5, 6, 8, 10, 11, 13, 14, 26
_READONLY_ROLLBACK = 776


def connect(path: str, busy_s: float, read_only: bool = False) -> Connection:
    """A connection to an existing file, in which each statement is its own transaction until one is begun."""
    import _sqlite3  # without its wrapper, which costs 5 ms to import

    quoted = path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    mode = "ro" if read_only else "rw"
    try:
        return _sqlite3.connect(f"file:{quoted}?mode={mode}", timeout=busy_s, isolation_level=None, uri=True)
    except _sqlite3.Error as error:
        raise explained(error, path) from error


def attempt(database: Connection, path: str, work: Callable[[], T]) -> T:
    """Do a piece of work that may be repeated. If it fails, nothing of it stays, and the error is one of ours."""
    import _sqlite3

    for tries_left in reversed(range(TRIES)):
        try:
            return work()
        except _sqlite3.Error as error:
            _undo(database)
            if not is_busy(error) or not tries_left:
                raise explained(error, path) from error
        except BaseException:
            _undo(database)
            raise
    raise AssertionError("the last try returns or raises")


def explained(error: Error, path: str) -> RalphError:
    """The error to raise for one of SQLite's, in one line."""
    code = _code(error)
    if code == _FULL or (code in (_IOERR, _CANTOPEN) and _no_space(path)):
        return DiskFull(f"cannot write {path}: no space left on the disk")
    if code in (_READONLY, _CANTOPEN):
        return Refused(f"cannot use {path}: {error}; {REMEDY}")
    if is_busy(error):
        return HarnessFailed(f"{path} was locked by another process for too long; end that process and try again")
    if code in (_CORRUPT, _NOTADB):
        _suspect(path)
        return LedgerBroken(f"{path} is damaged ({error}); the next run keeps it aside and begins a new one")
    return HarnessFailed(f"cannot use {path}: {error}")


def is_busy(error: Error) -> bool:
    """Whether another connection is in the way."""
    return _code(error) in (_BUSY, _LOCKED)


def half_made(error: RalphError) -> bool:
    """Whether only a connection that may write can go on: the process that made the file died before it was done."""
    return getattr(error.__cause__, "sqlite_errorcode", 0) == _READONLY_ROLLBACK


def _code(error: Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 1)) & 0xFF


def _undo(database: Connection) -> None:
    import _sqlite3

    try:
        if database.in_transaction:
            database.execute("ROLLBACK")
    except _sqlite3.Error:
        pass  # the first error is the one to tell; without a COMMIT nothing of the work stays


def _suspect(path: str) -> None:
    try:
        os.close(os.open(path + SUSPECT, os.O_WRONLY | os.O_CREAT, 0o600))
    except OSError:
        pass  # the damage is told in any case


def _no_space(path: str) -> bool:
    """Whether the disk, or the user's share of it, is full: SQLite says so for the first only, and not always."""
    probe = f"{path}.{os.getpid()}.tmp"
    try:
        file = os.open(probe, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            return os.pwrite(file, bytes(65536), 0) < 65536
        finally:
            os.close(file)
            os.unlink(probe)
    except OSError as error:
        return error.errno in NO_SPACE
