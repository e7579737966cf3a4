"""The worker of a machine: its folder, its activities, and its connection to Temporal."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from io import TextIOWrapper
from typing import Any

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from ralphproof.base.errors import Busy, Refused
from ralphproof.base.files import read_file, write_atomically
from ralphproof.base.value import unpack
from ralphproof.fleet.client import describe, signal_governor
from ralphproof.fleet.loop_spec import is_plain_name
from ralphproof.fleet.step_process import StepLost, StepPool, StepProcess, StepResult
from ralphproof.fleet.timing import CLAIM_HOLD_S, CLAIM_TIMEOUT_S, MAX_CLAIMS, SPEND_REPORT_S, FleetTiming
from ralphproof.fleet.workflows import (
    ABSENT_ACTIVITY,
    CLAIM_ACTIVITY,
    EVENT_SIGNAL,
    GOVERNOR_ID,
    SERVER_UNREACHABLE,
    STEP_ACTIVITY,
    STEP_LOST,
    TASK_QUEUE,
    TELL_GOVERNOR_ACTIVITY,
    WORKER_LEFT,
    GovernorWorkflow,
    LoopWorkflow,
    SubmissionWorkflow,
    loop_workflow_id,
    worker_queue,
)

# The worker's folder: locked by one worker at a time, with a stable name.


LOCK_FILE, NAME_FILE = "worker.lock", "worker.name"
_HELD_LOCKS: list[TextIOWrapper] = []  # kept open until this process ends


def lock_worker_folder(folder: str) -> None:
    """Create the folder with access for its owner only, and lock it. Raises Busy if another worker has it."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        lock = open(os.path.join(folder, LOCK_FILE), "a", encoding="utf-8")  # noqa: SIM115 (it stays open)
    except OSError as error:
        raise Refused(f"{folder} cannot be a work folder ({error.strerror}); give --work-dir") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise Busy(f"another worker is at work in {folder}; give this one another --work-dir") from None
    _HELD_LOCKS.append(lock)


def worker_name(folder: str, name: str | None) -> str:
    """The worker's name. A generated one is stored in the folder, because turns wait for a worker of the same name."""
    if name is not None:
        if not is_plain_name(name):
            raise Refused(f"--name {name!r} is no name; letters, digits, '-', '_' and '.' make one")
        return name
    stored = (read_file(os.path.join(folder, NAME_FILE)) or b"").decode("utf-8", "replace").strip()
    if is_plain_name(stored):
        return stored
    host = "".join(letter if letter.isalnum() else "-" for letter in socket.gethostname()).strip("-")[:40]
    name = f"{host or 'worker'}-{os.urandom(3).hex()}"
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        write_atomically(opened, NAME_FILE, f"{name}\n".encode())
    finally:
        os.close(opened)
    return name


# Activities: claim a slot, take steps, and talk to the server on behalf of workflows.


SILENCE_WARNING_S = 5.0  # report a server that has been silent for this long


class ServerContact:
    """When the server was last reached. A worker that is disconnected for too long must end its agents."""

    def __init__(self) -> None:
        self.last_contact = time.monotonic()
        self._away = False

    async def poll(self, client: Client, every_s: float) -> None:
        """Poll the server until cancelled."""
        while True:
            try:
                await client.service_client.check_health(retry=False, timeout=timedelta(seconds=every_s))
                self.last_contact = time.monotonic()
                self._tell(away=False)
            except (RPCError, RuntimeError):
                self._tell(away=self.is_lost_for(SILENCE_WARNING_S))
            await asyncio.sleep(every_s)

    def _tell(self, away: bool) -> None:
        """Log one line when the connection is lost, and one when it is back."""
        if away != self._away:
            self._away = away
            status = "does not answer; what is at work goes on for the heartbeat" if away else "answers again"
            print(f"ralph: the server {status}", file=sys.stderr, flush=True)

    def is_lost_for(self, after_s: float) -> bool:
        return time.monotonic() - self.last_contact > after_s


class Activities:
    """A worker's activities."""

    def __init__(self, client: Client, pool: StepPool, contact: ServerContact) -> None:
        self._client, self._pool, self._contact = client, pool, contact
        self.leaving = asyncio.Event()

    @activity.defn(name=CLAIM_ACTIVITY)
    async def claim(self, loop: str) -> str:
        """Returns this worker's name once a slot is free; fails if none is free soon, for another worker to try."""
        deadline = time.monotonic() + CLAIM_TIMEOUT_S
        while not self._pool.reserve_slot(loop, time.monotonic(), CLAIM_HOLD_S):
            if time.monotonic() > deadline or self.leaving.is_set():
                raise ApplicationError("no slot is free", type="Busy")
            await asyncio.sleep(0.1)
        return self._pool.name

    @activity.defn(name=STEP_ACTIVITY)
    async def step(self, message: dict[str, Any]) -> dict[str, Any]:
        """Take one step of a loop, or wait for it if it is already running."""
        timing: FleetTiming = unpack(message["timing"])
        request, number, me = message["request"], message["number"], object()
        loop = request["spec"]["loop"]
        step = self._pool.step(request, number, me)
        if message["cancel"]:
            step.send("cancel")
        try:
            done = await self._watch_step(step, message, timing)
        except asyncio.CancelledError:
            done = await self._handle_cancellation(step, loop, number, me, timing)
        except StepLost as error:
            raise ApplicationError(str(error), type=STEP_LOST, non_retryable=True) from None
        self._pool.forget(loop, number)
        return {"report": done.report, "microUsd": done.micro_usd, "tokens": done.tokens}

    async def _watch_step(self, step: StepProcess, message: dict[str, Any], timing: FleetTiming) -> StepResult:
        reported_s, cancelled_s = time.monotonic(), time.monotonic() if message["cancel"] else 0.0
        reported = message["request"]["allot"] or 0  # the reservation already counts as spent
        while not step.done.done():
            activity.heartbeat()
            await asyncio.wait([step.done], timeout=timing.beat_s)
            if self._contact.is_lost_for(timing.heartbeat_s):
                await step.end(timing.cancel_s, timing.kill_s, "kill")
                raise ApplicationError("the server could not be reached", type=SERVER_UNREACHABLE, non_retryable=True)
            if cancelled_s and time.monotonic() - cancelled_s > timing.cancel_s:
                return await step.end(0, timing.kill_s, "kill") or _killed_result(step)
            spent = (step.spent[0] if step.spent else None) or 0
            if spent > reported and time.monotonic() - reported_s > SPEND_REPORT_S:
                reported, reported_s = spent, time.monotonic()
                about = {"loop": message["request"]["spec"]["loop"], "number": message["number"], "microUsd": spent}
                await self._report_spend({"what": "spending", **about})
        return step.done.result()

    async def _report_spend(self, event: dict[str, Any]) -> None:
        """Send the governor a spend report; losing one does no harm."""
        try:
            handle = self._client.get_workflow_handle(GOVERNOR_ID)
            await handle.signal(EVENT_SIGNAL, event, rpc_timeout=timedelta(seconds=2))
        except RPCError:
            pass

    async def _handle_cancellation(
        self, step: StepProcess, loop: str, number: int, me: object, timing: FleetTiming
    ) -> StepResult:
        """End the step as the cancellation requires: by the workflow, by a server timeout, or because the worker
        leaves.
        """
        details = activity.cancellation_details()
        if details is not None and details.cancel_requested:
            beating = asyncio.create_task(_send_heartbeats(timing.beat_s))
            try:
                return await step.end(timing.cancel_s, timing.kill_s) or _killed_result(step)
            finally:
                beating.cancel()
        if self.leaving.is_set() or (details is not None and details.worker_shutdown):
            step.detach()
            raise ApplicationError("the worker leaves", type=WORKER_LEFT, non_retryable=True)
        # The server has given up on this activity: a newer attempt may have been started here, and then owns the step.
        for _ in range(20):
            await asyncio.sleep(timing.adopt_s / 40)
            if not self._pool.is_listener(loop, number, me):
                raise ApplicationError("asked for anew", type=WORKER_LEFT, non_retryable=True)
        await step.end(timing.cancel_s, timing.kill_s, "kill")
        self._pool.forget(loop, number)
        raise ApplicationError("given to another worker", type=WORKER_LEFT, non_retryable=True)

    @activity.defn(name=ABSENT_ACTIVITY)
    async def absent(self, loops: list[str]) -> list[str]:
        """Those of the loops that have no running workflow."""
        gone = [loop for loop in loops if not await self._is_running(loop_workflow_id(loop))]
        # The governor asks, so it is running: a server that does not say so has just started.
        if gone and not await self._is_running(GOVERNOR_ID):
            raise ApplicationError("the server does not know its workflows yet", type="NotYet")
        return gone

    async def _is_running(self, workflow: str) -> bool:
        described = await describe(self._client, workflow)
        return described is not None and described.status == WorkflowExecutionStatus.RUNNING

    @activity.defn(name=TELL_GOVERNOR_ACTIVITY)
    async def tell_governor(self, event: dict[str, Any]) -> None:
        """Send the governor an event, and start it if it is not running."""
        await signal_governor(self._client, event)


async def _send_heartbeats(every_s: float) -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(every_s)


def _killed_result(step: StepProcess) -> StepResult:
    """The result of a step that was killed without a report: its cost alone."""
    report = {"type": "failed", "message": "killed when it was cancelled", "exitCode": 130}
    return StepResult(report, *step.cost(report))


# The worker: takes steps of loops on this machine, as many at once as it has slots.


HEARTBEAT_THROTTLE = timedelta(seconds=2)  # the longest delay of a cancellation
STICKY_QUEUE_TIMEOUT = timedelta(seconds=2)  # for the worker that has a workflow cached, and which may be dead
CONTACT_CHECK_S = 2.0
# These modules are pure and the same for every workflow: reloading them in the sandbox would take a second each time.
WORKFLOW_RUNNER = SandboxedWorkflowRunner(
    restrictions=SandboxRestrictions.default.with_passthrough_modules("ralphproof")
)


async def run_worker(
    client: Client, pool: StepPool, grace_s: float, leave: asyncio.Event, ready: Callable[[], None]
) -> None:
    """Work until `leave` is set; then steps have `grace_s` to end, after which their agents are left to be adopted."""
    contact = ServerContact()
    activities = Activities(client, pool, contact)
    keeping = asyncio.create_task(contact.poll(client, CONTACT_CHECK_S))
    common = Worker(
        client, task_queue=TASK_QUEUE, workflow_runner=WORKFLOW_RUNNER,
        workflows=[LoopWorkflow, GovernorWorkflow, SubmissionWorkflow],
        activities=[activities.claim, activities.absent, activities.tell_governor],
        max_concurrent_activities=MAX_CLAIMS, sticky_queue_schedule_to_start_timeout=STICKY_QUEUE_TIMEOUT,
    )  # fmt: skip
    own = Worker(
        client, task_queue=worker_queue(pool.name), activities=[activities.step], max_concurrent_activities=pool.slots,
        graceful_shutdown_timeout=timedelta(seconds=grace_s), max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        default_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
    )  # fmt: skip
    try:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(common)
            await stack.enter_async_context(own)
            ready()
            await leave.wait()
            activities.leaving.set()
    finally:
        keeping.cancel()
        for step in pool.running():
            step.detach()
