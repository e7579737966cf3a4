"""Which run is meant by a name, and what it costs to know."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ralphproof.errors import NotThere
from ralphproof.ledgers.process import LoopProcess
from ralphproof.ledgers.runs import RunRow
from ralphproof.ledgers.sqlite import Sqlite
from ralphproof.views.standing import row_of

NOBODY = LoopProcess(0, "", "", "")
ODD = os.fsdecode(b"/od\xffd")
RUNS = (
    ("a1", "/here", ""), ("a2", "/here", "a1"), ("b1", "/there", ""), ("a3", "/here", "a2"), ("o1", ODD, ""),
    ("b2", "/there", "a3"), ("c1", "/other", ""),
)  # fmt: skip


class Thrifty(Sqlite):
    """A ledger that does not hand out all runs: there may be very many."""

    def runs(self, limit: int | None = None) -> tuple[RunRow, ...]:
        assert limit is not None
        return super().runs(limit)


def ledger_of(path: Path) -> Sqlite:
    ledger = Thrifty.open(str(path))
    for run, directory, parent in RUNS:
        ledger.begin_run(run, directory, 0.0, NOBODY, parent)
    return ledger


@pytest.mark.parametrize(("name", "root", "run"), [
    (None, "/here", "a1"), ("latest", "/here", "a1"), ("latest", "/there", "b2"), ("latest", ODD, "o1"),
    ("latest", "/nowhere", "c1"), ("a2", "/here", "a2"), ("c", "/here", "c1"),
])  # fmt: skip
def test_a_run_is_found_by_its_name_without_going_through_all(
    tmp_path: Path, name: str | None, root: str, run: str
) -> None:
    """The newest one here is part of that whose agent began it; a run of another directory is not."""
    assert row_of(ledger_of(tmp_path), name, root).id == run


def test_where_there_is_no_run_none_is_the_latest(tmp_path: Path) -> None:
    with pytest.raises(NotThere):
        row_of(Sqlite.open(str(tmp_path)), None, "/here")
