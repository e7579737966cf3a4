"""Statistics of finished runs: how they are stored and queried."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.engine.budget import format_usd, utc_day
from ralphproof.engine.metrics import ABORTED, COMPLETED, ERROR, ReviewTotals, sum_reviews
from ralphproof.store.serialization import to_valid_utf8

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, TypeVar

    from ralphproof.engine.metrics import Metrics

    T = TypeVar("T", int, float)
    Ask = Callable[..., list[Any]]


# What many runs add up to: sums by skill, agent and end, over whole UTC days. None is unknown, never zero.


REPORTED_PERCENTILE = 95  # of the runs lie at or below what a report tells beside an average


@value
class RunGroupTotals:
    """All runs of one skill, agent, status and reason, added up.

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
    """Some runs, by their cells."""

    cells: tuple[RunGroupTotals, ...] = ()

    def of(self, **wanted: str) -> RunTotals:
        """Those of this skill, agent, status or reason."""
        return RunTotals(
            tuple(cell for cell in self.cells if all(getattr(cell, name) == wanted[name] for name in wanted))
        )

    def by(self, name: str) -> tuple[tuple[str, RunTotals], ...]:
        """The same parted by skill, agent or reason; the largest part first."""
        parted: dict[str, list[RunGroupTotals]] = {}
        for cell in self.cells:
            parted.setdefault(getattr(cell, name), []).append(cell)
        parts = [(found, RunTotals(tuple(cells))) for found, cells in parted.items()]
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

    `reviews` are those of the runs by stories among them.
    """

    first_day: int
    last_day: int
    runs: RunTotals = RunTotals()
    p95_iterations: int | None = None
    p95_micro_usd: int | None = None
    reviews: ReviewTotals = ReviewTotals()


@value
class TimeSlotTotals:
    """The runs that ended in one day, counted from 1970, or in one hour of a day."""

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


def sum_runs(ended: Iterable[Metrics], first_day: int, last_day: int) -> PeriodTotals:
    """What runs add up to, of those that ended in these days."""
    there = [run for run in ended if first_day <= utc_day(run.ended_s) <= last_day]
    parted: dict[tuple[str, str, str, str], list[Metrics]] = {}
    for run in there:
        parted.setdefault((run.skill, run.agent, run.status, run.reason), []).append(run)
    cells = tuple(_sum_group(key, parted[key]) for key in sorted(parted))
    costs = [run.micro_usd for run in there if run.micro_usd is not None]
    iterations = [run.iterations for run in there]
    return PeriodTotals(
        first_day, last_day, RunTotals(cells), nearest_rank(iterations, REPORTED_PERCENTILE), nearest_rank(costs, REPORTED_PERCENTILE),
        sum_reviews(tuple(run.reviews for run in there if run.reviews)),
    )  # fmt: skip


def _sum_group(key: tuple[str, str, str, str], runs: list[Metrics]) -> RunGroupTotals:
    return RunGroupTotals(
        *key,
        len(runs),
        sum(run.iterations for run in runs),
        sum(to_milliseconds(run.seconds) for run in runs),
        sum(run.micro_usd is not None for run in runs),
        sum(run.micro_usd or 0 for run in runs),
        sum(run.at_least_micro_usd for run in runs),
        sum(run.tokens for run in runs),
        sum(run.verified for run in runs),
        sum(run.saved_micro_usd or 0 for run in runs),
    )


def to_milliseconds(seconds: float) -> int:
    """Whole ones, so that sums are exact."""
    return round(seconds * 1000)


def percentile_rank(count: int, percent: int) -> int:
    """The place of a percentile among so many in order, counted from 1: the nearest that has so many at or below."""
    return max(1, -(-count * percent // 100))


def nearest_rank(numbers: Sequence[T], percent: int) -> T | None:
    """The least of the numbers that so many percent of them lie at or below; None of none."""
    return sorted(numbers)[percentile_rank(len(numbers), percent) - 1] if numbers else None


# What runs of this repository took before, and the limits that follow from it.


MIN_PAST_RUNS = 5  # runs below this number say nothing of the next one
MAX_PAST_RUNS = 200  # of the last runs
MIN_ITERATION_LIMIT = 3
COST_LIMIT_STEP_MICRO_USD = 100_000  # ten cents


@value
class PastRun:
    """What a completed run took; its cost is None where a part of it is not known."""

    skill: str
    iterations: int
    micro_usd: int | None


@value
class QuantityEstimate:
    """Of one quantity: half of the runs took no more than `median`, nine of ten no more than `p90`."""

    median: int
    p90: int
    limit: int


@value
class RunEstimate:
    """What so many completed runs took, of one skill where `skill` is named, in iterations and micro-dollars.

    `cost` is None where too few runs have a known one.
    """

    runs: int
    iterations: QuantityEstimate
    cost: QuantityEstimate | None = None
    skill: str = ""


def estimate_run(past: Sequence[PastRun], skill: str = "") -> RunEstimate | None:
    """What to expect of a run with this skill, by those with the same where there are enough; None of too few."""
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
    """The proposed limit is half as much again as nine of ten needed, up to the next whole step."""
    median, p90 = nearest_rank(numbers, 50) or 0, nearest_rank(numbers, 90) or 0
    return QuantityEstimate(median, p90, max(least, -(-p90 * 3 // (2 * step)) * step))


def describe_estimate(found: RunEstimate) -> str:
    """The same in one line for people, with the flags that set the limits."""
    of_skill = f" of {found.skill}" if found.skill else ""
    iterations, cost = found.iterations, found.cost
    noun = "iteration" if iterations.median == 1 else "iterations"
    took = f"{iterations.median} {noun} (9 of 10 at most {iterations.p90})"
    flags = f"-m {iterations.limit}"
    if cost is not None:
        took += f" and {format_usd(cost.median)} (at most {format_usd(cost.p90)})"
        flags += f" --max-cost-usd {cost.limit / 1_000_000:.2f}"
    return f"{found.runs} past runs{of_skill} took {took}; proposed: {flags}"


# The figures of finished runs: how they are kept, and what is asked of them.


MAX_FIGURE = 10**12  # what a single figure is cut to: no run has more, and a million of them can be added up
SORT_ALL_RUNS = 20_000  # runs of some days that are sorted faster than they are found among all others

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
_PAST = """SELECT skill, iterations, micro_usd FROM (SELECT * FROM run_stats ORDER BY run DESC LIMIT ?) WHERE status = ?"""


def statistics_row(run: str, metrics: Metrics, mask: Callable[[str], str]) -> tuple[object, ...]:
    """What `ADD` is given for a run."""
    made = metrics
    words = (made.status, made.reason, made.skill, made.task_type, made.agent, made.model, made.preset)
    numbers = (made.iterations, to_milliseconds(made.seconds), made.micro_usd, made.at_least_micro_usd, made.tokens)
    return (
        _clamp(utc_day(made.ended_s)), made.began_s, made.ended_s, *(to_valid_utf8(mask(word)) for word in words),
        *(None if number is None else _clamp(number) for number in (*numbers, made.files)),
        None if made.tests_fixed is None else _clamp(made.tests_fixed, -MAX_FIGURE), int(made.claimed), int(made.verified),
        None if made.saved_micro_usd is None else _clamp(made.saved_micro_usd, -MAX_FIGURE), run,
    )  # fmt: skip


def review_statistics_row(run: str, reviews: ReviewTotals) -> tuple[object, ...]:
    """What `ADD_REVIEWS` is given for a run by stories."""
    numbers = (
        reviews.stories, reviews.reviews, reviews.changes_requested, reviews.capped, reviews.first, reviews.counted,
    )  # fmt: skip
    return (*(_clamp(number) for number in (*numbers, *(count for _, count in reviews.spread))), run)


def _clamp(number: int, least: int = 0) -> int:
    return max(least, min(number, MAX_FIGURE))


def query_statistics(ask: Ask, first_day: int, last_day: int) -> PeriodTotals:
    """What the runs of these days add up to. The caller sees to it that nothing is written in between."""
    days = first_day, last_day
    runs = RunTotals(tuple(sorted((RunGroupTotals(*found) for found in ask(_CELLS, *days)), key=_cell_name)))
    few = runs.count <= SORT_ALL_RUNS
    by = ("run_stats_by_day", "run_stats_by_day") if few else ("run_stats_by_iterations", "run_stats_by_cost")
    iterations = _query_percentile(ask, days, "iterations", by[0], runs.count)
    micro_usd = _query_percentile(ask, days, "micro_usd", by[1], runs.sum("priced"))
    return PeriodTotals(first_day, last_day, runs, iterations, micro_usd, _query_reviews(ask, days))


def _query_reviews(ask: Ask, days: tuple[int, int]) -> ReviewTotals:
    return ReviewTotals(*(found or 0 for found in ask(_REVIEWS, *days)[0]))


def _cell_name(cell: RunGroupTotals) -> tuple[str, str, str, str]:
    return cell.skill, cell.agent, cell.status, cell.reason


def _query_percentile(ask: Ask, days: tuple[int, int], what: str, index: str, count: int) -> int | None:
    """Counted from the top, where it lies: one run in twenty is looked at."""
    if not count:
        return None
    found = ask(_PERCENTILE.format(what=what, index=index), *days, count - percentile_rank(count, REPORTED_PERCENTILE))
    return int(found[0][0])


def query_time_slots(ask: Ask, first_day: int, last_day: int) -> tuple[TimeSlotTotals, ...]:
    """The same along the time: a slot a day, or the hours of a single one. Where nothing ended there is none."""
    question = _HOURS if first_day == last_day else _DAYS
    return tuple(TimeSlotTotals(*found) for found in ask(question, COMPLETED, ABORTED, ERROR, first_day, last_day))


def query_past_runs(ask: Ask) -> tuple[PastRun, ...]:
    """Those of the last runs that were completed, the newest first."""
    return tuple(PastRun(*found) for found in ask(_PAST, MAX_PAST_RUNS, COMPLETED))
