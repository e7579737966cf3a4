"""What every purse keeps to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ralphproof.engine.agent import Spent, Usage
from ralphproof.engine.limits import SECONDS_PER_DAY, DailySpend, DaySpend, Spend
from ralphproof.store.spend import SpendStore
from tests.in_memory_spend import InMemorySpend

AnyPurse = SpendStore | InMemorySpend
NOON = 20_000 * SECONDS_PER_DAY + SECONDS_PER_DAY / 2


@pytest.fixture(params=["memory", "book"])
def purse(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AnyPurse]:
    if request.param == "memory":
        yield InMemorySpend()
        return
    book = SpendStore.open(str(tmp_path / "state"))
    yield book
    book.close()


def test_it_is_a_purse(purse: AnyPurse) -> None:
    plain: DailySpend = purse
    assert plain.day_spend(NOON) == DaySpend()


def test_an_empty_purse_has_spent_nothing(purse: AnyPurse) -> None:
    assert purse.spend_of(("r",)) == Spend()
    assert purse.day_spend(NOON) == DaySpend(0, "")


def test_a_day_is_the_sum_over_all_runs_and_calls(purse: AnyPurse) -> None:
    for number, (run, call) in enumerate((run, call) for run in ("a", "b") for call in ("1.1", "1.2", "scm")):
        purse.book(run, call, Spent(10**number, Usage(1, 2)), NOON + number)
    assert purse.day_spend(NOON) == DaySpend(111_111)


def test_the_same_call_counts_once_with_its_first_amount_and_day(purse: AnyPurse) -> None:
    purse.book("r", "1.1", Spent(5), NOON)
    purse.book("r", "1.1", Spent(5), NOON)
    purse.book("r", "1.1", Spent(700), NOON + SECONDS_PER_DAY)
    assert [purse.day_spend(NOON), purse.day_spend(NOON + SECONDS_PER_DAY)] == [DaySpend(5), DaySpend(0)]


def test_a_run_and_a_call_are_not_mixed_up(purse: AnyPurse) -> None:
    for run, call in (("a", "b"), ("b", "a"), ("ab", ""), ("", "ab")):
        purse.book(run, call, Spent(1), NOON)
    assert purse.day_spend(NOON) == DaySpend(4)


def test_an_unknown_cost_adds_nothing_and_is_no_doubt(purse: AnyPurse) -> None:
    purse.book("r", "1.1", Spent(None, Usage(1000)), NOON)
    purse.book("r", "1.2", Spent(7, at_least=True, notional=True), NOON)
    purse.book("r", "1.1", Spent(3), NOON)
    assert purse.day_spend(NOON) == DaySpend(7)


@pytest.mark.parametrize(
    ("booked", "asked", "same"),
    [
        (20_000 * SECONDS_PER_DAY, 20_001 * SECONDS_PER_DAY - 0.001, True),
        (20_000 * SECONDS_PER_DAY - 0.001, 20_000 * SECONDS_PER_DAY, False),
        (20_001 * SECONDS_PER_DAY, 20_000 * SECONDS_PER_DAY, False),
        (1_711_846_800, 1_711_846_800 + 3599, True),  # an hour that Europe skipped
        (0, 0, True),
        (-1, 0, False),
        (-1, -SECONDS_PER_DAY, True),
        (1e300, 1e300, True),
        (-1e300, -1e300, True),
        (10**400, 0, False),
    ],
)
def test_a_day_begins_at_midnight_utc_whatever_the_clock_says(
    purse: AnyPurse, booked: float, asked: float, same: bool
) -> None:
    purse.book("r", "1.1", Spent(9), booked)
    assert purse.day_spend(asked) == DaySpend(9 if same else 0)


def test_a_clock_that_is_set_back_and_forth_moves_no_booking(purse: AnyPurse) -> None:
    jumps = (0, 5, -3, 0, -300, 5, 1, 0)
    for number, days in enumerate(jumps):
        purse.book("r", str(number), Spent(10**number), NOON + days * SECONDS_PER_DAY)
    for days in jumps:
        expected = sum(10**number for number, other in enumerate(jumps) if other == days)
        assert purse.day_spend(NOON + days * SECONDS_PER_DAY) == DaySpend(expected)
    assert purse.day_spend(NOON + 2 * SECONDS_PER_DAY) == DaySpend(0)


@pytest.mark.parametrize("text", ["'); DROP TABLE booking;--", "\0", "half \ud800 and byte \udcfe", "é" * 10_000, ""])
def test_any_names_will_do(purse: AnyPurse, text: str) -> None:
    for _ in range(2):
        purse.book(text, text, Spent(4), NOON)
    purse.book("r", text, Spent(1), NOON)
    assert purse.day_spend(NOON) == DaySpend(5)


def test_what_runs_have_spent_is_the_sum_of_their_calls(purse: AnyPurse) -> None:
    for number, run in enumerate(("a", "b", "a", "c", "b")):
        purse.book(run, str(number), Spent(10**number, Usage(number, 1)), NOON + number * SECONDS_PER_DAY)
    assert purse.spend_of(("a",)) == Spend(101, 4)
    assert purse.spend_of(("a", "b")) == Spend(10_111, 11)
    assert purse.spend_of(("b", "a", "b", "a")) == Spend(10_111, 11)
    assert purse.spend_of(("none",)) == purse.spend_of(()) == Spend()


def test_what_is_not_wholly_known_is_counted_and_what_a_subscription_pays_is_told(purse: AnyPurse) -> None:
    purse.book("r", "1", Spent(None), NOON)
    purse.book("r", "2", Spent(None, Usage(5)), NOON)
    purse.book("r", "3", Spent(7, Usage(1), at_least=True), NOON)
    purse.book("r", "4", Spent(20, Usage(1, 2), notional=True), NOON)
    purse.book("r", "5", Spent(None, notional=True, at_least=True), NOON)
    purse.book("r", "6", Spent(100), NOON)
    assert purse.spend_of(("r",)) == Spend(127, 9, 4, 20)


def test_a_call_that_is_booked_again_is_not_spent_again(purse: AnyPurse) -> None:
    purse.book("r", "1", Spent(5, Usage(1)), NOON)
    purse.book("r", "1", Spent(9, Usage(9), at_least=True), NOON + SECONDS_PER_DAY)
    assert purse.spend_of(("r",)) == Spend(5, 1)


def test_many_runs_and_any_names_will_do(purse: AnyPurse) -> None:
    odd = ("'); --", "\0", "half \ud800 and byte \udcfe", "")
    for run in odd:
        purse.book(run, "1", Spent(3), NOON)
    assert purse.spend_of((*odd, *(f"run-{number}" for number in range(3000)))) == Spend(12)
