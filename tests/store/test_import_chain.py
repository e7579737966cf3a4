"""Importing the records of another ledger: with their whole chain, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from ralphproof.base.errors import HarnessFailed, LedgerBroken
from ralphproof.base.processes import ProcessIdentity
from ralphproof.engine.records import Noticed
from ralphproof.store.ledger import SqliteLedger, extend_chain

RECORDS = (Noticed(0, 0, "one"), Noticed(0, 1, "two"))


def ledger(folder: Path) -> SqliteLedger:
    made = SqliteLedger.open(str(folder))
    made.begin_run("r1", str(folder), 1.0, ProcessIdentity(0))
    return made


def test_a_chain_goes_on_in_the_ledger_that_took_it_over(tmp_path: Path) -> None:
    first, second = ledger(tmp_path / "a"), ledger(tmp_path / "b")
    first.append("r1", RECORDS)
    second.import_chain(
        "r1", extend_chain(first.chain("r1"), "r1", Noticed(0, 2, "a key"), 7.5, lambda text: text.replace("key", "*"))
    )
    assert second.chain("r1")[:2] == first.chain("r1")
    second.append("r1", (Noticed(0, 3, "four"),))
    assert [record.message for record in second.records("r1") if isinstance(record, Noticed)] == [
        "one",
        "two",
        "a *",
        "four",
    ]
    assert second.verify_chain("r1") is None
    for one in (first, second):
        one.close()


def test_what_is_no_chain_is_not_taken_over(tmp_path: Path) -> None:
    first, second = ledger(tmp_path / "a"), ledger(tmp_path / "b")
    first.append("r1", RECORDS)
    one, two = first.chain("r1")
    for broken in ((two,), (one, (*two[:6], two[6].replace("two", "2"), two[7])), (one, two, one)):
        with pytest.raises(LedgerBroken):
            second.import_chain("r1", broken)
        assert second.records("r1") == ()
    with pytest.raises(HarnessFailed, match="has records here already"):
        first.import_chain("r1", (one, two))
    for opened in (first, second):
        opened.close()
