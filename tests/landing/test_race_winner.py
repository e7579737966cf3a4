"""Entries of a race and the choice of the winner."""

from __future__ import annotations

import pytest

from ralphproof.base.errors import Refused
from ralphproof.landing.race import (
    RaceEntry,
    RaceResult,
    first_verified,
    make_entries,
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
