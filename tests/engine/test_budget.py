"""What was used adds up exactly, and unknown is never zero."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphproof.engine.agent import Turn, Usage
from ralphproof.engine.limits import Spend, format_usd
from ralphproof.engine.sandbox import Exit

TURNS = st.builds(
    Turn,
    st.just(Exit(0)),
    micro_usd=st.none() | st.integers(0, 10**9),
    usage=st.none() | st.builds(Usage, *[st.integers(0, 10**6)] * 4),
)


@given(st.lists(TURNS, max_size=10))
def test_turns_add_up_in_whole_micro_dollars_and_tokens(turns: list[Turn]) -> None:
    spend = Spend()
    for turn in turns:
        spend = spend.plus_turn(turn)
    assert spend.micro_usd == sum(turn.micro_usd for turn in turns if turn.micro_usd is not None)
    assert spend.tokens == sum(turn.usage.total for turn in turns if turn.usage is not None)
    assert spend.unpriced == sum(turn.micro_usd is None for turn in turns)
    assert (spend.usd is None) == any(turn.micro_usd is None for turn in turns)


def test_a_known_cost_is_told_in_dollars() -> None:
    assert Spend(1_230_000).usd == 1.23
    assert Spend().usd == 0.0
    assert Spend(1_230_000, unpriced=1).usd is None


@pytest.mark.parametrize(
    ("micro_usd", "text"),
    [
        (0, "$0.00"),
        (1_230_000, "$1.23"),
        (10_000, "$0.01"),
        (9_999, "$0.0100"),
        (1_500, "$0.0015"),
        (50_000_000, "$50.00"),
    ],
)
def test_money_is_shown_in_cents_and_finer_only_below_one(micro_usd: int, text: str) -> None:
    assert format_usd(micro_usd) == text
