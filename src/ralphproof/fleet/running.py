"""A step of a loop as a process: asked, listened to, told to end, and never left running unheard.

The program is a process of its own so that it dies with its worker: the end of its standard input is the end of the
worker. Keeper and agent go on, and the next step of the same loop on this machine adopts them.
"""

from __future__ import annotations

import asyncio
import json
import sys

from ralphproof.errors import HarnessFailed
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

TURN = "ralphproof.cli.fleet_turn"
MOST_LINE = 16 << 20
LAST = ("rest", "fenced", "failed")
STDERR_CHARS = 2000
LINGER_S = 10.0


@value
class StepDone:
    """What a step reported at last, and what it cost: None where something was spent and nobody knows how much."""

    report: dict[str, Any]
    micro_usd: int | None
    tokens: int


class RunningStep:
    """A step at work."""

    def __init__(self, argv: Sequence[str], folder: str, asked: dict[str, Any]) -> None:
        self._argv, self._asked = (*argv, folder), asked
        self._process: asyncio.subprocess.Process | None = None
        self._said = ""
        self._tail = b""
        self.begun = False
        self.spent: tuple[int | None, int] | None = None
        self.done: asyncio.Task[StepDone] = asyncio.create_task(self._through())

    def say(self, word: str) -> None:
        """Tell it to `stop`, `cancel` or `kill`; before it is started too."""
        if word == self._said:
            return
        self._said = word
        self._write(word)

    def _write(self, word: str) -> None:
        pipe = self._process.stdin if self._process else None
        if pipe is not None and not pipe.is_closing():
            pipe.write(f"{word}\n".encode())

    def leave(self) -> None:
        """Go away from it: its program ends at once, its agent goes on and can be adopted."""
        if self._process and self._process.stdin:
            self._process.stdin.close()

    async def end(self, cancel_s: float, kill_s: float, word: str = "cancel") -> StepDone | None:
        """Have it end within a bound; None where it had to be ended without a word of its own."""
        for told, patience_s in ((word, cancel_s), ("kill", kill_s)):
            if told == "kill" or word != "kill":
                self.say(told)
                await asyncio.wait([self.done], timeout=patience_s)
            if self.done.done():
                return None if self.done.exception() else self.done.result()
        if self._process:
            self._process.kill()
        await asyncio.wait([self.done])
        return None if self.done.exception() else self.done.result()

    async def _through(self) -> StepDone:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *self._argv, stdin=pipe, stdout=pipe, stderr=pipe, limit=MOST_LINE, start_new_session=True
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(self._asked).encode() + b"\n")
        if self._said:
            self._write(self._said)
        complaints = asyncio.create_task(self._complaints())
        try:
            report = await self._heard()
        finally:
            if self._process.stdin:
                self._process.stdin.close()
            code = await self._over()
            await asyncio.wait([complaints], timeout=1.0)  # what the agent's keeper inherited may stay open
            complaints.cancel()
        if report is None:
            said = self._tail.decode("utf-8", "replace").strip().splitlines()
            raise StepLost(f"the step's program ended with {code} and without a result; {said[-1] if said else ''}")
        return StepDone(report, *self.cost(report))

    def cost(self, report: dict[str, Any]) -> tuple[int | None, int]:
        """What it has cost by its own words; those of a turn whose end it did not report are not the last ones."""
        micro_usd, tokens = self.spent or ((None, 0) if self.begun else (0, 0))
        return None if self.begun and report["type"] == "failed" else micro_usd, tokens

    async def _over(self) -> int:
        """Its exit code. After its last word it has nothing left to do."""
        assert self._process is not None
        try:
            return await asyncio.wait_for(self._process.wait(), LINGER_S)
        except TimeoutError:
            self._process.kill()
            return await self._process.wait()

    async def _heard(self) -> dict[str, Any] | None:
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
                case kind if kind in LAST:
                    return said
                case _:
                    pass

    async def _complaints(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        rest = b""
        while piece := await self._process.stderr.read(65536):
            self._tail = (self._tail + piece)[-STDERR_CHARS:]
            *lines, rest = (rest[-STDERR_CHARS:] + piece).split(b"\n")
            for line in lines:
                self._told(line)

    def _told(self, line: bytes) -> None:
        """What it says of its own accord belongs into the worker's log."""
        text = "".join(letter if letter.isprintable() else " " for letter in line.decode("utf-8", "replace"))
        print(f"{self._asked['order']['loop']}: {text[:STDERR_CHARS]}", file=sys.stderr, flush=True)


class StepLost(HarnessFailed):
    """The program of a step died. What it had begun may go on, and is adopted by the next one."""
