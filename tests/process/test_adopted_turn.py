"""The same program under one harness, and under two of which the first is killed: output and exit are the same."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from ralphproof.engine.sandbox import CONTINUE, STOP, Exit
from ralphproof.process.dead_turns import signal_keeper
from ralphproof.process.tree import find_marked_processes
from tests.process.harness_process import Harness, is_locked
from tests.process.workbench import ObeyingWatcher, Workbench, until

SIZES = (64 << 10, 64 << 10, 3)
PART = 110 << 10  # two of them go past the head; all of it stays on disk
LINES = "i=0; while [ $i -lt 15 ]; do echo line $i; sleep 0.02; i=$((i+1)); done; exit 3"
FLOOD = "cat part; until [ -e go ]; do sleep 0.02; done; cat part; echo done; exit 4"
TIDY = "trap 'echo tidy; sleep 0.4; echo tidied; exit 7' TERM; echo STOP; while :; do sleep 0.02; done"
DEAF = "trap '' TERM; echo STOP; while :; do sleep 0.02; done"
DAEMON = "(setsid sleep $NAP &); echo up; sleep 0.3; echo down; exit 5"


def _began(harness: Harness) -> bool:
    return harness.past.began


def _says(word: str) -> Callable[[Harness], bool]:
    return lambda harness: word in harness.said


def _past_the_head(harness: Harness) -> bool:
    return (harness.bench.folder / "t.out.1").exists()


def _ended(harness: Harness) -> bool:
    return harness.past.result is not None


def _later(word: str, seconds: float) -> Callable[[Harness], bool]:
    """So long after this was said."""
    heard: list[float] = []

    def met(harness: Harness) -> bool:
        if not heard and word in harness.said:
            heard.append(time.monotonic())
        return bool(heard) and time.monotonic() > heard[0] + seconds

    return met


def _alone(bench: Workbench, script: str, **more: Any) -> tuple[Exit, bytes]:
    seen = ObeyingWatcher()
    bench.keeper(sizes=SIZES)
    return bench.sh(script, seen, turn="twin", mark=f"{bench.folder}-twin", **more), seen.output_bytes


def _adopted(harness: Harness, when: Callable[[Harness], bool]) -> tuple[Exit, bytes]:
    until(lambda: when(harness))
    harness.kill()
    (harness.bench.folder / "go").touch()
    seen = ObeyingWatcher()
    return harness.next(seen), seen.output_bytes


def _told(ended: Exit) -> tuple[object, ...]:
    """All but how long it took."""
    return (
        ended.why, ended.code, ended.signal, ended.out_bytes, ended.dropped_bytes, ended.error, ended.survivors,
        ended.log_error,
    )  # fmt: skip


def _alike(
    bench: Workbench, start_harness: Any, script: str, when: Callable[[Harness], bool], **more: Any
) -> tuple[Exit, Exit]:
    """Both ends, after what must be equal is."""
    (bench.folder / "part").write_bytes(b"".join(b"%07d\n" % number for number in range(PART // 8)))
    (bench.folder / "go").touch()
    alone, said = _alone(bench, script, **more)
    (bench.folder / "go").unlink()
    adopted, heard = _adopted(start_harness(script, sizes=SIZES, **more), when)
    assert (_told(adopted), heard) == (_told(alone), said)
    assert adopted.cpu_s > 0
    assert (bench.sleepers(), find_marked_processes(str(bench.folder))) == ([], [])
    return alone, adopted


@pytest.mark.parametrize(
    ("script", "when", "why"),
    [
        (LINES, _began, "exit"),
        (LINES, _says("line 5\n"), "exit"),
        (LINES, _ended, "exit"),
        (FLOOD, _past_the_head, "exit"),
        (TIDY, _says("tidy\n"), "stopped"),
        (DAEMON, _says("up\n"), "exit"),
    ],
)
def test_an_adopted_turn_ends_as_if_its_harness_had_not_been_killed(
    bench: Workbench, start_harness: Any, script: str, when: Callable[[Harness], bool], why: str
) -> None:
    alone, _ = _alike(bench, start_harness, script, when, timeout_s=20.0)
    assert alone.why == why


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("script", "when", "more", "why", "restarted_s"),
    [
        ("echo up; sleep $NAP", _later("up", 2.0), {"timeout_s": 3.0}, "timeout", 5.0),
        ("echo up; sleep $NAP", _later("up", 2.0), {"timeout_s": 60.0, "idle_s": 3.0}, "idle", 5.0),
        ("echo RESULT; sleep $NAP", _later("RESULT", 2.0), {"timeout_s": 60.0, "linger_s": 3.0}, "lingered", 5.0),
        (DEAF, _later("STOP", 2.0), {"timeout_s": 60.0, "grace_s": 3.0}, "stopped", 5.0),
    ],
)
def test_no_clock_starts_anew_when_a_turn_is_adopted(
    bench: Workbench,
    start_harness: Any,
    script: str,
    when: Callable[[Harness], bool],
    more: dict[str, float],
    why: str,
    restarted_s: float,
) -> None:
    alone, adopted = _alike(bench, start_harness, script, when, **more)
    assert alone.why == why
    assert 3.0 <= alone.seconds < restarted_s
    assert 3.0 <= adopted.seconds < restarted_s - 0.2


def test_files_that_change_keep_a_silent_adopted_turn_from_being_idle(bench: Workbench, start_harness: Any) -> None:
    harness = start_harness("echo WORKING WORKING WORKING; sleep $NAP", idle_s=0.7)
    until(bench.sleepers)
    harness.kill()
    seen = ObeyingWatcher()
    ended = harness.next(seen)
    assert ended.why == "idle"
    assert ended.seconds > 1.5  # twice a second, three times
    assert seen.ticks < 20  # a watcher counts its ticks: twice a second, and after output


def test_stop_from_several_harnesses_is_one_stop(bench: Workbench, start_harness: Any) -> None:
    harness = start_harness(TIDY)
    until(lambda: "tidy" in harness.said)
    harness.kill()

    class Insistent(ObeyingWatcher):
        def tick(self) -> int:
            if not self.ticks:
                signal_keeper(harness.past, STOP)
                signal_keeper(harness.past, STOP)
            return super().tick()

    ended = harness.next(Insistent())
    assert (ended.why, ended.code, harness.said) == ("stopped", 7, "STOP\ntidy\ntidied\n")


def test_an_adopted_turn_that_does_not_stop_can_be_killed(bench: Workbench, start_harness: Any) -> None:
    harness = start_harness(DEAF, grace_s=60.0)
    until(lambda: "STOP" in harness.said)
    harness.kill()

    class Impatient(ObeyingWatcher):
        def tick(self) -> int:
            return super().tick() + (self.ticks > 1)

    ended = harness.next(Impatient())
    assert (ended.why, ended.signal) == ("killed", 9)
    assert ended.seconds < 30


def test_a_suspended_keeper_is_woken_to_end_its_turn(bench: Workbench, start_harness: Any) -> None:
    harness = start_harness("echo up; sleep $NAP")
    until(bench.sleepers)
    harness.kill()
    os.kill(harness.keeper, signal.SIGSTOP)

    class Ending(ObeyingWatcher):
        def tick(self) -> int:
            super().tick()
            if self.ticks > 20:
                os.kill(harness.keeper, signal.SIGCONT)
            return STOP

    watch = Ending()
    assert (harness.next(watch).why, watch.ticks < 20) == ("stopped", True)


class Told(ObeyingWatcher):
    """Wants to stop at once, and never says so again."""

    def tick(self) -> int:
        super().tick()
        return STOP if self.ticks == 1 else CONTINUE


def test_a_stop_requested_before_the_turn_began_is_not_forgotten(bench: Workbench, start_harness: Any) -> None:
    harness = start_harness("echo up; sleep $NAP", hold=True)
    assert harness.stdout.readline() == b"sending\n"
    until(lambda: is_locked(str(bench.folder / "t.turn")))
    harness.kill()

    class Waking(Told):
        def tick(self) -> int:
            wanted = super().tick()
            os.kill(harness.keeper, signal.SIGCONT)
            return wanted

    assert harness.next(Waking()).why == "stopped"
    assert bench.sleepers() == []
