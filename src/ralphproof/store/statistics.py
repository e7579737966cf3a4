"""Statistics of finished runs: how they are stored and queried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.engine.limits import format_usd, utc_day
from ralphproof.engine.outcome import ABORTED, COMPLETED, ERROR, Metrics, ReviewTotals
from ralphproof.store.serialization import to_valid_utf8

Execute = Callable[..., list[Any]]

if TYPE_CHECKING:
    T = TypeVar("T", int, float)


REPORTED_PERCENTILE = 95  # in reports, beside the average


@value
class RunGroupTotals:
    """Totals of all runs of one skill, agent, status and reason. None is unknown, never zero.

    `priced` counts those whose cost is known, `micro_usd` is what they cost; `at_least_micro_usd` is what is known of
    the cost of all.
    """

    skill: str
    agent: str
    status: str
    reason: str
    runs: int
    iterations: int
    milliseconds: int
    priced: int
    micro_usd: int
    at_least_micro_usd: int
    tokens: int
    verified: int
    saved_micro_usd: int


@value
class RunTotals:
    """Totals of runs, by groups."""

    cells: tuple[RunGroupTotals, ...] = ()

    def of(self, **wanted: str) -> RunTotals:
        """Those of this skill, agent, status or reason."""
        return RunTotals(
            tuple(cell for cell in self.cells if all(getattr(cell, name) == wanted[name] for name in wanted))
        )

    def by(self, name: str) -> tuple[tuple[str, RunTotals], ...]:
        """The same split by skill, agent or reason; the largest part first."""
        groups: dict[str, list[RunGroupTotals]] = {}
        for cell in self.cells:
            groups.setdefault(getattr(cell, name), []).append(cell)
        parts = [(key, RunTotals(tuple(cells))) for key, cells in groups.items()]
        return tuple(sorted(parts, key=lambda part: (-part[1].count, part[0])))

    @property
    def count(self) -> int:
        return self.sum("runs")

    @property
    def unpriced(self) -> int:
        """How many have a cost that is not wholly known."""
        return self.count - self.sum("priced")

    @property
    def completed(self) -> RunTotals:
        return self.of(status=COMPLETED)

    @property
    def aborted(self) -> RunTotals:
        return self.of(status=ABORTED)

    @property
    def errors(self) -> RunTotals:
        return self.of(status=ERROR)

    @property
    def mean_iterations(self) -> float | None:
        return self.sum("iterations") / self.count if self.count else None

    @property
    def mean_micro_usd(self) -> int | None:
        """Of those whose cost is known."""
        priced = self.sum("priced")
        return round(self.sum("micro_usd") / priced) if priced else None

    def sum(self, name: str) -> int:
        """The sum of one column."""
        return sum(int(getattr(cell, name)) for cell in self.cells)


@value
class PeriodTotals:
    """The runs that ended from the first day to the last, both included, and their 95th percentiles.

    `reviews` are those of the runs with stories among them.
    """

    first_day: int
    last_day: int
    runs: RunTotals = RunTotals()
    p95_iterations: int | None = None
    p95_micro_usd: int | None = None
    reviews: ReviewTotals = ReviewTotals()


@value
class TimeSlotTotals:
    """The runs that ended on one day (counted from 1970), or in one hour of a day."""

    at: int
    completed: int = 0
    aborted: int = 0
    errors: int = 0
    iterations: int = 0
    micro_usd: int = 0
    unpriced: int = 0
    tokens: int = 0

    @property
    def runs(self) -> int:
        return self.completed + self.aborted + self.errors


def to_milliseconds(seconds: float) -> int:
    """Whole milliseconds, so that sums are exact."""
    return round(seconds * 1000)


def percentile_rank(count: int, percent: int) -> int:
    """The rank of a percentile among so many, counted from 1, by the nearest-rank method."""
    return max(1, -(-count * percent // 100))


def nearest_rank(numbers: Sequence[T], percent: int) -> T | None:
    """The smallest number that so many percent of them are at or below; None for no numbers."""
    return sorted(numbers)[percentile_rank(len(numbers), percent) - 1] if numbers else None


MIN_PAST_RUNS = 5  # needed for an estimate
MAX_PAST_RUNS = 200
MIN_ITERATION_LIMIT = 3
COST_LIMIT_STEP_MICRO_USD = 100_000  # ten cents


@value
class PastRun:
    """Iterations and cost of a completed run; the cost is None if a part of it is unknown."""

    skill: str
    iterations: int
    micro_usd: int | None


@value
class QuantityEstimate:
    """Half of the runs took no more than `median`, nine of ten no more than `p90`; `limit` is the proposed limit."""

    median: int
    p90: int
    limit: int


@value
class RunEstimate:
    """An estimate from past runs, in iterations and micro-dollars; from those of one skill if `skill` is named.

    `cost` is None if too few runs have a known one.
    """

    runs: int
    iterations: QuantityEstimate
    cost: QuantityEstimate | None = None
    skill: str = ""


def estimate_run(past: Sequence[PastRun], skill: str = "") -> RunEstimate | None:
    """The estimate for a run with this skill, by runs with the same skill if there are enough; None if there are too
    few.
    """
    same = [run for run in past if run.skill == skill]
    chosen, named = (same, skill) if len(same) >= MIN_PAST_RUNS else (past, "")
    if len(chosen) < MIN_PAST_RUNS:
        return None
    iterations = _estimate_quantity([run.iterations for run in chosen], 1, MIN_ITERATION_LIMIT)
    costs = [run.micro_usd for run in chosen if run.micro_usd is not None]
    cost = (
        _estimate_quantity(costs, COST_LIMIT_STEP_MICRO_USD, COST_LIMIT_STEP_MICRO_USD)
        if len(costs) >= MIN_PAST_RUNS
        else None
    )
    return RunEstimate(len(chosen), iterations, cost, named)


def _estimate_quantity(numbers: list[int], step: int, least: int) -> QuantityEstimate:
    """The proposed limit is p90 plus half, rounded up to the next step."""
    median, p90 = nearest_rank(numbers, 50) or 0, nearest_rank(numbers, 90) or 0
    return QuantityEstimate(median, p90, max(least, -(-p90 * 3 // (2 * step)) * step))


def describe_estimate(found: RunEstimate) -> str:
    """The estimate in one line, with the flags that set the limits."""
    of_skill = f" of {found.skill}" if found.skill else ""
    iterations, cost = found.iterations, found.cost
    noun = "iteration" if iterations.median == 1 else "iterations"
    took = f"{iterations.median} {noun} (9 of 10 at most {iterations.p90})"
    flags = f"-m {iterations.limit}"
    if cost is not None:
        took += f" and {format_usd(cost.median)} (at most {format_usd(cost.p90)})"
        flags += f" --max-cost-usd {cost.limit / 1_000_000:.2f}"
    return f"{found.runs} past runs{of_skill} took {took}; proposed: {flags}"


MAX_AMOUNT = 10**12  # larger numbers are clamped: no run has more, and a million of them can be added up
SORT_ALL_RUNS = 20_000  # up to this number, sorting the runs of the days is faster than an index over all runs

DELETE_RUN_STATISTICS = "DELETE FROM run_stats WHERE run = (SELECT seq FROM run WHERE id = ?)"
INSERT_RUN_STATISTICS = """INSERT INTO run_stats SELECT seq, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
    FROM run WHERE id = ?"""
INSERT_REVIEW_STATISTICS = """INSERT INTO review_stats SELECT day, run, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
    FROM run_stats WHERE run = (SELECT seq FROM run WHERE id = ?)"""
_CELLS = """SELECT skill, agent, status, reason, sum(runs), sum(iterations), sum(milliseconds), sum(priced),
        sum(micro_usd), sum(at_least), sum(tokens), sum(verified), sum(saved)
    FROM stats_group CROSS JOIN stats_sum ON kind = id AND day BETWEEN ? AND ? GROUP BY id"""
_PERCENTILE = """SELECT {what} FROM run_stats INDEXED BY {index}
    WHERE {what} IS NOT NULL AND day BETWEEN ? AND ? ORDER BY {what} DESC LIMIT 1 OFFSET ?"""
_DAYS = """SELECT day, sum(runs * (status = ?)), sum(runs * (status = ?)), sum(runs * (status = ?)), sum(iterations),
        sum(micro_usd), sum(runs - priced), sum(tokens)
    FROM stats_group CROSS JOIN stats_sum ON kind = id AND day BETWEEN ? AND ? GROUP BY day"""
_HOURS = """SELECT CAST((ended - day * 86400) / 3600 AS INTEGER), sum(status = ?), sum(status = ?), sum(status = ?),
        sum(iterations), sum(ifnull(micro_usd, 0)), sum(micro_usd IS NULL), sum(tokens)
    FROM run_stats WHERE day BETWEEN ? AND ? GROUP BY 1"""
_REVIEWS = """SELECT count(*), sum(stories), sum(reviews), sum(changes_requested), sum(capped), sum(first),
        sum(counted), sum(once), sum(twice), sum(thrice), sum(four_times), sum(oftener)
    FROM review_stats WHERE day BETWEEN ? AND ?"""
_PAST = """SELECT skill, iterations, micro_usd
    FROM (SELECT * FROM run_stats ORDER BY run DESC LIMIT ?) WHERE status = ?"""


def statistics_row(run: str, metrics: Metrics, mask: Callable[[str], str]) -> tuple[object, ...]:
    """The values of INSERT_RUN_STATISTICS for a run."""
    texts = (
        metrics.status, metrics.reason, metrics.skill, metrics.task_type, metrics.agent, metrics.model, metrics.preset,
    )  # fmt: skip
    numbers = (
        metrics.iterations, to_milliseconds(metrics.seconds), metrics.micro_usd, metrics.at_least_micro_usd,
        metrics.tokens, metrics.files,
    )  # fmt: skip
    return (
        _clamp(utc_day(metrics.ended_s)),
        metrics.began_s,
        metrics.ended_s,
        *(to_valid_utf8(mask(text)) for text in texts),
        *(None if number is None else _clamp(number) for number in numbers),
        None if metrics.tests_fixed is None else _clamp(metrics.tests_fixed, -MAX_AMOUNT),
        int(metrics.claimed),
        int(metrics.verified),
        None if metrics.saved_micro_usd is None else _clamp(metrics.saved_micro_usd, -MAX_AMOUNT),
        run,
    )


def review_statistics_row(run: str, reviews: ReviewTotals) -> tuple[object, ...]:
    """The values of INSERT_REVIEW_STATISTICS for a run with stories."""
    numbers = (
        reviews.stories, reviews.reviews, reviews.changes_requested, reviews.capped, reviews.first, reviews.counted,
    )  # fmt: skip
    return (*(_clamp(number) for number in (*numbers, *(count for _, count in reviews.spread))), run)


def _clamp(number: int, least: int = 0) -> int:
    return max(least, min(number, MAX_AMOUNT))


def query_statistics(execute: Execute, first_day: int, last_day: int) -> PeriodTotals:
    """Totals of the runs of these days. The caller holds a transaction."""
    days = first_day, last_day
    runs = RunTotals(tuple(sorted((RunGroupTotals(*row) for row in execute(_CELLS, *days)), key=_group_key)))
    sort_all = runs.count <= SORT_ALL_RUNS
    indexes = ("run_stats_by_day", "run_stats_by_day") if sort_all else ("run_stats_by_iterations", "run_stats_by_cost")
    iterations = _query_percentile(execute, days, "iterations", indexes[0], runs.count)
    micro_usd = _query_percentile(execute, days, "micro_usd", indexes[1], runs.sum("priced"))
    return PeriodTotals(first_day, last_day, runs, iterations, micro_usd, _query_reviews(execute, days))


def _query_reviews(execute: Execute, days: tuple[int, int]) -> ReviewTotals:
    return ReviewTotals(*(found or 0 for found in execute(_REVIEWS, *days)[0]))


def _group_key(cell: RunGroupTotals) -> tuple[str, str, str, str]:
    return cell.skill, cell.agent, cell.status, cell.reason


def _query_percentile(execute: Execute, days: tuple[int, int], what: str, index: str, count: int) -> int | None:
    """A percentile, read from the top of an index: one run in twenty is read."""
    if not count:
        return None
    found = execute(
        _PERCENTILE.format(what=what, index=index), *days, count - percentile_rank(count, REPORTED_PERCENTILE)
    )
    return int(found[0][0])


def query_time_slots(execute: Execute, first_day: int, last_day: int) -> tuple[TimeSlotTotals, ...]:
    """Totals by day, or by hour for a single day. Slots in which nothing ended are left out."""
    query = _HOURS if first_day == last_day else _DAYS
    return tuple(TimeSlotTotals(*row) for row in execute(query, COMPLETED, ABORTED, ERROR, first_day, last_day))


def query_past_runs(execute: Execute) -> tuple[PastRun, ...]:
    """The completed ones among the last runs, the newest first."""
    return tuple(PastRun(*row) for row in execute(_PAST, MAX_PAST_RUNS, COMPLETED))
