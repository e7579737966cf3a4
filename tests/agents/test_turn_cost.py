"""The cost of a turn, while it runs and when it has ended."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphproof.agents.adapter import ReaderContext
from ralphproof.agents.stream import MAX_MODELS, MAX_OPEN_MESSAGES, UsageTally
from ralphproof.engine.agent import Event, Spent, Usage

NOTHING = Spent(0, Usage())


class Desk:
    """A tally, and what it tells. Model `a` costs 1 micro-dollar a token, `b` 10; other prices are not known."""

    def __init__(self, billed: Spent = NOTHING, model: str | None = None) -> None:
        self.told: list[Event] = []
        self._pauses: list[Callable[[], None]] = []
        hearing = ReaderContext(self.told.append, self.cost, lambda: 0.0, billed, model, self._pauses.append)
        self.tally = UsageTally(hearing)

    def cost(self, model: str | None, usage: Usage) -> int | None:
        each = {"a": 1, "b": 10}.get((model or "")[:1])
        return None if each is None else each * usage.total

    def pause(self) -> Event | None:
        """What is told once everything that has come was read."""
        before = len(self.told)
        for call in self._pauses:
            call()
        more = self.told[before:]
        assert len(more) <= 1
        return more[0] if more else None


def live(micro_usd: int | None, *counts: int) -> Spent:
    return Spent(micro_usd, Usage(*counts), at_least=True)


def test_a_message_that_is_told_in_many_lines_is_counted_once() -> None:
    desk = Desk()
    for _ in range(3):
        desk.tally.message("m1", "a", (10, 1, 5, 2))
    assert desk.pause() == live(18, 10, 1, 5, 2)
    assert desk.pause() is None


def test_a_message_that_grows_is_counted_as_it_stands() -> None:
    desk = Desk()
    desk.tally.message("m1", "a", (10, 1, 0, 0))
    desk.tally.message("m2", "a", (10, 1, 0, 0))
    desk.tally.message("m1", "a", (10, 9, 0, 0))
    assert desk.pause() == live(30, 20, 10)
    desk.tally.message("m1", "a", (10, 4, 0, 0))
    assert desk.pause() is None, "it cannot shrink"
    desk.tally.message("m1", "a", (12, 4, 0, 0))
    assert desk.pause() == live(32, 22, 10)


def test_messages_of_many_models_are_priced_each_by_its_own() -> None:
    desk = Desk()
    desk.tally.message("m1", "a", (10, 0, 0, 0))
    desk.tally.message("m2", "b", (10, 0, 0, 0))
    assert desk.pause() == live(110, 20)


def test_one_unknown_price_makes_the_whole_unknown_and_the_tokens_are_told() -> None:
    desk = Desk()
    desk.tally.message("m1", "a", (10, 0, 0, 0))
    desk.tally.message("m2", "nobody's", (10, 0, 0, 0))
    assert desk.pause() == live(None, 20)


def test_more_is_added_where_the_agent_tells_steps() -> None:
    desk = Desk()
    desk.tally.add("a", Usage(1, 2, 3, 4))
    desk.tally.add("a", Usage(1, 2, 3, 4))
    assert desk.pause() == live(20, 2, 4, 6, 8)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.tuples(*[st.integers(0, 9)] * 4)), max_size=12))
@settings(max_examples=100)
def test_the_sum_is_that_of_the_most_of_each_message(lines: list[tuple[str, tuple[int, int, int, int]]]) -> None:
    desk, most = Desk(), {name: [0, 0, 0, 0] for name in "abc"}
    for name, counts in lines:
        desk.tally.message(name, "a", counts)
        most[name] = [max(pair) for pair in zip(most[name], counts, strict=True)]
        desk.pause()
    assert desk.tally.spent(at_least=False).usage == Usage(
        *(sum(column) for column in zip(*most.values(), strict=True))
    )


def test_messages_without_end_are_counted_and_forgotten() -> None:
    desk = Desk()
    for number in range(3 * MAX_OPEN_MESSAGES):
        desk.tally.message(f"m{number}", "a", (1, 0, 0, 0))
    for number in (2 * MAX_OPEN_MESSAGES, 2 * MAX_OPEN_MESSAGES - 1):  # these are not too old yet
        desk.tally.message(f"m{number}", "a", (1, 0, 0, 0))
    assert desk.pause() == live(3 * MAX_OPEN_MESSAGES, 3 * MAX_OPEN_MESSAGES)


def test_models_without_end_have_no_known_price() -> None:
    desk = Desk()
    for number in range(MAX_MODELS):
        desk.tally.add(f"a-{number}", Usage(1))
    assert desk.pause() == live(MAX_MODELS, MAX_MODELS)
    for _ in range(2):
        desk.tally.add("a-more", Usage(1))
    assert desk.pause() == live(None, MAX_MODELS + 2)


SESSION = Spent(500, Usage(100, 50, 20, 10))


@pytest.mark.parametrize(
    ("billed", "account", "own"),
    [
        pytest.param(NOTHING, (700, Usage(150, 60)), (700, Usage(150, 60)), id="a session of its own"),
        pytest.param(
            SESSION, (700, Usage(150, 60, 20, 10)), (200, Usage(50, 10)), id="what it had cost is not paid again"
        ),
        pytest.param(SESSION, (510, SESSION.usage), (10, Usage()), id="little new"),
        pytest.param(SESSION, (500, None), (500, None), id="less than has come by: it began anew"),
        pytest.param(
            SESSION, (300, Usage(150, 60)), (300, Usage(150, 60)), id="less than before cannot hold what was before"
        ),
        pytest.param(SESSION, (700, None), (200, None), id="no tokens"),
        pytest.param(SESSION, (None, Usage(150, 60, 20, 10)), (None, Usage(50, 10)), id="no money"),
        pytest.param(Spent(None), (700, Usage(150)), (700, Usage(150)), id="nobody knows what it had cost"),
    ],
)  # fmt: skip
def test_an_account_is_settled(
    billed: Spent, account: tuple[int | None, Usage | None], own: tuple[int | None, Usage | None]
) -> None:
    desk = Desk(billed)
    desk.tally.message("m1", "a", (1, 1, 1, 1))
    desk.tally.settle(*account)
    assert desk.told == [Spent(*own)]
    assert desk.pause() is None, "what came by before is in the account"


def test_where_nothing_was_counted_the_cost_is_unknown_and_not_zero() -> None:
    desk = Desk(NOTHING)
    desk.tally.close()
    assert desk.told == [Spent(None)]


def test_what_comes_after_an_account_is_added_to_it() -> None:
    desk = Desk()
    desk.tally.message("m1", "a", (10, 1, 0, 0))
    desk.tally.settle(700, Usage(10, 50))
    desk.tally.message("m1", "a", (10, 1, 0, 0))
    assert desk.pause() is None
    desk.tally.message("m2", "b", (5, 0, 0, 0))
    assert desk.pause() == live(750, 15, 50)
    desk.tally.settle(800, Usage(15, 60))
    assert desk.told[-1] == Spent(800, Usage(15, 60))


def test_a_subscriber_s_figures_are_notional() -> None:
    desk = Desk()
    desk.tally.notional = True
    desk.tally.message("m1", "a", (1, 0, 0, 0))
    assert desk.pause() == Spent(1, Usage(1), at_least=True, notional=True)
    desk.tally.settle(5, None)
    desk.tally.close(Usage(7))
    assert desk.told[1:] == [Spent(5, notional=True), Spent(None, Usage(7), notional=True)]


@pytest.mark.parametrize(
    ("models", "started_with", "usage", "cost"),
    [
        pytest.param("a", None, Usage(9), 9, id="the model of its messages"),
        pytest.param("", "b", Usage(9), 90, id="the model that it was started with"),
        pytest.param("", None, Usage(9), None, id="no model"),
        pytest.param("ab", None, Usage(9), 11, id="many models, as they came by"),
        pytest.param("ax", None, Usage(9), None, id="many models, one without a price"),
    ],
)
def test_an_account_of_tokens_alone_is_priced(
    models: str, started_with: str | None, usage: Usage, cost: int | None
) -> None:
    desk = Desk(model=started_with)
    for model in models:
        desk.tally.add(model, Usage(1))
    desk.tally.close(usage)
    assert desk.told == [Spent(cost, usage)]
    assert desk.pause() is None


def test_an_account_of_a_session_s_tokens_is_priced_by_the_difference() -> None:
    desk = Desk(Spent(None, Usage(100, 50)), "a")
    desk.tally.close(Usage(110, 55))
    assert desk.told == [Spent(15, Usage(10, 5))]


def test_without_any_account_what_came_by_is_all() -> None:
    desk = Desk()
    desk.tally.add("b", Usage(2))
    desk.tally.close()
    assert desk.told == [Spent(20, Usage(2))]
