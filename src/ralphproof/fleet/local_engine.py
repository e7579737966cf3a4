"""The fleet without a server: loops and governor in one SQLite file, and its worker."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import sqlite3
import time

from ralphproof.base.errors import NotThere, Refused
from ralphproof.base.value import TYPE_CHECKING, pack, replace, unpack, value
from ralphproof.engine.budget import Spend
from ralphproof.engine.state import State
from ralphproof.fleet.connection import FleetTiming, lost_retry_s
from ralphproof.fleet.governor import Governor, TurnGranted, TurnUnaffordable, apply_event
from ralphproof.fleet.progress import (
    LoopProgress,
    cancelled_end,
    contradiction,
    cost_between,
    failed_end,
    out_of_money_end,
)
from ralphproof.fleet.step_process import StepLost, StepProcess, StepResult
from ralphproof.fleet.submission import result_branch, submission_json
from ralphproof.store.schema import require_schema_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TypeVar

    from ralphproof.fleet.governor import PermitAnswer
    from ralphproof.fleet.step_process import StepPool
    from ralphproof.fleet.submission import FleetSubmission

    T = TypeVar("T")


# The SQLite file that all local workers share: loops, governor and cancellation requests.


DATABASE_FILE, SCHEMA_VERSION = "fleet.db", 2
SCHEMA = """
CREATE TABLE loop (
    name TEXT PRIMARY KEY, submission TEXT NOT NULL, submitted TEXT NOT NULL, progress TEXT NOT NULL,
    over INTEGER NOT NULL DEFAULT 0, cancelled INTEGER NOT NULL DEFAULT 0, began REAL NOT NULL
);
CREATE TABLE answer (loop TEXT PRIMARY KEY, answer TEXT NOT NULL);
CREATE TABLE governor (id INTEGER PRIMARY KEY CHECK (id = 1), state TEXT NOT NULL);
"""


@value
class LocalLoop:
    """A loop in the database. `submitted` is its part of the submission; `cancelled` is whether cancellation was
    requested.
    """

    name: str
    submission: str
    submitted: dict[str, Any]
    progress: LoopProgress
    over: bool
    cancelled: bool

    @property
    def published(self) -> dict[str, Any]:
        memo = self.submitted["memo"]
        about = {**memo, "submission": self.submission, "trouble": "", **self.progress.published}
        return {"loop": self.name, "running": not self.over, **about}


class LocalFleet:
    """The database. Each change is one transaction, and durable when the call returns."""

    def __init__(self, store: str) -> None:
        self.store = store
        self._db = sqlite3.connect(os.path.join(store, DATABASE_FILE), timeout=10.0, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._transaction(self._create_schema)

    def _create_schema(self) -> None:
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        require_schema_version(version, SCHEMA_VERSION, os.path.join(self.store, DATABASE_FILE))
        if version == 0:
            for statement in SCHEMA.split(";\n"):
                self._db.execute(statement)
            self._db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")

    def close(self) -> None:
        self._db.close()

    def _transaction(self, work: Callable[[], T]) -> T:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            done = work()
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")
        return done

    def submit(self, submission: FleetSubmission) -> None:
        """Store all loops of a submission, or none."""
        message = submission_json(submission)
        about = {name: message[name] for name in ("submission", "submitter", "allowance", "timing")}
        now, fresh = time.time(), json.dumps(pack(LoopProgress()))

        def work() -> None:
            for loop in message["loops"]:
                row = (
                    loop["spec"]["loop"],
                    submission.id,
                    json.dumps({**loop, "timing": message["timing"]}),
                    fresh,
                    now,
                )
                self._db.execute(
                    "INSERT INTO loop(name, submission, submitted, progress, began) VALUES (?,?,?,?,?)", row
                )
            self._apply_events([{"what": "bounded", **about}])

        try:
            self._transaction(work)
        except sqlite3.IntegrityError:
            raise Refused(f"a loop of submission {submission.id} exists already") from None

    def loops(self) -> list[LocalLoop]:
        """All loops, newest first."""
        return self._rows("ORDER BY began DESC, name")

    def open_loops(self) -> list[LocalLoop]:
        """Loops that have not ended, oldest first."""
        return self._rows("WHERE NOT over ORDER BY began, name")

    def loop(self, name: str) -> LocalLoop:
        """One loop; raises NotThere."""
        rows = self._rows("WHERE name = ?", (name,))
        if not rows:
            raise NotThere(f"there is no loop {name!r} in this fleet; ralph fleet status names them")
        return rows[0]

    def _rows(self, which: str, values: Iterable[object] = ()) -> list[LocalLoop]:
        request = f"SELECT name, submission, submitted, progress, over, cancelled FROM loop {which}"  # noqa: S608 (no user input)
        return [
            LocalLoop(row[0], row[1], json.loads(row[2]), unpack(json.loads(row[3])), bool(row[4]), bool(row[5]))
            for row in self._db.execute(request, tuple(values))
        ]

    def cancel(self, names: Iterable[str]) -> None:
        """Request cancellation of loops."""
        rows = [(name,) for name in names]
        self._transaction(lambda: self._db.executemany("UPDATE loop SET cancelled=1 WHERE name=? AND NOT over", rows))

    def rebased(self, loop: LocalLoop, base: str) -> LocalLoop:
        """Store this commit as the base of the loop; returns the loop."""
        submitted = {**loop.submitted, "spec": {**loop.submitted["spec"], "base": base}}
        self._transaction(
            lambda: self._db.execute("UPDATE loop SET submitted=? WHERE name=?", (json.dumps(submitted), loop.name))
        )
        return self.loop(loop.name)

    def save_progress(self, name: str, progress: LoopProgress, *events: dict[str, Any]) -> None:
        """Store a loop's progress and apply its events to the governor in one transaction."""

        def work() -> None:
            row = (json.dumps(pack(progress)), int(progress.end is not None), name)
            self._db.execute("UPDATE loop SET progress=?, over=? WHERE name=?", row)
            self._apply_events(list(events))

        self._transaction(work)

    def permit(self, event: dict[str, Any]) -> PermitAnswer | None:
        """Request a turn; None if it must wait. A turn that was already granted is granted again."""

        def work() -> PermitAnswer | None:
            governor = self._apply_events([event])
            permit = governor.permits.get(event["loop"])
            if permit is not None and permit.request.number == event["number"]:
                return TurnGranted(event["loop"], event["number"], permit.reserved)
            row = self._db.execute("SELECT answer FROM answer WHERE loop=?", (event["loop"],)).fetchone()
            answer = unpack(json.loads(row[0])) if row else None
            return answer if isinstance(answer, TurnUnaffordable) and answer.number == event["number"] else None

        return self._transaction(work)

    def send_events(self, *events: dict[str, Any]) -> None:
        """Apply events to the governor."""
        self._transaction(lambda: self._apply_events(list(events)))

    def load_governor(self) -> Governor:
        """The governor's state."""
        row = self._db.execute("SELECT state FROM governor").fetchone()
        governor: Governor = unpack(json.loads(row[0])) if row else Governor()
        return governor

    def _apply_events(self, events: list[dict[str, Any]]) -> Governor:
        """Apply events and grant turns; within a transaction."""
        now, governor = time.time(), self.load_governor()
        for event in events:
            governor = apply_event(governor, event, now)
        governor, answers = governor.grant_turns(now)
        for answer in answers:
            row = (answer.loop, json.dumps(pack(answer)))
            self._db.execute("INSERT OR REPLACE INTO answer(loop, answer) VALUES (?,?)", row)
        self._db.execute("INSERT OR REPLACE INTO governor(id, state) VALUES (1,?)", (json.dumps(pack(governor)),))
        return governor

    def dependencies(self, loop: LocalLoop) -> tuple[LocalLoop, ...] | LoopProgress | None:
        """The loops that a loop comes after; None if one has not ended; the loop's end if one did not complete."""
        before = tuple(self.loop(name) for name in loop.submitted["after"])
        if any(not one.over for one in before):
            return None
        ends = {one.name: one.progress.end for one in before}
        if wrong := [name for name, end in ends.items() if end is None or end.status != "COMPLETED"]:
            return loop.progress.with_end(failed_end(f"not begun: {', '.join(wrong)} did not complete", 1))
        return before


# The local worker: takes loops from the database, with one lock for each, and drives them as the server would.
#
# A lock is the kernel's: when a worker dies, its loops are free, and the next worker in the same folder adopts the
# turns.


POLL_S = 0.2


async def run_local_worker(store: str, pool: StepPool, grace_s: float, leave: asyncio.Event, until_idle: bool) -> None:
    """Work until `leave` is set, or with `until_idle` until no loop is open."""
    fleet = LocalFleet(store)
    driven: dict[str, asyncio.Task[None]] = {}
    left = asyncio.ensure_future(leave.wait())
    try:
        while not leave.is_set():
            for name in [name for name, task in driven.items() if task.done()]:
                driven.pop(name).result()
            waiting = fleet.open_loops()
            if until_idle and not waiting and not driven:
                return
            for loop in waiting:
                if loop.name not in driven and len(driven) < pool.slots:
                    driver = LoopDriver(fleet, pool, loop.name, leave)
                    if driver.acquire():
                        driven[loop.name] = asyncio.create_task(driver.run())
            await asyncio.wait([left], timeout=POLL_S)
        if driven:
            await asyncio.wait(driven.values(), timeout=grace_s)
    finally:
        left.cancel()
        for step in pool.running():
            step.detach()
        for task in driven.values():
            task.cancel()
        await asyncio.gather(*driven.values(), return_exceptions=True)
        fleet.close()


class LoopDriver:
    """Drives one loop until it has to wait; then the slot is free for others."""

    def __init__(self, fleet: LocalFleet, pool: StepPool, name: str, leave: asyncio.Event) -> None:
        self._fleet, self._pool, self._name, self._leave = fleet, pool, name, leave
        self._lock = -1
        self._lost = self._failed = 0  # number in a row

    def acquire(self) -> bool:
        """Lock the loop if it can be worked on now; whether that succeeded."""
        folder = os.path.join(self._fleet.store, "fleet-locks")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._lock = os.open(os.path.join(folder, self._name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            return False
        if self._is_ready():
            return True
        os.close(self._lock)
        return False

    def _is_ready(self) -> bool:
        """Reload the loop under the lock, because another worker may just have ended it; whether it is ready."""
        loop = self._fleet.loop(self._name)
        if loop.over:
            return False
        if loop.cancelled:
            return True
        if loop.progress.until is not None and loop.progress.until > time.time():
            return False
        before = self._fleet.dependencies(loop)
        if isinstance(before, LoopProgress):
            self._save(loop, before, self._event(loop, "left"))
            return False
        if before is None:
            return False
        if before and loop.progress.number == 1:
            loop = self._fleet.rebased(loop, loop.submitted["spec"]["target"] or result_branch(before[-1].name))
        return self._permit(loop) is not None

    def _permit(self, loop: LocalLoop) -> PermitAnswer | None:
        spec, progress = loop.submitted["spec"], loop.progress
        about = {"agent": spec["agent"], "budget": progress.remaining_budget(loop.submitted["budget"])}
        return self._fleet.permit(self._event(loop, "want", **about))

    def _event(self, loop: LocalLoop, what: str, **more: Any) -> dict[str, Any]:
        about = {"loop": self._name, "number": loop.progress.number, "submission": loop.submission}
        return {"what": what, **about, "submitter": loop.submitted["spec"]["submitter"], **more}

    def _save(self, loop: LocalLoop, progress: LoopProgress, *events: dict[str, Any]) -> None:
        closing = []
        if progress.end is not None:
            closing = [self._event(loop, "left")]
            others = [
                one for one in self._fleet.open_loops() if one.submission == loop.submission and one.name != loop.name
            ]
            closing += [] if others else [self._event(loop, "closed")]
        self._fleet.save_progress(self._name, progress, *events, *closing)

    async def run(self) -> None:
        try:
            while not self._leave.is_set() and await self._advance():
                pass
        finally:
            os.close(self._lock)

    async def _advance(self) -> bool:
        """Take one step; whether another may follow at once."""
        loop = self._fleet.loop(self._name)
        progress = loop.progress.assigned_to(self._pool.name)
        if loop.cancelled:
            await self._cancel(loop, progress)
            return False
        match self._permit(loop):
            case TurnGranted(_, _, allot):
                return await self._step(loop, progress, allot)
            case TurnUnaffordable(_, _, reason, message):
                if progress.known:
                    await self._run_step(loop, progress, 0)
                self._save(loop, progress.with_end(out_of_money_end(reason, message)))
                return False
            case None:
                return False

    async def _cancel(self, loop: LocalLoop, progress: LoopProgress) -> None:
        has_permit, events = self._name in self._fleet.load_governor().permits, [self._event(loop, "released")]
        if progress.known or has_permit:  # a step of a dead worker may still be running
            done, before = await self._run_step(loop, progress, 0), progress.spend
            if done is not None and done.report["type"] != "fenced":
                progress = self._progress_after(progress, done)
            elif has_permit:  # a turn was lost: its cost is unknown
                progress = replace(progress, spend=before.plus(Spend(0, 0, 1)))
            events = [self._settled_event(loop, before, progress)]
        self._save(loop, progress if progress.end else progress.with_end(cancelled_end()), *events)

    async def _step(self, loop: LocalLoop, progress: LoopProgress, allot: int | None) -> bool:
        done = await self._run_step(loop, progress, allot)
        if done is None or done.report["type"] == "fenced":  # lost, or left
            return await self._retry_step(loop, progress, done is not None)
        code = done.report.get("exitCode") if done.report["type"] == "failed" else 2
        if code not in (2, 130) and self._failed < self._timing(loop).tries:
            self._failed += 1  # the remote may be unreachable for a while; the permit is kept
            return await self._pause(min(2.0**self._failed, 300.0))
        self._lost = self._failed = 0
        after, now = self._progress_after(progress, done), time.time()
        if wait_s := after.wait_s(now):
            after = replace(after, until=now + wait_s)
        self._save(loop, after, self._settled_event(loop, progress.spend, after))
        return after.end is None and not wait_s

    async def _retry_step(self, loop: LocalLoop, progress: LoopProgress, fenced: bool) -> bool:
        """Retry a step without a result under the same permit, in a higher epoch if necessary."""
        self._lost += 1
        if self._lost > self._timing(loop).tries:
            progress = replace(progress, spend=progress.spend.plus(Spend(0, 0, 1)))
            self._save(loop, progress.with_end(failed_end(f"the step was lost {self._lost} times")))
            return False
        if fenced:
            self._fleet.save_progress(self._name, replace(progress, epoch=progress.epoch + 1))
        return await self._pause(lost_retry_s(self._lost))

    async def _pause(self, seconds: float) -> bool:
        """Wait unless the loop is cancelled or the worker is leaving; whether to continue."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self._leave.is_set() and not self._fleet.loop(self._name).cancelled:
            await asyncio.sleep(min(POLL_S, seconds))
        return not self._leave.is_set()

    def _settled_event(self, loop: LocalLoop, before: Spend, after: LoopProgress) -> dict[str, Any]:
        micro_usd, tokens = cost_between(before, after.spend)
        return self._event(loop, "settled", microUsd=micro_usd, tokens=tokens)

    def _progress_after(self, progress: LoopProgress, done: StepResult) -> LoopProgress:
        """Progress after a step, built anew from all its records, which are local."""
        report = done.report
        match report["type"]:
            case "rest":
                state = State()
                for record in report["records"]:
                    state = state.after(unpack(record))
                after = replace(progress, known=0).after(report, state.spend)
                wrong = contradiction(state, report["next"])
                return after.with_end(failed_end(wrong)) if wrong else after
            case _:
                reported = Spend(done.micro_usd or 0, done.tokens, int(done.micro_usd is None))
                end = failed_end(report["message"], report.get("exitCode", 3))
                return replace(progress, spend=progress.spend.plus(reported)).with_end(end)

    def _timing(self, loop: LocalLoop) -> FleetTiming:
        timing: FleetTiming = unpack(loop.submitted["timing"])
        return timing

    async def _run_step(self, loop: LocalLoop, progress: LoopProgress, allot: int | None) -> StepResult | None:
        """Run the step; None if it was lost, or if the worker leaves and the agent continues without it."""
        request = {"spec": loop.submitted["spec"], "epoch": progress.epoch, "allot": allot, "finish": True}
        spent = progress.spend.micro_usd
        step = self._pool.step({**request, "known": 0, "spent": spent}, progress.number, self)
        timing = self._timing(loop)
        try:
            while not step.done.done():
                await asyncio.wait([step.done], timeout=POLL_S)
                if self._fleet.loop(self._name).cancelled and not step.done.done():
                    return await self._end_step(step, timing)
            return step.done.result()
        except StepLost:
            return None
        finally:
            if step.done.done():
                self._pool.forget(self._name, progress.number)

    async def _end_step(self, step: StepProcess, timing: FleetTiming) -> StepResult:
        done = await step.end(timing.cancel_s, timing.kill_s)
        report = {"type": "failed", "message": "killed when it was cancelled", "exitCode": 130}
        return done or StepResult(report, *step.cost(report))
