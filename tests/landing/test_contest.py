"""Who enters a race, and who wins it."""

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


def test_agents_take_turns_until_all_places_are_taken() -> None:
    assert [one.agent for one in make_entries(3, ("claude", "codex"), ())] == ["claude", "codex", "claude"]


def test_each_model_belongs_to_the_agent_at_its_place() -> None:
    taking_part = make_entries(2, ("claude", "codex"), ("opus", "gpt"))
    assert [(one.agent, one.model) for one in taking_part] == [("claude", "opus"), ("codex", "gpt")]
    assert [(one.agent, one.model) for one in make_entries(2, ("a",), ("x", "y"))] == [("a", "x"), ("a", "y")]


@pytest.mark.parametrize(
    ("count", "agents", "models", "says"),
    [
        (4, ("a", "b"), ("x", "y", "z"), "give one --model for each --agent"),
        (2, ("a", "b", "c"), (), "ralph race 3 lets all of them"),
    ],
)
def test_who_belongs_together_is_never_guessed(
    count: int, agents: tuple[str, ...], models: tuple[str, ...], says: str
) -> None:
    with pytest.raises(Refused, match=says):
        make_entries(count, agents, models)


def test_the_first_that_is_verified_wins_and_no_other() -> None:
    arrivals = (RaceResult(A, "a", False, 0), RaceResult(B, "b", True, 2), RaceResult(C, "c", True, 1))
    assert (won := first_verified(arrivals))
    assert won.run == "c"
    assert first_verified(arrivals[:1]) is None


@pytest.mark.parametrize(
    ("criteria", "wins"),
    [("checks,judge,diff,cost", "b"), ("diff,cost", "c"), ("cost", "a"), ("time", "c")],
)
def test_the_best_is_found_by_the_criteria_in_their_order(criteria: str, wins: str) -> None:
    arrivals = (
        RaceResult(A, "a", True, 0, judged=1, lines=50, micro_usd=1, seconds=9),
        RaceResult(B, "b", True, 1, judged=2, lines=90, micro_usd=2, seconds=8),
        RaceResult(C, "c", True, 2, judged=1, lines=10, micro_usd=None, seconds=7),
    )
    assert (won := best_result(arrivals, parse_race_criteria(criteria)))
    assert won.run == wins


def test_nobody_is_best_whose_work_the_checks_refuse() -> None:
    cheap = RaceResult(A, "a", False, 0, judged=9, lines=0, micro_usd=0)
    assert best_result((cheap,), ("cost",)) is None


def test_what_is_not_known_is_not_cheap() -> None:
    unknown, dear = RaceResult(A, "a", True, 0, micro_usd=None), RaceResult(B, "b", True, 1, micro_usd=10**9)
    assert (won := best_result((unknown, dear), ("cost",)))
    assert won.run == "b"


@pytest.mark.parametrize("text", ["", "size", "cost,cost", "checks,beauty"])
def test_criteria_that_there_are_not_are_refused(text: str) -> None:
    with pytest.raises(Refused):
        parse_race_criteria(text)
