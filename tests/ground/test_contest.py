"""Who enters a race, and who wins it."""

from __future__ import annotations

import pytest

from ralphproof.contest import Arrival, Entrant, best, criteria_in, entrants, first
from ralphproof.errors import Refused

A, B, C = (Entrant(number) for number in (1, 2, 3))


def test_agents_take_turns_until_all_places_are_taken() -> None:
    assert [one.agent for one in entrants(3, ("claude", "codex"), ())] == ["claude", "codex", "claude"]


def test_each_model_belongs_to_the_agent_at_its_place() -> None:
    taking_part = entrants(2, ("claude", "codex"), ("opus", "gpt"))
    assert [(one.agent, one.model) for one in taking_part] == [("claude", "opus"), ("codex", "gpt")]
    assert [(one.agent, one.model) for one in entrants(2, ("a",), ("x", "y"))] == [("a", "x"), ("a", "y")]


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
        entrants(count, agents, models)


def test_the_first_that_is_verified_wins_and_no_other() -> None:
    arrivals = (Arrival(A, "a", False, 0), Arrival(B, "b", True, 2), Arrival(C, "c", True, 1))
    assert (won := first(arrivals))
    assert won.run == "c"
    assert first(arrivals[:1]) is None


@pytest.mark.parametrize(
    ("criteria", "wins"),
    [("checks,judge,diff,cost", "b"), ("diff,cost", "c"), ("cost", "a"), ("time", "c")],
)
def test_the_best_is_found_by_the_criteria_in_their_order(criteria: str, wins: str) -> None:
    arrivals = (
        Arrival(A, "a", True, 0, judged=1, lines=50, micro_usd=1, seconds=9),
        Arrival(B, "b", True, 1, judged=2, lines=90, micro_usd=2, seconds=8),
        Arrival(C, "c", True, 2, judged=1, lines=10, micro_usd=None, seconds=7),
    )
    assert (won := best(arrivals, criteria_in(criteria)))
    assert won.run == wins


def test_nobody_is_best_whose_work_the_checks_refuse() -> None:
    cheap = Arrival(A, "a", False, 0, judged=9, lines=0, micro_usd=0)
    assert best((cheap,), ("cost",)) is None


def test_what_is_not_known_is_not_cheap() -> None:
    unknown, dear = Arrival(A, "a", True, 0, micro_usd=None), Arrival(B, "b", True, 1, micro_usd=10**9)
    assert (won := best((unknown, dear), ("cost",)))
    assert won.run == "b"


@pytest.mark.parametrize("text", ["", "size", "cost,cost", "checks,beauty"])
def test_criteria_that_there_are_not_are_refused(text: str) -> None:
    with pytest.raises(Refused):
        criteria_in(text)
