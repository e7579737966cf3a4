"""Step processes of a worker; `fleet/step.py` is the program and its protocol."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any

from ralphproof.base.errors import HarnessFailed
from ralphproof.base.value import value

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
