"""How long a fleet waits for what."""

from __future__ import annotations

from ralphproof.fleet.messages import (
    LOST_RETRY_MAX_S,
    PERMIT_RETRY_MAX_S,
    PERMIT_RETRY_S,
    lost_retry_s,
    permit_retry_s,
)


def test_a_loop_that_waits_asks_ever_more_rarely_and_never_falls_silent() -> None:
    waits = [permit_retry_s(asked) for asked in (*range(1, 40), 100_000)]
    assert waits[0] == PERMIT_RETRY_S
    assert waits == sorted(waits)
    assert waits[-1] == PERMIT_RETRY_MAX_S


def test_a_step_that_was_lost_is_asked_for_soon_and_then_less_often() -> None:
    waits = [lost_retry_s(tries) for tries in range(1, 20)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (0.5, LOST_RETRY_MAX_S)
