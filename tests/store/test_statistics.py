"""Statistics of finished runs: stored in one transaction with their end."""

from __future__ import annotations

import _sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphproof.base.errors import HarnessFailed
from ralphproof.base.value import replace
from ralphproof.engine import records as told
from ralphproof.engine.outcome import Metrics, ReviewTotals
from ralphproof.engine.records import RunEnded
from ralphproof.store import statistics as kept
from ralphproof.store.database import create_tables
from ralphproof.store.ledger import SqliteLedger
from ralphproof.store.statistics import MAX_PAST_RUNS, PastRun, PeriodTotals, RunGroupTotals, RunTotals, TimeSlotTotals
from tests.store.samples import DAY, NOON_S, metrics, notices, one_of_each, sum_runs

OUTCOME = one_of_each()[-1].outcome  # type: ignore[union-attr]


def in_memory(mask: str = "") -> SqliteLedger:
    """The ledger's own tables in a database without a file."""
    database = _sqlite3.connect(":memory:", isolation_level=None)
    create_tables(database)
    return SqliteLedger(database, ":memory:", lambda text: text.replace(mask, "***") if mask else text)


@pytest.fixture
def ledger() -> Iterator[SqliteLedger]:
    made = in_memory()
    yield made
    made.close()


def end(ledger: SqliteLedger, ended: Iterable[Metrics]) -> None:
    for number, one in enumerate(ended):
        ledger.append(f"r{number}", (RunEnded(OUTCOME, one),))


def completed(ended: list[Metrics]) -> tuple[PastRun, ...]:
    last = ended[::-1][:MAX_PAST_RUNS]
    return tuple(PastRun(run.skill, run.iterations, run.micro_usd) for run in last if run.status == "COMPLETED")


def only(figures: PeriodTotals) -> RunGroupTotals:
    (cell,) = figures.runs.cells
    return cell


def rows(ledger: SqliteLedger, table: str = "run_stats") -> int:
    return int(ledger._database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


MONEY = st.none() | st.integers(0, 4_000_000)
REVIEWS = st.tuples(*[st.integers(0, 50)] * 11).map(lambda counts: ReviewTotals(1, *counts))
RUNS = st.builds(
    Metrics,
    run=st.just("r"),
    began_s=st.just(0.0),
    ended_s=st.integers(DAY - 2, DAY + 2).map(lambda day: day * 86_400.0) | st.floats(NOON_S - 1e5, NOON_S + 1e5),
    status=st.sampled_from(["COMPLETED", "ABORTED", "ERROR"]),
    reason=st.sampled_from(["", "STALL", "COST_LIMIT"]),
    skill=st.sampled_from(["", "tdd", "Ärger", "z'); --"]),
    agent=st.sampled_from(["claude", "codex"]),
    iterations=st.integers(0, 30),
    seconds=st.floats(0, 5000).map(lambda seconds: round(seconds, 3)),
    micro_usd=MONEY,
    at_least_micro_usd=st.integers(0, 4_000_000),
    tokens=st.integers(0, 10**9),
    verified=st.booleans(),
    saved_micro_usd=MONEY,
    reviews=st.none() | REVIEWS,
)


@pytest.mark.parametrize("few", [0, 10**6], ids=["found among all", "sorted"])
def test_the_file_adds_up_just_as_the_runs_do(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr(kept, "SORT_ALL_RUNS", few)

    @given(st.lists(RUNS, max_size=40), st.integers(DAY - 3, DAY + 3), st.integers(0, 4))
    @settings(max_examples=60, deadline=None)
    def agree(ended: list[Metrics], first_day: int, more: int) -> None:
        one = in_memory()
        end(one, ended)
        assert one.statistics(first_day, first_day + more) == sum_runs(ended, first_day, first_day + more)
        assert one.past_runs() == completed(ended)
        one.close()

    agree()


@pytest.mark.parametrize("later", [{"status": "ABORTED"}, {"ended_s": NOON_S + 86_400}, {"skill": "z"}], ids=repr)
@pytest.mark.parametrize("cost", [{"micro_usd": 5}, {"micro_usd": None, "at_least_micro_usd": 3}], ids=repr)
def test_what_is_replaced_leaves_every_sum_as_if_it_had_never_been(
    ledger: SqliteLedger, later: dict[str, object], cost: dict[str, object]
) -> None:
    def sums() -> list[tuple[int, ...]]:
        return ledger._database.execute("SELECT * FROM stats_sum").fetchall()

    numbers: dict[str, object] = {"iterations": 4, "tokens": 9, "seconds": 2.5, "saved_micro_usd": 8, **cost}
    ledger.append("other", (RunEnded(OUTCOME, metrics(**numbers)),))
    before = sums()
    ledger.append("r", (RunEnded(OUTCOME, metrics(**numbers)),))
    assert sums() != before
    ledger.append("r", (RunEnded(OUTCOME, metrics(**later), 2),))
    assert [row for row in sums() if row in before] == before
    assert ledger.statistics(0, 2 * DAY).runs.count == 2


ENDS = st.lists(st.tuples(st.integers(0, 4), RUNS), max_size=30)


@given(ENDS)
@settings(max_examples=60, deadline=None)
def test_ends_that_are_replaced_leave_nothing_in_the_sums(ends: list[tuple[int, Metrics]]) -> None:
    one = in_memory()
    for session, (run, ended) in enumerate(ends, 1):
        one.append(f"r{run}", (RunEnded(OUTCOME, ended, session),))
    last = [*dict(ends).values()]
    assert one.statistics(0, 2 * DAY) == sum_runs(last, 0, 2 * DAY)
    assert one.past_runs() == completed(last)
    assert rows(one) == len({run for run, _ in ends})
    assert rows(one, "stats_sum WHERE runs <= 0") == 0
    assert rows(one, "review_stats") == sum(ended.reviews is not None for ended in dict(ends).values())
    one.close()


def test_the_sums_of_a_day_are_those_of_its_runs(ledger: SqliteLedger) -> None:
    changes: list[dict[str, object]] = [
        {"iterations": 3, "tokens": 7},
        {"micro_usd": None, "at_least_micro_usd": 5, "verified": False},
        {"saved_micro_usd": 40, "seconds": 0.25},
        {"ended_s": NOON_S + 86_400},
    ]
    end(ledger, [metrics(**change) for change in changes])
    wanted = RunGroupTotals("tdd", "claude", "COMPLETED", "", 3, 5, 120_250, 2, 24, 29, 7, 2, 40)
    assert only(ledger.statistics(DAY, DAY)) == wanted
    assert ledger.statistics(DAY, DAY + 1).runs.count == 4
    assert ledger.statistics(DAY + 2, DAY + 9) == PeriodTotals(DAY + 2, DAY + 9)


@pytest.mark.parametrize(("count", "place"), [(1, 1), (2, 2), (19, 19), (20, 19), (21, 20), (40, 38), (100, 95)])
@pytest.mark.parametrize("few", [0, 10**6])
def test_a_percentile_is_that_of_the_nearest_rank(
    ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch, count: int, place: int, few: int
) -> None:
    monkeypatch.setattr(kept, "SORT_ALL_RUNS", few)
    end(ledger, [metrics(iterations=number, micro_usd=number * 10) for number in range(count, 0, -1)])
    found = ledger.statistics(DAY, DAY)
    assert (found.p95_iterations, found.p95_micro_usd) == (place, place * 10)


def test_runs_of_other_days_and_of_unknown_cost_are_in_no_percentile(ledger: SqliteLedger) -> None:
    elsewhere = [metrics(ended_s=NOON_S - 86_400, iterations=50, micro_usd=10**9) for _ in range(9)]
    end(ledger, [metrics(iterations=2, micro_usd=70), metrics(iterations=4, micro_usd=None), *elsewhere])
    found = ledger.statistics(DAY, DAY)
    assert (found.p95_iterations, found.p95_micro_usd) == (4, 70)
    unpriced = replace(metrics(), micro_usd=None, ended_s=NOON_S + 86_400)
    ledger.append("late", (RunEnded(OUTCOME, unpriced),))
    assert ledger.statistics(DAY + 1, DAY + 1).p95_micro_usd is None


def test_an_end_that_is_not_written_leaves_no_figure(ledger: SqliteLedger) -> None:
    ledger.append("r", notices(1))
    with pytest.raises(HarnessFailed):
        ledger.append("r", (RunEnded(OUTCOME, metrics()), *notices(1)))
    assert (rows(ledger), rows(ledger, "stats_sum")) == (0, 0)
    ledger.append("r", (RunEnded(OUTCOME, metrics()),))
    with pytest.raises(HarnessFailed):
        ledger.append("r", (RunEnded(OUTCOME, metrics()),))
    assert (rows(ledger), rows(ledger, "stats_sum")) == (1, 1)


def test_a_run_that_ended_without_figures_has_none(ledger: SqliteLedger) -> None:
    ledger.append("r", (RunEnded(OUTCOME),))
    assert ledger.statistics(0, DAY + 1).runs == RunTotals()
    assert ledger.past_runs() == ()


def test_names_are_masked_and_any_text_will_do() -> None:
    ledger = in_memory(mask="hunter2")
    odd = "a hunter2 'b' \0 \ud800 \N{PILE OF POO}"
    ledger.append("r", (RunEnded(OUTCOME, metrics(skill=odd, agent=odd, model=odd, reason=odd, preset=odd)),))
    cell = only(ledger.statistics(DAY, DAY))
    assert cell.skill == cell.agent == cell.reason == "a *** 'b' \0 \\ud800 \N{PILE OF POO}"
    assert "hunter2" not in repr(ledger._database.execute("SELECT * FROM run_stats").fetchall())
    ledger.close()


@pytest.mark.parametrize(("given", "found"), [(10**30, 10**12), (-5, 0)])
def test_absurd_numbers_neither_stop_a_run_nor_spoil_the_sums(ledger: SqliteLedger, given: int, found: int) -> None:
    """DB-10"""
    absurd = metrics(iterations=given, micro_usd=given, at_least_micro_usd=given, tokens=given, files=given)
    end(ledger, [absurd, absurd])
    cell = only(ledger.statistics(DAY, DAY))
    assert (cell.iterations, cell.micro_usd, cell.tokens) == (2 * found, 2 * found, 2 * found)


@pytest.mark.parametrize("later", [{}, {"reviews": ReviewTotals(1, 9)}, {"ended_s": NOON_S + 86_400}], ids=repr)
def test_a_run_that_ends_again_has_the_reviews_of_its_last_end(ledger: SqliteLedger, later: dict[str, object]) -> None:
    ledger.append("r", (RunEnded(OUTCOME, metrics(reviews=ReviewTotals(1, 3, 5))),))
    ledger.append("r", (RunEnded(OUTCOME, metrics(**later), 2),))
    assert ledger.statistics(0, DAY + 1).reviews == later.get("reviews", ReviewTotals())


def test_absurd_reviews_neither_stop_a_run_nor_spoil_the_sums(ledger: SqliteLedger) -> None:
    end(ledger, [metrics(reviews=ReviewTotals(1, *[10**30] * 11)), metrics(reviews=ReviewTotals(1, *[-5] * 11))])
    assert ledger.statistics(DAY, DAY).reviews == ReviewTotals(2, *[10**12] * 11)


def test_a_reader_where_there_is_no_ledger_finds_no_figures(tmp_path: Path) -> None:
    reader = SqliteLedger.open(str(tmp_path / "none"), read_only=True)
    assert reader.statistics(0, DAY) == PeriodTotals(0, DAY)
    reader.close()


def test_a_reader_looks_while_a_writer_is_in_the_middle(tmp_path: Path) -> None:
    writer = SqliteLedger.open(str(tmp_path))
    writer.append("r", (RunEnded(OUTCOME, metrics()),))
    writer._database.execute("BEGIN IMMEDIATE")
    writer._database.execute("DELETE FROM stats_sum")
    reader = SqliteLedger.open(str(tmp_path), read_only=True, busy_s=0.05)
    assert reader.statistics(DAY, DAY).runs.count == 1
    reader.close()
    writer._database.execute("ROLLBACK")
    writer.close()


def test_slots_are_days_or_the_hours_of_a_single_one(ledger: SqliteLedger) -> None:
    end(
        ledger,
        [
            metrics(iterations=2, micro_usd=30),
            metrics(status="ABORTED", micro_usd=None),
            metrics(status="ERROR", ended_s=DAY * 86_400 + 86_399.9),
            metrics(ended_s=NOON_S + 86_400, iterations=9),
        ],
    )
    assert ledger.statistics_by_time(DAY, DAY) == (
        TimeSlotTotals(12, 1, 1, 0, 3, 30, 1),
        TimeSlotTotals(23, 0, 0, 1, 1, 12, 0),
    )
    assert ledger.statistics_by_time(DAY, DAY + 3) == (
        TimeSlotTotals(DAY, 1, 1, 1, 4, 42, 1),
        TimeSlotTotals(DAY + 1, 1, 0, 0, 9, 12, 0),
    )


def test_of_the_last_runs_the_completed_ones_are_told_newest_first(ledger: SqliteLedger) -> None:
    ended = [metrics(iterations=1, skill="old"), *(metrics(status="ABORTED") for _ in range(MAX_PAST_RUNS - 2))]
    end(ledger, [*ended, metrics(iterations=2, micro_usd=None), metrics(iterations=3, micro_usd=9)])
    assert ledger.past_runs() == (PastRun("tdd", 3, 9), PastRun("tdd", 2, None))


@pytest.mark.parametrize(
    ("question", "values", "plan"),
    [
        (
            kept._PERCENTILE.format(what="micro_usd", index="run_stats_by_cost"), (1, 2, 3),
            "COVERING INDEX run_stats_by_cost",
        ),
        (
            kept._PERCENTILE.format(what="iterations", index="run_stats_by_iterations"), (1, 2, 3),
            "COVERING INDEX run_stats_by_iterations",
        ),
        (kept._CELLS, (1, 2), "SEARCH stats_sum USING PRIMARY KEY (kind=? AND day>? AND day<?)"),
        (kept._DAYS, ("a", "b", "c", 1, 2), "SEARCH stats_sum USING PRIMARY KEY (kind=? AND day>? AND day<?)"),
        (kept._REVIEWS, (1, 2), "SEARCH review_stats USING PRIMARY KEY (day>? AND day<?)"),
        (kept._HOURS, ("a", "b", "c", 1, 1), "SEARCH run_stats USING INDEX run_stats_by_day (day>? AND day<?)"),
    ],
)  # fmt: skip
def test_no_question_reads_what_it_does_not_need(
    ledger: SqliteLedger, question: str, values: tuple[object, ...], plan: str
) -> None:
    found = [row[3] for row in ledger._database.execute(f"EXPLAIN QUERY PLAN {question}", values)]
    assert any(plan in step for step in found), found
    if question not in (kept._DAYS, kept._HOURS):  # these are for charts, which take longer to draw
        assert not any("TEMP B-TREE" in step for step in found), found


def test_a_record_that_ends_nothing_brings_no_figures(ledger: SqliteLedger) -> None:
    ledger.append("r", (told.Noticed(1, 0, "x"),))
    assert rows(ledger) == 0
