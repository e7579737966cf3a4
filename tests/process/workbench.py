"""What the keeper tests share: keepers with a folder, watchers, and finding processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ralphproof.engine.sandbox import ACTIVE, CONTINUE, KILL, RESULT_SAID, STOP, Command, Exit
from ralphproof.process.keeper_client import KeeperClient
from ralphproof.process.output import LOG_SIZES


def until(met: Callable[[], Any], seconds: float = 10.0) -> Any:
    """Wait for an event of another process; its value."""
    deadline = time.monotonic() + seconds
    while not (seen := met()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)
    return seen


def running(words: str) -> list[int]:
    """Processes whose command line holds these words, zombies aside."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                line = Path(f"/proc/{name}/cmdline").read_bytes().replace(b"\0", b" ")
            except OSError:
                continue
            if words.encode() in line:
                found.append(int(name))
    return found


class RecordingWatcher:
    """A watcher that keeps the output and requests what the test says."""

    def __init__(self, wants: Callable[[RecordingWatcher], int] = lambda _: CONTINUE) -> None:
        self.output_bytes = b""
        self.ticks = 0
        self._wants = wants

    def output(self, chunk: bytes) -> None:
        self.output_bytes += chunk

    def tick(self) -> int:
        self.ticks += 1
        return self._wants(self)


class ObeyingWatcher(RecordingWatcher):
    """Requests what the program's output says: RESULT, STOP, KILL, and WORKING as often as it occurs."""

    def __init__(self) -> None:
        super().__init__()
        self._told: list[int] = []

    def tick(self) -> int:
        super().tick()
        if RESULT_SAID not in self._told and b"RESULT" in self.output_bytes:
            self._told.append(RESULT_SAID)
            return RESULT_SAID
        if self._told.count(ACTIVE) < self.output_bytes.count(b"WORKING"):
            self._told.append(ACTIVE)
            return ACTIVE
        return KILL if b"KILL" in self.output_bytes else STOP if b"STOP" in self.output_bytes else CONTINUE


class Workbench:
    """Keepers, a folder, and as many turns as a test needs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keepers: list[KeeperClient] = []
        self.turns = 0
        self.nap = f"{os.getpid() + 1000}.{time.monotonic_ns()}"  # `sleep` for so long is ours alone

    def keeper(
        self, secrets: tuple[str, ...] = (), sizes: tuple[int, int, int] = LOG_SIZES, **more: Any
    ) -> KeeperClient:
        self.keepers.append(KeeperClient(secrets, str(self.folder / "keeper.err"), sizes=sizes, **more))
        return self.keepers[-1]

    def command(self, *argv: str, turn: str = "", **more: Any) -> Command:
        self.turns += 1
        name = turn or f"turn_{self.turns}"
        base = {
            "argv": argv,
            "cwd": str(self.folder),
            "env": (("PATH", os.environ["PATH"]), ("NAP", self.nap)),
            "out": str(self.folder / f"{name}.out"),
            "err": str(self.folder / f"{name}.err"),
            "turn_file": str(self.folder / f"{name}.turn"),
            "timeout_s": 20.0,
            "mark": f"{self.folder.name}-{os.getpid()}-{name}",
        }
        return Command(**{**base, **more})

    def sh(self, script: str, watch: RecordingWatcher | None = None, **more: Any) -> Exit:
        keeper = self.keepers[-1] if self.keepers else self.keeper()
        return keeper.run(self.command("/bin/sh", "-c", script, **more), watch or RecordingWatcher())

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()

    def sleepers(self) -> list[int]:
        return running(f"sleep {self.nap}")
