"""The governor: which loops may take a turn, by spend and concurrency of the whole fleet."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from operator import attrgetter

from ralphproof.base.value import TYPE_CHECKING, replace, unpack, value
from ralphproof.engine.budget import format_usd, utc_day
from ralphproof.engine.limits import COST_LIMIT, DAILY_COST_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, TypeVar

    Queue = list["TurnRequest"]  # the first in line at its end
    T = TypeVar("T")


# Leave to take one turn: what is asked for, what is answered, and the bounds that both go by.


@value
class Allowance:
    """What a submitter allows. None: no bound.

    `total_micro_usd` holds for the submission; the day's sum and `parallel` for all that the submitter has in the
    fleet; `fleet_parallel` and those of agents for everybody. Where two submissions differ, the newer word holds.
    """

    total_micro_usd: int | None = None
    daily_micro_usd: int | None = None
    parallel: int | None = None
    fleet_parallel: int | None = None
    agent_parallel: dict[str, int] = {}  # noqa: RUF012 (never changed)
    per_minute: dict[str, int] = {}  # noqa: RUF012


@value
class TurnRequest:
    """A loop asks to take its turn of this `number`; `wish` is all that it may still spend, None: no end to it."""

    loop: str
    number: int
    submission: str
    submitter: str
    agent: str
    wish: int | None = None
    asked: int = 0  # its place in the line, given by the governor


@value
class TurnPermit:
    """A turn that may be taken. `reserved` is set aside for it, None: nothing bounds it; `spent` is the last told."""

    want: TurnRequest
    reserved: int | None
    at: float
    spent: int = 0


@value
class TurnGranted:
    """The turn may be taken, and spend so much."""

    loop: str
    number: int
    allot: int | None


@value
class TurnUnaffordable:
    """There will never be money for this turn. `reason` is the word by which the loop ends."""

    loop: str
    number: int
    reason: str
    message: str


PermitAnswer = TurnGranted | TurnUnaffordable


@value
class BookedSpend:
    """What was spent. A turn whose cost nobody knows counts with all that was set aside for it, and is `unknown`."""

    micro_usd: int = 0
    tokens: int = 0
    turns: int = 0
    unknown: int = 0

    def plus(self, micro_usd: int, tokens: int, unknown: bool) -> BookedSpend:
        return BookedSpend(self.micro_usd + micro_usd, self.tokens + tokens, self.turns + 1, self.unknown + unknown)


# One round of giving out turns: all that may be taken at one moment, found without looking at all wishes each time.
#
# Within a round bounds only fill up: who may not go now may not go later in it, nor whoever draws on the same money.
# So each line (one submission's wishes for one agent) is looked at from its head, and left where that is held up.


NO_USAGE = [0, 0]
REFUSAL_MESSAGES = {
    COST_LIMIT: "what was submitted together may cost no more",
    DAILY_COST_LIMIT: "all loops of this submitter may cost no more in this UTC day",
}


class PermitRound:
    """A round over a governor's wishes at a moment. `through` is called once; the fields are then as it left them."""

    def __init__(self, governor: Governor, now: float) -> None:
        self.wants, self.held, self.over = dict(governor.wants), dict(governor.held), dict(governor.over)
        self.served, self.starts, self.turns = dict(governor.served), dict(governor.starts), governor.turns
        self._governor, self._now, self._day = governor, now, str(utc_day(now))
        self._queues: dict[tuple[str, str, str], Queue] = {}
        self._lines: dict[str, list[tuple[int, int, str, str]]] = {}  # by submitter: served, asked, submission, agent
        # Turns at work and money set aside for them, by the names of their submission, submitter and agent.
        self._submissions: dict[str, list[int]] = {}
        self._submitters: dict[str, list[int]] = {}
        self._agents: dict[str, list[int]] = {}
        self._stopped: set[str] = set()
        for permit in self.held.values():
            self._count(permit)

    def through(self) -> tuple[PermitAnswer, ...]:
        """Give out all turns that may be taken. Submitters take theirs in rotation, then their submissions."""
        self._line_up()
        heads = [self._head(submitter) for submitter in self._lines]
        heapify(heads)
        answers: list[PermitAnswer] = []
        while heads and not self._full():
            submitter = heappop(heads)[-1]
            if answer := self._first(submitter):
                answers.append(answer)
            if self._lines[submitter]:
                heappush(heads, self._head(submitter))
        return tuple(answers)

    def _line_up(self) -> None:
        for want in sorted(self.wants.values(), key=attrgetter("asked"), reverse=True):
            key = want.submitter, want.submission, want.agent
            if (queue := self._queues.get(key)) is None:
                queue = self._queues[key] = []
            queue.append(want)
        for submitter, submission, agent in self._queues:
            self._lines.setdefault(submitter, []).append(self._place(submitter, submission, agent))
        for lines in self._lines.values():
            heapify(lines)

    def _place(self, submitter: str, submission: str, agent: str) -> tuple[int, int, str, str]:
        asked = self._queues[submitter, submission, agent][-1].asked
        return self.served.get(submission_account(submission), 0), asked, submission, agent

    def _head(self, submitter: str) -> tuple[int, int, int, str]:
        """Where a submitter stands, by the first of its lines: each line's place is looked up when it is first."""
        lines = self._lines[submitter]
        while lines[0] != (now := self._place(submitter, *lines[0][2:])):
            heappop(lines)
            heappush(lines, now)
        return self.served.get(submitter_account(submitter), 0), *lines[0][:2], submitter

    def _first(self, submitter: str) -> PermitAnswer | None:
        """The answer to the first wish of a submitter's first line; None where that line is held up, and left."""
        lines = self._lines[submitter]
        _, _, submission, agent = heappop(lines)
        queue = self._queues[submitter, submission, agent]
        want = queue[-1]
        if self._stopped & {*request_accounts(want)} or self._crowded(want):
            return None
        found = self._money(want)
        if isinstance(found, str):
            self._stopped.add(found)  # else many small wishes would keep a large one waiting for ever
            return None
        queue.pop()
        self._take(want, found)
        if queue:
            heappush(lines, self._place(submitter, submission, agent))
        return found

    def _take(self, want: TurnRequest, answer: PermitAnswer) -> None:
        del self.wants[want.loop]
        if isinstance(answer, TurnUnaffordable):
            self.over[want.loop] = want.number
            return
        self.turns += 1
        self.held[want.loop] = permit = TurnPermit(want, answer.allot, self._now)
        self.starts[want.agent] = (*self.starts.get(want.agent, ()), self._now)
        self.served |= dict.fromkeys(request_accounts(want), self.turns)
        self._count(permit)

    def _count(self, permit: TurnPermit) -> None:
        want, aside = permit.want, reserved_amount(permit)
        for found in (
            self._submissions.setdefault(want.submission, [0, 0]),
            self._submitters.setdefault(want.submitter, [0, 0]),
            self._agents.setdefault(want.agent, [0, 0]),
        ):
            found[0] += 1
            found[1] += aside

    def _full(self) -> bool:
        return is_limit_reached(self._governor.fleet.fleet_parallel, len(self.held))

    def _crowded(self, want: TurnRequest) -> bool:
        """Whether a bound on turns at once, or in a minute, is reached."""
        mine, fleet = self._governor.newest.get(want.submitter, Allowance()), self._governor.fleet
        return (
            is_limit_reached(mine.parallel, self._submitters.get(want.submitter, NO_USAGE)[0])
            or is_limit_reached(fleet.agent_parallel.get(want.agent), self._agents.get(want.agent, NO_USAGE)[0])
            or is_limit_reached(fleet.per_minute.get(want.agent), len(self.starts.get(want.agent, ())))
        )

    def _money(self, want: TurnRequest) -> PermitAnswer | str:
        """What can be set aside for this turn; or the name of the account that others must leave first."""
        allot = want.wish
        for account, reason, most, spent, (working, aside) in self._accounts(want):
            if most is None:
                continue
            left = most - spent - aside
            if want.wish is not None and want.wish <= left:
                continue
            if working:
                return account
            if left <= 0:
                told = f"spent {format_usd(spent)} of {format_usd(most)}"
                return TurnUnaffordable(want.loop, want.number, reason, f"{REFUSAL_MESSAGES[reason]}: {told}")
            allot = left if allot is None else min(allot, left)
        return TurnGranted(want.loop, want.number, allot)

    def _accounts(self, want: TurnRequest) -> Iterator[tuple[str, str, int | None, int, list[int]]]:
        """(account, why a loop ends that finds it empty, what is allowed, what is spent, turns and money at work)."""
        books = self._governor
        total = books.bounds.get(want.submission, Allowance()).total_micro_usd
        spent = books.submissions.get(want.submission, BookedSpend()).micro_usd
        working = self._submissions.get(want.submission, NO_USAGE)
        yield submission_account(want.submission), COST_LIMIT, total, spent, working
        daily = books.newest.get(want.submitter, Allowance()).daily_micro_usd
        today = books.days.get(want.submitter, {}).get(self._day, BookedSpend()).micro_usd
        working = self._submitters.get(want.submitter, NO_USAGE)
        yield submitter_account(want.submitter), DAILY_COST_LIMIT, daily, today, working


def reserved_amount(held: TurnPermit) -> int:
    """What a turn at work may still turn out to have cost."""
    reserved = held.reserved or 0
    return reserved if reserved > held.spent else held.spent


def submission_account(name: str) -> str:
    """What a submission is called where turns and money are counted."""
    return f"submission {name}"


def submitter_account(name: str) -> str:
    """What a submitter is called there."""
    return f"submitter {name}"


def request_accounts(want: TurnRequest) -> tuple[str, str]:
    """What a turn draws on."""
    return submission_account(want.submission), submitter_account(want.submitter)


def is_limit_reached(most: int | None, count: int) -> bool:
    """Whether a bound leaves room for no more."""
    return most is not None and count >= most


# Who may take a turn: spend and concurrency of a whole fleet, as a fold. Nothing here waits or looks at a clock.
#
# Before a turn, money is set aside for it: as much as its loop may still spend. So all turns at work together can never
# spend more than their submitter allows, but for what one of them spends beyond its own allotment. Where less is left,
# the last turn gets the rest, and only when no other has money set aside. The same event twice changes nothing.


MINUTE_S = 60.0


@value
class Governor:
    """Where the fleet's spending stands.

    `wants` and `held` are by loop: a loop asks for one turn at a time. `over` has the number of each loop's last turn
    that was settled, so that a late repetition of an old word is known as one. `served` says when a submitter or a
    submission last got a turn, counted in turns; `starts` when an agent's turns of the last minute began.
    """

    bounds: dict[str, Allowance] = {}  # noqa: RUF012 (never changed) by submission
    newest: dict[str, Allowance] = {}  # noqa: RUF012 by submitter
    fleet: Allowance = Allowance()
    wants: dict[str, TurnRequest] = {}  # noqa: RUF012
    held: dict[str, TurnPermit] = {}  # noqa: RUF012
    over: dict[str, int] = {}  # noqa: RUF012
    submissions: dict[str, BookedSpend] = {}  # noqa: RUF012
    days: dict[str, dict[str, BookedSpend]] = {}  # noqa: RUF012 by submitter, then UTC day
    served: dict[str, int] = {}  # noqa: RUF012
    starts: dict[str, tuple[float, ...]] = {}  # noqa: RUF012
    line: int = 0
    turns: int = 0

    def bounded(self, submission: str, submitter: str, bounds: Allowance) -> Governor:
        """A submission says what it allows. Its first word about itself holds; about others the newest does."""
        if self.bounds.get(submission) == bounds:
            return self
        known = self.fleet
        fleet = Allowance(
            fleet_parallel=bounds.fleet_parallel or known.fleet_parallel,
            agent_parallel={**known.agent_parallel, **bounds.agent_parallel},
            per_minute={**known.per_minute, **bounds.per_minute},
        )
        by_submission = {**self.bounds, submission: bounds}
        return replace(self, bounds=by_submission, newest={**self.newest, submitter: bounds}, fleet=fleet)

    def wanted(self, want: TurnRequest) -> Governor:
        """A loop asks for its next turn."""
        if want.number <= self.over.get(want.loop, -1) or self._known(want):
            return self
        line = self.line + 1
        return replace(self, wants={**self.wants, want.loop: replace(want, asked=line)}, line=line)

    def _known(self, want: TurnRequest) -> bool:
        held, waiting = self.held.get(want.loop), self.wants.get(want.loop)
        return (held is not None and held.want.number >= want.number) or (
            waiting is not None and waiting.number >= want.number
        )

    def spending(self, loop: str, number: int, micro_usd: int) -> Governor:
        """So much was spent until now by a turn that goes on. Nothing is ever spent back."""
        held = self._held(loop, number)
        if held is None or micro_usd <= held.spent:
            return self
        return replace(self, held={**self.held, loop: replace(held, spent=micro_usd)})

    def settled(self, loop: str, number: int, micro_usd: int | None, tokens: int, now: float) -> Governor:
        """A turn is over, and cost this; None: nobody knows, and then all that was set aside counts as spent."""
        held = self._held(loop, number)
        if held is None:
            return self
        counted = max(held.reserved or 0, held.spent) if micro_usd is None else micro_usd
        submission, submitter, day = held.want.submission, held.want.submitter, str(utc_day(now))
        before = self.submissions.get(submission, BookedSpend())
        kept = {one: account for one, account in self.days.get(submitter, {}).items() if int(one) >= int(day) - 1}
        kept[day] = kept.get(day, BookedSpend()).plus(counted, tokens, micro_usd is None)
        return replace(
            self,
            held=_without_key(self.held, loop),
            over={**self.over, loop: number},
            submissions={**self.submissions, submission: before.plus(counted, tokens, micro_usd is None)},
            days={**self.days, submitter: kept},
        )

    def released(self, loop: str, number: int) -> Governor:
        """A turn will not be taken, and nothing was spent for it."""
        waiting = self.wants.get(loop)
        freed = self
        if waiting is not None and waiting.number == number:
            freed = replace(freed, wants=_without_key(freed.wants, loop), over={**freed.over, loop: number})
        if freed._held(loop, number) is not None:
            freed = replace(freed, held=_without_key(freed.held, loop), over={**freed.over, loop: number})
        return freed

    def left(self, loop: str, now: float) -> Governor:
        """A loop is gone. What a turn of it has cost that nobody told of is not known."""
        held = self.held.get(loop)
        settled = self.settled(loop, held.want.number, None, 0, now) if held else self
        return replace(settled, wants=_without_key(settled.wants, loop), over=_without_key(settled.over, loop))

    def closed(self, submission: str) -> Governor:
        """All loops of a submission are gone: its books are no longer needed."""
        if any(one.submission == submission for one in self._all()):
            return self
        return replace(
            self,
            bounds=_without_key(self.bounds, submission),
            submissions=_without_key(self.submissions, submission),
            served=_without_key(self.served, submission_account(submission)),
        )

    def _all(self) -> Iterator[TurnRequest]:
        yield from self.wants.values()
        yield from (held.want for held in self.held.values())

    def _held(self, loop: str, number: int) -> TurnPermit | None:
        held = self.held.get(loop)
        return held if held is not None and held.want.number == number else None

    def answered(self, now: float) -> tuple[Governor, tuple[PermitAnswer, ...]]:
        """Give out all turns that may be taken now. Submitters take theirs in rotation, then their submissions."""
        fresh = replace(self, starts=_recent_starts(self.starts, now))
        if not self.wants or is_limit_reached(self.fleet.fleet_parallel, len(self.held)):
            return fresh, ()
        round = PermitRound(fresh, now)
        if not (answers := round.through()):
            return fresh, ()
        given = {name: getattr(round, name) for name in ("wants", "held", "over", "served", "starts", "turns")}
        return replace(fresh, **given), answers

    def again_at(self, now: float) -> float | None:
        """When to look again although nothing happens: an agent's minute is over."""
        times = [
            started[0] + MINUTE_S
            for agent, started in _recent_starts(self.starts, now).items()
            if any(want.agent == agent for want in self.wants.values())
        ]
        return min(times, default=None)


def _recent_starts(starts: dict[str, tuple[float, ...]], now: float) -> dict[str, tuple[float, ...]]:
    kept = {agent: tuple(at for at in times if now < at + MINUTE_S) for agent, times in starts.items()}
    return {agent: times for agent, times in kept.items() if times}


def _without_key(old: dict[str, T], key: str) -> dict[str, T]:
    if key not in old:
        return old
    rest = dict(old)  # many times faster than to pick all others
    del rest[key]
    return rest


# What loops, workers and submissions tell the governor, in the words that both engines send.


def apply_event(governor: Governor, event: dict[str, Any], now: float) -> Governor:
    """The governor after one event. One that it does not know changes nothing."""
    loop, number = str(event.get("loop", "")), int(event.get("number") or 0)
    match event["what"]:
        case "bounded":
            allowance: Allowance = unpack(event["allowance"])
            return governor.bounded(event["submission"], event["submitter"], allowance)
        case "want":
            who = event["submission"], event["submitter"], event["agent"]
            return governor.wanted(TurnRequest(loop, number, *who, event["wish"]))
        case "spending":
            return governor.spending(loop, number, int(event["microUsd"]))
        case "settled":
            return governor.settled(loop, number, event["microUsd"], event["tokens"], now)
        case "released":
            return governor.released(loop, number)
        case "left":
            return governor.left(loop, now)
        case "closed":
            return governor.closed(event["submission"])
        case _:
            return governor
