"""What runs of this repository took before, and the limits that follow from it."""

from __future__ import annotations

from ralphproof.budget import dollars
from ralphproof.figure import nearest_rank
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Sequence

ENOUGH = 5  # runs below this number say nothing of the next one
LOOKED_AT = 200  # of the last runs
LEAST_ITERATIONS = 3
STEP_MICRO_USD = 100_000  # ten cents


@value
class PastRun:
    """What a completed run took; its cost is None where a part of it is not known."""

    skill: str
    iterations: int
    micro_usd: int | None


@value
class Expected:
    """Of one quantity: half of the runs took no more than `median`, nine of ten no more than `p90`."""

    median: int
    p90: int
    limit: int


@value
class Expectation:
    """What so many completed runs took, of one skill where `skill` is named, in iterations and micro-dollars.

    `cost` is None where too few runs have a known one.
    """

    runs: int
    iterations: Expected
    cost: Expected | None = None
    skill: str = ""


def expected(past: Sequence[PastRun], skill: str = "") -> Expectation | None:
    """What to expect of a run with this skill, by those with the same where there are enough; None of too few."""
    same = [run for run in past if run.skill == skill]
    chosen, named = (same, skill) if len(same) >= ENOUGH else (past, "")
    if len(chosen) < ENOUGH:
        return None
    iterations = _expected([run.iterations for run in chosen], 1, LEAST_ITERATIONS)
    costs = [run.micro_usd for run in chosen if run.micro_usd is not None]
    cost = _expected(costs, STEP_MICRO_USD, STEP_MICRO_USD) if len(costs) >= ENOUGH else None
    return Expectation(len(chosen), iterations, cost, named)


def _expected(numbers: list[int], step: int, least: int) -> Expected:
    """The proposed limit is half as much again as nine of ten needed, up to the next whole step."""
    median, p90 = nearest_rank(numbers, 50) or 0, nearest_rank(numbers, 90) or 0
    return Expected(median, p90, max(least, -(-p90 * 3 // (2 * step)) * step))


def sentence(found: Expectation) -> str:
    """The same in one line for people, with the flags that set the limits."""
    of_skill = f" of {found.skill}" if found.skill else ""
    iterations, cost = found.iterations, found.cost
    noun = "iteration" if iterations.median == 1 else "iterations"
    took = f"{iterations.median} {noun} (9 of 10 at most {iterations.p90})"
    flags = f"-m {iterations.limit}"
    if cost is not None:
        took += f" and {dollars(cost.median)} (at most {dollars(cost.p90)})"
        flags += f" --max-cost-usd {cost.limit / 1_000_000:.2f}"
    return f"{found.runs} past runs{of_skill} took {took}; proposed: {flags}"
