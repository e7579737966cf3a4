"""A fleet as discrete events: loops, workers, deaths, outages, and the real governor; no waiting, no processes.

Numbers of the engine come from `fleet/tempo.py`. What is made up is in `Setting`, and bench/fleet.py prints it.
"""

from __future__ import annotations

import heapq
import math
import random
import time
from collections import Counter, deque
from dataclasses import dataclass, field

from ralphproof.fleet.governor import Governor
from ralphproof.fleet.hearsay import folded
from ralphproof.fleet.permit import Allowance, Granted
from ralphproof.fleet.tempo import (
    CLAIM_S,
    CLAIMS,
    PROMISE_S,
    RETRY_MOST_S,
    RETRY_S,
    TELL_S,
    Tempo,
    ask_again_s,
    lost_s,
)
from ralphproof.value import pack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

HOUR_S = 3600.0
USD = 1_000_000


@dataclass(frozen=True)
class Setting:
    """A fleet and its weather. Times in seconds; a `median` with a `sigma` is of a log-normal distribution."""

    loops: int = 10_000
    workers: int = 100
    slots: int = 4
    seed: int = 1
    tempo: Tempo = Tempo()
    parallel: float | None = 1.0  # --fleet-parallel, as a share of all slots; None: not given
    submissions: int = 200
    arrive_s: float = 8 * HOUR_S  # they come in evenly over so long
    turn_median_s: float = 240.0
    turn_sigma: float = 0.8
    iterations_mean: float = 4.0  # geometric
    usd_minute_median: float = 0.08
    usd_minute_sigma: float = 0.5
    wish_usd: float = 5.0  # --max-cost-usd of each loop
    message_usd: float = 0.03  # what one more message costs: so late an agent is stopped at its limit
    unknown: float = 0.03  # of turns nobody knows what they cost
    tight: float = 0.3  # of submissions have --total-cost-usd for half of what they need
    rate: int | None = 120  # --rate of the agent, in a minute
    limited_every_s: float = 4 * HOUR_S  # the agent's provider stops serving half of the fleet
    limited_s: float = 900.0
    die_s: float = 24 * HOUR_S  # between two deaths of one machine, on average
    reborn_s: float = 600.0  # until another one takes its place
    crash_s: float = 24 * HOUR_S  # between two crashes of one worker's process
    restart_s: float = 15.0  # until it is started again in its folder
    outages: tuple[tuple[float, float], ...] = ((2.5 * HOUR_S, 20.0),)  # of the server: when, for how long
    take_s: float = 20.0  # for a worker to put a loop together that it did not have
    hop_s: float = 0.05  # for a word from one workflow, or worker, to another

    @property
    def all_slots(self) -> int:
        return self.workers * self.slots


@dataclass
class Loop:
    name: str
    submission: str
    submitter: str
    agent: str
    needs: int
    number: int = 1
    spent: int = 0  # as its records say
    worker: Worker | None = None
    home: Worker | None = None  # who has its files
    begun: bool = False
    over: bool = False
    tries: int = 0
    asked_at: float = 0.0
    granted_at: float = 0.0
    allot: int | None = None
    unpriced: bool = False  # of this step something is not known
    turn: Turn | None = None
    lost_at: float = 0.0
    claimed: int = 0  # attempts at the claim that goes on
    waiting: int = 0  # changes whenever what it waits for is over


@dataclass
class Turn:
    """An agent at work."""

    began: float
    seconds: float
    micro_usd: int
    ends: float


@dataclass
class Worker:
    number: int
    alive: bool = True
    gone: bool = False  # for good; another machine has its place
    running: dict[str, Loop] = field(default_factory=dict)
    promised: dict[str, float] = field(default_factory=dict)
    queue: deque[tuple[Loop, int]] = field(default_factory=deque)
    claims: list[tuple[Loop, int]] = field(default_factory=list)


@dataclass
class Tally:
    """What came of it."""

    queue_s: list[float] = field(default_factory=list)  # of every turn: from the wish to the agent's start
    permit_s: list[float] = field(default_factory=list)
    worker_s: list[float] = field(default_factory=list)
    first_s: dict[str, list[float]] = field(default_factory=dict)  # by submitter, of first turns
    takeover_s: list[float] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)  # words to the governor
    minutes: Counter[int] = field(default_factory=Counter)  # words in each minute
    burnt: Counter[str] = field(default_factory=Counter)  # micro-dollars of lost turns, by submission
    paid: Counter[str] = field(default_factory=Counter)  # micro-dollars in truth, by submission
    turns: Counter[str] = field(default_factory=Counter)  # by how they ended
    busy_s: float = 0.0
    alive_s: float = 0.0
    reserved_s: float = 0.0  # dollar-seconds set aside
    idle_s: float = 0.0  # of these, for turns that no worker has begun
    cost_s: float = 0.0  # dollar-seconds that the same turns came to
    tasks: int = 0
    cpu_s: float = 0.0
    cpu_most_s: float = 0.0
    packed_most: int = 0
    served: dict[str, int] = field(default_factory=dict)  # turns begun while all submitters had loops waiting
    ended_s: float = 0.0
    full_until_s: float = 0.0  # since when there are fewer open loops than slots


class World:
    """One fleet from its first submission to the end of its last loop."""

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
        self._begin()
        tally = self.tally
        while self._events and self._open:
            when, _, call, args = heapq.heappop(self._events)
            passed = when - self.now
            if passed and self._open >= self.given.all_slots:
                tally.alive_s += passed * self.given.slots * sum(not one.gone and one.alive for one in self.workers)
                tally.busy_s += passed * sum(len(one.running) for one in self.workers if one.alive)
                tally.full_until_s = when
            self.now = when
            call(*args)
        tally.ended_s = self.now
        return tally

    # The beginning, and the weather

    def _begin(self) -> None:
        given, rng = self.given, self.random
        sizes = _sizes(given)
        mean_usd = given.turn_median_s / 60 * given.usd_minute_median * math.exp(
            (given.turn_sigma**2 + given.usd_minute_sigma**2) / 2
        ) * given.iterations_mean  # fmt: skip
        bound = None if given.parallel is None else max(1, round(given.all_slots * given.parallel))
        for number, (submitter, size) in enumerate(sizes):
            name, come = f"20261117-1{number:05d}-abcdef", given.arrive_s * number / len(sizes)
            tight = rng.random() < given.tight
            total = round(size * mean_usd * (0.5 if tight else 3.0) * USD)
            self.totals[name] = total
            rates = {"claude": given.rate} if given.rate else {}
            allowance = Allowance(total_micro_usd=total, fleet_parallel=bound, per_minute=rates)
            about = {"submission": name, "submitter": submitter, "allowance": pack(allowance)}
            self.at(come, self._say, {"what": "bounded", **about})
            for one in range(size):
                needs = 1 + int(math.log(1.0 - rng.random()) / math.log(1.0 - 1.0 / given.iterations_mean))
                loop = Loop(f"{name}-{one:03d}", name, submitter, "claude", min(needs, 50))
                self.loops[loop.name] = loop
                self.at(come + 0.01 * one, self._want, loop)
        for worker in self.workers:
            self._fates(worker)
        if given.limited_every_s:
            self.at(rng.expovariate(1 / given.limited_every_s), self._limited)
        for begins, lasts in given.outages:
            if lasts > given.tempo.heartbeat_s:
                self.at(begins + given.tempo.heartbeat_s + given.tempo.beat_s, self._alone)

    def _fates(self, worker: Worker) -> None:
        given, rng = self.given, self.random
        if given.die_s:
            self.at(self.now + rng.expovariate(1 / given.die_s), self._die, worker)
        if given.crash_s:
            self.at(self.now + rng.expovariate(1 / given.crash_s), self._crash, worker)

    def _die(self, worker: Worker) -> None:
        """The machine is gone with all that ran on it; after a while there is another one."""
        if worker.gone:
            return
        worker.alive, worker.gone = False, True
        self.tally.turns["machines died"] += 1
        for loop in list(worker.running.values()):
            self._cut_off(loop)
            self._silence(loop)
        worker.running = {}
        self._abandon_claims(worker)
        self.at(self.now + self.given.reborn_s, self._reborn, worker)

    def _reborn(self, old: Worker) -> None:
        self.workers[old.number] = fresh = Worker(old.number)
        self._fates(fresh)
        self._offer(fresh)

    def _crash(self, worker: Worker) -> None:
        """The worker's process is gone; agents work on, and are adopted when it is there again."""
        if worker.gone:
            return
        worker.alive = False
        self.tally.turns["workers crashed"] += 1
        for loop in list(worker.running.values()):
            self._silence(loop)
        self._abandon_claims(worker)
        back = self.given.restart_s
        self.at(self.now + back, self._restarted, worker)

    def _restarted(self, worker: Worker) -> None:
        if worker.gone:
            return
        worker.alive, worker.running = True, {}
        self.at(self.now + self.random.expovariate(1 / max(1.0, self.given.crash_s)), self._crash, worker)
        self._offer(worker)

    def _abandon_claims(self, worker: Worker) -> None:
        for loop, ticket in worker.claims:
            self.hop(self._claim, loop, ticket, later=60.0)  # its start-to-close time-out
        worker.claims, worker.promised = [], {}

    def _silence(self, loop: Loop) -> None:
        """No heartbeat comes any more. When the server has noticed, the same worker is asked once more."""
        loop.lost_at = loop.lost_at or self.now
        loop.waiting += 1
        beat = self.random.uniform(0.0, self.given.tempo.beat_s)
        noticed = self.served_at(self.now - beat + self.given.tempo.heartbeat_s)
        loop.tries += 1
        self.at(noticed + lost_s(loop.tries), self._step, loop, loop.waiting)

    def _cut_off(self, loop: Loop) -> None:
        """Its agent is gone in the middle of a turn; what that cost, nobody knows."""
        turn, loop.turn = loop.turn, None
        self.tally.turns["lost"] += 1
        loop.unpriced, loop.home = True, None
        if turn is not None:
            cost = round(turn.micro_usd * min(1.0, (self.now - turn.began) / turn.seconds))
            self.tally.burnt[loop.submission] += cost
            self.tally.paid[loop.submission] += cost

    def _alone(self) -> None:
        """The server was away for longer than a heartbeat: workers have ended their agents themselves."""
        for worker in self.workers:
            for loop in list(worker.running.values()) if worker.alive else ():
                self._cut_off(loop)
                loop.lost_at, loop.worker = loop.lost_at or self.now, None
                loop.waiting, loop.tries = loop.waiting + 1, loop.tries + 1
                self.hop(self._claim, loop, loop.waiting, later=lost_s(loop.tries))
            worker.running = {}

    def _limited(self) -> None:
        """The provider serves half of those who are at work no more for a while: they wait, and burn no iteration."""
        again = self.now + self.given.limited_s
        for worker in self.workers:
            for loop in list(worker.running.values()) if worker.alive else ():
                if loop.turn is not None and self.random.random() < 0.5:
                    self.tally.turns["limited"] += 1
                    turn, part = loop.turn, (self.now - loop.turn.began) / loop.turn.seconds
                    loop.waiting += 1
                    self._ended(loop, loop.waiting, round(turn.micro_usd * part), again + self.random.uniform(0, 60))
        self.at(self.now + self.random.expovariate(1 / self.given.limited_every_s), self._limited)

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
            self.governor = folded(self.governor, event, self.now)
        self.governor, answers = self.governor.answered(self.now)
        took = time.process_time() - began
        tally = self.tally
        tally.tasks, tally.cpu_s, tally.cpu_most_s = tally.tasks + 1, tally.cpu_s + took, max(tally.cpu_most_s, took)
        for answer in answers:
            loop = self.loops[answer.loop]
            if isinstance(answer, Granted):
                self.hop(self._granted, loop, answer.allot)
            else:
                self.hop(self._leave, loop, "no money")
        again = self.governor.again_at(self.now)
        if again is not None and not self._woken and len(self.governor.held) < self._most():
            self._woken = True
            self.at(again, self._govern)

    def _most(self) -> float:
        return self.governor.fleet.fleet_parallel or math.inf

    # A loop

    def _want(self, loop: Loop) -> None:
        loop.asked_at, loop.unpriced, loop.tries = self.now, False, 0
        wish = max(0, round(self.given.wish_usd * USD) - loop.spent)
        about = {"loop": loop.name, "number": loop.number, "submission": loop.submission}
        self.hop(self._say, {"what": "want", **about, "submitter": loop.submitter, "agent": loop.agent, "wish": wish})

    def _granted(self, loop: Loop, allot: int | None) -> None:
        loop.granted_at, loop.allot = self.now, allot
        self.tally.permit_s.append(self.now - loop.asked_at)
        asked, when = 1, loop.asked_at + ask_again_s(1)
        while when < self.now:
            self._heard("want again", when)
            asked += 1
            when += ask_again_s(asked)
        loop.waiting += 1
        self._step(loop, loop.waiting) if loop.worker else self._claim(loop, loop.waiting)

    def _claim(self, loop: Loop, ticket: int, attempts: int = 0) -> None:
        """Wait for a worker that answers claims; any that has one of its few ears free takes the first in line."""
        if ticket != loop.waiting:
            return
        loop.claimed = attempts
        free = [one for one in self.workers if one.alive and len(one.claims) < CLAIMS]
        if not free:
            self._claims.append((loop, ticket))
            return
        worker = self.random.choice(free)
        worker.claims.append((loop, ticket))
        self.at(self.now + CLAIM_S, self._busy, worker, loop, ticket)
        self._offer(worker)

    def _busy(self, worker: Worker, loop: Loop, ticket: int) -> None:
        if (loop, ticket) not in worker.claims:
            return
        worker.claims.remove((loop, ticket))
        later = min(RETRY_S * 2.0 ** min(loop.claimed, 10), RETRY_MOST_S)
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
                worker.promised[loop.name] = self.now + PROMISE_S
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
        self.at(self.served_at(self.now + self.given.tempo.adopt_s), self._unstarted, loop, ticket, worker)
        self._offer(worker)

    def _unstarted(self, loop: Loop, ticket: int, worker: Worker) -> None:
        if ticket != loop.waiting or loop.worker is not worker:
            return
        loop.waiting, loop.tries, loop.worker = loop.waiting + 1, loop.tries + 1, None
        self.tally.turns["moved: worker gone" if not worker.alive else "moved: no slot in time"] += 1
        if loop.turn is not None:
            self._cut_off(loop)  # its agent is ended where it still works
        if loop.tries > self.given.tempo.tries:
            self._leave(loop, "broken")
            return
        self.hop(self._claim, loop, loop.waiting, later=lost_s(loop.tries))

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
        tally.queue_s.append(self.now - loop.asked_at)
        tally.worker_s.append(self.now - loop.granted_at)
        if not loop.begun:
            tally.first_s.setdefault(loop.submitter, []).append(self.now - loop.asked_at)
        loop.begun = True
        waiting = {want.submitter for want in self.governor.wants.values()} if tally.turns["begun"] % 20 == 0 else set()
        tally.turns["begun"] += 1
        if len(waiting) == SUBMITTERS:
            tally.served = dict(Counter({**tally.served}))

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
            for tick in range(1, int(turn.seconds / TELL_S)):
                self._heard("spending", turn.began + tick * TELL_S)
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


SUBMITTERS = 20


def _sizes(given: Setting) -> list[tuple[str, int]]:
    """Who submits how many loops at a time: one has half of all, nineteen share the rest."""
    each = max(1, given.loops // given.submissions)
    count = given.loops // each
    made = [("big" if number % 2 else f"small{number // 2 % (SUBMITTERS - 1):02d}", each) for number in range(count)]
    made[-1] = made[-1][0], given.loops - each * (count - 1)
    return made


def packed_bytes(loops: int, held: int) -> int:
    """How large a governor is that so many loops wait for, of which so many have a permit."""
    import json

    governor = Governor()
    for number in range(max(1, loops // 50)):
        allowance = Allowance(total_micro_usd=10**9, fleet_parallel=held)
        governor = governor.bounded(f"20261117-1{number:05d}-abcdef", f"user{number % SUBMITTERS}", allowance)
    for number in range(loops):
        about = {"submission": f"20261117-1{number // 50:05d}-abcdef", "submitter": f"user{number % SUBMITTERS}"}
        event = {"what": "want", "loop": f"20261117-1{number // 50:05d}-abcdef-{number % 50:03d}", "number": 2, **about}
        governor = folded(governor, {**event, "agent": "claude", "wish": 4_000_000}, 0.0)
    return len(json.dumps(pack(governor.answered(0.0)[0])))
