"""Harnesses killed at random, sometimes with the keeper: a turn runs once, and its output is complete."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from typing import Any

import pytest

from ralphproof.process.tree import find_marked_processes
from tests.process.harness_process import Harness
from tests.process.workbench import RecordingWatcher, Workbench, running, until

pytestmark = pytest.mark.thorough

SIZES = (64 << 10, 64 << 10, 3)
PART = b"".join(b"%07d\n" % number for number in range(3000))
SCRIPT = (
    "echo started >> starts; (setsid sleep $NAP &); "
    "i=0; while [ $i -lt 10 ]; do cat part; sleep 0.02; i=$((i+1)); done; exit 3"
)
STAND_IN = """
import os
os.close(os.open({folder!r} + "/stood_in_%d" % os.getppid(), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
from ralphproof.process.keeper_client import TurnFollower
from ralphproof.engine.sandbox import Command
class Quiet:
    def output(self, chunk): pass
    def tick(self): return -1
command = Command(("?",), "/", (), {folder!r} + "/t.out", {folder!r} + "/t.turn", "")
TurnFollower(lambda: False, steering=True, sizes={sizes!r}).run(command, Quiet())
"""


@pytest.mark.parametrize("seed", range(40))
def test_random_kills_of_harness_and_keeper(bench: Workbench, start_harness: Any, seed: int) -> None:
    dice = random.Random(seed)
    (bench.folder / "part").write_bytes(PART)
    code = STAND_IN.format(folder=str(bench.folder), sizes=SIZES)
    keepers: set[int] = set()
    harness: Harness | None = None
    for _ in range(dice.randrange(1, 4)):
        harness = start_harness(SCRIPT, sizes=SIZES, stand_in=(sys.executable, "-c", code))
        time.sleep(dice.random() * 0.2)
        if dice.random() < 0.2 and harness.past.keeper[0] > 0:
            keepers.add(harness.past.keeper[0])
            os.kill(harness.past.keeper[0], signal.SIGKILL)
        harness.kill()
    assert harness is not None
    bench.keeper(sizes=SIZES)
    seen = RecordingWatcher()
    ended = harness.next(seen)
    assert ended.why == "exit" or (ended.why == "interrupted" and keepers)
    if ended.why == "exit":
        assert (ended.code, seen.output_bytes) == (3, PART * 10)
    else:
        assert (PART * 10).startswith(seen.output_bytes)
    assert ended.out_bytes == len(seen.output_bytes)
    starts = bench.folder / "starts"
    assert not starts.exists() or starts.read_text() in ("", "started\n")  # empty: killed between open and write
    until(lambda: not running(str(bench.folder)))
    assert (find_marked_processes(harness.mark), bench.sleepers()) == ([], [])
