"""One round of giving out turns: all that may be taken at one moment, found without looking at all wishes each time.

Within a round bounds only fill up: who may not go now may not go later in it, nor whoever draws on the same money.
So each line (one submission's wishes for one agent) is looked at from its head, and left where that is held up.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from operator import attrgetter

from ralphproof.budget import dollars
from ralphproof.fleet.permit import Allowance, Booked, Granted, Permit, Unaffordable
from ralphproof.limit import COST_LIMIT, DAILY_COST_LIMIT
from ralphproof.purse import day_of
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.fleet.governor import Governor
    from ralphproof.fleet.permit import Answer, Want

    Queue = list[Want]  # the first in line at its end

NONE = [0, 0]
SAID = {
    COST_LIMIT: "what was submitted together may cost no more",
    DAILY_COST_LIMIT: "all loops of this submitter may cost no more in this UTC day",
}


class Serving:
    """A round over a governor's wishes at a moment. `through` is called once; the fields are then as it left them."""

    def __init__(self, governor: Governor, now: float) -> None:
        self.wants, self.held, self.over = dict(governor.wants), dict(governor.held), dict(governor.over)
        self.served, self.starts, self.turns = dict(governor.served), dict(governor.starts), governor.turns
        self._governor, self._now, self._day = governor, now, str(day_of(now))
        self._queues: dict[tuple[str, str, str], Queue] = {}
        self._lines: dict[str, list[tuple[int, int, str, str]]] = {}  # by submitter: served, asked, submission, agent
        # Turns at work and money set aside for them, by the names of their submission, submitter and agent.
        self._submissions: dict[str, list[int]] = {}
        self._submitters: dict[str, list[int]] = {}
        self._agents: dict[str, list[int]] = {}
        self._stopped: set[str] = set()
        for permit in self.held.values():
            self._count(permit)

    def through(self) -> tuple[Answer, ...]:
        """Give out all turns that may be taken. Submitters take theirs in rotation, then their submissions."""
        self._line_up()
        heads = [self._head(submitter) for submitter in self._lines]
        heapify(heads)
        answers: list[Answer] = []
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

    def _first(self, submitter: str) -> Answer | None:
        """The answer to the first wish of a submitter's first line; None where that line is held up, and left."""
        lines = self._lines[submitter]
        _, _, submission, agent = heappop(lines)
        queue = self._queues[submitter, submission, agent]
        want = queue[-1]
        if self._stopped & {*accounts_of(want)} or self._crowded(want):
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

    def _take(self, want: Want, answer: Answer) -> None:
        del self.wants[want.loop]
        if isinstance(answer, Unaffordable):
            self.over[want.loop] = want.number
            return
        self.turns += 1
        self.held[want.loop] = permit = Permit(want, answer.allot, self._now)
        self.starts[want.agent] = (*self.starts.get(want.agent, ()), self._now)
        self.served |= dict.fromkeys(accounts_of(want), self.turns)
        self._count(permit)

    def _count(self, permit: Permit) -> None:
        want, aside = permit.want, set_aside(permit)
        for found in (
            self._submissions.setdefault(want.submission, [0, 0]),
            self._submitters.setdefault(want.submitter, [0, 0]),
            self._agents.setdefault(want.agent, [0, 0]),
        ):
            found[0] += 1
            found[1] += aside

    def _full(self) -> bool:
        return reached(self._governor.fleet.fleet_parallel, len(self.held))

    def _crowded(self, want: Want) -> bool:
        """Whether a bound on turns at once, or in a minute, is reached."""
        mine, fleet = self._governor.newest.get(want.submitter, Allowance()), self._governor.fleet
        return (
            reached(mine.parallel, self._submitters.get(want.submitter, NONE)[0])
            or reached(fleet.agent_parallel.get(want.agent), self._agents.get(want.agent, NONE)[0])
            or reached(fleet.per_minute.get(want.agent), len(self.starts.get(want.agent, ())))
        )

    def _money(self, want: Want) -> Answer | str:
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
                told = f"spent {dollars(spent)} of {dollars(most)}"
                return Unaffordable(want.loop, want.number, reason, f"{SAID[reason]}: {told}")
            allot = left if allot is None else min(allot, left)
        return Granted(want.loop, want.number, allot)

    def _accounts(self, want: Want) -> Iterator[tuple[str, str, int | None, int, list[int]]]:
        """(account, why a loop ends that finds it empty, what is allowed, what is spent, turns and money at work)."""
        books = self._governor
        total = books.bounds.get(want.submission, Allowance()).total_micro_usd
        spent = books.submissions.get(want.submission, Booked()).micro_usd
        working = self._submissions.get(want.submission, NONE)
        yield submission_account(want.submission), COST_LIMIT, total, spent, working
        daily = books.newest.get(want.submitter, Allowance()).daily_micro_usd
        today = books.days.get(want.submitter, {}).get(self._day, Booked()).micro_usd
        working = self._submitters.get(want.submitter, NONE)
        yield submitter_account(want.submitter), DAILY_COST_LIMIT, daily, today, working


def set_aside(held: Permit) -> int:
    """What a turn at work may still turn out to have cost."""
    reserved = held.reserved or 0
    return reserved if reserved > held.spent else held.spent


def submission_account(name: str) -> str:
    """What a submission is called where turns and money are counted."""
    return f"submission {name}"


def submitter_account(name: str) -> str:
    """What a submitter is called there."""
    return f"submitter {name}"


def accounts_of(want: Want) -> tuple[str, str]:
    """What a turn draws on."""
    return submission_account(want.submission), submitter_account(want.submitter)


def reached(most: int | None, count: int) -> bool:
    """Whether a bound leaves room for no more."""
    return most is not None and count >= most
