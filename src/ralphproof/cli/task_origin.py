"""Where a task's work began: the first of its runs since it was last done."""

from __future__ import annotations

from ralphproof.record import RunEnded
from ralphproof.value import TYPE_CHECKING
from ralphproof.verdict import Completed

if TYPE_CHECKING:
    from ralphproof.ledgers.sqlite import Sqlite


def first_run(ledger: Sqlite, task: str, now: str) -> str:
    """The earliest run of this task whose work the run of `now` goes on with; empty where that is the first."""
    rows = [row for run in ledger.tasks.attempts(task) if run != now and (row := ledger.row(run)) is not None]
    first = ""
    for row in sorted(rows, key=lambda row: (row.began_at, row.id)):
        end = ledger.end_of(row.id)
        done = isinstance(end, RunEnded) and isinstance(end.outcome, Completed)
        first = "" if done else first or row.id
    return first
