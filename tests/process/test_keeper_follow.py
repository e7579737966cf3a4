"""Looking on at somebody else's turn, without ever being taken for its owner."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ralphproof.engine.sandbox import ACTIVE, CONTINUE, KILL, RESULT_SAID, STOP, Exit
from ralphproof.process import watchdog
from ralphproof.process.observer import TurnFollower
from ralphproof.process.tree import is_stopped, start_time
from tests.process.desk import Desk, Minding, Seen, until
from tests.process.victim import held

LINES = "i=0; while [ $i -lt 20 ]; do echo line $i; sleep 0.02; i=$((i+1)); done; exit 3"
SAYS = b"".join(b"line %d\n" % number for number in range(20))
SMALL = (64 << 10, 64 << 10, 3)


class Apart:
    """Follows in a thread of its own."""

    def __init__(self, following: TurnFollower, command: Any, watch: Seen) -> None:
        self._told: list[Exit] = []
        self._thread = threading.Thread(target=lambda: self._told.append(following.run(command, watch)), daemon=True)
        self._thread.start()

    def end(self) -> Exit:
        self._thread.join(20)
        return self._told[0]


def _never() -> bool:
    return False


def test_it_sees_what_the_owner_sees_and_is_told_the_same_end(desk: Desk) -> None:
    command, owner, onlooker = desk.command("/bin/sh", "-c", LINES, turn="t"), Seen(), Seen()
    begun = threading.Event()
    apart = Apart(TurnFollower(lambda: not begun.is_set()), command, onlooker)
    ended = desk.keeper().run(command, owner)
    begun.set()
    assert apart.end() == ended
    assert onlooker.output_bytes == owner.output_bytes == SAYS
    assert (ended.code, onlooker.ticks > 1) == (3, True)
    assert TurnFollower(_never).run(command, onlooker) == ended  # and once more, now that all is over
    assert onlooker.output_bytes == 2 * SAYS


def test_it_goes_on_when_the_owner_dies(desk: Desk, started: Any) -> None:
    harness, seen = started(LINES), Seen()
    until(lambda: harness.past.began)
    apart = Apart(TurnFollower(_never), harness.command, seen)
    harness.kill()
    assert (apart.end().code, seen.output_bytes) == (3, SAYS)


def test_a_log_past_its_head_is_whole(desk: Desk) -> None:
    (desk.folder / "part").write_bytes(b"".join(b"%07d\n" % number for number in range(15000)))
    command = desk.command("/bin/sh", "-c", "cat part; sleep 0.1; cat part", turn="t")
    seen, begun = Seen(), threading.Event()
    apart = Apart(TurnFollower(lambda: not begun.is_set(), sizes=SMALL), command, seen)
    desk.keeper(sizes=SMALL).run(command, Seen())
    begun.set()
    assert apart.end().code == 0
    assert seen.output_bytes == 2 * (desk.folder / "part").read_bytes()


def test_what_a_slow_onlooker_misses_is_told(desk: Desk) -> None:
    flood = b"".join(b"%07d\n" % number for number in range(200_000))
    (desk.folder / "flood").write_bytes(flood)
    command = desk.command("/bin/sh", "-c", "echo up; until [ -e go ]; do sleep 0.01; done; cat flood", turn="t")
    over, begun = threading.Event(), threading.Event()

    class Slow(Seen):
        def output(self, chunk: bytes) -> None:
            super().output(chunk)
            (desk.folder / "go").touch()
            over.wait(20)

    seen = Slow()
    apart = Apart(TurnFollower(lambda: not begun.is_set(), sizes=SMALL), command, seen)
    ended = desk.keeper(sizes=SMALL).run(command, Seen())
    over.set()
    begun.set()
    assert apart.end() == ended
    head, _, rest = seen.output_bytes.partition(b"\n... [truncated] ")
    number, _, tail = rest.partition(b" bytes dropped\n")
    assert (b"up\n" + flood).startswith(head)
    assert flood.endswith(tail)
    assert len(head) + int(number) + len(tail) == ended.out_bytes == len(flood) + 3


def test_a_flood_does_not_keep_a_slow_watcher_from_ticking(desk: Desk, started: Any) -> None:
    (desk.folder / "part").write_bytes(b"x" * (256 << 10))
    harness = started("while :; do cat part; done", sizes=SMALL)
    until(lambda: harness.past.agent[0])
    harness.kill()

    class Slow(Seen):
        def output(self, chunk: bytes) -> None:
            time.sleep(0.05)  # slower than the flood

    watch = Slow(lambda seen: STOP if seen.ticks > 2 else CONTINUE)
    assert TurnFollower(_never, steering=True, sizes=SMALL).run(harness.command, watch).why == "stopped"


def test_it_never_holds_the_lock(desk: Desk) -> None:
    seen, turn_file = Seen(), str(desk.folder / "t.turn")
    waiting = threading.Event()
    apart = Apart(TurnFollower(lambda: not waiting.is_set()), desk.command("true", turn="t"), seen)
    until(lambda: seen.ticks)
    assert not os.path.exists(turn_file)
    while seen.ticks < 2:
        assert not held(turn_file)
    waiting.set()
    assert apart.end() == Exit(None, why="unstartable", error="it never began")


def test_a_turn_that_never_began_is_waited_for_only_while_somebody_may_begin_it(desk: Desk) -> None:
    (desk.folder / "t.out").write_text("of an older turn")
    asked, seen = [True, True, False], Seen()
    ended = TurnFollower(lambda: asked.pop(0)).run(desk.command("true", turn="t"), seen)
    assert (ended.why, ended.error, seen.output_bytes, asked) == ("unstartable", "it never began", b"", [])


def test_a_turn_whose_keeper_died_is_interrupted(desk: Desk, started: Any) -> None:
    harness, seen = started("echo up; sleep $NAP"), Seen()
    until(desk.nappers)
    os.kill(harness.process.pid, signal.SIGSTOP)  # or it would clean up, and write so
    before = (desk.folder / "t.turn").read_bytes()
    apart = Apart(TurnFollower(_never), harness.command, seen)
    until(lambda: seen.output_bytes)
    os.kill(harness.keeper, signal.SIGKILL)
    assert apart.end() == Exit(None, why="interrupted")
    assert (desk.folder / "t.turn").read_bytes() == before
    assert not held(str(desk.folder / "t.turn"))


@pytest.mark.parametrize("lines", [b"\0" * 300, b"nonsense\n", b"[" * 100_000 + b"\n", b'{"began":1,"start":1}\n'])
def test_nobody_is_waited_for_who_cannot_be_alive(desk: Desk, lines: bytes) -> None:
    (desk.folder / "t.turn").write_bytes(lines)
    (desk.folder / "t.out").write_bytes(SAYS * 4000)
    seen = Seen()
    following = TurnFollower(lambda: True, sizes=(1 << 20, 16, 3))  # a look does not take in all of it
    assert following.run(desk.command("true", turn="t"), seen).why == "interrupted"
    assert seen.output_bytes == SAYS * 4000


def test_a_process_of_another_start_of_the_machine_is_not_taken_for_the_keeper(desk: Desk) -> None:
    bystander = subprocess.Popen(["/bin/sleep", "60"])
    began = {"began": bystander.pid, "start": start_time(bystander.pid), "boot": "another"}
    (desk.folder / "t.turn").write_text(json.dumps(began) + "\n")
    told = TurnFollower(lambda: True, steering=True).run(desk.command("true", turn="t"), Seen(lambda _: KILL))
    assert told.why == "interrupted"
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()


@pytest.mark.parametrize("wanted", [STOP, KILL])
def test_who_may_only_look_on_is_let_go_and_the_turn_is_not(desk: Desk, started: Any, wanted: int) -> None:
    harness = started("echo up; until [ -e go ]; do sleep 0.02; done; exit 5")
    until(lambda: harness.said)
    told = TurnFollower(_never).run(harness.command, Seen(lambda seen: wanted if seen.output_bytes else CONTINUE))
    assert told == Exit(None, why="stopped")
    (desk.folder / "go").touch()
    assert TurnFollower(_never).run(harness.command, Seen()).code == 5


@pytest.mark.parametrize("wanted", [RESULT_SAID, ACTIVE])
def test_who_may_only_look_on_tells_the_keeper_nothing(desk: Desk, started: Any, wanted: int) -> None:
    harness = started("echo up; sleep $NAP", idle_s=0.7, linger_s=0.0)
    until(desk.nappers)
    assert TurnFollower(_never).run(harness.command, Seen(lambda _: wanted)).why == "idle"


@pytest.mark.parametrize(("says", "why"), [("STOP", "stopped"), ("KILL", "killed"), ("RESULT", "lingered")])
def test_who_steers_is_obeyed(desk: Desk, started: Any, says: str, why: str) -> None:
    harness = started(f"until [ -e go ]; do sleep 0.01; done; echo {says}; sleep $NAP", linger_s=0.3)
    until(lambda: harness.past.began)
    harness.kill()
    (desk.folder / "go").touch()
    ended = TurnFollower(_never, steering=True).run(harness.command, Minding())
    assert (ended.why, desk.nappers()) == (why, [])


def test_a_byte_on_the_wake_descriptor_causes_a_tick_at_once(desk: Desk) -> None:
    reader, writer = os.pipe2(os.O_NONBLOCK)
    ticks: list[float] = []

    def note(_: Seen) -> int:
        ticks.append(time.monotonic())
        if len(ticks) == 1:
            os.write(writer, b"x")
        return STOP if len(ticks) == 2 else CONTINUE

    always: Callable[[], bool] = lambda: True  # noqa: E731
    TurnFollower(always, wake_fd=reader).run(desk.command("true", turn="t"), Seen(note))
    assert ticks[1] - ticks[0] < 0.4
    os.close(reader)
    os.close(writer)


def test_whoever_stands_in_continues_a_keeper_that_is_stopped(
    desk: Desk, started: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "STOPPED_TIMEOUT_S", 0.1)
    harness = started("kill -STOP $PPID; exit 4")
    until(lambda: is_stopped(harness.keeper))
    harness.kill()
    assert TurnFollower(_never, steering=True).run(harness.command, Seen()).code == 4
