"""The worker of a machine: its folder, its step processes, its activities, and its connection to Temporal."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
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

from ralphproof.base.errors import Busy, HarnessFailed, Refused
from ralphproof.base.files import read_file, write_atomically
from ralphproof.base.value import unpack, value
from ralphproof.fleet.client import describe, signal_governor
from ralphproof.fleet.messages import (
    CLAIM_HOLD_S,
    CLAIM_TIMEOUT_S,
    MAX_CLAIMS,
    SPEND_REPORT_S,
    FleetTiming,
    is_plain_name,
)
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

# A step runs in a process of its own that exits with its worker: it notices the end of its standard input. Keeper and
# agent continue, and the next step of the same loop on this machine adopts them.


STEP_PROGRAM = "ralphproof.fleet.step"
MAX_LINE_BYTES = 16 << 20
FINAL_REPORTS = ("rest", "fenced", "failed")
MAX_STDERR_CHARS = 2000
EXIT_TIMEOUT_S = 10.0


@value
class StepResult:
    """A step's final report and its cost: None if money was spent and the amount is unknown."""

    report: dict[str, Any]
    micro_usd: int | None
    tokens: int


class StepProcess:
    """A running step."""

    def __init__(self, argv: Sequence[str], folder: str, request: dict[str, Any]) -> None:
        self._argv, self._request = (*argv, folder), request
        self._process: asyncio.subprocess.Process | None = None
        self._last_command = ""
        self._tail = b""
        self.begun = False
        self.spent: tuple[int | None, int] | None = None
        self.done: asyncio.Task[StepResult] = asyncio.create_task(self._run())

    def send(self, word: str) -> None:
        """Send `stop`, `cancel` or `kill`; also allowed before the process is started."""
        if word == self._last_command:
            return
        self._last_command = word
        self._write(word)

    def _write(self, word: str) -> None:
        pipe = self._process.stdin if self._process else None
        if pipe is not None and not pipe.is_closing():
            pipe.write(f"{word}\n".encode())

    def detach(self) -> None:
        """Disconnect: the step's program ends at once, its agent continues and can be adopted."""
        if self._process and self._process.stdin:
            self._process.stdin.close()

    async def end(self, cancel_s: float, kill_s: float, word: str = "cancel") -> StepResult | None:
        """End it within a bounded time; None if it had to be killed without a final report."""
        for command, patience_s in ((word, cancel_s), ("kill", kill_s)):
            if command == "kill" or word != "kill":
                self.send(command)
                await asyncio.wait([self.done], timeout=patience_s)
            if self.done.done():
                return None if self.done.exception() else self.done.result()
        if self._process:
            self._process.kill()
        await asyncio.wait([self.done])
        return None if self.done.exception() else self.done.result()

    async def _run(self) -> StepResult:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *self._argv, stdin=pipe, stdout=pipe, stderr=pipe, limit=MAX_LINE_BYTES, start_new_session=True
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(self._request).encode() + b"\n")
        if self._last_command:
            self._write(self._last_command)
        stderr_reader = asyncio.create_task(self._read_stderr())
        try:
            report = await self._read_reports()
        finally:
            if self._process.stdin:
                self._process.stdin.close()
            code = await self._wait_for_exit()
            await asyncio.wait([stderr_reader], timeout=1.0)  # the agent's keeper may hold the pipe open
            stderr_reader.cancel()
        if report is None:
            lines = self._tail.decode("utf-8", "replace").strip().splitlines()
            raise StepLost(f"the step's program ended with {code} and without a result; {lines[-1] if lines else ''}")
        return StepResult(report, *self.cost(report))

    def cost(self, report: dict[str, Any]) -> tuple[int | None, int]:
        """The cost as reported. For a turn whose end was not reported, the last amount may be too low."""
        micro_usd, tokens = self.spent or ((None, 0) if self.begun else (0, 0))
        return None if self.begun and report["type"] == "failed" else micro_usd, tokens

    async def _wait_for_exit(self) -> int:
        """The exit code; after its final report the process has nothing left to do."""
        assert self._process is not None
        try:
            return await asyncio.wait_for(self._process.wait(), EXIT_TIMEOUT_S)
        except TimeoutError:
            self._process.kill()
            return await self._process.wait()

    async def _read_reports(self) -> dict[str, Any] | None:
        """The final report; None if the process died without one."""
        assert self._process is not None
        assert self._process.stdout is not None
        while True:
            try:
                line = await self._process.stdout.readline()
                report = json.loads(line) if line else None
            except (ValueError, RecursionError):
                self._process.kill()
                return None
            if not isinstance(report, dict):
                return None
            match report.get("type"):
                case "begun":
                    self.begun = True
                case "spent":
                    self.spent = report.get("microUsd"), int(report.get("tokens") or 0)
                case kind if kind in FINAL_REPORTS:
                    return report
                case _:
                    pass

    async def _read_stderr(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        rest = b""
        while piece := await self._process.stderr.read(65536):
            self._tail = (self._tail + piece)[-MAX_STDERR_CHARS:]
            *lines, rest = (rest[-MAX_STDERR_CHARS:] + piece).split(b"\n")
            for line in lines:
                self._log_stderr(line)

    def _log_stderr(self, line: bytes) -> None:
        """Forward standard error to the worker's log."""
        text = "".join(letter if letter.isprintable() else " " for letter in line.decode("utf-8", "replace"))
        print(f"{self._request['spec']['loop']}: {text[:MAX_STDERR_CHARS]}", file=sys.stderr, flush=True)


class StepLost(HarnessFailed):
    """The step's program died. Its agent may still run, and is adopted by the next step."""


# The running steps of one machine. A step that is requested twice runs once; the newest request gets the result.


class StepPool:
    """A worker's name, folder and running steps."""

    def __init__(self, name: str, folder: str, slots: int, argv: Sequence[str]) -> None:
        self.name, self.folder, self.slots = name, folder, slots
        self._argv = tuple(argv)
        self._steps: dict[tuple[str, int], StepProcess] = {}
        self._listeners: dict[tuple[str, int], object] = {}
        self._reserved: dict[str, float] = {}

    def step(self, request: dict[str, Any], number: int, listener: object) -> StepProcess:
        """The step of this number, started or already running; only the newest `listener` receives its result."""
        key = request["spec"]["loop"], number
        self._reserved.pop(key[0], None)
        known = self._steps.get(key)
        if known is None or (known.done.done() and known.done.exception()):
            known = StepProcess(self._argv, self.folder, {**request, "worker": self.name})
            self._steps[key] = known
        self._listeners[key] = listener
        return known

    def is_listener(self, loop: str, number: int, listener: object) -> bool:
        """Whether nobody has requested the same step since."""
        return self._listeners.get((loop, number)) is listener

    def forget(self, loop: str, number: int) -> None:
        """Drop a step whose result is stored elsewhere by now."""
        self._steps.pop((loop, number), None)
        self._listeners.pop((loop, number), None)

    def running(self) -> list[StepProcess]:
        """All running steps."""
        return [step for step in self._steps.values() if not step.done.done()]

    def reserve_slot(self, loop: str, now: float, patience_s: float) -> bool:
        """Reserve a slot for this loop, whose step is about to arrive; whether one was free."""
        self._reserved = {name: until for name, until in self._reserved.items() if until > now}
        if loop not in self._reserved and len(self.running()) + len(self._reserved) >= self.slots:
            return False
        self._reserved[loop] = now + patience_s
        return True


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
            await asyncio.sleep(timing.heartbeat_s / 40)
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
