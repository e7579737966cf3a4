"""Death of keeper or harness at every moment of a turn: the next one reports the right end, nothing starts twice."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest

from ralphproof.engine.sandbox import Exit
from ralphproof.process import keeper_client
from ralphproof.process.tree import find_marked_processes
from tests.process.fault_injection import HARNESS_MOMENTS, KEEPER_MOMENTS, keeper_script_that_dies
from tests.process.workbench import RecordingWatcher, Workbench, until

SIZES = (64 << 10, 64 << 10, 3)
WORDS = b"".join(b"line %06d\n" % number for number in range(22000))  # the head and three segments: all of it is kept
SCRIPT = "echo started >> starts; cat words; (setsid sleep $NAP &); exit 3"

# By the moment of the death: how the turn ends, and whether all of its output is there.
NOT_BEGUN, CUT, UNTOLD, TOLD = ("exit", True), ("interrupted", False), ("interrupted", True), ("exit", True)
EXPECTED = {
    "before began": NOT_BEGUN, "after began": CUT, "after fork": CUT, "after agent": CUT,
    "before the logs are closed": CUT, "in a segment": UNTOLD, "before a segment goes": UNTOLD,
    "after the logs are closed": UNTOLD, "in the result": UNTOLD, "after the result": TOLD, "before the report": TOLD,
}  # fmt: skip


def _ended_well(bench: Workbench, ended: Exit, seen: RecordingWatcher, why: str, whole: bool) -> None:
    assert (ended.why, ended.code) == (why, 3 if why == "exit" else None)
    assert ended.out_bytes == len(seen.output_bytes)
    assert WORDS.startswith(seen.output_bytes)
    assert (seen.output_bytes == WORDS) or not whole
    assert (bench.folder / "t.out").read_bytes() == seen.output_bytes
    starts = bench.folder / "starts"
    assert not starts.exists() or starts.read_text() in ("", "started\n")  # empty: killed between open and write
    assert (bench.sleepers(), find_marked_processes(str(bench.folder))) == ([], [])
    assert not list(bench.folder.glob("t.out.*"))


def test_every_moment_has_an_expected_end() -> None:
    assert tuple(EXPECTED) == KEEPER_MOMENTS


@pytest.mark.parametrize("label", KEEPER_MOMENTS)
def test_a_keeper_may_die_at_any_moment(bench: Workbench, label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (bench.folder / "words").write_bytes(WORDS)
    monkeypatch.setattr(keeper_client, "_KEEPER_MAIN", keeper_script_that_dies(bench.folder, label, both=False))
    bench.keeper(sizes=SIZES)
    seen, again = RecordingWatcher(), RecordingWatcher()
    mark = f"{bench.folder}-t"
    ended = bench.sh(SCRIPT, seen, turn="t", mark=mark)
    assert (bench.folder / "died").exists()
    _ended_well(bench, ended, seen, *EXPECTED[label])
    assert bench.sh(SCRIPT, again, turn="t", mark=mark) == ended
    assert again.output_bytes == seen.output_bytes


@pytest.mark.thorough
@pytest.mark.parametrize("label", KEEPER_MOMENTS)
def test_keeper_and_harness_may_die_at_any_moment(bench: Workbench, start_harness: Any, label: str) -> None:
    (bench.folder / "words").write_bytes(WORDS)
    harness = start_harness(SCRIPT, sizes=SIZES, keeper_script=keeper_script_that_dies(bench.folder, label, both=True))
    harness.process.wait()
    until(harness.keeper_is_gone)
    bench.keeper(sizes=SIZES)
    seen = RecordingWatcher()
    _ended_well(bench, harness.next(seen), seen, *EXPECTED[label])


@pytest.mark.parametrize("label", HARNESS_MOMENTS)
def test_a_harness_may_die_between_lock_and_start(bench: Workbench, start_harness: Any, label: str) -> None:
    (bench.folder / "words").write_bytes(WORDS)
    harness = start_harness(SCRIPT, sizes=SIZES, kill_at=label)
    harness.process.wait()
    bench.keeper(sizes=SIZES)
    seen = RecordingWatcher()
    _ended_well(bench, harness.next(seen), seen, "exit", True)
    assert bench.text("starts") == "started\n"


@pytest.mark.parametrize("label", HARNESS_MOMENTS)
def test_a_second_harness_that_comes_while_the_keeper_sleeps_starts_nothing_twice(
    bench: Workbench, start_harness: Any, label: str
) -> None:
    (bench.folder / "words").write_bytes(WORDS)
    harness = start_harness(SCRIPT, sizes=SIZES, kill_at=label, hold=True)
    harness.process.wait()
    told: list[Exit] = []
    bench.keeper(sizes=SIZES)
    seen = RecordingWatcher()
    second = threading.Thread(target=lambda: told.append(harness.next(seen)))
    second.start()
    second.join(0.2)
    os.kill(harness.keeper, signal.SIGCONT)
    second.join(20)
    _ended_well(bench, told[0], seen, "exit", True)
    assert bench.text("starts") == "started\n"
