"""Following a turn that another keeper runs, without ever holding its lock."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from typing import Any

import pytest

from ralphproof.engine.sandbox import ACTIVE, CONTINUE, KILL, RESULT_SAID, STOP, Exit
from ralphproof.process import keeper_client
from ralphproof.process.keeper_client import TurnFollower
from ralphproof.process.tree import is_stopped, start_time
from tests.process.harness_process import is_locked
from tests.process.workbench import ObeyingWatcher, RecordingWatcher, Workbench, until

LINES = "i=0; while [ $i -lt 20 ]; do echo line $i; sleep 0.02; i=$((i+1)); done; exit 3"
SAYS = b"".join(b"line %d\n" % number for number in range(20))
SMALL = (64 << 10, 64 << 10, 3)


class FollowerThread:
    """Follows in a thread of its own."""

    def __init__(self, following: TurnFollower, command: Any, watch: RecordingWatcher) -> None:
        self._told: list[Exit] = []
        self._thread = threading.Thread(target=lambda: self._told.append(following.run(command, watch)), daemon=True)
        self._thread.start()

    def end(self) -> Exit:
        self._thread.join(20)
        return self._told[0]


def _never() -> bool:
    return False


def test_a_follower_sees_the_same_output_and_exit_as_the_owner(bench: Workbench) -> None:
    command, owner, onlooker = bench.command("/bin/sh", "-c", LINES, turn="t"), RecordingWatcher(), RecordingWatcher()
    begun = threading.Event()
    apart = FollowerThread(TurnFollower(lambda: not begun.is_set()), command, onlooker)
    ended = bench.keeper().run(command, owner)
    begun.set()
    assert apart.end() == ended
    assert onlooker.output_bytes == owner.output_bytes == SAYS
    assert (ended.code, onlooker.ticks > 1) == (3, True)
    assert TurnFollower(_never).run(command, onlooker) == ended  # and once more, now that all is over
    assert onlooker.output_bytes == 2 * SAYS


def test_a_follower_goes_on_when_the_owner_dies(bench: Workbench, start_harness: Any) -> None:
    harness, seen = start_harness(LINES), RecordingWatcher()
    until(lambda: harness.past.began)
    apart = FollowerThread(TurnFollower(_never), harness.command, seen)
    harness.kill()
    assert (apart.end().code, seen.output_bytes) == (3, SAYS)


def test_a_follower_reads_past_the_head_of_the_log(bench: Workbench) -> None:
    (bench.folder / "part").write_bytes(b"".join(b"%07d\n" % number for number in range(15000)))
    command = bench.command("/bin/sh", "-c", "cat part; sleep 0.1; cat part", turn="t")
    seen, begun = RecordingWatcher(), threading.Event()
    apart = FollowerThread(TurnFollower(lambda: not begun.is_set(), sizes=SMALL), command, seen)
    bench.keeper(sizes=SMALL).run(command, RecordingWatcher())
    begun.set()
    assert apart.end().code == 0
    assert seen.output_bytes == 2 * (bench.folder / "part").read_bytes()


def test_a_slow_follower_gets_a_notice_of_what_it_missed(bench: Workbench) -> None:
    flood = b"".join(b"%07d\n" % number for number in range(200_000))
    (bench.folder / "flood").write_bytes(flood)
    command = bench.command("/bin/sh", "-c", "echo up; until [ -e go ]; do sleep 0.01; done; cat flood", turn="t")
    over, begun = threading.Event(), threading.Event()

    class Slow(RecordingWatcher):
        def output(self, chunk: bytes) -> None:
            super().output(chunk)
            (bench.folder / "go").touch()
            over.wait(20)

    seen = Slow()
    apart = FollowerThread(TurnFollower(lambda: not begun.is_set(), sizes=SMALL), command, seen)
    ended = bench.keeper(sizes=SMALL).run(command, RecordingWatcher())
    over.set()
    begun.set()
    assert apart.end() == ended
    head, _, rest = seen.output_bytes.partition(b"\n... [truncated] ")
    number, _, tail = rest.partition(b" bytes dropped\n")
    assert (b"up\n" + flood).startswith(head)
    assert flood.endswith(tail)
    assert len(head) + int(number) + len(tail) == ended.out_bytes == len(flood) + 3


def test_a_flood_does_not_keep_a_slow_watcher_from_ticking(bench: Workbench, start_harness: Any) -> None:
    (bench.folder / "part").write_bytes(b"x" * (256 << 10))
    harness = start_harness("while :; do cat part; done", sizes=SMALL)
    until(lambda: harness.past.agent[0])
    harness.kill()

    class Slow(RecordingWatcher):
        def output(self, chunk: bytes) -> None:
            time.sleep(0.05)  # slower than the flood

    watch = Slow(lambda seen: STOP if seen.ticks > 2 else CONTINUE)
    assert TurnFollower(_never, steering=True, sizes=SMALL).run(harness.command, watch).why == "stopped"


def test_a_follower_never_holds_the_lock(bench: Workbench) -> None:
    seen, turn_file = RecordingWatcher(), str(bench.folder / "t.turn")
    waiting = threading.Event()
    apart = FollowerThread(TurnFollower(lambda: not waiting.is_set()), bench.command("true", turn="t"), seen)
    until(lambda: seen.ticks)
    assert not os.path.exists(turn_file)
    while seen.ticks < 2:
        assert not is_locked(turn_file)
    waiting.set()
    assert apart.end() == Exit(None, why="unstartable", error="it never began")


def test_a_turn_that_never_began_is_waited_for_only_while_somebody_may_begin_it(bench: Workbench) -> None:
    (bench.folder / "t.out").write_text("of an older turn")
    asked, seen = [True, True, False], RecordingWatcher()
    ended = TurnFollower(lambda: asked.pop(0)).run(bench.command("true", turn="t"), seen)
    assert (ended.why, ended.error, seen.output_bytes, asked) == ("unstartable", "it never began", b"", [])


def test_a_turn_whose_keeper_died_is_interrupted(bench: Workbench, start_harness: Any) -> None:
    harness, seen = start_harness("echo up; sleep $NAP"), RecordingWatcher()
    until(bench.sleepers)
    os.kill(harness.process.pid, signal.SIGSTOP)  # or it would clean up, and write so
    before = (bench.folder / "t.turn").read_bytes()
    apart = FollowerThread(TurnFollower(_never), harness.command, seen)
    until(lambda: seen.output_bytes)
    os.kill(harness.keeper, signal.SIGKILL)
    assert apart.end() == Exit(None, why="interrupted")
    assert (bench.folder / "t.turn").read_bytes() == before
    assert not is_locked(str(bench.folder / "t.turn"))


@pytest.mark.parametrize("lines", [b"\0" * 300, b"nonsense\n", b"[" * 100_000 + b"\n", b'{"began":1,"start":1}\n'])
def test_a_keeper_that_cannot_be_alive_is_not_waited_for(bench: Workbench, lines: bytes) -> None:
    (bench.folder / "t.turn").write_bytes(lines)
    (bench.folder / "t.out").write_bytes(SAYS * 4000)
    seen = RecordingWatcher()
    following = TurnFollower(lambda: True, sizes=(1 << 20, 16, 3))  # a look does not take in all of it
    assert following.run(bench.command("true", turn="t"), seen).why == "interrupted"
    assert seen.output_bytes == SAYS * 4000


def test_a_process_of_another_boot_is_not_taken_for_the_keeper(bench: Workbench) -> None:
    bystander = subprocess.Popen(["/bin/sleep", "60"])
    began = {"began": bystander.pid, "start": start_time(bystander.pid), "boot": "another"}
    (bench.folder / "t.turn").write_text(json.dumps(began) + "\n")
    told = TurnFollower(lambda: True, steering=True).run(
        bench.command("true", turn="t"), RecordingWatcher(lambda _: KILL)
    )
    assert told.why == "interrupted"
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


@pytest.mark.parametrize("wanted", [STOP, KILL])
def test_a_follower_without_steering_leaves_and_the_turn_goes_on(
    bench: Workbench, start_harness: Any, wanted: int
) -> None:
    harness = start_harness("echo up; until [ -e go ]; do sleep 0.02; done; exit 5")
    until(lambda: harness.said)
    told = TurnFollower(_never).run(
        harness.command, RecordingWatcher(lambda seen: wanted if seen.output_bytes else CONTINUE)
    )
    assert told == Exit(None, why="stopped")
    (bench.folder / "go").touch()
    assert TurnFollower(_never).run(harness.command, RecordingWatcher()).code == 5


@pytest.mark.parametrize("wanted", [RESULT_SAID, ACTIVE])
def test_a_follower_without_steering_sends_no_signals(bench: Workbench, start_harness: Any, wanted: int) -> None:
    harness = start_harness("echo up; sleep $NAP", idle_s=0.7, linger_s=0.0)
    until(bench.sleepers)
    assert TurnFollower(_never).run(harness.command, RecordingWatcher(lambda _: wanted)).why == "idle"


@pytest.mark.parametrize(("says", "why"), [("STOP", "stopped"), ("KILL", "killed"), ("RESULT", "lingered")])
def test_a_steering_follower_is_obeyed(bench: Workbench, start_harness: Any, says: str, why: str) -> None:
    harness = start_harness(f"until [ -e go ]; do sleep 0.01; done; echo {says}; sleep $NAP", linger_s=0.3)
    until(lambda: harness.past.began)
    harness.kill()
    (bench.folder / "go").touch()
    ended = TurnFollower(_never, steering=True).run(harness.command, ObeyingWatcher())
    assert (ended.why, bench.sleepers()) == (why, [])


def test_a_steering_follower_continues_a_stopped_keeper(
    bench: Workbench, start_harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_client, "STOPPED_TIMEOUT_S", 0.1)
    harness = start_harness("kill -STOP $PPID; exit 4")
    until(lambda: is_stopped(harness.keeper))
    harness.kill()
    assert TurnFollower(_never, steering=True).run(harness.command, RecordingWatcher()).code == 4
