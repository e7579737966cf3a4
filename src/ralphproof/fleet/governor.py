"""Who may take a turn: spend and concurrency of a whole fleet, as a fold. Nothing here waits or looks at a clock.

Before a turn, money is set aside for it: as much as its loop may still spend. So all turns at work together can never
spend more than their submitter allows, but for what one of them spends beyond its own allotment. Where less is left,
the last turn gets the rest, and only when no other has money set aside. The same event twice changes nothing.
"""

from __future__ import annotations

from ralphproof.fleet.permit import Allowance, Answer, Booked, Permit, Want
from ralphproof.fleet.serving import Serving, reached, submission_account
from ralphproof.purse import day_of
from ralphproof.value import TYPE_CHECKING, replace, value

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeVar

    T = TypeVar("T")

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
    wants: dict[str, Want] = {}  # noqa: RUF012
    held: dict[str, Permit] = {}  # noqa: RUF012
    over: dict[str, int] = {}  # noqa: RUF012
    submissions: dict[str, Booked] = {}  # noqa: RUF012
    days: dict[str, dict[str, Booked]] = {}  # noqa: RUF012 by submitter, then UTC day
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

    def wanted(self, want: Want) -> Governor:
        """A loop asks for its next turn."""
        if want.number <= self.over.get(want.loop, -1) or self._known(want):
            return self
        line = self.line + 1
        return replace(self, wants={**self.wants, want.loop: replace(want, asked=line)}, line=line)

    def _known(self, want: Want) -> bool:
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
        submission, submitter, day = held.want.submission, held.want.submitter, str(day_of(now))
        before = self.submissions.get(submission, Booked())
        kept = {one: account for one, account in self.days.get(submitter, {}).items() if int(one) >= int(day) - 1}
        kept[day] = kept.get(day, Booked()).plus(counted, tokens, micro_usd is None)
        return replace(
            self,
            held=_without(self.held, loop),
            over={**self.over, loop: number},
            submissions={**self.submissions, submission: before.plus(counted, tokens, micro_usd is None)},
            days={**self.days, submitter: kept},
        )

    def released(self, loop: str, number: int) -> Governor:
        """A turn will not be taken, and nothing was spent for it."""
        waiting = self.wants.get(loop)
        freed = self
        if waiting is not None and waiting.number == number:
            freed = replace(freed, wants=_without(freed.wants, loop), over={**freed.over, loop: number})
        if freed._held(loop, number) is not None:
            freed = replace(freed, held=_without(freed.held, loop), over={**freed.over, loop: number})
        return freed

    def left(self, loop: str, now: float) -> Governor:
        """A loop is gone. What a turn of it has cost that nobody told of is not known."""
        held = self.held.get(loop)
        settled = self.settled(loop, held.want.number, None, 0, now) if held else self
        return replace(settled, wants=_without(settled.wants, loop), over=_without(settled.over, loop))

    def closed(self, submission: str) -> Governor:
        """All loops of a submission are gone: its books are no longer needed."""
        if any(one.submission == submission for one in self._all()):
            return self
        return replace(
            self,
            bounds=_without(self.bounds, submission),
            submissions=_without(self.submissions, submission),
            served=_without(self.served, submission_account(submission)),
        )

    def _all(self) -> Iterator[Want]:
        yield from self.wants.values()
        yield from (held.want for held in self.held.values())

    def _held(self, loop: str, number: int) -> Permit | None:
        held = self.held.get(loop)
        return held if held is not None and held.want.number == number else None

    def answered(self, now: float) -> tuple[Governor, tuple[Answer, ...]]:
        """Give out all turns that may be taken now. Submitters take theirs in rotation, then their submissions."""
        fresh = replace(self, starts=_recent(self.starts, now))
        if not self.wants or reached(self.fleet.fleet_parallel, len(self.held)):
            return fresh, ()
        round = Serving(fresh, now)
        if not (answers := round.through()):
            return fresh, ()
        given = {name: getattr(round, name) for name in ("wants", "held", "over", "served", "starts", "turns")}
        return replace(fresh, **given), answers

    def again_at(self, now: float) -> float | None:
        """When to look again although nothing happens: an agent's minute is over."""
        times = [
            started[0] + MINUTE_S
            for agent, started in _recent(self.starts, now).items()
            if any(want.agent == agent for want in self.wants.values())
        ]
        return min(times, default=None)


def _recent(starts: dict[str, tuple[float, ...]], now: float) -> dict[str, tuple[float, ...]]:
    kept = {agent: tuple(at for at in times if now < at + MINUTE_S) for agent, times in starts.items()}
    return {agent: times for agent, times in kept.items() if times}


def _without(old: dict[str, T], key: str) -> dict[str, T]:
    if key not in old:
        return old
    rest = dict(old)  # many times faster than to pick all others
    del rest[key]
    return rest
