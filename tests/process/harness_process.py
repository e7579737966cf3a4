"""A harness in a process of its own (see harness_main.py), which tests kill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from ralphproof.engine.sandbox import Command, Exit
from ralphproof.process import turn_journal
from ralphproof.process.output import LOG_SIZES
from ralphproof.process.tree import start_time
from tests.process.workbench import RecordingWatcher, Workbench

ROOT = Path(__file__).parents[2]
PATHS = f"{ROOT}:{ROOT / 'src'}"


class Harness:
    """Runs a script as turn `t` of the bench's folder. `more` goes into the command."""

    def __init__(
        self,
        bench: Workbench,
        script: str,
        timeout_s: float = 60.0,
        *,
        sizes: tuple[int, int, int] = LOG_SIZES,
        stand_in: tuple[str, ...] = (),
        hold: bool = False,
        keeper_script: str = "",
        kill_at: str = "",
        **more: Any,
    ) -> None:
        self.bench, self.script, self.timeout_s, self.more = bench, script, timeout_s, more
        orders = {
            "sizes": sizes,
            "stand_in": stand_in,
            "hold": hold,
            "keeper_script": keeper_script,
            "kill_at": kill_at,
            "more": more,
        }
        program = str(Path(__file__).with_name("harness_main.py"))
        self.process = subprocess.Popen(
            [sys.executable, program, str(bench.folder), "t", str(timeout_s), script],
            env={**os.environ, "PYTHONPATH": PATHS, "NAP": bench.nap, "ORDERS": json.dumps(orders)},
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        self.stdout = self.process.stdout
        self.keeper = int(self.stdout.readline())
        self._born = start_time(self.keeper)

    @property
    def mark(self) -> str:
        return f"{self.bench.folder}-t"

    @property
    def command(self) -> Command:
        more = {"mark": self.mark, "timeout_s": self.timeout_s, **self.more}
        return self.bench.command("/bin/sh", "-c", self.script, turn="t", **more)

    @property
    def said(self) -> str:
        """What stands in the head of the log."""
        path = self.bench.folder / "t.out"
        return path.read_text() if path.exists() else ""

    @property
    def past(self) -> turn_journal.TurnHistory:
        return turn_journal.read_turn_file(str(self.bench.folder / "t.turn"))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def keeper_is_gone(self) -> bool:
        try:
            fields = Path(f"/proc/{self.keeper}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return True
        return fields[0] == "Z" or int(fields[19]) != self._born

    def next(self, watch: RecordingWatcher | None = None) -> Exit:
        """The exit of the same turn as the next harness sees it."""
        keeper = self.bench.keepers[-1] if self.bench.keepers else self.bench.keeper()
        return keeper.run(self.command, watch or RecordingWatcher())


def is_locked(turn_file: str) -> bool:
    """Whether a process holds the lock of a turn."""
    lock = turn_journal.lock_turn_file(turn_file)
    if lock is not None:
        os.close(lock)
    return lock is None
