"""What many runs add up to: sums by skill, agent and end, over whole UTC days. None is unknown, never zero."""

from __future__ import annotations

from ralphproof.metric import ABORTED, COMPLETED, ERROR, Reviews, added
from ralphproof.purse import day_of
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TypeVar

    from ralphproof.metric import Metrics

    T = TypeVar("T", int, float)

PERCENT = 95  # of the runs lie at or below what a report tells beside an average


@value
class Cell:
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
class Runs:
    """Some runs, by their cells."""

    cells: tuple[Cell, ...] = ()

    def of(self, **wanted: str) -> Runs:
        """Those of this skill, agent, status or reason."""
        return Runs(tuple(cell for cell in self.cells if all(getattr(cell, name) == wanted[name] for name in wanted)))

    def by(self, name: str) -> tuple[tuple[str, Runs], ...]:
        """The same parted by skill, agent or reason; the largest part first."""
        parted: dict[str, list[Cell]] = {}
        for cell in self.cells:
            parted.setdefault(getattr(cell, name), []).append(cell)
        parts = [(found, Runs(tuple(cells))) for found, cells in parted.items()]
        return tuple(sorted(parts, key=lambda part: (-part[1].count, part[0])))

    @property
    def count(self) -> int:
        return self.sum("runs")

    @property
    def unpriced(self) -> int:
        """How many have a cost that is not wholly known."""
        return self.count - self.sum("priced")

    @property
    def completed(self) -> Runs:
        return self.of(status=COMPLETED)

    @property
    def aborted(self) -> Runs:
        return self.of(status=ABORTED)

    @property
    def errors(self) -> Runs:
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
class Figures:
    """The runs that ended from the first day to the last, both included, and their 95th percentiles.

    `reviews` are those of the runs by stories among them.
    """

    first_day: int
    last_day: int
    runs: Runs = Runs()
    p95_iterations: int | None = None
    p95_micro_usd: int | None = None
    reviews: Reviews = Reviews()


@value
class Slot:
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


def figures_of(ended: Iterable[Metrics], first_day: int, last_day: int) -> Figures:
    """What runs add up to, of those that ended in these days."""
    there = [run for run in ended if first_day <= day_of(run.ended_s) <= last_day]
    parted: dict[tuple[str, str, str, str], list[Metrics]] = {}
    for run in there:
        parted.setdefault((run.skill, run.agent, run.status, run.reason), []).append(run)
    cells = tuple(_cell(key, parted[key]) for key in sorted(parted))
    costs = [run.micro_usd for run in there if run.micro_usd is not None]
    iterations = [run.iterations for run in there]
    return Figures(
        first_day, last_day, Runs(cells), nearest_rank(iterations, PERCENT), nearest_rank(costs, PERCENT),
        added(tuple(run.reviews for run in there if run.reviews)),
    )  # fmt: skip


def _cell(key: tuple[str, str, str, str], runs: list[Metrics]) -> Cell:
    return Cell(
        *key,
        len(runs),
        sum(run.iterations for run in runs),
        sum(milliseconds(run.seconds) for run in runs),
        sum(run.micro_usd is not None for run in runs),
        sum(run.micro_usd or 0 for run in runs),
        sum(run.at_least_micro_usd for run in runs),
        sum(run.tokens for run in runs),
        sum(run.verified for run in runs),
        sum(run.saved_micro_usd or 0 for run in runs),
    )


def milliseconds(seconds: float) -> int:
    """Whole ones, so that sums are exact."""
    return round(seconds * 1000)


def rank(count: int, percent: int) -> int:
    """The place of a percentile among so many in order, counted from 1: the nearest that has so many at or below."""
    return max(1, -(-count * percent // 100))


def nearest_rank(numbers: Sequence[T], percent: int) -> T | None:
    """The least of the numbers that so many percent of them lie at or below; None of none."""
    return sorted(numbers)[rank(len(numbers), percent) - 1] if numbers else None


def date_of(day: int) -> str:
    """A day, counted from 1970, as `2026-02-20`, by the Gregorian calendar."""
    era, rest = divmod(day + 719_468, 146_097)  # from the first of March of a year that 400 divides
    year = (rest - rest // 1460 + rest // 36_524 - rest // 146_096) // 365
    rest -= 365 * year + year // 4 - year // 100
    month = (5 * rest + 2) // 153  # counted from March
    after_december = month > 9
    number = month - 9 if after_december else month + 3
    return f"{era * 400 + year + after_december:04d}-{number:02d}-{rest - (153 * month + 2) // 5 + 1:02d}"
