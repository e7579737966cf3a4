"""Whose service may be asked, and when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphproof.engine.agent import BACK_OFF_S, MAX_FAILURES, Outage, ServiceOutages, next_retry_at


def test_an_agent_whose_service_failed_is_left_alone_until_its_time_comes() -> None:
    services = ServiceOutages().with_failure(0, until=60.0)
    assert [services.first_ready((0,), now) for now in (0.0, 59.9, 60.0)] == [None, None, 0]
    assert services.ready_at((0,)) == 60.0


def test_the_next_agent_goes_on_and_the_first_comes_back() -> None:
    services = ServiceOutages().with_failure(0, until=60.0)
    assert [services.first_ready((0, 1), now) for now in (0.0, 59.9, 60.0)] == [1, 1, 0]
    both = services.with_failure(1, until=30.0)
    assert [both.first_ready((0, 1), now) for now in (0.0, 30.0, 60.0)] == [None, 1, 0]
    assert both.ready_at((0, 1)) == 30.0


def test_an_answer_forgets_what_was() -> None:
    services = ServiceOutages().with_failure(0, 1.0).with_failure(0, 2.0)
    assert services.outage_at(0) == Outage(2, 2.0)
    assert services.with_answer(0).outage_at(0) == Outage()
    assert ServiceOutages().with_answer(5) == ServiceOutages()


def test_a_service_that_failed_too_often_is_given_up() -> None:
    services = ServiceOutages()
    for _ in range(MAX_FAILURES):
        services = services.with_failure(0, until=0.0)
    assert (services.first_ready((0,), 99.0), services.ready_at((0,))) == (None, None)
    assert (services.first_ready((0, 1), 99.0), services.ready_at((0, 1))) == (1, 0.0)


@given(st.integers(1, 50), st.text(max_size=30), st.floats(0, 2e9))
def test_a_back_off_grows_within_its_bounds_and_is_the_same_each_time_it_is_asked_for(
    failures: int, seed: str, now: float
) -> None:
    wait_s = next_retry_at(failures, None, now, seed) - now
    usual = BACK_OFF_S[min(failures, len(BACK_OFF_S)) - 1]
    assert usual * 0.75 - 0.001 <= wait_s <= usual * 1.25 + 0.001
    assert next_retry_at(failures, None, now, seed) == next_retry_at(failures, None, now, seed)


def test_runs_that_failed_together_do_not_come_back_together() -> None:
    assert len({next_retry_at(1, None, 0.0, f"run-{name}") for name in "abcdefgh"}) > 4


@pytest.mark.parametrize(("resets_at", "until"), [(1_060.0, 1_061.0), (1_000.0, None), (10.0, None), (None, None)])
def test_a_stated_reset_counts_where_it_is_yet_to_come(resets_at: float | None, until: float | None) -> None:
    assert next_retry_at(1, resets_at, 1_000.0, "r") == (until or next_retry_at(1, None, 1_000.0, "r"))
