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
    """A loop asks to take its turn of this `number`; `budget` is all that it may still spend, None: no end to it."""

    loop: str
    number: int
    submission: str
    submitter: str
    agent: str
    budget: int | None = None
    asked: int = 0  # its place in the line, given by the governor


@value
class TurnPermit:
    """A turn that may be taken. `reserved` is set aside for it, None: nothing bounds it; `spent` is the last told."""

    request: TurnRequest
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
        self.requests, self.permits, self.last_settled = (
            dict(governor.requests),
            dict(governor.permits),
            dict(governor.last_settled),
        )
        self.last_served, self.recent_starts, self.turns = (
            dict(governor.last_served),
            dict(governor.recent_starts),
            governor.turns,
        )
        self._governor, self._now, self._day = governor, now, str(utc_day(now))
        self._queues: dict[tuple[str, str, str], Queue] = {}
        self._lines: dict[str, list[tuple[int, int, str, str]]] = {}  # by submitter: served, asked, submission, agent
        # Turns at work and money set aside for them, by the names of their submission, submitter and agent.
        self._submissions: dict[str, list[int]] = {}
        self._submitters: dict[str, list[int]] = {}
        self._agents: dict[str, list[int]] = {}
        self._stopped: set[str] = set()
        for permit in self.permits.values():
            self._count(permit)

    def run(self) -> tuple[PermitAnswer, ...]:
        """Give out all turns that may be taken. Submitters take theirs in rotation, then their submissions."""
        self._build_queues()
        heads = [self._head(submitter) for submitter in self._lines]
        heapify(heads)
        answers: list[PermitAnswer] = []
        while heads and not self._is_full():
            submitter = heappop(heads)[-1]
            if answer := self._answer_first(submitter):
                answers.append(answer)
            if self._lines[submitter]:
                heappush(heads, self._head(submitter))
        return tuple(answers)

    def _build_queues(self) -> None:
        for request in sorted(self.requests.values(), key=attrgetter("asked"), reverse=True):
            key = request.submitter, request.submission, request.agent
            if (queue := self._queues.get(key)) is None:
                queue = self._queues[key] = []
            queue.append(request)
        for submitter, submission, agent in self._queues:
            self._lines.setdefault(submitter, []).append(self._place(submitter, submission, agent))
        for lines in self._lines.values():
            heapify(lines)

    def _place(self, submitter: str, submission: str, agent: str) -> tuple[int, int, str, str]:
        asked = self._queues[submitter, submission, agent][-1].asked
        return self.last_served.get(submission_account(submission), 0), asked, submission, agent

    def _head(self, submitter: str) -> tuple[int, int, int, str]:
        """Where a submitter stands, by the first of its lines: each line's place is looked up when it is first."""
        lines = self._lines[submitter]
        while lines[0] != (now := self._place(submitter, *lines[0][2:])):
            heappop(lines)
            heappush(lines, now)
        return self.last_served.get(submitter_account(submitter), 0), *lines[0][:2], submitter

    def _answer_first(self, submitter: str) -> PermitAnswer | None:
        """The answer to the first wish of a submitter's first line; None where that line is held up, and left."""
        lines = self._lines[submitter]
        _, _, submission, agent = heappop(lines)
        queue = self._queues[submitter, submission, agent]
        request = queue[-1]
        if self._stopped & {*request_accounts(request)} or self._is_crowded(request):
            return None
        found = self._reserve(request)
        if isinstance(found, str):
            self._stopped.add(found)  # else many small wishes would keep a large one waiting for ever
            return None
        queue.pop()
        self._record_answer(request, found)
        if queue:
            heappush(lines, self._place(submitter, submission, agent))
        return found

    def _record_answer(self, request: TurnRequest, answer: PermitAnswer) -> None:
        del self.requests[request.loop]
        if isinstance(answer, TurnUnaffordable):
            self.last_settled[request.loop] = request.number
            return
        self.turns += 1
        self.permits[request.loop] = permit = TurnPermit(request, answer.allot, self._now)
        self.recent_starts[request.agent] = (*self.recent_starts.get(request.agent, ()), self._now)
        self.last_served |= dict.fromkeys(request_accounts(request), self.turns)
        self._count(permit)

    def _count(self, permit: TurnPermit) -> None:
        request, aside = permit.request, reserved_amount(permit)
        for found in (
            self._submissions.setdefault(request.submission, [0, 0]),
            self._submitters.setdefault(request.submitter, [0, 0]),
            self._agents.setdefault(request.agent, [0, 0]),
        ):
            found[0] += 1
            found[1] += aside

    def _is_full(self) -> bool:
        return is_limit_reached(self._governor.fleet.fleet_parallel, len(self.permits))

    def _is_crowded(self, request: TurnRequest) -> bool:
        """Whether a bound on turns at once, or in a minute, is reached."""
        mine, fleet = self._governor.submitter_allowances.get(request.submitter, Allowance()), self._governor.fleet
        return (
            is_limit_reached(mine.parallel, self._submitters.get(request.submitter, NO_USAGE)[0])
            or is_limit_reached(fleet.agent_parallel.get(request.agent), self._agents.get(request.agent, NO_USAGE)[0])
            or is_limit_reached(fleet.per_minute.get(request.agent), len(self.recent_starts.get(request.agent, ())))
        )

    def _reserve(self, request: TurnRequest) -> PermitAnswer | str:
        """What can be set aside for this turn; or the name of the account that others must leave first."""
        allot = request.budget
        for account, reason, most, spent, (working, aside) in self._accounts(request):
            if most is None:
                continue
            left = most - spent - aside
            if request.budget is not None and request.budget <= left:
                continue
            if working:
                return account
            if left <= 0:
                told = f"spent {format_usd(spent)} of {format_usd(most)}"
                return TurnUnaffordable(request.loop, request.number, reason, f"{REFUSAL_MESSAGES[reason]}: {told}")
            allot = left if allot is None else min(allot, left)
        return TurnGranted(request.loop, request.number, allot)

    def _accounts(self, request: TurnRequest) -> Iterator[tuple[str, str, int | None, int, list[int]]]:
        """(account, why a loop ends that finds it empty, what is allowed, what is spent, turns and money at work)."""
        books = self._governor
        total = books.submission_allowances.get(request.submission, Allowance()).total_micro_usd
        spent = books.submissions.get(request.submission, BookedSpend()).micro_usd
        working = self._submissions.get(request.submission, NO_USAGE)
        yield submission_account(request.submission), COST_LIMIT, total, spent, working
        daily = books.submitter_allowances.get(request.submitter, Allowance()).daily_micro_usd
        today = books.days.get(request.submitter, {}).get(self._day, BookedSpend()).micro_usd
        working = self._submitters.get(request.submitter, NO_USAGE)
        yield submitter_account(request.submitter), DAILY_COST_LIMIT, daily, today, working


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


def request_accounts(request: TurnRequest) -> tuple[str, str]:
    """What a turn draws on."""
    return submission_account(request.submission), submitter_account(request.submitter)


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

    submission_allowances: dict[str, Allowance] = {}  # noqa: RUF012 (never changed) by submission
    submitter_allowances: dict[str, Allowance] = {}  # noqa: RUF012 by submitter
    fleet: Allowance = Allowance()
    requests: dict[str, TurnRequest] = {}  # noqa: RUF012
    permits: dict[str, TurnPermit] = {}  # noqa: RUF012
    last_settled: dict[str, int] = {}  # noqa: RUF012
    submissions: dict[str, BookedSpend] = {}  # noqa: RUF012
    days: dict[str, dict[str, BookedSpend]] = {}  # noqa: RUF012 by submitter, then UTC day
    last_served: dict[str, int] = {}  # noqa: RUF012
    recent_starts: dict[str, tuple[float, ...]] = {}  # noqa: RUF012
    line: int = 0
    turns: int = 0

    def set_allowance(self, submission: str, submitter: str, allowance: Allowance) -> Governor:
        """A submission says what it allows. Its first word about itself holds; about others the newest does."""
        if self.submission_allowances.get(submission) == allowance:
            return self
        known = self.fleet
        fleet = Allowance(
            fleet_parallel=allowance.fleet_parallel or known.fleet_parallel,
            agent_parallel={**known.agent_parallel, **allowance.agent_parallel},
            per_minute={**known.per_minute, **allowance.per_minute},
        )
        by_submission = {**self.submission_allowances, submission: allowance}
        return replace(
            self,
            submission_allowances=by_submission,
            submitter_allowances={**self.submitter_allowances, submitter: allowance},
            fleet=fleet,
        )

    def add_request(self, request: TurnRequest) -> Governor:
        """A loop asks for its next turn."""
        if request.number <= self.last_settled.get(request.loop, -1) or self._is_known(request):
            return self
        line = self.line + 1
        return replace(self, requests={**self.requests, request.loop: replace(request, asked=line)}, line=line)

    def _is_known(self, request: TurnRequest) -> bool:
        held, waiting = self.permits.get(request.loop), self.requests.get(request.loop)
        return (held is not None and held.request.number >= request.number) or (
            waiting is not None and waiting.number >= request.number
        )

    def report_spend(self, loop: str, number: int, micro_usd: int) -> Governor:
        """So much was spent until now by a turn that goes on. Nothing is ever spent back."""
        held = self._permit(loop, number)
        if held is None or micro_usd <= held.spent:
            return self
        return replace(self, permits={**self.permits, loop: replace(held, spent=micro_usd)})

    def settle(self, loop: str, number: int, micro_usd: int | None, tokens: int, now: float) -> Governor:
        """A turn is over, and cost this; None: nobody knows, and then all that was set aside counts as spent."""
        held = self._permit(loop, number)
        if held is None:
            return self
        counted = max(held.reserved or 0, held.spent) if micro_usd is None else micro_usd
        submission, submitter, day = held.request.submission, held.request.submitter, str(utc_day(now))
        before = self.submissions.get(submission, BookedSpend())
        kept = {one: account for one, account in self.days.get(submitter, {}).items() if int(one) >= int(day) - 1}
        kept[day] = kept.get(day, BookedSpend()).plus(counted, tokens, micro_usd is None)
        return replace(
            self,
            permits=_without_key(self.permits, loop),
            last_settled={**self.last_settled, loop: number},
            submissions={**self.submissions, submission: before.plus(counted, tokens, micro_usd is None)},
            days={**self.days, submitter: kept},
        )

    def release(self, loop: str, number: int) -> Governor:
        """A turn will not be taken, and nothing was spent for it."""
        waiting = self.requests.get(loop)
        freed = self
        if waiting is not None and waiting.number == number:
            freed = replace(
                freed, requests=_without_key(freed.requests, loop), last_settled={**freed.last_settled, loop: number}
            )
        if freed._permit(loop, number) is not None:
            freed = replace(
                freed, permits=_without_key(freed.permits, loop), last_settled={**freed.last_settled, loop: number}
            )
        return freed

    def remove_loop(self, loop: str, now: float) -> Governor:
        """A loop is gone. What a turn of it has cost that nobody told of is not known."""
        held = self.permits.get(loop)
        settled = self.settle(loop, held.request.number, None, 0, now) if held else self
        return replace(
            settled,
            requests=_without_key(settled.requests, loop),
            last_settled=_without_key(settled.last_settled, loop),
        )

    def close_submission(self, submission: str) -> Governor:
        """All loops of a submission are gone: its books are no longer needed."""
        if any(one.submission == submission for one in self._all_requests()):
            return self
        return replace(
            self,
            submission_allowances=_without_key(self.submission_allowances, submission),
            submissions=_without_key(self.submissions, submission),
            last_served=_without_key(self.last_served, submission_account(submission)),
        )

    def _all_requests(self) -> Iterator[TurnRequest]:
        yield from self.requests.values()
        yield from (held.request for held in self.permits.values())

    def _permit(self, loop: str, number: int) -> TurnPermit | None:
        held = self.permits.get(loop)
        return held if held is not None and held.request.number == number else None

    def grant_turns(self, now: float) -> tuple[Governor, tuple[PermitAnswer, ...]]:
        """Give out all turns that may be taken now. Submitters take theirs in rotation, then their submissions."""
        fresh = replace(self, recent_starts=_recent_starts(self.recent_starts, now))
        if not self.requests or is_limit_reached(self.fleet.fleet_parallel, len(self.permits)):
            return fresh, ()
        round = PermitRound(fresh, now)
        if not (answers := round.run()):
            return fresh, ()
        given = {
            name: getattr(round, name)
            for name in ("requests", "permits", "last_settled", "last_served", "recent_starts", "turns")
        }
        return replace(fresh, **given), answers

    def next_check_at(self, now: float) -> float | None:
        """When to look again although nothing happens: an agent's minute is over."""
        times = [
            started[0] + MINUTE_S
            for agent, started in _recent_starts(self.recent_starts, now).items()
            if any(request.agent == agent for request in self.requests.values())
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
            return governor.set_allowance(event["submission"], event["submitter"], allowance)
        case "want":
            who = event["submission"], event["submitter"], event["agent"]
            return governor.add_request(TurnRequest(loop, number, *who, event["budget"]))
        case "spending":
            return governor.report_spend(loop, number, int(event["microUsd"]))
        case "settled":
            return governor.settle(loop, number, event["microUsd"], event["tokens"], now)
        case "released":
            return governor.release(loop, number)
        case "left":
            return governor.remove_loop(loop, now)
        case "closed":
            return governor.close_submission(event["submission"])
        case _:
            return governor
