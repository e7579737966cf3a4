"""What the spend book is made of: rows, each bound to the one before, and a witness of the last one beside the file."""

from __future__ import annotations

import os

from ralphproof.ledgers import schema
from ralphproof.ledgers.durable import make_durable
from ralphproof.ledgers.files import write_whole
from ralphproof.ledgers.repair import alone
from ralphproof.ledgers.text import plain
from ralphproof.purse import day_of
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from _sqlite3 import Connection

    from ralphproof.event import Spent

    # run, call, day, at, micro_usd, tokens, at_least, notional
    Row = tuple[str, str, int, float, int | None, int | None, int, int]
    Place = tuple[int, str]  # seq and digest of a row

# A call that is not over is in `live`, with what it has cost so far. It leaves it in the transaction that books it.
# Runs of the same `name` in `shared` may together spend so much.
LAYOUT = schema.Layout(
    2,
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
MOST = 10**12  # a call of a million dollars, or of so many tokens, did not happen
LAST_S = 10**15  # no clock goes so far, and its day is a number that SQLite can keep
START: Place = (0, "0" * 64)  # what the first row is bound to


def row_of(run: str, call: str, spent: Spent, epoch_s: float) -> Row:
    """The row for a call. A figure that cannot be one is unknown."""
    tokens = None if spent.usage is None else spent.usage.total
    at = moment(epoch_s)
    known = (_figure(spent.micro_usd), _figure(tokens), int(spent.at_least), int(spent.notional))
    return (plain(run), plain(call), day_of(at), at, *known)


def moment(epoch_s: float) -> float:
    """A time that has a day: beyond what clocks show it is their end, and 1970 where it is no number."""
    return float(min(max(epoch_s, -LAST_S), LAST_S)) if epoch_s == epoch_s else 0.0


def _figure(number: int | None) -> int | None:
    return number if number is not None and 0 <= number < MOST else None


def bound(previous: str, row: Row) -> str:
    """The digest of a row that follows the row with digest `previous`."""
    import hashlib

    return hashlib.sha256(ascii((previous, *row)).encode()).hexdigest()


def believable(row: Row) -> bool:
    """Whether a row holds what `row_of` makes. SQLite keeps anything in any column."""
    day, micro_usd = row[2], row[4]
    return type(day) is int and (micro_usd is None or (type(micro_usd) is int and 0 <= micro_usd < MOST))


def settle(database: Connection, path: str, trusted: bool) -> None:
    """Make the file usable, with nothing left to chance. Before its table is made there is a witness.

    A book that is made anew where one was lost is not `trusted`, and gets none.
    """
    version = schema.version_of(database)
    schema.refuse_other(version, path, LAYOUT)
    make_durable(database, path)
    if not version:
        alone(path, lambda: _make(database, path, trusted))


def _make(database: Connection, path: str, trusted: bool) -> None:
    if trusted and not os.path.lexists(witness_of(path)):
        folder, name = os.path.split(witness_of(path))
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            write_whole(place, name, _words(START))
        finally:
            os.close(place)
    schema.make(database, LAYOUT)


def witness_of(path: str) -> str:
    """The small file that names the last row of a book: `spend.head` beside `spend.db`."""
    return f"{os.path.splitext(path)[0]}.head"


def testify(path: str, last: Place) -> None:
    """Name a row that is on disk. A witness that lags is still true, so one that cannot be written is left."""
    try:
        alone(path, lambda: _overwrite(witness_of(path), _words(last)))
    except OSError:
        pass


def _overwrite(path: str, data: bytes) -> None:
    """In place, since all witnesses have one length: neither a crash nor a full disk can leave half of one."""
    file = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.pwrite(file, data, 0)
    finally:
        os.close(file)


def witnessed(path: str) -> Place | None:
    """The row that the witness names; None where there is no witness, or none that can be read."""
    try:
        data = alone(path, lambda: _read(witness_of(path)))
        seq, digest = data.decode("ascii").split()
        return (int(seq), digest) if int(seq) < 1 << 63 else None
    except (OSError, ValueError):
        return None


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read(1000)


def _words(place: Place) -> bytes:
    return f"{place[0]:020d} {place[1]}\n".encode()
