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


def parcels(count: int) -> list[LandingItem]:
    return [LandingItem(f"r{number}", f"{number:040x}", "work") for number in range(count)]


def decided(
    docket: BatchPlan, bad: set[str], clashing: frozenset[tuple[str, str]] = frozenset()
) -> tuple[BatchPlan, int]:
    """Land all of it where these are red, and the first of such a pair does not go on top of the second."""
    trials, on_target = 0, set[str]()
    while trial := docket.next_trial:
        trials += 1
        assert trials < 100
        laid: list[LandingItem] = []
        for parcel in trial:
            below = {*on_target, *(one.run for one in laid)}
            if any((parcel.run, one) in clashing for one in below):
                docket = docket.after(MergeClash(parcel, MergeConflict((), "", ""), alone=not laid))
            else:
                laid.append(parcel)
        if laid and bad & {one.run for one in laid}:
            docket = docket.after(BatchFailed(RED))
        elif laid:
            on_target |= {one.run for one in laid}
            docket = docket.after(BatchPassed(tuple(Landed(one, one.commit, "t") for one in laid)))
    return docket, trials


@pytest.mark.parametrize("count", [0, 1, 5])
def test_every_red_one_is_found_and_every_other_one_lands(count: int) -> None:
    for reds in product((False, True), repeat=count):
        bad = {f"r{number}" for number, red in enumerate(reds) if red}
        docket, trials = decided(BatchPlan.of(parcels(count)), bad)
        assert {end.item.run for end in docket.ended if isinstance(end, LandingRejected)} == bad
        assert sorted(end.item.run for end in docket.ended) == [one.run for one in parcels(count)]
        assert trials <= (1 if not bad else 2 * count)


def test_one_that_clashes_with_something_red_lands_and_with_something_green_does_not() -> None:
    for red, away in ((True, {"r0"}), (False, {"r1"})):
        docket, _ = decided(BatchPlan.of(parcels(3)), {"r0"} if red else set(), frozenset({("r1", "r0")}))
        assert {end.item.run for end in docket.ended if isinstance(end, LandingRejected)} == away
        assert len(docket.ended) == 3


def test_a_target_that_moved_changes_nothing_but_the_count_until_something_lands() -> None:
    docket = BatchPlan.of(parcels(2)).after(TargetMoved()).after(TargetMoved())
    assert (docket.overtaken, docket.next_trial) == (2, tuple(parcels(2)))
    assert docket.after(BatchPassed(())).overtaken == 0


def test_what_the_target_has_already_is_landed_and_the_others_are_still_tried() -> None:
    first, second = parcels(2)
    docket = BatchPlan.of([first, second]).after(AlreadyLanded(Landed(first, first.commit, "t")))
    assert (docket.next_trial, len(docket.ended)) == ((second,), 1)


def test_a_command_is_asked_once_by_each_rule_wherever_it_ran() -> None:
    asked = [check("a"), check("a", clean=True), check("a", folder="sub"), check("b")]
    found = combined_checks([LandingItem("r", "c", "t", tuple(asked[:3]))], asked)
    assert [(one.command, one.rule.folder) for one in found] == [("a", "."), ("a", "sub"), ("b", ".")]
