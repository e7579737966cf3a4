"""The figures of finished runs: how they are kept, and what is asked of them."""

from __future__ import annotations

from ralphproof.expectation import LOOKED_AT, PastRun
from ralphproof.figure import PERCENT, Cell, Figures, Runs, Slot, milliseconds, rank
from ralphproof.ledgers.text import plain
from ralphproof.metric import ABORTED, COMPLETED, ERROR, Reviews
from ralphproof.purse import day_of
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ralphproof.metric import Metrics

    Ask = Callable[..., list[Any]]

MOST = 10**12  # what a single figure is cut to: no run has more, and a million of them can be added up
REVIEWS = 5  # the version of the file that brought them
FEW = 20_000  # runs of some days that are sorted faster than they are found among all others

REMOVE = "DELETE FROM figure WHERE run = (SELECT seq FROM run WHERE id = ?)"
ADD = """INSERT INTO figure SELECT seq, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
    FROM run WHERE id = ?"""
ADD_REVIEWS = """INSERT INTO figure_review SELECT day, run, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
    FROM figure WHERE run = (SELECT seq FROM run WHERE id = ?)"""
_CELLS = """SELECT skill, agent, status, reason, sum(runs), sum(iterations), sum(milliseconds), sum(priced),
        sum(micro_usd), sum(at_least), sum(tokens), sum(verified), sum(saved)
    FROM figure_kind CROSS JOIN figure_sum ON kind = id AND day BETWEEN ? AND ? GROUP BY id"""
_PERCENTILE = """SELECT {what} FROM figure INDEXED BY {index}
    WHERE {what} IS NOT NULL AND day BETWEEN ? AND ? ORDER BY {what} DESC LIMIT 1 OFFSET ?"""
_DAYS = """SELECT day, sum(runs * (status = ?)), sum(runs * (status = ?)), sum(runs * (status = ?)), sum(iterations),
        sum(micro_usd), sum(runs - priced), sum(tokens)
    FROM figure_kind CROSS JOIN figure_sum ON kind = id AND day BETWEEN ? AND ? GROUP BY day"""
_HOURS = """SELECT CAST((ended - day * 86400) / 3600 AS INTEGER), sum(status = ?), sum(status = ?), sum(status = ?),
        sum(iterations), sum(ifnull(micro_usd, 0)), sum(micro_usd IS NULL), sum(tokens)
    FROM figure WHERE day BETWEEN ? AND ? GROUP BY 1"""
_REVIEWS = """SELECT count(*), sum(stories), sum(reviews), sum(changes_requested), sum(capped), sum(first),
        sum(counted), sum(once), sum(twice), sum(thrice), sum(four_times), sum(oftener)
    FROM figure_review WHERE day BETWEEN ? AND ?"""
_PAST = """SELECT skill, iterations, micro_usd FROM (SELECT * FROM figure ORDER BY run DESC LIMIT ?) WHERE status = ?"""


def row(run: str, metrics: Metrics, mask: Callable[[str], str]) -> tuple[object, ...]:
    """What `ADD` is given for a run."""
    made = metrics
    words = (made.status, made.reason, made.skill, made.task_type, made.agent, made.model, made.preset)
    numbers = (made.iterations, milliseconds(made.seconds), made.micro_usd, made.at_least_micro_usd, made.tokens)
    return (
        _cut(day_of(made.ended_s)), made.began_s, made.ended_s, *(plain(mask(word)) for word in words),
        *(None if number is None else _cut(number) for number in (*numbers, made.files)),
        None if made.tests_fixed is None else _cut(made.tests_fixed, -MOST), int(made.claimed), int(made.verified),
        None if made.saved_micro_usd is None else _cut(made.saved_micro_usd, -MOST), run,
    )  # fmt: skip


def review_row(run: str, reviews: Reviews) -> tuple[object, ...]:
    """What `ADD_REVIEWS` is given for a run by stories."""
    numbers = (
        reviews.stories, reviews.reviews, reviews.changes_requested, reviews.capped, reviews.first, reviews.counted,
    )  # fmt: skip
    return (*(_cut(number) for number in (*numbers, *(count for _, count in reviews.spread))), run)


def _cut(number: int, least: int = 0) -> int:
    return max(least, min(number, MOST))


def figures(ask: Ask, first_day: int, last_day: int) -> Figures:
    """What the runs of these days add up to. The caller sees to it that nothing is written in between."""
    days = first_day, last_day
    runs = Runs(tuple(sorted((Cell(*found) for found in ask(_CELLS, *days)), key=_name)))
    few = runs.count <= FEW
    by = ("figure_of_day", "figure_of_day") if few else ("figure_by_iterations", "figure_by_cost")
    iterations = _percentile(ask, days, "iterations", by[0], runs.count)
    micro_usd = _percentile(ask, days, "micro_usd", by[1], runs.sum("priced"))
    return Figures(first_day, last_day, runs, iterations, micro_usd, _reviews(ask, days))


def _reviews(ask: Ask, days: tuple[int, int]) -> Reviews:
    if ask("PRAGMA user_version")[0][0] < REVIEWS:
        return Reviews()
    return Reviews(*(found or 0 for found in ask(_REVIEWS, *days)[0]))


def _name(cell: Cell) -> tuple[str, str, str, str]:
    return cell.skill, cell.agent, cell.status, cell.reason


def _percentile(ask: Ask, days: tuple[int, int], what: str, index: str, count: int) -> int | None:
    """Counted from the top, where it lies: one run in twenty is looked at."""
    if not count:
        return None
    found = ask(_PERCENTILE.format(what=what, index=index), *days, count - rank(count, PERCENT))
    return int(found[0][0])


def slots(ask: Ask, first_day: int, last_day: int) -> tuple[Slot, ...]:
    """The same along the time: a slot a day, or the hours of a single one. Where nothing ended there is none."""
    question = _HOURS if first_day == last_day else _DAYS
    return tuple(Slot(*found) for found in ask(question, COMPLETED, ABORTED, ERROR, first_day, last_day))


def past(ask: Ask) -> tuple[PastRun, ...]:
    """Those of the last runs that were completed, the newest first."""
    return tuple(PastRun(*found) for found in ask(_PAST, LOOKED_AT, COMPLETED))
