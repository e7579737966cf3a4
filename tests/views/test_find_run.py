"""Which run is meant by a name, and what it costs to know."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ralphproof.base.errors import NotThere
from ralphproof.base.processes import ProcessIdentity
from ralphproof.store.ledger import RunRow, SqliteLedger
from ralphproof.store.run_state import find_run

NOBODY = ProcessIdentity(0, "", "", "")
ODD = os.fsdecode(b"/od\xffd")
RUNS = (
    ("a1", "/here", ""), ("a2", "/here", "a1"), ("b1", "/there", ""), ("a3", "/here", "a2"), ("o1", ODD, ""),
    ("c1", "/other", ""), ("b2", "/there", "a3"),
)  # fmt: skip


class Thrifty(SqliteLedger):
    """A ledger that does not hand out all runs: there may be very many."""

    def runs(self, limit: int | None = None) -> tuple[RunRow, ...]:
        assert limit is not None
        return super().runs(limit)


def ledger_of(path: Path) -> SqliteLedger:
    ledger = Thrifty.open(str(path))
    for run, directory, parent in RUNS:
        ledger.begin_run(run, directory, 0.0, NOBODY, parent)
    return ledger


@pytest.mark.parametrize(("name", "run"), [(None, "c1"), ("latest", "c1"), ("a2", "a2"), ("b1", "b1")])
def test_a_run_is_found_by_its_name_without_going_through_all(tmp_path: Path, name: str | None, run: str) -> None:
    """The latest is the newest in whichever directory, less those that an agent began."""
    assert find_run(ledger_of(tmp_path), name).id == run


def test_where_there_is_no_run_none_is_the_latest(tmp_path: Path) -> None:
    with pytest.raises(NotThere):
        find_run(SqliteLedger.open(str(tmp_path)), None)
