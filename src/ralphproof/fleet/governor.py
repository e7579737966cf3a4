"""The governor: grants turns to loops within limits on spend and concurrency for the whole fleet.

A pure reducer: it does not wait and reads no clock. Before each turn it reserves as much money as the loop may still
spend, so that concurrent turns cannot exceed what their submitter allows, except by what a turn spends beyond its own
reservation. When less than that is left, the last turn gets the rest, and only when no other turn has a reservation.
Applying an event twice has no further effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any, TypeVar

from ralphproof.base.value import TYPE_CHECKING, replace, unpack, value
from ralphproof.engine.limits import COST_LIMIT, DAILY_COST_LIMIT, format_usd, utc_day

if TYPE_CHECKING:
    T = TypeVar("T")


# Requests, answers and limits


@value
class Allowance:
    """Limits set by a submitter; None means unlimited.

    `total_micro_usd` applies to the submission; the daily amount and `parallel` to all submissions of the submitter;
    `fleet_parallel` to everybody. If two submissions differ, the newer one applies.
    """

    total_micro_usd: int | None = None
    daily_micro_usd: int | None = None
    parallel: int | None = None
    fleet_parallel: int | None = None


@value
class TurnRequest:
    """A loop's request for its turn `number`. `budget` is what the loop may still spend; None means unlimited."""

    loop: str
    number: int
    submission: str
    submitter: str
    budget: int | None = None
    position: int = 0  # in the queue, assigned by the governor

    @property
    def accounts(self) -> tuple[str, str]:
        """Accounts that the turn is charged to."""
        return submission_account(self.submission), f"submitter {self.submitter}"


@value
class TurnPermit:
    """A granted turn. `reserved` is the money set aside for it, None if unlimited; `spent` is as last reported."""

    request: TurnRequest
    reserved: int | None
    spent: int = 0

    @property
    def max_cost(self) -> int:
        """The most that the running turn may turn out to have cost."""
        return max(self.reserved or 0, self.spent)


@value
class TurnGranted:
    """The turn may start, and spend at most this amount."""

    loop: str
    number: int
    allot: int | None


@value
class TurnUnaffordable:
    """The turn can never be paid for. `reason` is the reason with which the loop ends."""

    loop: str
    number: int
    reason: str
    message: str


PermitAnswer = TurnGranted | TurnUnaffordable


@value
class BookedSpend:
    """Total spend. A turn of unknown cost counts with its whole reservation, and is counted in `unknown`."""

    micro_usd: int = 0
    tokens: int = 0
    turns: int = 0
    unknown: int = 0

    def plus(self, micro_usd: int, tokens: int, unknown: bool) -> BookedSpend:
        return BookedSpend(self.micro_usd + micro_usd, self.tokens + tokens, self.turns + 1, self.unknown + unknown)


def submission_account(name: str) -> str:
    """Account name of a submission."""
    return f"submission {name}"


# A round grants all turns that may start at one moment, without examining every request each time.
#
# Within a round, limits only fill up: a request that is blocked stays blocked for the round, and so do others charged
# to the same account. So each submission's queue is processed from its head, and dropped once the head is blocked.


REFUSAL_MESSAGES = {
    COST_LIMIT: "what was submitted together may cost no more",
    DAILY_COST_LIMIT: "all loops of this submitter may cost no more in this UTC day",
}


class PermitRound:
    """One round of granting turns at a given moment. Call `run` once, then read the fields."""

    def __init__(self, governor: Governor, now: float) -> None:
        self.requests, self.permits = dict(governor.requests), dict(governor.permits)
        self.last_settled, self.last_served = dict(governor.last_settled), dict(governor.last_served)
        self.turns = governor.turns
        self._governor, self._day = governor, str(utc_day(now))
        self._running: dict[str, int] = {}  # turns by account
        self._reserved: dict[str, int] = {}
        self._stopped: set[str] = set()
        for permit in self.permits.values():
            self._count(permit)

    def run(self) -> tuple[PermitAnswer, ...]:
        """Grant all turns that may start now: round-robin over submitters, then over their submissions."""
        queues: dict[tuple[str, str], list[TurnRequest]] = {}  # the next request is at the end
        for request in sorted(self.requests.values(), key=attrgetter("position"), reverse=True):
            queues.setdefault(request.accounts, []).append(request)
        answers: list[PermitAnswer] = []
        while queues and not is_limit_reached(self._governor.fleet_parallel, len(self.permits)):
            accounts = min(queues, key=lambda key: self._priority(key, queues[key][-1]))
            answer = self._answer(queue := queues[accounts])
            if answer is not None:
                answers.append(answer)
            if answer is None or not queue:
                del queues[accounts]
        return tuple(answers)

    def _priority(self, accounts: tuple[str, str], request: TurnRequest) -> tuple[int, int, int]:
        """When the submitter and the submission were last served, and the position of the request."""
        submission, submitter = accounts
        return self.last_served.get(submitter, 0), self.last_served.get(submission, 0), request.position

    def _answer(self, queue: list[TurnRequest]) -> PermitAnswer | None:
        """The answer to the first request of a queue; None if it is blocked, and so is the queue for this round."""
        request = queue[-1]
        mine = self._governor.submitter_allowances.get(request.submitter, Allowance())
        crowded = is_limit_reached(mine.parallel, self._running.get(request.accounts[1], 0))
        if crowded or self._stopped & {*request.accounts}:
            return None
        answer = self._reserve(request)
        if isinstance(answer, str):
            self._stopped.add(answer)  # or many small requests would starve a large one
            return None
        queue.pop()
        del self.requests[request.loop]
        if isinstance(answer, TurnUnaffordable):
            self.last_settled[request.loop] = request.number
            return answer
        self.turns += 1
        self.permits[request.loop] = permit = TurnPermit(request, answer.allot)
        self.last_served |= dict.fromkeys(request.accounts, self.turns)
        self._count(permit)
        return answer

    def _count(self, permit: TurnPermit) -> None:
        for account in permit.request.accounts:
            self._running[account] = self._running.get(account, 0) + 1
            self._reserved[account] = self._reserved.get(account, 0) + permit.max_cost

    def _reserve(self, request: TurnRequest) -> PermitAnswer | str:
        """The amount to reserve for this turn, or the name of the account whose reservations must be released first."""
        allot = request.budget
        for account, reason, most, spent in self._limits(request):
            if most is None:
                continue
            left = most - spent - self._reserved.get(account, 0)
            if request.budget is not None and request.budget <= left:
                continue
            if self._running.get(account):
                return account
            if left <= 0:
                detail = f"spent {format_usd(spent)} of {format_usd(most)}"
                return TurnUnaffordable(request.loop, request.number, reason, f"{REFUSAL_MESSAGES[reason]}: {detail}")
            allot = left if allot is None else min(allot, left)
        return TurnGranted(request.loop, request.number, allot)

    def _limits(self, request: TurnRequest) -> Iterator[tuple[str, str, int | None, int]]:
        """(account, reason with which a loop ends if it is empty, allowed, spent)."""
        books, (submission, submitter) = self._governor, request.accounts
        total = books.submission_allowances.get(request.submission, Allowance()).total_micro_usd
        yield submission, COST_LIMIT, total, books.submissions.get(request.submission, BookedSpend()).micro_usd
        daily = books.submitter_allowances.get(request.submitter, Allowance()).daily_micro_usd
        today = books.days.get(request.submitter, {}).get(self._day, BookedSpend())
        yield submitter, DAILY_COST_LIMIT, daily, today.micro_usd


def is_limit_reached(most: int | None, count: int) -> bool:
    """Whether a limit is used up."""
    return most is not None and count >= most


@value
class Governor:
    """State of the fleet's spending.

    `requests` and `permits` are keyed by loop: a loop requests one turn at a time. `last_settled` has the number of
    each loop's last settled turn, so that late duplicates of old events are recognized. `last_served` is when a
    submitter or a submission last got a turn, counted in turns.
    """

    submission_allowances: dict[str, Allowance] = {}  # noqa: RUF012 (never changed) by submission
    submitter_allowances: dict[str, Allowance] = {}  # noqa: RUF012 by submitter
    fleet_parallel: int | None = None
    requests: dict[str, TurnRequest] = {}  # noqa: RUF012
    permits: dict[str, TurnPermit] = {}  # noqa: RUF012
    last_settled: dict[str, int] = {}  # noqa: RUF012
    submissions: dict[str, BookedSpend] = {}  # noqa: RUF012
    days: dict[str, dict[str, BookedSpend]] = {}  # noqa: RUF012 by submitter, then UTC day
    last_served: dict[str, int] = {}  # noqa: RUF012
    line: int = 0
    turns: int = 0

    def set_allowance(self, submission: str, submitter: str, allowance: Allowance) -> Governor:
        """Record a submission's limits. For the submission itself the first value applies; for shared limits the
        newest.
        """
        if self.submission_allowances.get(submission) == allowance:
            return self
        return replace(
            self,
            submission_allowances={**self.submission_allowances, submission: allowance},
            submitter_allowances={**self.submitter_allowances, submitter: allowance},
            fleet_parallel=allowance.fleet_parallel or self.fleet_parallel,
        )

    def add_request(self, request: TurnRequest) -> Governor:
        """A loop requests its next turn."""
        if request.number <= self.last_settled.get(request.loop, -1) or self._is_known(request):
            return self
        line = self.line + 1
        return replace(self, requests={**self.requests, request.loop: replace(request, position=line)}, line=line)

    def _is_known(self, request: TurnRequest) -> bool:
        permit, waiting = self.permits.get(request.loop), self.requests.get(request.loop)
        return (permit is not None and permit.request.number >= request.number) or (
            waiting is not None and waiting.number >= request.number
        )

    def report_spend(self, loop: str, number: int, micro_usd: int) -> Governor:
        """Record what a running turn has spent so far; the amount never decreases."""
        permit = self._permit(loop, number)
        if permit is None or micro_usd <= permit.spent:
            return self
        return replace(self, permits={**self.permits, loop: replace(permit, spent=micro_usd)})

    def settle(self, loop: str, number: int, micro_usd: int | None, tokens: int, now: float) -> Governor:
        """A turn ended with this cost; None if unknown, then its whole reservation counts as spent."""
        permit = self._permit(loop, number)
        if permit is None:
            return self
        counted = permit.max_cost if micro_usd is None else micro_usd
        submission, submitter, day = permit.request.submission, permit.request.submitter, str(utc_day(now))
        before = self.submissions.get(submission, BookedSpend())
        days = {one: account for one, account in self.days.get(submitter, {}).items() if int(one) >= int(day) - 1}
        days[day] = days.get(day, BookedSpend()).plus(counted, tokens, micro_usd is None)
        return replace(
            self,
            permits=_without_key(self.permits, loop),
            last_settled={**self.last_settled, loop: number},
            submissions={**self.submissions, submission: before.plus(counted, tokens, micro_usd is None)},
            days={**self.days, submitter: days},
        )

    def release(self, loop: str, number: int) -> Governor:
        """A granted turn will not be taken, and nothing was spent."""
        waiting = self.requests.get(loop)
        waits, works = waiting is not None and waiting.number == number, self._permit(loop, number) is not None
        if not waits and not works:
            return self
        return replace(
            self,
            requests=_without_key(self.requests, loop) if waits else self.requests,
            permits=_without_key(self.permits, loop) if works else self.permits,
            last_settled={**self.last_settled, loop: number},
        )

    def remove_loop(self, loop: str, now: float) -> Governor:
        """A loop no longer exists. The cost of a turn that it did not report is unknown."""
        permit = self.permits.get(loop)
        settled = self.settle(loop, permit.request.number, None, 0, now) if permit else self
        return replace(
            settled,
            requests=_without_key(settled.requests, loop),
            last_settled=_without_key(settled.last_settled, loop),
        )

    def close_submission(self, submission: str) -> Governor:
        """All loops of a submission have ended: drop its accounts."""
        if any(one.submission == submission for one in self.requests.values()):
            return self
        if any(one.request.submission == submission for one in self.permits.values()):
            return self
        return replace(
            self,
            submission_allowances=_without_key(self.submission_allowances, submission),
            submissions=_without_key(self.submissions, submission),
            last_served=_without_key(self.last_served, submission_account(submission)),
        )

    def _permit(self, loop: str, number: int) -> TurnPermit | None:
        permit = self.permits.get(loop)
        return permit if permit is not None and permit.request.number == number else None

    def grant_turns(self, now: float) -> tuple[Governor, tuple[PermitAnswer, ...]]:
        """Grant all turns that may start now; see `PermitRound.run`."""
        if not self.requests or is_limit_reached(self.fleet_parallel, len(self.permits)):
            return self, ()
        round = PermitRound(self, now)
        if not (answers := round.run()):
            return self, ()
        changed = ("requests", "permits", "last_settled", "last_served", "turns")
        return replace(self, **{name: getattr(round, name) for name in changed}), answers


def _without_key(old: dict[str, T], key: str) -> dict[str, T]:
    if key not in old:
        return old
    rest = dict(old)  # many times faster than a comprehension over the others
    del rest[key]
    return rest


# Events that loops, workers and submissions send to the governor.


def apply_event(governor: Governor, event: dict[str, Any], now: float) -> Governor:
    """The governor after one event. An unknown event changes nothing."""
    loop, number = str(event.get("loop", "")), int(event.get("number") or 0)
    match event["what"]:
        case "bounded":
            allowance: Allowance = unpack(event["allowance"])
            return governor.set_allowance(event["submission"], event["submitter"], allowance)
        case "want":
            return governor.add_request(
                TurnRequest(loop, number, event["submission"], event["submitter"], event["budget"])
            )
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
