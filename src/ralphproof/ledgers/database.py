"""The file under the ledger, opened: sound, current, and with nothing left to chance."""

from __future__ import annotations

import os

from ralphproof.errors import RalphError
from ralphproof.ledgers import schema
from ralphproof.ledgers.connection import REMEDY, attempt, connect, half_made
from ralphproof.ledgers.durable import make_durable
from ralphproof.ledgers.files import explain, private_folder
from ralphproof.ledgers.repair import alone, create, repair
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from _sqlite3 import Connection


def open_to_read(path: str, busy_s: float) -> Connection:
    """A connection that changes nothing. Where there is no ledger it sees an empty one, and makes no file."""
    if not os.path.exists(path):
        return _empty()
    database = connect(path, busy_s, read_only=True)
    try:
        version = attempt(database, path, lambda: schema.version_of(database))
        schema.refuse_other(version, path)
    except RalphError as error:
        database.close()
        if not half_made(error):
            raise
        version = 0
    if version == 0:  # somebody makes it at this moment, or died over it
        database.close()
        return _empty()
    return database


def open_to_write(path: str, busy_s: float) -> tuple[Connection, str]:
    """A connection to a sound file, made if it is missing, and what had to be repaired for it."""
    try:
        private_folder(os.path.dirname(path))
        repaired = "" if create(path) else repair(path, busy_s)
        database = connect(path, busy_s)
        try:
            attempt(database, path, lambda: _settle(database, path))
        except BaseException:
            database.close()
            raise
    except OSError as error:
        raise explain(error, os.path.dirname(path), REMEDY) from error
    return database, repaired


def _settle(database: Connection, path: str) -> None:
    make_durable(database, path)
    database.execute("PRAGMA foreign_keys = ON")
    if not schema.version_of(database):
        alone(path, lambda: schema.make(database))


def _empty() -> Connection:
    import _sqlite3

    database: Connection = _sqlite3.connect(":memory:", isolation_level=None)
    schema.make(database)
    database.execute("PRAGMA query_only = ON")
    return database
