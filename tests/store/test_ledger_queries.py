"""Queries for displays: each costs what has changed, and misses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from ralphproof.base.processes import ProcessIdentity
from ralphproof.engine.records import Noticed, RunBegan, RunEnded
from ralphproof.store import ledger
from ralphproof.store.ledger import SqliteLedger
from tests.store.samples import NOON_S, metrics, one_of_each

PROCESS = ProcessIdentity(42, "777", "boot", "host")


def notices(*numbers: int) -> tuple[Noticed, ...]:
    return tuple(Noticed(1, number, f"notice {number}") for number in numbers)


def ledger_with(path: Path, *runs: str) -> SqliteLedger:
    ledger = SqliteLedger.open(str(path))
    for run in runs:
        ledger.begin_run(run, "/project", NOON_S, PROCESS)
    return ledger


def test_whoever_looks_on_reads_each_record_once(tmp_path: Path) -> None:
    ledger = ledger_with(tmp_path, "a", "b")
    ledger.append("a", notices(0, 1))
    ledger.append("b", notices(5))
    first = ledger.queries.records_since("a", 0)
    assert tuple(record for _, _, record in first) == notices(0, 1)
    assert ledger.queries.records_since("a", first[0][0]) == first[1:]
    assert ledger.queries.records_since("a", first[-1][0]) == ()
    ledger.append("a", notices(2))
    assert [record for _, _, record in ledger.queries.records_since("a", first[-1][0])] == [*notices(2)]
    assert ledger.queries.records_since("none", 0) == ()


def test_the_last_number_and_the_changed_runs_tell_what_is_new(tmp_path: Path) -> None:
    ledger = ledger_with(tmp_path, "a", "b")
    assert ledger.queries.last_seq() == 0
    ledger.append("a", notices(0, 1))
    before = ledger.queries.last_seq()
    assert ledger.queries.changed_runs(before) == {}
    ledger.append("b", notices(0))
    assert ledger.queries.changed_runs(before) == {"b": before + 1}
    assert (ledger.queries.last_seq_of("a"), ledger.queries.last_seq_of("b"), ledger.queries.last_seq_of("c")) == (
        before,
        before + 1,
        0,
    )


def test_a_wish_and_a_word_are_seen(tmp_path: Path) -> None:
    ledger = ledger_with(tmp_path, "a")
    seen = [ledger.queries.request_counts()]
    ledger.request_control("a", "pause")
    seen.append(ledger.queries.request_counts())
    ledger.add_user_message("a", "hello")
    seen.append(ledger.queries.request_counts())
    assert len(set(seen)) == 3


def test_runs_are_paged_from_the_newest_on(tmp_path: Path) -> None:
    names = [f"r{number}" for number in range(5)]
    ledger = ledger_with(tmp_path, *names)
    assert ledger.queries.run_page(2) == ("r4", "r3")
    assert ledger.queries.run_page(2, "r3") == ("r2", "r1")
    assert ledger.queries.run_page(2, "nobody") == ()
    assert ledger.queries.run_count() == 5


def test_a_run_is_open_until_it_ends(tmp_path: Path) -> None:
    ledger = ledger_with(tmp_path, "r", "s")
    records = one_of_each()
    ledger.append("r", records)
    assert ledger.queries.open_runs() == ("s",)
    first, final = ledger.queries.first_record("r", "RunBegan"), ledger.queries.last_record("r", "RunEnded")
    assert isinstance(first, RunBegan)
    assert final == [record for record in records if isinstance(record, RunEnded)][-1]
    assert ledger.queries.first_record("s", "RunBegan") is None


def test_reasons_are_told_by_day_and_by_the_hour_of_one(tmp_path: Path) -> None:
    from ralphproof.engine.limits import Breach, Spend, utc_day
    from ralphproof.engine.outcome import Aborted

    ledger = ledger_with(tmp_path, "a", "b")
    for run, hours in (("a", 0), ("b", 1)):
        told = metrics(run=run, status="ABORTED", reason="STALL", ended_s=NOON_S + hours * 3600)
        ledger.append(run, (RunEnded(Aborted(Breach("STALL", "it stalls"), 1, Spend(), 1.0, ""), told),))
    day = utc_day(NOON_S)
    assert ledger.queries.abort_reasons(day - 1, day) == ((day, "STALL", 2),)
    assert ledger.queries.abort_reasons(day, day) == ((12, "STALL", 1), (13, "STALL", 1))
    assert ledger.queries.abort_reasons(day + 1, day + 2) == ()


def test_a_ledger_that_is_not_there_has_nothing_new(tmp_path: Path) -> None:
    queries = SqliteLedger.open(str(tmp_path / "none"), read_only=True).queries
    assert (queries.last_seq(), queries.run_count(), queries.task_version()[0]) == (0, 0, 0)
    assert (queries.run_page(5), queries.open_runs(), queries.request_counts()) == ((), (), (0, 0))


def plan_of(path: Path, question: str) -> list[str]:
    """How SQLite would find the answer, step by step."""
    database = SqliteLedger.open(str(path))._database
    values = (1,) if "?1" in question else (1,) * question.count("?")
    return [step for _, _, _, step in database.execute(f"EXPLAIN QUERY PLAN {question}", values)]


def test_the_runs_with_new_records_are_found_by_the_number_alone(tmp_path: Path) -> None:
    assert plan_of(tmp_path, ledger._CHANGED_RUNS)[0] == "SEARCH record USING INTEGER PRIMARY KEY (rowid>?)"


@pytest.mark.parametrize("question", [
    ledger._LAST_SEQ, ledger._CHANGED_RUNS, ledger._RECORDS_SINCE, ledger._LAST_SEQ_OF_RUN, ledger._FIRST_OF_KIND,
    ledger._LAST_OF_KIND, ledger._REQUEST_COUNTS, ledger._SEQ_OF_RUN, ledger._RUN_PAGE, ledger.SELECT_RUN_END,
    ledger.SELECT_CONTROL_REQUEST, ledger.SELECT_USER_MESSAGES, ledger.SELECT_CHILDREN,
])  # fmt: skip
def test_what_is_asked_again_and_again_goes_through_no_table(tmp_path: Path, question: str) -> None:
    steps = plan_of(tmp_path, question)
    assert [step for step in steps if step.startswith("SCAN") and step != "SCAN CONSTANT ROW"] == []
