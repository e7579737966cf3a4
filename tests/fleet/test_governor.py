"""Spend and concurrency of a fleet: never more than the submitter allows, and everybody's turn comes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphproof.base.value import pack, unpack
from ralphproof.engine.limits import COST_LIMIT, DAILY_COST_LIMIT, utc_day
from ralphproof.fleet.governor import (
    Allowance,
    BookedSpend,
    Governor,
    TurnGranted,
    TurnPermit,
    TurnRequest,
    TurnUnaffordable,
)

DAY = 86400.0


def want(
    loop: str, number: int = 1, wish: int | None = 10, submission: str = "s", submitter: str = "ann"
) -> TurnRequest:
    return TurnRequest(loop, number, submission, submitter, wish)


def bounded(**given: object) -> Governor:
    return Governor().set_allowance("s", "ann", Allowance(**given))  # type: ignore[arg-type]


def grants(answers: object) -> list[str]:
    assert isinstance(answers, tuple)
    return [answer.loop for answer in answers if isinstance(answer, TurnGranted)]


def test_a_turn_is_given_only_what_is_not_set_aside_for_others() -> None:
    governor, answers = (
        bounded(total_micro_usd=25)
        .add_request(want("a"))
        .add_request(want("b"))
        .add_request(want("c"))
        .grant_turns(0.0)
    )
    assert grants(answers) == ["a", "b"]
    governor, answers = governor.settle("a", 1, 4, 7, 1.0).grant_turns(1.0)
    assert answers == (TurnGranted("c", 1, 10),)
    assert governor.submissions["s"] == BookedSpend(4, 7, 1)


def test_the_last_turn_gets_the_rest_when_nothing_else_is_set_aside() -> None:
    governor, _ = bounded(total_micro_usd=15).add_request(want("a")).grant_turns(0.0)
    governor, answers = governor.add_request(want("b")).grant_turns(0.0)
    assert answers == ()
    assert governor.settle("a", 1, 10, 0, 1.0).grant_turns(1.0)[1] == (TurnGranted("b", 1, 5),)


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [(Allowance(total_micro_usd=10), COST_LIMIT), (Allowance(daily_micro_usd=10), DAILY_COST_LIMIT)],
    ids=["in all", "in a day"],
)
def test_where_nothing_is_left_the_loop_is_refused_for_good(bounds: Allowance, reason: str) -> None:
    governor, _ = Governor().set_allowance("s", "ann", bounds).add_request(want("a")).grant_turns(0.0)
    governor, answers = governor.settle("a", 1, 10, 0, 1.0).add_request(want("b")).grant_turns(1.0)
    (answer,) = answers
    assert isinstance(answer, TurnUnaffordable)
    assert (answer.loop, answer.reason) == ("b", reason)
    tomorrow = governor.add_request(want("b", 2)).grant_turns(DAY)[1][0]
    assert isinstance(tomorrow, TurnGranted) == (reason == DAILY_COST_LIMIT)


def test_an_unknown_cost_counts_with_all_that_was_set_aside_and_is_told_as_unknown() -> None:
    governor, _ = bounded(total_micro_usd=25).add_request(want("a")).grant_turns(0.0)
    governor = governor.settle("a", 1, None, 3, 1.0)
    assert governor.submissions["s"] == BookedSpend(10, 3, 1, unknown=1)


def test_a_late_repetition_of_an_old_wish_gets_no_second_turn() -> None:
    governor, _ = bounded().add_request(want("a")).grant_turns(0.0)
    governor = governor.settle("a", 1, 3, 0, 1.0)
    assert governor.add_request(want("a")) == governor
    assert grants(governor.add_request(want("a", 2)).grant_turns(2.0)[1]) == ["a"]


def test_a_loop_that_is_gone_leaves_what_was_set_aside_as_spent_and_its_slot_free() -> None:
    governor, _ = bounded(parallel=1).add_request(want("a")).add_request(want("b")).grant_turns(0.0)
    governor, answers = governor.remove_loop("a", 1.0).grant_turns(1.0)
    assert grants(answers) == ["b"]
    assert governor.submissions["s"].unknown == 1


def test_submitters_take_turns_and_then_their_submissions() -> None:
    governor = Governor().set_allowance("s", "ann", Allowance(fleet_parallel=1))
    for number, (submitter, submission) in enumerate([("ann", "s")] * 3 + [("ann", "t"), ("bob", "u"), ("bob", "u")]):
        governor = governor.add_request(want(f"{submission}{number}", submission=submission, submitter=submitter))
    order = []
    for moment in range(6):
        governor, answers = governor.grant_turns(float(moment))
        (loop,) = grants(answers)
        order.append(loop)
        governor = governor.settle(loop, 1, 1, 0, float(moment))
    assert order == ["s0", "u4", "t3", "u5", "s1", "s2"]


def test_small_wishes_do_not_keep_a_large_one_waiting() -> None:
    governor, _ = bounded(total_micro_usd=100).add_request(want("small")).grant_turns(0.0)
    governor, answers = governor.add_request(want("large", wish=95)).add_request(want("late")).grant_turns(1.0)
    assert answers == ()
    assert grants(governor.settle("small", 1, 0, 0, 2.0).grant_turns(2.0)[1]) == ["large"]


def test_small_wishes_of_another_submission_do_not_pass_a_large_one_that_draws_on_the_same_money() -> None:
    governor, _ = bounded(daily_micro_usd=100).add_request(want("small")).grant_turns(0.0)
    governor = governor.set_allowance("t", "ann", Allowance(daily_micro_usd=100)).add_request(
        want("large", wish=95, submission="t")
    )
    governor = governor.add_request(want("late", submission="u")).add_request(want("other", wish=1))
    assert governor.grant_turns(1.0)[1] == ()
    assert grants(governor.settle("small", 1, 0, 0, 2.0).grant_turns(2.0)[1]) == ["large"]


MONEY = st.integers(0, 40)
EVENTS = st.lists(
    st.tuples(st.sampled_from("wsurlx"), st.integers(0, 5), st.one_of(st.none(), MONEY), st.floats(0.0, 40.0)),
    max_size=60,
)
LIMITS = st.builds(
    Allowance,
    total_micro_usd=st.one_of(st.none(), st.integers(1, 100)),
    daily_micro_usd=st.one_of(st.none(), st.integers(1, 100)),
    parallel=st.one_of(st.none(), st.integers(1, 3)),
    fleet_parallel=st.one_of(st.none(), st.integers(1, 4)),
)


class Walk:
    """A fleet that lives through a list of events; what it spent is counted here a second time."""

    def __init__(self, bounds: Allowance) -> None:
        self.submission_allowances = bounds
        self.governor = Governor()
        for submission, submitter in (("s0", "ann"), ("s1", "ann"), ("s2", "bob")):
            self.governor = self.governor.set_allowance(submission, submitter, bounds)
        self.numbers = dict.fromkeys(range(6), 0)
        self.now = 0.0
        self.spent: dict[str, int] = {}
        self.daily: dict[tuple[str, int], int] = {}

    def step(self, kind: str, at: int, money: int | None, later: float) -> None:
        self.now += later
        loop, held = f"l{at}", self.governor.permits.get(f"l{at}")
        before = self.governor
        match kind:
            case "w":
                if loop not in before.permits and loop not in before.requests:
                    self.numbers[at] += 1
                owner = "bob" if at % 3 == 2 else "ann"
                self.governor = before.add_request(want(loop, self.numbers[at], money, f"s{at % 3}", owner))
            case "s" | "x" if held:
                spent = None if kind == "x" else min(money or 0, held.reserved if held.reserved is not None else 10**6)
                self.count(held.request, max(held.reserved or 0, held.spent) if spent is None else spent)
                self.governor = before.settle(loop, held.request.number, spent, 1, self.now)
                again = self.governor.settle(loop, held.request.number, 7, 1, self.now)
                assert again == self.governor
            case "u" if held:
                self.governor = before.report_spend(loop, held.request.number, min(money or 0, held.reserved or 0))
            case "r":
                self.governor = before.release(loop, self.numbers[at])
            case "l":
                if held:
                    self.count(held.request, max(held.reserved or 0, held.spent))
                self.governor = before.remove_loop(loop, self.now)
                self.numbers[at] += 1
        self.governor, _ = self.governor.grant_turns(self.now)
        self.holds()

    def count(self, one: TurnRequest, spent: int) -> None:
        self.spent[one.submission] = self.spent.get(one.submission, 0) + spent
        day = (one.submitter, int(self.now // DAY))
        self.daily[day] = self.daily.get(day, 0) + spent

    def holds(self) -> None:
        bounds, held = self.submission_allowances, list(self.governor.permits.values())
        for submission in ("s0", "s1", "s2"):
            aside = sum(one.reserved or 0 for one in held if one.request.submission == submission)
            assert bounds.total_micro_usd is None or self.spent.get(submission, 0) + aside <= bounds.total_micro_usd
            told = self.governor.submissions.get(submission, BookedSpend()).micro_usd
            assert told == self.spent.get(submission, 0)
        for (submitter, day), spent in self.daily.items():
            aside = sum(one.reserved or 0 for one in held if one.request.submitter == submitter)
            today = aside if day == int(self.now // DAY) else 0
            assert bounds.daily_micro_usd is None or spent + today <= bounds.daily_micro_usd
        for submitter in ("ann", "bob"):
            mine = sum(one.request.submitter == submitter for one in held)
            assert bounds.parallel is None or mine <= bounds.parallel
        assert bounds.fleet_parallel is None or len(held) <= bounds.fleet_parallel


@settings(max_examples=150, deadline=None)
@given(LIMITS, EVENTS)
def test_no_order_of_events_spends_or_works_more_than_is_allowed(
    bounds: Allowance, events: list[tuple[str, int, int | None, float]]
) -> None:
    walk = Walk(bounds)
    for event in events:
        walk.step(*event)


@settings(max_examples=100, deadline=None)
@given(LIMITS, EVENTS)
def test_whoever_asks_is_answered_when_those_before_end(
    bounds: Allowance, events: list[tuple[str, int, int | None, float]]
) -> None:
    walk = Walk(bounds)
    for event in events:
        walk.step(*event)
    for _ in range(13):  # one round for each who is at work or waits
        for held in list(walk.governor.permits.values()):
            walk.governor = walk.governor.settle(held.request.loop, held.request.number, 0, 0, walk.now)
        walk.governor, _ = walk.governor.grant_turns(walk.now + 60)
        walk.now += 60
    assert walk.governor.requests == {}


@settings(max_examples=100, deadline=None)
@given(LIMITS, EVENTS)
def test_the_whole_state_survives_being_written_down(
    bounds: Allowance, events: list[tuple[str, int, int | None, float]]
) -> None:
    walk = Walk(bounds)
    for event in events:
        walk.step(*event)
    assert unpack(json.loads(json.dumps(pack(walk.governor)))) == walk.governor


def by_the_rules(governor: Governor, now: float) -> list[str]:
    """Who is answered, in their order, the long way: after each answer all wishes are looked at anew."""
    wants, held, served = list(governor.requests.values()), list(governor.permits.values()), dict(governor.last_served)
    turns, answered = governor.turns, list[str]()

    def full(most: int | None, count: int) -> bool:
        return most is not None and count >= most

    def next_one() -> tuple[TurnRequest, int | None, bool] | None:
        stopped: set[str] = set()
        ranked = sorted(
            wants,
            key=lambda one: (
                served.get(f"submitter {one.submitter}", 0),
                served.get(f"submission {one.submission}", 0),
                one.position,
            ),
        )
        for one in ranked:
            mine = governor.submitter_allowances.get(one.submitter, Allowance())
            if {one.submission, one.submitter} & stopped or full(governor.fleet_parallel, len(held)):
                continue
            if full(mine.parallel, sum(permit.request.submitter == one.submitter for permit in held)):
                continue
            total = governor.submission_allowances.get(one.submission, Allowance()).total_micro_usd
            today = governor.days.get(one.submitter, {}).get(str(utc_day(now)), BookedSpend()).micro_usd
            spent = governor.submissions.get(one.submission, BookedSpend()).micro_usd
            allot, goes = one.budget, True
            for name, most, gone in ((one.submission, total, spent), (one.submitter, mine.daily_micro_usd, today)):
                others = [permit for permit in held if name in (permit.request.submission, permit.request.submitter)]
                left = (most or 0) - gone - sum(max(permit.reserved or 0, permit.spent) for permit in others)
                if most is None or (one.budget is not None and one.budget <= left):
                    continue
                if others:
                    stopped.add(name)
                    goes = False
                    break
                if left <= 0:
                    return one, None, False
                allot = left if allot is None else min(allot, left)
            if goes:
                return one, allot, True
        return None

    while (found := next_one()) is not None:
        one, allot, granted = found
        wants.remove(one)
        answered.append(f"{one.loop} {allot}" if granted else f"{one.loop} no")
        if granted:
            turns += 1
            held.append(TurnPermit(one, allot))
            served |= {f"submitter {one.submitter}": turns, f"submission {one.submission}": turns}
    return answered


@settings(max_examples=150, deadline=None)
@given(LIMITS, EVENTS, st.lists(st.tuples(st.integers(0, 11), MONEY), max_size=12))
def test_a_round_gives_out_what_one_gets_who_looks_at_all_wishes_after_every_answer(
    bounds: Allowance, events: list[tuple[str, int, int | None, float]], wishes: list[tuple[int, int]]
) -> None:
    walk = Walk(bounds)
    for event in events:
        walk.step(*event)
    governor = walk.governor
    for at, money in wishes:
        owner = "bob" if at % 3 == 2 else "ann"
        governor = governor.add_request(TurnRequest(f"m{at}", 1, f"s{at % 3}", owner, money or None))
    for held in list(governor.permits.values())[::2]:
        governor = governor.settle(held.request.loop, held.request.number, 1, 0, walk.now)
    expected = by_the_rules(governor, walk.now)
    answers = governor.grant_turns(walk.now)[1]
    assert [
        f"{one.loop} {one.allot}" if isinstance(one, TurnGranted) else f"{one.loop} no" for one in answers
    ] == expected


@settings(max_examples=60, deadline=None)
@given(LIMITS, EVENTS)
def test_the_same_word_twice_changes_nothing(
    bounds: Allowance, events: list[tuple[str, int, int | None, float]]
) -> None:
    walk = Walk(bounds)
    for event in events:
        walk.step(*event)
        governor = walk.governor
        for one in [*governor.requests.values(), *(held.request for held in governor.permits.values())]:
            assert governor.add_request(one) == governor
        assert governor.grant_turns(walk.now) == (governor, ())
        for submission, submitter in (("s0", "ann"), ("s2", "bob")):
            assert governor.set_allowance(submission, submitter, bounds) == governor
