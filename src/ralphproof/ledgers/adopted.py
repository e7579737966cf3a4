"""Records that another ledger kept: taken over as they are, so that their chain goes on here."""

from __future__ import annotations

from ralphproof.errors import HarnessFailed, LedgerBroken
from ralphproof.ledgers.text import bound, rows
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from _sqlite3 import Connection
    from collections.abc import Callable, Iterable

    from ralphproof.record import Record

    ChainRow = tuple[str, int, int, str, str, float, str, str]  # a row, with its digest at its end

_ADD = """INSERT INTO record (run, iteration, turn, step, kind, at, data, digest) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""


def adopt(database: Connection, run: str, chain: Iterable[ChainRow]) -> None:
    """Add all of them, or nothing; raises LedgerBroken where they are no chain, and HarnessFailed beside others."""
    do = database.execute
    do("BEGIN IMMEDIATE")
    if do("SELECT 1 FROM record WHERE run = ? LIMIT 1", (run,)).fetchone():
        raise HarnessFailed(f"run {run} has records here already: nothing was taken over")
    previous = ""
    for number, row in enumerate(chain, 1):
        if row[0] != run or bound(previous, row[:-1]) != row[-1]:
            raise LedgerBroken(f"record {number} of run {run} is not as it was written: nothing was taken over")
        do(_ADD, row)
        previous = row[-1]
    do("COMMIT")


def longer(
    chain: tuple[ChainRow, ...], run: str, record: Record, at: float, mask: Callable[[str], str]
) -> tuple[ChainRow, ...]:
    """The chain with one more record."""
    row = rows(run, (record,), at, mask)[0]
    return (*chain, (*row, bound(chain[-1][-1] if chain else "", row)))
