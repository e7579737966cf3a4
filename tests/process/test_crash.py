"""kill -9 of the harness, of the keeper and of both, and what the next harness finds."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ralphproof.base.programs import start_program
from ralphproof.engine.sandbox import CONTINUE, KILL, RESULT_SAID, STOP
from ralphproof.process import turn_journal
from ralphproof.process.tree import is_alive, start_time
from ralphproof.reports import notifications
from tests.process.harness_process import Harness, is_locked
from tests.process.workbench import RecordingWatcher, Workbench, running, until


class Once(RecordingWatcher):
    """Wants something as soon as there is output, and says so once."""

    def __init__(self, wanted: int) -> None:
        super().__init__(lambda seen: wanted if seen.output_bytes else CONTINUE)

    def tick(self) -> int:
        wanted = super().tick()
        if wanted != CONTINUE:
            self._wants = lambda _: CONTINUE
        return wanted


LONG = "echo started >> starts; i=0; while [ $i -lt 40 ]; do echo line $i; sleep 0.02; i=$((i+1)); done; exit 3"
LINES = b"".join(b"line %d\n" % number for number in range(40))


def test_a_turn_survives_its_harness_and_is_adopted(bench: Workbench, start_harness: Any) -> None:
    harness = start_harness(LONG)
    until((bench.folder / "starts").exists)
    harness.kill()
    seen = RecordingWatcher()
    ended = harness.next(seen)
    assert (ended.code, ended.why, seen.output_bytes) == (3, "exit", LINES)
    assert bench.text("starts") == "started\n"
    assert seen.ticks > 1


def test_the_result_of_a_turn_that_ended_without_a_harness_is_used(bench: Workbench, start_harness: Any) -> None:
    harness = start_harness(LONG)
    until((bench.folder / "starts").exists)
    harness.kill()
    until(lambda: turn_journal.read_turn_file(str(bench.folder / "t.turn")).result)
    until(harness.keeper_is_gone)
    seen = RecordingWatcher()
    assert (harness.next(seen).code, seen.output_bytes) == (3, LINES)
    assert bench.text("starts") == "started\n"


@pytest.mark.parametrize(("wanted", "why"), [(RESULT_SAID, "lingered"), (STOP, "stopped"), (KILL, "killed")])
def test_an_adopted_turn_can_be_ended(bench: Workbench, start_harness: Any, wanted: int, why: str) -> None:
    harness = start_harness("echo up; sleep $NAP", linger_s=0.3)
    until(bench.sleepers)
    harness.kill()
    ended = harness.next(Once(wanted))
    assert ended.why == why
    assert bench.sleepers() == []


def test_without_any_harness_the_keeper_ends_the_turn_at_its_own_timeout_and_leaves(
    bench: Workbench, start_harness: Any
) -> None:
    harness = start_harness("echo started >> starts; setsid sleep $NAP & sleep $NAP", timeout_s=1.0)
    until(bench.sleepers)
    harness.kill()
    until(harness.keeper_is_gone)
    assert bench.sleepers() == []
    assert harness.next().why == "timeout"
    assert bench.text("starts") == "started\n"


def test_a_start_in_flight_keeps_the_lock_and_happens_once(bench: Workbench, start_harness: Any) -> None:
    harness = start_harness(LONG, hold=True)
    assert harness.stdout.readline() == b"sending\n"
    turn = str(bench.folder / "t.turn")
    until(lambda: os.path.exists(turn) and is_locked(turn))
    time.sleep(0.1)  # sent, but not read: there is nothing to see
    harness.kill()
    assert is_locked(turn)
    assert not (bench.folder / "starts").exists()
    os.kill(harness.keeper, signal.SIGCONT)
    seen = RecordingWatcher()
    assert (harness.next(seen).code, seen.output_bytes) == (3, LINES)
    assert bench.text("starts") == "started\n"


def test_a_lock_that_was_taken_and_never_sent_is_free_again(bench: Workbench) -> None:
    lock = turn_journal.lock_turn_file(str(bench.folder / "t.turn"))
    assert lock is not None
    os.close(lock)
    assert bench.sh("exit 5", turn="t").code == 5


@pytest.mark.parametrize("lines", ['{"began":1,"start":1}\n', '{"began":1,"start":1}\n{"result":true,"co', '{"beg'])
def test_a_turn_that_began_and_has_no_result_is_interrupted_and_never_run(bench: Workbench, lines: str) -> None:
    (bench.folder / "t.turn").write_text(lines)
    (bench.folder / "t.out").write_text("partial")
    seen = RecordingWatcher()
    ended = bench.sh("touch ran", seen, turn="t")
    assert (ended.why, ended.code, seen.output_bytes) == ("interrupted", None, b"partial")
    assert bench.sh("touch ran", turn="t").why == "interrupted"
    assert not (bench.folder / "ran").exists()


def test_the_keeper_itself_refuses_a_turn_that_began(bench: Workbench) -> None:
    keeper = bench.keeper()
    os.kill(keeper.pid, signal.SIGSTOP)

    def begin(seen: RecordingWatcher) -> int:
        if seen.ticks == 1:
            (bench.folder / "t.turn").write_text('{"began":1,"start":1}\n')
            os.kill(keeper.pid, signal.SIGCONT)
        return CONTINUE

    assert bench.sh("touch ran", RecordingWatcher(begin), turn="t").why == "interrupted"
    assert not (bench.folder / "ran").exists()


def test_a_keeper_killed_in_mid_turn_leaves_nothing_and_the_turn_is_interrupted(bench: Workbench) -> None:
    keeper = bench.keeper()
    mine = subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)

    def kill(seen: RecordingWatcher) -> int:
        if seen.output_bytes and len(bench.sleepers()) == 3:
            os.kill(keeper.pid, signal.SIGKILL)
        return CONTINUE

    script = (
        "(env -i setsid sleep $NAP &); setsid sleep $NAP & sleep $NAP & echo up; while :; do echo; sleep 0.02; done"
    )
    seen = RecordingWatcher(kill)
    ended = bench.sh(script, seen)
    assert (ended.why, ended.survivors) == ("interrupted", ())
    assert seen.output_bytes.startswith(b"up\n")
    assert bench.sleepers() == []
    assert mine.poll() is None  # a child of our own is nobody's leftover
    mine.kill()
    mine.wait()
    assert bench.sh("exit 2").code == 2


def _git(nap: str) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    start_program(["/bin/sleep", nap], {}, nowhere, nowhere, nowhere)
    os.close(nowhere)


def _notification(nap: str) -> None:
    event = {"event": "e", "run": "r", "title": "t", "message": "m", "status": "s"}
    order = {"targets": [f"sleep {nap}"], "events": [event], "root": "/"}
    os.close(notifications._start_delivery(json.dumps(order).encode(), os.environ)[1])


@pytest.mark.parametrize("start", [_git, _notification])
def test_our_own_children_are_not_taken_for_orphans_of_a_killed_keeper(
    bench: Workbench, start: Callable[[str], None]
) -> None:
    keeper, ours = bench.keeper(), list[int]()

    def start_and_kill(seen: RecordingWatcher) -> int:
        if seen.output_bytes and not ours:
            start(bench.nap)
            ours.extend(until(bench.sleepers))
            os.kill(keeper.pid, signal.SIGKILL)
        return CONTINUE

    try:
        assert (
            bench.sh("(env -i setsid sleep 7${NAP} &); echo up; sleep 7${NAP}", RecordingWatcher(start_and_kill)).why
            == "interrupted"
        )
        assert running(f"sleep 7{bench.nap}") == []
        assert set(ours) <= set(bench.sleepers())
    finally:
        for pid in bench.sleepers():
            os.kill(pid, signal.SIGKILL)
    until(lambda: not [pid for pid in bench.sleepers() if is_alive(pid, start_time(pid))])


def test_when_both_are_killed_the_next_harness_ends_what_is_left(bench: Workbench, start_harness: Any) -> None:
    harness = start_harness("trap '' TERM; setsid sleep $NAP & sleep $NAP & echo started >> starts; sleep $NAP")
    until(lambda: len(bench.sleepers()) == 3)
    os.kill(harness.process.pid, signal.SIGSTOP)  # or it would clean up before it is killed
    os.kill(harness.keeper, signal.SIGKILL)
    harness.kill()
    agent = turn_journal.read_turn_file(str(bench.folder / "t.turn")).agent
    until(lambda: not is_alive(*agent))  # dies with its keeper; what it started does not
    assert bench.sleepers() != []
    assert harness.next().why == "interrupted"
    assert bench.sleepers() == []
    assert bench.text("starts") == "started\n"


def test_a_killed_harness_lets_its_stdout_reach_its_end(bench: Workbench, start_harness: Any) -> None:
    harness = start_harness("sleep $NAP", timeout_s=2.0)
    until(bench.sleepers)
    harness.kill()
    assert harness.stdout.read() == b""
    assert bench.sleepers() != []


def test_kills_at_random_never_start_a_turn_twice(bench: Workbench, tmp_path: Path) -> None:
    dice = random.Random()
    for trial in range(8):
        bench.folder = tmp_path / str(trial)
        bench.folder.mkdir()
        harness = Harness(bench, "echo started >> starts; echo a; sleep 0.05; echo b; exit 3")
        time.sleep(dice.random() * 0.04)
        victims = dice.choice([[harness.process.pid], [harness.keeper], [harness.keeper, harness.process.pid]])
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        if harness.process.pid in victims:
            harness.kill()
        harness.process.wait()
        seen = RecordingWatcher()
        ended = harness.next(seen)
        assert ended.why in ("exit", "interrupted")
        if ended.why == "exit":
            assert (ended.code, seen.output_bytes) == (3, b"a\nb\n")
        starts = bench.folder / "starts"
        assert not starts.exists() or starts.read_text() in ("", "started\n")  # empty: killed between open and write
        harness.stdout.close()
        until(harness.keeper_is_gone)
