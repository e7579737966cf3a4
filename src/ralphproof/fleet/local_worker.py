"""A worker of the local engine: takes loops from the file, one lock each, and drives them as the server would.

A lock is the kernel's: when a worker dies, its loops are free, and the next worker in the same folder adopts the turns.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time

from ralphproof.budget import Spend
from ralphproof.fleet.local import LocalFleet, LocalLoop
from ralphproof.fleet.names import branch_of
from ralphproof.fleet.permit import Granted, Unaffordable
from ralphproof.fleet.progress import LoopProgress, broken, cancelled, contradiction, cost_between, out_of_money
from ralphproof.fleet.running import RunningStep, StepDone, StepLost
from ralphproof.fleet.tempo import Tempo, lost_s
from ralphproof.state import State
from ralphproof.value import TYPE_CHECKING, replace, unpack

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.fleet.permit import Answer
    from ralphproof.fleet.workplace import Workplace

LOOK_S = 0.2


async def serve_locally(store: str, place: Workplace, grace_s: float, leave: asyncio.Event, until_idle: bool) -> None:
    """Work until `leave` is set, or with `until_idle` until nothing is open."""
    fleet = LocalFleet(store)
    driven: dict[str, asyncio.Task[None]] = {}
    left = asyncio.ensure_future(leave.wait())
    try:
        while not leave.is_set():
            for name in [name for name, task in driven.items() if task.done()]:
                driven.pop(name).result()
            waiting = fleet.open()
            if until_idle and not waiting and not driven:
                return
            for loop in waiting:
                if loop.name not in driven and len(driven) < place.slots:
                    driver = Driver(fleet, place, loop.name, leave)
                    if driver.take():
                        driven[loop.name] = asyncio.create_task(driver.through())
            await asyncio.wait([left], timeout=LOOK_S)
        if driven:
            await asyncio.wait(driven.values(), timeout=grace_s)
    finally:
        left.cancel()
        for step in place.running():
            step.leave()
        for task in driven.values():
            task.cancel()
        await asyncio.gather(*driven.values(), return_exceptions=True)
        fleet.close()


class Driver:
    """Drives one loop for as long as it needs no wait; then others may have the slot."""

    def __init__(self, fleet: LocalFleet, place: Workplace, name: str, leave: asyncio.Event) -> None:
        self._fleet, self._place, self._name, self._leave = fleet, place, name, leave
        self._lock = -1
        self._lost = self._failed = 0  # so often in a row

    def take(self) -> bool:
        """Whether this loop can be worked on now, and is ours."""
        folder = os.path.join(self._fleet.store, "fleet-locks")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._lock = os.open(os.path.join(folder, self._name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            return False
        if self._ready():
            return True
        os.close(self._lock)
        return False

    def _ready(self) -> bool:
        """Read anew under the lock: another worker may just have ended it."""
        loop = self._fleet.loop(self._name)
        if loop.over:
            return False
        if loop.wish:
            return True
        if loop.progress.until is not None and loop.progress.until > time.time():
            return False
        before = self._fleet.waits_for(loop)
        if isinstance(before, LoopProgress):
            self._keep(loop, before, self._word(loop, "left"))
            return False
        if before is None:
            return False
        if before and loop.progress.number == 1:
            loop = self._fleet.rebased(loop, loop.given["order"]["target"] or branch_of(before[-1].name))
        return self._permit(loop) is not None

    def _permit(self, loop: LocalLoop) -> Answer | None:
        order, progress = loop.given["order"], loop.progress
        about = {"agent": order["agent"], "wish": progress.left(loop.given["wish"])}
        return self._fleet.permit(self._word(loop, "want", **about))

    def _word(self, loop: LocalLoop, what: str, **more: Any) -> dict[str, Any]:
        about = {"loop": self._name, "number": loop.progress.number, "submission": loop.submission}
        return {"what": what, **about, "submitter": loop.given["order"]["submitter"], **more}

    def _keep(self, loop: LocalLoop, progress: LoopProgress, *events: dict[str, Any]) -> None:
        closing = []
        if progress.end is not None:
            closing = [self._word(loop, "left")]
            others = [one for one in self._fleet.open() if one.submission == loop.submission and one.name != loop.name]
            closing += [] if others else [self._word(loop, "closed")]
        self._fleet.keep(self._name, progress, *events, *closing)

    async def through(self) -> None:
        try:
            while not self._leave.is_set() and await self._onward():
                pass
        finally:
            os.close(self._lock)

    async def _onward(self) -> bool:
        """One step; whether another may follow at once."""
        loop = self._fleet.loop(self._name)
        progress = loop.progress.taken(self._place.name)
        if loop.wish:
            await self._cancelled(loop, progress)
            return False
        match self._permit(loop):
            case Granted(_, _, allot):
                return await self._step(loop, progress, allot)
            case Unaffordable(_, _, reason, message):
                if progress.known:
                    await self._asked(loop, progress, 0)
                self._keep(loop, progress.ended(out_of_money(reason, message)))
                return False
            case None:
                return False

    async def _cancelled(self, loop: LocalLoop, progress: LoopProgress) -> None:
        held, events = self._name in self._fleet.books().held, [self._word(loop, "released")]
        if progress.known or held:  # a step may be at work, left by a dead worker
            done, before = await self._asked(loop, progress, 0), progress.spend
            if done is not None and done.report["type"] != "fenced":
                progress = self._after(progress, done)
            elif held:  # a turn of it was lost sight of: what that cost, nobody knows
                progress = replace(progress, spend=before.beside(Spend(0, 0, 1)))
            events = [self._settled(loop, before, progress)]
        self._keep(loop, progress if progress.end else progress.ended(cancelled()), *events)

    async def _step(self, loop: LocalLoop, progress: LoopProgress, allot: int | None) -> bool:
        done = await self._asked(loop, progress, allot)
        if done is None or done.report["type"] == "fenced":  # lost, or left
            return await self._again(loop, progress, done is not None)
        code = done.report.get("exitCode") if done.report["type"] == "failed" else 2
        if code not in (2, 130) and self._failed < self._tempo(loop).tries:
            self._failed += 1  # the remote may be away for a while; the permit is kept
            return await self._pause(min(2.0**self._failed, 300.0))
        self._lost = self._failed = 0
        after, now = self._after(progress, done), time.time()
        if wait_s := after.waits(now):
            after = replace(after, until=now + wait_s)
        self._keep(loop, after, self._settled(loop, progress.spend, after))
        return after.end is None and not wait_s

    async def _again(self, loop: LocalLoop, progress: LoopProgress, fenced: bool) -> bool:
        """A step without a result is taken once more under the same permit, in a higher epoch if need be."""
        self._lost += 1
        if self._lost > self._tempo(loop).tries:
            progress = replace(progress, spend=progress.spend.beside(Spend(0, 0, 1)))
            self._keep(loop, progress.ended(broken(f"the step was lost {self._lost} times")))
            return False
        if fenced:
            self._fleet.keep(self._name, replace(progress, epoch=progress.epoch + 1))
        return await self._pause(lost_s(self._lost))

    async def _pause(self, seconds: float) -> bool:
        """Wait, unless somebody wants the loop to end, or us to leave; whether to go on."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self._leave.is_set() and not self._fleet.loop(self._name).wish:
            await asyncio.sleep(min(LOOK_S, seconds))
        return not self._leave.is_set()

    def _settled(self, loop: LocalLoop, before: Spend, after: LoopProgress) -> dict[str, Any]:
        micro_usd, tokens = cost_between(before, after.spend)
        return self._word(loop, "settled", microUsd=micro_usd, tokens=tokens)

    def _after(self, progress: LoopProgress, done: StepDone) -> LoopProgress:
        """What follows from a step; all its records are here, and folded anew."""
        report = done.report
        match report["type"]:
            case "rest":
                state = State()
                for record in report["records"]:
                    state = state.after(unpack(record))
                after = replace(progress, known=0).after(report, state.spend)
                wrong = contradiction(state, report["next"])
                return after.ended(broken(wrong)) if wrong else after
            case _:
                told = Spend(done.micro_usd or 0, done.tokens, int(done.micro_usd is None))
                end = broken(report["message"], report.get("exitCode", 3))
                return replace(progress, spend=progress.spend.beside(told)).ended(end)

    def _tempo(self, loop: LocalLoop) -> Tempo:
        tempo: Tempo = unpack(loop.given["tempo"])
        return tempo

    async def _asked(self, loop: LocalLoop, progress: LoopProgress, allot: int | None) -> StepDone | None:
        """Have the step taken; None where it was lost, or we leave and it goes on alone."""
        asked = {"order": loop.given["order"], "epoch": progress.epoch, "allot": allot, "finish": True}
        spent = progress.spend.micro_usd
        step = self._place.step({**asked, "known": 0, "spent": spent}, progress.number, self)
        tempo = self._tempo(loop)
        try:
            while not step.done.done():
                await asyncio.wait([step.done], timeout=LOOK_S)
                if self._fleet.loop(self._name).wish and not step.done.done():
                    return await self._ended(step, tempo)
            return step.done.result()
        except StepLost:
            return None
        finally:
            if step.done.done():
                self._place.over(self._name, progress.number)

    async def _ended(self, step: RunningStep, tempo: Tempo) -> StepDone:
        done = await step.end(tempo.cancel_s, tempo.kill_s)
        report = {"type": "failed", "message": "killed when it was cancelled", "exitCode": 130}
        return done or StepDone(report, *step.cost(report))
