"""How often runs tell each other what they spend."""

from __future__ import annotations

import pytest

from ralphproof.engine.environment import MIN_LIVE_SPEND_POLL_S, SpendPollTimer

LIMIT = 1_500_000
TICK_S = 0.01


def looks(rate_micro_usd: int, seconds: float, most: int | None = LIMIT) -> list[tuple[float, int]]:
    """When it is looked, and what all have spent by then, until that is too much or the time is up."""
    pace, found = SpendPollTimer(), list[tuple[float, int]]()
    for number in range(int(seconds / TICK_S)):
        now_s = number * TICK_S
        if pace.due(now_s):
            found.append((now_s, round(now_s * rate_micro_usd)))
            pace.record_poll(*found[-1], most)
            if most is not None and found[-1][1] > most:
                break
    return found


@pytest.mark.parametrize("rate", [50_000, 1_000_000, 10_000_000])
def test_a_limit_that_is_passed_is_seen_at_once_however_fast_that_goes(rate: int) -> None:
    assert LIMIT < looks(rate, 60)[-1][1] <= LIMIT + rate * (MIN_LIVE_SPEND_POLL_S + TICK_S)


@pytest.mark.parametrize(("rate", "most"), [(0, LIMIT), (1_000, LIMIT), (10_000_000, None)])
def test_once_a_second_is_enough_where_much_is_left(rate: int, most: int | None) -> None:
    assert len(looks(rate, 10, most)) <= 11
