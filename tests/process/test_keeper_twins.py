"""The same program twice: under one harness, and under two of which the first is killed. Nobody can tell them apart."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from ralphproof.engine.sandbox import CONTINUE, STOP, Exit
from ralphproof.process.cleanup import find_turn_processes, signal_keeper
from tests.process.desk import Desk, Minding, until
from tests.process.victim import Harness, held

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
    return (harness.desk.folder / "t.out.1").exists()


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


def _alone(desk: Desk, script: str, **more: Any) -> tuple[Exit, bytes]:
    seen = Minding()
    desk.keeper(sizes=SIZES)
    return desk.sh(script, seen, turn="twin", mark=f"{desk.folder}-twin", **more), seen.output_bytes


def _adopted(harness: Harness, when: Callable[[Harness], bool]) -> tuple[Exit, bytes]:
    until(lambda: when(harness))
    harness.kill()
    (harness.desk.folder / "go").touch()
    seen = Minding()
    return harness.next(seen), seen.output_bytes


def _told(ended: Exit) -> tuple[object, ...]:
    """All but how long it took."""
    return (
        ended.why, ended.code, ended.signal, ended.out_bytes, ended.dropped_bytes, ended.error, ended.survivors,
        ended.log_error,
    )  # fmt: skip


def _alike(desk: Desk, started: Any, script: str, when: Callable[[Harness], bool], **more: Any) -> tuple[Exit, Exit]:
    """Both ends, after what must be equal is."""
    (desk.folder / "part").write_bytes(b"".join(b"%07d\n" % number for number in range(PART // 8)))
    (desk.folder / "go").touch()
    alone, said = _alone(desk, script, **more)
    (desk.folder / "go").unlink()
    adopted, heard = _adopted(started(script, sizes=SIZES, **more), when)
    assert (_told(adopted), heard) == (_told(alone), said)
    assert adopted.cpu_s > 0
    assert (desk.nappers(), find_turn_processes(str(desk.folder))) == ([], [])
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
def test_a_turn_ends_as_if_its_harness_had_not_been_killed(
    desk: Desk, started: Any, script: str, when: Callable[[Harness], bool], why: str
) -> None:
    alone, _ = _alike(desk, started, script, when, timeout_s=20.0)
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
    desk: Desk,
    started: Any,
    script: str,
    when: Callable[[Harness], bool],
    more: dict[str, float],
    why: str,
    restarted_s: float,
) -> None:
    alone, adopted = _alike(desk, started, script, when, **more)
    assert alone.why == why
    assert 3.0 <= alone.seconds < restarted_s
    assert 3.0 <= adopted.seconds < restarted_s - 0.2


def test_files_that_change_keep_a_silent_adopted_turn_from_being_idle(desk: Desk, started: Any) -> None:
    harness = started("echo WORKING WORKING WORKING; sleep $NAP", idle_s=0.7)
    until(desk.nappers)
    harness.kill()
    seen = Minding()
    ended = harness.next(seen)
    assert ended.why == "idle"
    assert ended.seconds > 1.5  # twice a second, three times
    assert seen.ticks < 20  # a watcher counts its ticks: twice a second, and after output


def test_stop_said_by_many_is_one_stop(desk: Desk, started: Any) -> None:
    harness = started(TIDY)
    until(lambda: "tidy" in harness.said)
    harness.kill()

    class Insistent(Minding):
        def tick(self) -> int:
            if not self.ticks:
                signal_keeper(harness.past, STOP)
                signal_keeper(harness.past, STOP)
            return super().tick()

    ended = harness.next(Insistent())
    assert (ended.why, ended.code, harness.said) == ("stopped", 7, "STOP\ntidy\ntidied\n")


def test_an_adopted_turn_that_does_not_stop_can_be_killed(desk: Desk, started: Any) -> None:
    harness = started(DEAF, grace_s=60.0)
    until(lambda: "STOP" in harness.said)
    harness.kill()

    class Impatient(Minding):
        def tick(self) -> int:
            return super().tick() + (self.ticks > 1)

    ended = harness.next(Impatient())
    assert (ended.why, ended.signal) == ("killed", 9)
    assert ended.seconds < 30


def test_a_suspended_keeper_is_woken_to_end_its_turn(desk: Desk, started: Any) -> None:
    harness = started("echo up; sleep $NAP")
    until(desk.nappers)
    harness.kill()
    os.kill(harness.keeper, signal.SIGSTOP)

    class Ending(Minding):
        def tick(self) -> int:
            super().tick()
            if self.ticks > 20:
                os.kill(harness.keeper, signal.SIGCONT)
            return STOP

    watch = Ending()
    assert (harness.next(watch).why, watch.ticks < 20) == ("stopped", True)


class Told(Minding):
    """Wants to stop at once, and never says so again."""

    def tick(self) -> int:
        super().tick()
        return STOP if self.ticks == 1 else CONTINUE


def test_a_wish_to_stop_from_before_the_turn_began_is_not_forgotten(desk: Desk, started: Any) -> None:
    harness = started("echo up; sleep $NAP", hold=True)
    assert harness.stdout.readline() == b"sending\n"
    until(lambda: held(str(desk.folder / "t.turn")))
    harness.kill()

    class Waking(Told):
        def tick(self) -> int:
            wanted = super().tick()
            os.kill(harness.keeper, signal.SIGCONT)
            return wanted

    assert harness.next(Waking()).why == "stopped"
    assert desk.nappers() == []
