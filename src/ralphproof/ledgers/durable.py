"""What SQLite is told so that a commit is on disk when it returns, and so that readers and the writer do not wait."""

from __future__ import annotations

import sys
import time

from ralphproof.errors import HarnessFailed
from ralphproof.ledgers.connection import BUSY_S, TRIES, is_busy
from ralphproof.ledgers.repair import alone
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from _sqlite3 import Connection

_PAUSE_S = 0.005


def make_durable(database: Connection, path: str) -> None:
    """Set up a connection. The first one to a new file also gives it its write-ahead log, for good."""
    if not _has_log(database, "PRAGMA journal_mode"):
        alone(path, lambda: _begin_log(database, path))
    database.execute("PRAGMA synchronous = FULL")
    if sys.platform == "darwin":  # its fsync leaves data in the drive's cache
        database.execute("PRAGMA fullfsync = ON")
        database.execute("PRAGMA checkpoint_fullfsync = ON")


def _begin_log(database: Connection, path: str) -> None:
    """SQLite refuses this at once, without its usual patience, while anybody so much as looks at the file."""
    import _sqlite3

    until = time.monotonic() + BUSY_S / TRIES
    while True:
        try:
            if _has_log(database, "PRAGMA journal_mode = WAL"):
                return
            raise HarnessFailed(f"{path} cannot have a write-ahead log: the disk failed, or does not support one")
        except _sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > until:
                raise
        time.sleep(_PAUSE_S)


def _has_log(database: Connection, pragma: str) -> bool:
    return bool(database.execute(pragma).fetchone()[0] == "wal")  # where it can have none, SQLite goes on without
