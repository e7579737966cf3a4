"""A damaged ledger is found when it is opened, and kept aside byte for byte."""

from __future__ import annotations

import os

from ralphproof.errors import LedgerBroken, RalphError
from ralphproof.ledgers import schema
from ralphproof.ledgers.connection import SUSPECT, attempt, connect, half_made
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

_CHECKED_BYTES = 4 * 1024 * 1024  # 2 ms; a larger file is read through only when it is suspected


def create(path: str) -> bool:
    """Make an empty file of mode 0600, which SQLite takes for a new database and its companions' mode follows.

    False where something was there before. An existing file is never opened here: closing it would drop the locks that
    this process has on it through SQLite.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    os.fchmod(file, 0o600)
    os.close(file)
    return not _nonempty(f"{path}-wal")


def repair(path: str, busy_s: float) -> str:
    """Put a damaged file aside and begin an empty one; says what was done, or nothing for a sound file."""
    said = alone(path, lambda: _put_aside(path, busy_s)) if _damage(path, busy_s) else ""
    if os.path.lexists(path + SUSPECT):
        os.unlink(path + SUSPECT)
    return said


def alone(path: str, work: Callable[[], T]) -> T:
    """Do something while no other process does the like in this file's folder."""
    import fcntl

    lock = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return work()
    finally:
        os.close(lock)


def _damage(path: str, busy_s: float) -> str:
    """What is wrong with an existing file; empty if nothing is. Only looks, so not one byte changes.

    A connection that may write would copy its write-ahead log into the file when it is closed.
    """
    if not _nonempty(path):
        return "it was empty beside its write-ahead log" if _nonempty(f"{path}-wal") else ""
    database = connect(path, busy_s, read_only=True)
    try:
        schema.refuse_other(attempt(database, path, lambda: schema.version_of(database)), path)
        if os.path.getsize(path) > _CHECKED_BYTES and not os.path.lexists(path + SUSPECT):
            return ""
        found: str = attempt(database, path, lambda: database.execute("PRAGMA quick_check(1)").fetchone()[0])
        return "" if found == "ok" else " ".join(found.split())
    except LedgerBroken as error:
        return str(error.__cause__)
    except RalphError as error:
        if half_made(error):
            return ""
        raise
    finally:
        database.close()


def _put_aside(path: str, busy_s: float) -> str:
    if not (damage := _damage(path, busy_s)):
        return ""  # another process was first
    kept = _free_name(path)
    for ending in ("-wal", "-shm", "-journal", ""):
        if os.path.lexists(path + ending):
            os.rename(path + ending, kept + ending)
    create(path)
    return f"the ledger was damaged ({damage}); it is kept as {kept}, and a new one was begun"


def _free_name(path: str) -> str:
    import time

    name = f"{path}.corrupt-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    kept, number = name, 1
    while os.path.lexists(kept):
        number += 1
        kept = f"{name}-{number}"
    return kept


def _nonempty(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except FileNotFoundError:
        return False
