"""Who comes to a simulated fleet, and what befalls it: deaths, crashes, a server that is away, limited agents."""

from __future__ import annotations

import math

from bench.fleet_setting import USD, Loop, Setting, Worker, sizes_of
from bench.fleet_world import Traffic

from ralphproof.base.value import pack
from ralphproof.fleet.governor import Allowance
from ralphproof.fleet.messages import lost_retry_s

CLAIM_LOST_S = 10.0  # after so long a claim is made once more whose worker died over it


class World(Traffic):
    """One fleet from its first submission to the end of its last loop."""

    def __init__(self, given: Setting) -> None:
        super().__init__(given)
        self._begin()

    def _begin(self) -> None:
        given, rng = self.given, self.random
        sizes = sizes_of(given)
        mean_usd = given.turn_median_s / 60 * given.usd_minute_median * math.exp(
            (given.turn_sigma**2 + given.usd_minute_sigma**2) / 2
        ) * given.iterations_mean  # fmt: skip
        bound = None if given.parallel is None else max(1, round(given.all_slots * given.parallel))
        for number, (submitter, size) in enumerate(sizes):
            name, come = f"20261117-1{number:05d}-abcdef", given.arrive_s * number / len(sizes)
            tight = rng.random() < given.tight
            total = round(size * mean_usd * (0.5 if tight else 3.0) * USD)
            self.totals[name] = total
            if tight:
                self._tight.add(name)
            allowance = Allowance(total_micro_usd=total, fleet_parallel=bound)
            about = {"submission": name, "submitter": submitter, "allowance": pack(allowance)}
            self.at(come, self._say, {"what": "bounded", **about})
            for one in range(size):
                needs = 1 + int(math.log(1.0 - rng.random()) / math.log(1.0 - 1.0 / given.iterations_mean))
                loop = Loop(f"{name}-{one:03d}", name, submitter, min(needs, 50))
                self.loops[loop.name] = loop
                self.at(come + 0.01 * one, self._want, loop)
        for worker in self.workers:
            self._fates(worker)
        if given.limited_every_s:
            self.at(rng.expovariate(1 / given.limited_every_s), self._limited)
        for begins, lasts in given.outages:
            if lasts > given.timing.heartbeat_s:
                self.at(begins + given.timing.heartbeat_s + given.timing.beat_s, self._alone)

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
            self.hop(self._claim, loop, ticket, later=CLAIM_LOST_S)
        worker.claims, worker.promised = [], {}

    def _silence(self, loop: Loop) -> None:
        """No heartbeat comes any more. When the server has noticed, the same worker is asked once more."""
        loop.lost_at = loop.lost_at or self.now
        loop.waiting += 1
        beat = self.random.uniform(0.0, self.given.timing.beat_s)
        noticed = self.served_at(self.now - beat + self.given.timing.heartbeat_s)
        loop.tries += 1
        self.at(noticed + lost_retry_s(loop.tries), self._step, loop, loop.waiting)

    def _alone(self) -> None:
        """The server was away for longer than a heartbeat: workers have ended their agents themselves."""
        for worker in self.workers:
            for loop in list(worker.running.values()) if worker.alive else ():
                self._cut_off(loop)
                loop.lost_at, loop.worker = loop.lost_at or self.now, None
                loop.waiting, loop.tries = loop.waiting + 1, loop.tries + 1
                self.hop(self._claim, loop, loop.waiting, later=lost_retry_s(loop.tries))
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
