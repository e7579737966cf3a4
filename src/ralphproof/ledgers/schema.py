"""The ledger's tables, as numbered steps: step N makes version N out of version N - 1, and never changes again."""

from __future__ import annotations

import os

from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from _sqlite3 import Connection

    Steps = tuple[tuple[str, ...], ...]

# `seq` of a run, not its time, tells which is newer: clocks are set back.
# The index on record(run) holds seq too, so a run's records come out in order and its last one is found at once.
MIGRATIONS: Steps = (
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
        """CREATE TABLE wish (
            seq INTEGER PRIMARY KEY, run TEXT NOT NULL REFERENCES run(id), kind TEXT NOT NULL, at REAL NOT NULL)""",
        "CREATE INDEX wish_of_run ON wish(run)",
    ),
)


def version_of(database: Connection) -> int:
    """The number of the last step that was taken on this file."""
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def refuse_newer(version: int, path: str, steps: Steps = MIGRATIONS) -> None:
    """Raise Refused for a file of a version that we do not know."""
    if version > len(steps):
        raise Refused(
            f"{path} was written by a newer ralph (version {version}, this one knows {len(steps)}); "
            "use the newer one, or set RALPH_STATE_DIR to another directory"
        )


def migrate(database: Connection, path: str, steps: Steps = MIGRATIONS) -> None:
    """Bring the file to the latest version in one transaction; an existing one is copied first.

    The caller sees to it that nobody else migrates at this time.
    """
    version = version_of(database)
    if version == len(steps):
        return
    if version > 0:
        _back_up(database, path, version)
    database.execute("BEGIN IMMEDIATE")
    for step in steps[version:]:
        for statement in step:
            database.execute(statement)
    database.execute(f"PRAGMA user_version = {len(steps)}")
    database.execute("COMMIT")


def _back_up(database: Connection, path: str, version: int) -> None:
    """Copy the file as it is. An unfinished copy is never taken for a whole one."""
    kept, copy = f"{path}.version-{version}", f"{path}.version-{version}.tmp"
    if os.path.exists(copy):
        os.unlink(copy)
    # SQLite fills an empty file and keeps its mode.
    os.close(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    database.execute("VACUUM INTO ?", (copy,))
    os.rename(copy, kept)
