"""What a simulated fleet is made of: its setting, loops, workers, and what is counted."""

from __future__ import annotations

import json
from collections import Counter, deque
from dataclasses import dataclass, field

from ralphproof.base.value import pack
from ralphproof.base.value import replace as value_replace
from ralphproof.fleet.governor import Allowance, Governor, TurnRequest
from ralphproof.fleet.messages import FleetTiming

HOUR_S = 3600.0
USD = 1_000_000
SUBMITTERS = 20


@dataclass(frozen=True)
class Setting:
    """A fleet and its weather. Times in seconds; a `median` with a `sigma` is of a log-normal distribution."""

    loops: int = 10_000
    workers: int = 100
    slots: int = 4
    seed: int = 1
    timing: FleetTiming = field(default_factory=FleetTiming)
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

    queue_s: list[float] = field(default_factory=list)  # of a turn: from the wish to the agent's start
    tight_s: list[float] = field(default_factory=list)  # the same where money was short
    permit_s: list[float] = field(default_factory=list)
    worker_s: list[float] = field(default_factory=list)
    first_s: dict[str, list[float]] = field(default_factory=dict)  # by submitter, of first turns
    takeover_s: list[float] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)  # words to the governor
    minutes: Counter[int] = field(default_factory=Counter)  # words in each minute
    burnt: Counter[str] = field(default_factory=Counter)  # micro-dollars of lost turns, by submission
    paid: Counter[str] = field(default_factory=Counter)  # micro-dollars in truth, by submission
    turns: Counter[str] = field(default_factory=Counter)  # by how they ended
    busy_s: float = 0.0  # slots in use, sampled while there is enough to do for all
    alive_s: float = 0.0  # slots of workers that live
    reserved_s: float = 0.0  # dollar-seconds set aside
    idle_s: float = 0.0  # of these, for turns that no worker has begun
    cost_s: float = 0.0  # dollar-seconds that the same turns came to
    tasks: int = 0
    cpu_s: float = 0.0
    cpu_most_s: float = 0.0
    served: Counter[str] = field(default_factory=Counter)  # permits, by submitter
    due: dict[str, float] = field(default_factory=dict)  # permits, had those in line got the same each
    ended_s: float = 0.0


def sizes_of(given: Setting) -> list[tuple[str, int]]:
    """Who submits how many loops at a time: one has half of all, nineteen share the rest."""
    each = max(1, given.loops // given.submissions)
    count = given.loops // each
    made = [("big" if number % 2 else f"small{number // 2 % (SUBMITTERS - 1):02d}", each) for number in range(count)]
    made[-1] = made[-1][0], given.loops - each * (count - 1)
    return made


def governor_of(loops: int, parallel: int) -> Governor:
    """A governor that so many loops wait for, and that may give leave to so many."""
    governor = Governor()
    for number in range(max(1, loops // 50)):
        allowance = Allowance(total_micro_usd=10**9, fleet_parallel=parallel)
        governor = governor.set_allowance(f"20261117-1{number:05d}-abcdef", f"user{number % SUBMITTERS}", allowance)
    wants, over = dict[str, TurnRequest](), dict[str, int]()
    for number in range(loops):
        submission, submitter = f"20261117-1{number // 50:05d}-abcdef", f"user{number // 50 % SUBMITTERS}"
        loop = f"{submission}-{number % 50:03d}"
        wants[loop], over[loop] = TurnRequest(loop, 2, submission, submitter, 4_000_000, number), 1
    return value_replace(governor, requests=wants, last_settled=over, line=loops)


def packed_bytes(governor: Governor) -> int:
    """How large it is where it is carried from history to history."""
    return len(json.dumps(pack(governor)))
