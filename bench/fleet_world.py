"""A fleet as discrete events: its governor, which is the real one, and its loops; no waiting, no processes.

Numbers of the engine come from `fleet/timing.py`. What is made up is in `Setting`, and bench/fleet.py prints it.
"""

from __future__ import annotations

import heapq
import math
import random
import time
from collections import Counter, deque

from bench.fleet_setting import USD, Loop, Setting, Tally, Turn, Worker

from ralphproof.fleet.governor import Governor, TurnGranted, apply_event
from ralphproof.fleet.messages import (
    CLAIM_HOLD_S,
    CLAIM_TIMEOUT_S,
    MAX_CLAIMS,
    RETRY_MAX_S,
    RETRY_S,
    SPEND_REPORT_S,
    lost_retry_s,
    permit_retry_s,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SAMPLE_S = 30.0


class Traffic:
    """Time, the governor, and loops on their way between it and workers. Who comes, and who dies, is told elsewhere."""

    def __init__(self, given: Setting) -> None:
        self.given, self.now, self.random, self.tally = given, 0.0, random.Random(given.seed), Tally()
        self.governor = Governor()
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._inbox: list[dict[str, Any]] = []
        self._woken = False
        self._claims: deque[tuple[Loop, int]] = deque()
        self.workers = [Worker(number) for number in range(given.workers)]
        self.loops: dict[str, Loop] = {}
        self._open = given.loops
        self.totals: dict[str, int] = {}
        self._tight: set[str] = set()
        self._in_line: Counter[str] = Counter()  # loops of a submitter whom money does not hold up

    # Time

    def at(self, when: float, call: Callable[..., None], *args: Any) -> None:
        self._count += 1
        heapq.heappush(self._events, (max(when, self.now), self._count, call, args))

    def served_at(self, when: float) -> float:
        """When a server can do what was to be done at this time."""
        for begins, lasts in self.given.outages:
            if begins <= when < begins + lasts:
                return begins + lasts + self.random.uniform(0.0, 2.0)
        return when

    def hop(self, call: Callable[..., None], *args: Any, later: float = 0.0) -> None:
        self.at(self.served_at(self.now + later + self.given.hop_s), call, *args)

    def run(self) -> Tally:
        """Until the last loop is over."""
        self.at(SAMPLE_S, self._sample)
        while self._events and self._open:
            when, _, call, args = heapq.heappop(self._events)
            self.now = when
            call(*args)
        self.tally.ended_s = self.now
        return self.tally

    def _sample(self) -> None:
        """How many slots are in use, while there is enough to do for all."""
        alive = [one for one in self.workers if one.alive]
        if self._open >= self.given.all_slots and self.now >= self.given.arrive_s / 8:
            self.tally.alive_s += len(alive) * self.given.slots
            self.tally.busy_s += sum(len(one.running) for one in alive)
        self.at(self.now + SAMPLE_S, self._sample)

    # The governor

    def _say(self, event: dict[str, Any]) -> None:
        self._inbox.append(event)
        self._heard(event["what"], self.now)
        if not self._woken:
            self._woken = True
            self.hop(self._govern)

    def _heard(self, what: str, when: float) -> None:
        self.tally.kinds[what] += 1
        self.tally.minutes[int(when // 60)] += 1

    def _govern(self) -> None:
        """One task of its workflow: all that was said meanwhile."""
        self._woken, inbox, self._inbox = False, self._inbox, []
        began = time.process_time()
        for event in inbox:
            self.governor = apply_event(self.governor, event, self.now)
        self.governor, answers = self.governor.grant_turns(self.now)
        took = time.process_time() - began
        tally = self.tally
        tally.tasks, tally.cpu_s, tally.cpu_most_s = tally.tasks + 1, tally.cpu_s + took, max(tally.cpu_most_s, took)
        for answer in answers:
            loop = self.loops[answer.loop]
            if isinstance(answer, TurnGranted):
                self.hop(self._granted, loop, answer.allot)
            else:
                self._in_line[loop.submitter] -= loop.submission not in self._tight
                self.hop(self._leave, loop, "no money")

    # A loop

    def _want(self, loop: Loop) -> None:
        loop.asked_at, loop.unpriced, loop.tries = self.now, False, 0
        self._in_line[loop.submitter] += loop.submission not in self._tight
        budget = max(0, round(self.given.wish_usd * USD) - loop.spent)
        about = {"loop": loop.name, "number": loop.number, "submission": loop.submission}
        self.hop(self._say, {"what": "want", **about, "submitter": loop.submitter, "budget": budget})

    def _served(self, loop: Loop) -> None:
        """Who was due, and who was served; those whose money is short wait for it, and are left out."""
        if loop.submission in self._tight:
            return
        those = [name for name, count in self._in_line.items() if count]
        for name in those:
            self.tally.due[name] = self.tally.due.get(name, 0.0) + 1 / len(those)
        self.tally.served[loop.submitter] += 1
        self._in_line[loop.submitter] -= 1

    def _granted(self, loop: Loop, allot: int | None) -> None:
        loop.granted_at, loop.allot = self.now, allot
        self._served(loop)
        if loop.submission not in self._tight:
            self.tally.permit_s.append(self.now - loop.asked_at)
        asked, when = 1, loop.asked_at + permit_retry_s(1)
        while when < self.now:
            self._heard("want again", when)
            asked += 1
            when += permit_retry_s(asked)
        loop.waiting += 1
        self._step(loop, loop.waiting) if loop.worker else self._claim(loop, loop.waiting)

    def _claim(self, loop: Loop, ticket: int, attempts: int = 0) -> None:
        """Wait for a worker that answers claims; any that has one of its few ears free takes the first in line."""
        if ticket != loop.waiting:
            return
        loop.claimed = attempts
        free = [one for one in self.workers if one.alive and len(one.claims) < MAX_CLAIMS]
        if not free:
            self._claims.append((loop, ticket))
            return
        worker = self.random.choice(free)
        worker.claims.append((loop, ticket))
        self.at(self.now + CLAIM_TIMEOUT_S, self._busy, worker, loop, ticket)
        self._offer(worker)

    def _busy(self, worker: Worker, loop: Loop, ticket: int) -> None:
        if (loop, ticket) not in worker.claims:
            return
        worker.claims.remove((loop, ticket))
        later = min(RETRY_S * 2.0 ** min(loop.claimed, 10), RETRY_MAX_S)
        self.hop(self._claim, loop, ticket, loop.claimed + 1, later=later)
        self._next_claim()

    def _next_claim(self) -> None:
        if self._claims:
            self._claim(*self._claims.popleft())

    def _offer(self, worker: Worker) -> None:
        """A slot may be free: steps that were sent here come first, then claims."""
        while worker.alive and worker.queue and len(worker.running) < self.given.slots:
            loop, ticket = worker.queue.popleft()
            if ticket == loop.waiting:
                self._start(worker, loop)
        worker.promised = {name: until for name, until in worker.promised.items() if until > self.now}
        while worker.alive and worker.claims and len(worker.running) + len(worker.promised) < self.given.slots:
            loop, ticket = worker.claims.pop(0)
            if ticket == loop.waiting:
                worker.promised[loop.name] = self.now + CLAIM_HOLD_S
                loop.worker = worker
                self.hop(self._step, loop, ticket)
            self._next_claim()

    def _step(self, loop: Loop, ticket: int) -> None:
        """A step for the worker that has the loop; in time, or another one gets it."""
        if ticket != loop.waiting:
            return
        worker = loop.worker
        assert worker is not None
        worker.queue.append((loop, ticket))
        self.at(self.served_at(self.now + self.given.timing.heartbeat_s), self._unstarted, loop, ticket, worker)
        self._offer(worker)

    def _unstarted(self, loop: Loop, ticket: int, worker: Worker) -> None:
        if ticket != loop.waiting or loop.worker is not worker:
            return
        loop.waiting, loop.tries, loop.worker = loop.waiting + 1, loop.tries + 1, None
        self.tally.turns["moved: worker gone" if not worker.alive else "moved: no slot in time"] += 1
        if loop.turn is not None:
            self._cut_off(loop)  # its agent is ended where it still works
        if loop.tries > self.given.timing.tries:
            self._leave(loop, "broken")
            return
        self.hop(self._claim, loop, loop.waiting, later=lost_retry_s(loop.tries))

    def _cut_off(self, loop: Loop) -> None:
        """Its agent is gone in the middle of a turn; what that cost, nobody knows."""
        turn, loop.turn = loop.turn, None
        self.tally.turns["lost"] += 1
        loop.unpriced, loop.home = True, None
        if turn is not None:
            cost = round(turn.micro_usd * min(1.0, (self.now - turn.began) / turn.seconds))
            self.tally.burnt[loop.submission] += cost
            self.tally.paid[loop.submission] += cost

    def _start(self, worker: Worker, loop: Loop) -> None:
        given, rng, tally = self.given, self.random, self.tally
        worker.running[loop.name] = loop
        worker.promised.pop(loop.name, None)
        loop.waiting += 1
        adopted = loop.turn is not None
        if adopted:
            tally.turns["adopted"] += 1
        else:
            taking = 0.0 if loop.home is worker else given.take_s
            loop.home = worker
            seconds = rng.lognormvariate(math.log(given.turn_median_s), given.turn_sigma)
            rate = rng.lognormvariate(math.log(given.usd_minute_median), given.usd_minute_sigma) / 60
            cost = round(seconds * rate * USD)
            if loop.allot is not None and cost > loop.allot:  # ended when its spending is seen to cross its allotment
                seconds *= loop.allot / cost
                cost = loop.allot + round(rng.expovariate(1 / given.message_usd) * USD)
            loop.turn = Turn(self.now + taking, max(1.0, seconds), cost, self.now + taking + max(1.0, seconds))
            self._waited(loop)
        assert loop.turn is not None
        self.at(loop.turn.ends, self._ended, loop, loop.waiting, loop.turn.micro_usd, None)

    def _waited(self, loop: Loop) -> None:
        """How long it was until this agent started."""
        tally = self.tally
        if loop.lost_at:
            tally.takeover_s.append(self.now - loop.lost_at)
            loop.lost_at = 0.0
            return
        tally.turns["begun"] += 1
        tally.worker_s.append(self.now - loop.granted_at)
        tight = loop.submission in self._tight
        (tally.tight_s if tight else tally.queue_s).append(self.now - loop.asked_at)
        if not loop.begun and not tight:
            tally.first_s.setdefault(loop.submitter, []).append(self.now - loop.asked_at)
        loop.begun = True

    def _ended(self, loop: Loop, ticket: int, micro_usd: int, again: float | None) -> None:
        """A turn is over. `again` is when it can be tried once more, where it was nobody's fault."""
        worker, turn, tally = loop.worker, loop.turn, self.tally
        if ticket != loop.waiting or worker is None or turn is None:
            return
        loop.turn, loop.waiting, loop.lost_at = None, loop.waiting + 1, 0.0
        worker.running.pop(loop.name, None)
        tally.paid[loop.submission] += micro_usd
        unknown = loop.unpriced or self.random.random() < self.given.unknown
        loop.spent += 0 if unknown else micro_usd
        if loop.allot is None:
            for tick in range(1, int(turn.seconds / SPEND_REPORT_S)):
                self._heard("spending", turn.began + tick * SPEND_REPORT_S)
        self._set_aside(loop, turn, micro_usd)
        told = {"loop": loop.name, "number": loop.number, "microUsd": None if unknown else micro_usd, "tokens": 0}
        self.hop(self._say, {"what": "settled", **told})
        loop.number += 1
        over = loop.allot is not None and micro_usd >= loop.allot
        loop.needs -= again is None
        if over or loop.needs <= 0:
            self.hop(self._leave, loop, "over its limit" if over else "completed")
        else:
            self.at(again or self.now, self._want, loop)
        self._offer(worker)

    def _set_aside(self, loop: Loop, turn: Turn, micro_usd: int) -> None:
        aside, held_s = (loop.allot or 0) / USD, self.now - loop.granted_at
        self.tally.reserved_s += aside * held_s
        self.tally.idle_s += aside * max(0.0, turn.began - loop.granted_at)
        self.tally.cost_s += micro_usd / USD * held_s

    def _leave(self, loop: Loop, how: str) -> None:
        if loop.over:
            return
        loop.over = True
        self.tally.turns[how] += 1
        self._open -= 1
        self.hop(self._say, {"what": "left", "loop": loop.name, "number": loop.number})
