"""Processes that take steps of loops on one machine."""

from __future__ import annotations

import asyncio
import json
import sys

from ralphproof.base.errors import HarnessFailed, Refused
from ralphproof.base.value import TYPE_CHECKING, pack, value
from ralphproof.engine.actions import Action, AwaitChildRuns, EndRun, Finish, HoldPaused, PickNextJob, WaitForService
from ralphproof.fleet.submission import MAX_LOOP_SPEC_BYTES, MAX_NAME_CHARS, LoopSpec, parse_loop_spec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ralphproof.base.value import Json
    from ralphproof.engine.budget import Spend


# What a worker and the process that takes one step of a loop say to each other: one JSON object a line.
#
# In: a `StepAsked`, then `stop`, `cancel` or `kill`. Out: `begun` and `spent` as it goes; at last one of `rest`,
# `fenced` and `failed`.


STOP_STEP, CANCEL_STEP, KILL_STEP = "stop", "cancel", "kill"
STEP_COMMANDS = (STOP_STEP, CANCEL_STEP, KILL_STEP)
MAX_NUMBER = 2**53
NEXT_ACTIONS = (PickNextJob, WaitForService, HoldPaused, AwaitChildRuns, EndRun, Finish)


@value
class StepRequest:
    """One step of a loop. `epoch` says who has it: the higher one. `allot` is what the step's turn may spend at most.

    `spent` is what the loop had spent when that was set aside for it: a step that was asked for before, and of which
    nobody heard, has used some of it. `finish` lets it go on through the end of the run. `standing` is the worker's
    name. `known` is how many records whoever asks has already.
    """

    spec: LoopSpec
    epoch: int
    allot: int | None = None
    finish: bool = False
    worker: str = ""
    known: int = 0
    spent: int | None = None


def parse_step_request(line: bytes) -> StepRequest:
    """What the first line asks for; raises Refused where it cannot be meant."""
    if len(line) > MAX_LOOP_SPEC_BYTES:
        raise Refused(f"a loop spec has at most {MAX_LOOP_SPEC_BYTES >> 20} MiB")
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Refused(f"the first line must be one JSON object: {str(error)[:200]}") from error
    if not isinstance(data, dict):
        raise Refused("the first line must be one JSON object")
    epoch, allot, known = (
        _parse_number(data, "epoch"),
        data.get("allot"),
        _parse_number(data | {"known": data.get("known", 0)}),
    )
    finish, standing = data.get("finish", False), data.get("worker", "")
    if not isinstance(finish, bool):
        raise Refused("finish must be true or false")
    if not isinstance(standing, str) or not standing.isprintable() or len(standing) > MAX_NAME_CHARS:
        raise Refused(f"standing must be a worker's name of at most {MAX_NAME_CHARS} characters")
    allot = None if allot is None else _parse_number(data, "allot")
    spent = None if data.get("spent") is None else _parse_number(data, "spent")
    return StepRequest(parse_loop_spec(data.get("spec")), epoch, allot, finish, standing, known, spent)


def _parse_number(data: dict[str, object], name: str = "known") -> int:
    found = data.get(name)
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= MAX_NUMBER:
        raise Refused(f"{name} must be a whole number from 0 on")
    return found


def turn_begun_report(iteration: int, turn: int, agent: str) -> dict[str, Json]:
    """A turn has begun, and the remote knows it."""
    return {"type": "begun", "iteration": iteration, "turn": turn, "agent": agent}


def spend_report(micro_usd: int | None, tokens: int) -> dict[str, Json]:
    """What the turn at work has cost so far; None where nobody can tell."""
    return {"type": "spent", "microUsd": micro_usd, "tokens": tokens}


def rest_report(records: list[Json], step: Action, until: float | None, head: str, spend: Spend) -> dict[str, Json]:
    """The step is over, and the remote has all of it. Anything but a wait or an end means: another step, now.

    `spend` is what the whole loop has cost, for whoever cannot take all records.
    """
    name = type(step).__name__ if isinstance(step, NEXT_ACTIONS) else PickNextJob.__name__
    return {"type": "rest", "records": records, "next": name, "until": until, "head": head, "spend": pack(spend)}


def fenced_report() -> dict[str, Json]:
    """Somebody else has the loop now; nothing of this step counts."""
    return {"type": "fenced"}


def failed_report(message: str, exit_code: int) -> dict[str, Json]:
    """The step could not be taken, or not to its end; what is on record stays."""
    return {"type": "failed", "message": message, "exitCode": exit_code}


def encode_report(report: dict[str, Json]) -> bytes:
    """A report as it is written."""
    return json.dumps(report).encode() + b"\n"


# A step of a loop as a process: asked, listened to, told to end, and never left running unheard.
#
# The program is a process of its own so that it dies with its worker: the end of its standard input is the end of the
# worker. Keeper and agent go on, and the next step of the same loop on this machine adopts them.


STEP_PROGRAM = "ralphproof.fleet.step_program"
MAX_LINE_BYTES = 16 << 20
FINAL_REPORTS = ("rest", "fenced", "failed")
MAX_STDERR_CHARS = 2000
EXIT_TIMEOUT_S = 10.0


@value
class StepResult:
    """What a step reported at last, and what it cost: None where something was spent and nobody knows how much."""

    report: dict[str, Any]
    micro_usd: int | None
    tokens: int


class StepProcess:
    """A step at work."""

    def __init__(self, argv: Sequence[str], folder: str, request: dict[str, Any]) -> None:
        self._argv, self._request = (*argv, folder), request
        self._process: asyncio.subprocess.Process | None = None
        self._last_command = ""
        self._tail = b""
        self.begun = False
        self.spent: tuple[int | None, int] | None = None
        self.done: asyncio.Task[StepResult] = asyncio.create_task(self._run())

    def send(self, word: str) -> None:
        """Tell it to `stop`, `cancel` or `kill`; before it is started too."""
        if word == self._last_command:
            return
        self._last_command = word
        self._write(word)

    def _write(self, word: str) -> None:
        pipe = self._process.stdin if self._process else None
        if pipe is not None and not pipe.is_closing():
            pipe.write(f"{word}\n".encode())

    def detach(self) -> None:
        """Go away from it: its program ends at once, its agent goes on and can be adopted."""
        if self._process and self._process.stdin:
            self._process.stdin.close()

    async def end(self, cancel_s: float, kill_s: float, word: str = "cancel") -> StepResult | None:
        """Have it end within a bound; None where it had to be ended without a word of its own."""
        for told, patience_s in ((word, cancel_s), ("kill", kill_s)):
            if told == "kill" or word != "kill":
                self.send(told)
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
            await asyncio.wait([stderr_reader], timeout=1.0)  # what the agent's keeper inherited may stay open
            stderr_reader.cancel()
        if report is None:
            said = self._tail.decode("utf-8", "replace").strip().splitlines()
            raise StepLost(f"the step's program ended with {code} and without a result; {said[-1] if said else ''}")
        return StepResult(report, *self.cost(report))

    def cost(self, report: dict[str, Any]) -> tuple[int | None, int]:
        """What it has cost by its own words; those of a turn whose end it did not report are not the last ones."""
        micro_usd, tokens = self.spent or ((None, 0) if self.begun else (0, 0))
        return None if self.begun and report["type"] == "failed" else micro_usd, tokens

    async def _wait_for_exit(self) -> int:
        """Its exit code. After its last word it has nothing left to do."""
        assert self._process is not None
        try:
            return await asyncio.wait_for(self._process.wait(), EXIT_TIMEOUT_S)
        except TimeoutError:
            self._process.kill()
            return await self._process.wait()

    async def _read_reports(self) -> dict[str, Any] | None:
        """Its last word; None where it died without one."""
        assert self._process is not None
        assert self._process.stdout is not None
        while True:
            try:
                line = await self._process.stdout.readline()
                said = json.loads(line) if line else None
            except (ValueError, RecursionError):
                self._process.kill()
                return None
            if not isinstance(said, dict):
                return None
            match said.get("type"):
                case "begun":
                    self.begun = True
                case "spent":
                    self.spent = said.get("microUsd"), int(said.get("tokens") or 0)
                case kind if kind in FINAL_REPORTS:
                    return said
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
        """What it says of its own accord belongs into the worker's log."""
        text = "".join(letter if letter.isprintable() else " " for letter in line.decode("utf-8", "replace"))
        print(f"{self._request['order']['loop']}: {text[:MAX_STDERR_CHARS]}", file=sys.stderr, flush=True)


class StepLost(HarnessFailed):
    """The program of a step died. What it had begun may go on, and is adopted by the next one."""


# The steps at work on one machine. A step that is asked for twice is one: whoever asks again listens along.


class StepPool:
    """A worker's own: its name, its folder, and what is at work in it."""

    def __init__(self, name: str, folder: str, slots: int, argv: Sequence[str]) -> None:
        self.name, self.folder, self.slots = name, folder, slots
        self._argv = tuple(argv)
        self._steps: dict[tuple[str, int], StepProcess] = {}
        self._listeners: dict[tuple[str, int], object] = {}
        self._reserved: dict[str, float] = {}

    def step(self, request: dict[str, Any], number: int, listener: object) -> StepProcess:
        """The step of this number, begun or found at work; the last `listener` has its ear."""
        key = request["spec"]["loop"], number
        self._reserved.pop(key[0], None)
        known = self._steps.get(key)
        if known is None or (known.done.done() and known.done.exception()):
            known = StepProcess(self._argv, self.folder, {**request, "worker": self.name})
            self._steps[key] = known
        self._listeners[key] = listener
        return known

    def is_listener(self, loop: str, number: int, listener: object) -> bool:
        """Whether nobody else has asked for the same step since."""
        return self._listeners.get((loop, number)) is listener

    def forget(self, loop: str, number: int) -> None:
        """Forget a step whose result somebody else keeps by now."""
        self._steps.pop((loop, number), None)
        self._listeners.pop((loop, number), None)

    def running(self) -> list[StepProcess]:
        """All that is at work."""
        return [step for step in self._steps.values() if not step.done.done()]

    def reserve_slot(self, loop: str, now: float, patience_s: float) -> bool:
        """Keep a slot for this loop, whose step is about to come; whether there is one."""
        self._reserved = {name: until for name, until in self._reserved.items() if until > now}
        if loop not in self._reserved and len(self.running()) + len(self._reserved) >= self.slots:
            return False
        self._reserved[loop] = now + patience_s
        return True
