"""Batches of the landing queue: failing and conflicting items are found, all others land."""

from __future__ import annotations

from itertools import product

import pytest

from ralphproof.landing.batch import (
    AlreadyLanded,
    BatchFailed,
    BatchPassed,
    BatchPlan,
    MergeClash,
    TargetMoved,
    combined_checks,
)
from ralphproof.store.landings import Landed, LandingItem, LandingRejected, MergeConflict, MergedChecksFailed
from tests.cli.landing import check

RED = MergedChecksFailed((), "onto", "tree")


def items(count: int) -> list[LandingItem]:
    return [LandingItem(f"r{number}", f"{number:040x}", "work") for number in range(count)]


def land_all(
    plan: BatchPlan, bad: set[str], clashing: frozenset[tuple[str, str]] = frozenset()
) -> tuple[BatchPlan, int]:
    """Play the plan to its end: items in `bad` fail, and the first of a clashing pair conflicts with the second."""
    batches, on_target = 0, set[str]()
    while batch := plan.next_batch:
        batches += 1
        assert batches < 100
        merged: list[LandingItem] = []
        for item in batch:
            below = {*on_target, *(one.run for one in merged)}
            if any((item.run, one) in clashing for one in below):
                plan = plan.after(MergeClash(item, MergeConflict((), "", ""), alone=not merged))
            else:
                merged.append(item)
        if merged and bad & {one.run for one in merged}:
            plan = plan.after(BatchFailed(RED))
        elif merged:
            on_target |= {one.run for one in merged}
            plan = plan.after(BatchPassed(tuple(Landed(one, one.commit, "t") for one in merged)))
    return plan, batches


@pytest.mark.parametrize("count", [0, 1, 5])
def test_failing_items_are_found_by_bisection_and_the_others_land(count: int) -> None:
    for reds in product((False, True), repeat=count):
        bad = {f"r{number}" for number, failing in enumerate(reds) if failing}
        plan, batches = land_all(BatchPlan.of(items(count)), bad)
        assert {end.item.run for end in plan.results if isinstance(end, LandingRejected)} == bad
        assert sorted(end.item.run for end in plan.results) == [one.run for one in items(count)]
        assert batches <= (1 if not bad else 2 * count)


def test_an_item_that_conflicts_with_a_failing_item_lands_but_not_with_a_passing_one() -> None:
    for failing, rejected in ((True, {"r0"}), (False, {"r1"})):
        plan, _ = land_all(BatchPlan.of(items(3)), {"r0"} if failing else set(), frozenset({("r1", "r0")}))
        assert {end.item.run for end in plan.results if isinstance(end, LandingRejected)} == rejected
        assert len(plan.results) == 3


def test_moves_of_the_target_are_counted_until_something_lands() -> None:
    plan = BatchPlan.of(items(2)).after(TargetMoved()).after(TargetMoved())
    assert (plan.target_moves, plan.next_batch) == (2, tuple(items(2)))
    assert plan.after(BatchPassed(())).target_moves == 0


def test_an_item_that_the_target_contains_counts_as_landed() -> None:
    first, second = items(2)
    plan = BatchPlan.of([first, second]).after(AlreadyLanded(Landed(first, first.commit, "t")))
    assert (plan.next_batch, len(plan.results)) == ((second,), 1)


def test_a_command_runs_once_for_each_pass_rule() -> None:
    checks = [check("a"), check("a", clean=True), check("a", folder="sub"), check("b")]
    combined = combined_checks([LandingItem("r", "c", "t", tuple(checks[:3]))], checks)
    assert [(one.command, one.rule.folder) for one in combined] == [("a", "."), ("a", "sub"), ("b", ".")]
