"""Entries of a race and the choice of the winner."""

from __future__ import annotations

import pytest

from ralphproof.base.errors import Refused
from ralphproof.landing.race import (
    RaceEntry,
    RaceResult,
    best_result,
    first_verified,
    make_entries,
    parse_race_criteria,
)

A, B, C = (RaceEntry(number) for number in (1, 2, 3))


def test_agents_are_assigned_to_entries_in_turn() -> None:
    assert [one.agent for one in make_entries(3, ("claude", "codex"), ())] == ["claude", "codex", "claude"]


def test_models_are_paired_with_agents_by_position() -> None:
    entries = make_entries(2, ("claude", "codex"), ("opus", "gpt"))
    assert [(one.agent, one.model) for one in entries] == [("claude", "opus"), ("codex", "gpt")]
    assert [(one.agent, one.model) for one in make_entries(2, ("a",), ("x", "y"))] == [("a", "x"), ("a", "y")]


@pytest.mark.parametrize(
    ("count", "agents", "models", "says"),
    [
        (4, ("a", "b"), ("x", "y", "z"), "give one --model for each --agent"),
        (2, ("a", "b", "c"), (), "ralph race 3 lets all of them"),
    ],
)
def test_agents_and_models_that_cannot_be_paired_are_refused(
    count: int, agents: tuple[str, ...], models: tuple[str, ...], says: str
) -> None:
    with pytest.raises(Refused, match=says):
        make_entries(count, agents, models)


def test_the_first_verified_result_wins() -> None:
    results = (RaceResult(A, "a", False, 0), RaceResult(B, "b", True, 2), RaceResult(C, "c", True, 1))
    assert (winner := first_verified(results))
    assert winner.run == "c"
    assert first_verified(results[:1]) is None


@pytest.mark.parametrize(
    ("criteria", "wins"),
    [("checks,judge,diff,cost", "b"), ("diff,cost", "c"), ("cost", "a"), ("time", "c")],
)
def test_criteria_apply_in_their_order(criteria: str, wins: str) -> None:
    results = (
        RaceResult(A, "a", True, 0, judged=1, lines=50, micro_usd=1, seconds=9),
        RaceResult(B, "b", True, 1, judged=2, lines=90, micro_usd=2, seconds=8),
        RaceResult(C, "c", True, 2, judged=1, lines=10, micro_usd=None, seconds=7),
    )
    assert (winner := best_result(results, parse_race_criteria(criteria)))
    assert winner.run == wins


def test_an_unverified_result_is_never_best() -> None:
    cheap = RaceResult(A, "a", False, 0, judged=9, lines=0, micro_usd=0)
    assert best_result((cheap,), ("cost",)) is None


def test_an_unknown_cost_ranks_last() -> None:
    unknown, dear = RaceResult(A, "a", True, 0, micro_usd=None), RaceResult(B, "b", True, 1, micro_usd=10**9)
    assert (winner := best_result((unknown, dear), ("cost",)))
    assert winner.run == "b"


@pytest.mark.parametrize("text", ["", "size", "cost,cost", "checks,beauty"])
def test_unknown_or_repeated_criteria_are_refused(text: str) -> None:
    with pytest.raises(Refused):
        parse_race_criteria(text)
