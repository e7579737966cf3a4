"""Which parcels are tried next: whatever is red or clashes, all others land, and nothing is forgotten."""

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
    """Land all of it where these are red, and the first of such a pair does not go on top of the second."""
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
def test_every_red_one_is_found_and_every_other_one_lands(count: int) -> None:
    for reds in product((False, True), repeat=count):
        bad = {f"r{number}" for number, fails in enumerate(reds) if fails}
        plan, batches = land_all(BatchPlan.of(items(count)), bad)
        assert {end.item.run for end in plan.results if isinstance(end, LandingRejected)} == bad
        assert sorted(end.item.run for end in plan.results) == [one.run for one in items(count)]
        assert batches <= (1 if not bad else 2 * count)


def test_one_that_clashes_with_something_red_lands_and_with_something_green_does_not() -> None:
    for fails, rejected in ((True, {"r0"}), (False, {"r1"})):
        plan, _ = land_all(BatchPlan.of(items(3)), {"r0"} if fails else set(), frozenset({("r1", "r0")}))
        assert {end.item.run for end in plan.results if isinstance(end, LandingRejected)} == rejected
        assert len(plan.results) == 3


def test_a_target_that_moved_changes_nothing_but_the_count_until_something_lands() -> None:
    plan = BatchPlan.of(items(2)).after(TargetMoved()).after(TargetMoved())
    assert (plan.target_moves, plan.next_batch) == (2, tuple(items(2)))
    assert plan.after(BatchPassed(())).target_moves == 0


def test_what_the_target_has_already_is_landed_and_the_others_are_still_tried() -> None:
    first, second = items(2)
    plan = BatchPlan.of([first, second]).after(AlreadyLanded(Landed(first, first.commit, "t")))
    assert (plan.next_batch, len(plan.results)) == ((second,), 1)


def test_a_command_is_asked_once_by_each_rule_wherever_it_ran() -> None:
    checks = [check("a"), check("a", clean=True), check("a", folder="sub"), check("b")]
    combined = combined_checks([LandingItem("r", "c", "t", tuple(checks[:3]))], checks)
    assert [(one.command, one.rule.folder) for one in combined] == [("a", "."), ("a", "sub"), ("b", ".")]
