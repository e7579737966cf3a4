"""Several keepers under one harness: commands at the same time, and what each death leaves to the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from ralphproof.engine.sandbox import CONTINUE, KILL, STOP, Command, Exit
from ralphproof.process import turn_journal
from ralphproof.process.client import Keeper, KeeperPool
from ralphproof.process.tree import KEEPER_SCRIPT, child_pids, is_alive
from tests.process.desk import Desk, Seen, running, until

ROOT = Path(__file__).parents[2]
MEET = "touch {0}; until [ -e {1} ]; do sleep 0.01; done; echo {0} met {1}"
# A tree of three that sleep, of which one was scrubbed and is in a session of its own.
TREE = "(env -i setsid sleep $NAP &); setsid sleep $NAP & echo up; sleep $NAP"
# A tree of one that sleeps so, for as long as a file is missing.
PATIENT = (
    "(env -i setsid sleep $NAP &); echo started >> starts; echo up; until [ -e {0} ]; do sleep 0.01; done; exit {1}"
)


class Running:
    """A command that a thread runs in the pool."""

    def __init__(self, pool: KeeperPool | Keeper, command: Command, watch: Seen | None = None) -> None:
        self.command, self.watch = command, watch or Seen()
        self._pool = pool
        self._ended: list[Exit | BaseException] = []
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._ended.append(self._pool.run(self.command, self.watch))
        except BaseException as fault:  # noqa: BLE001 (raised again by whoever waits for the end)
            self._ended.append(fault)

    @property
    def keeper(self) -> int:
        """The process that keeps it."""
        return int(until(lambda: turn_journal.read_turn_file(self.command.turn_file).keeper[0]))

    def up(self) -> bool:
        return b"up" in self.watch.output_bytes

    def end(self, seconds: float = 20.0) -> Exit:
        self._thread.join(seconds)
        assert not self._thread.is_alive()
        ended = self._ended[0]
        if isinstance(ended, BaseException):
            raise ended
        return ended


def sh(desk: Desk, script: str, nap: str = "", **more: Any) -> Command:
    env = (("PATH", os.environ["PATH"]), ("NAP", nap + desk.nap))
    return desk.command("/bin/sh", "-c", script, env=env, **more)


def nappers(desk: Desk, nap: str = "") -> list[int]:
    """Those that sleep for just so long."""
    return running(f"sleep {nap}{desk.nap}")


def keepers(*known: Keeper) -> list[int]:
    """Those of this process that are more than their exit status; a new one has no name for a moment."""
    living = [keeper.pid for keeper in known]
    for pid in child_pids(os.getpid()):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        living += [pid] if KEEPER_SCRIPT in line and pid not in living else []
    return sorted(living)


def test_two_commands_run_at_the_same_time(desk: Desk) -> None:
    pool = KeeperPool(desk.keeper())
    one, other = (Running(pool, sh(desk, MEET.format(*names))) for names in (("a", "b"), ("b", "a")))
    assert (one.end().code, other.end().code) == (0, 0)
    assert (one.watch.output_bytes, other.watch.output_bytes) == (b"a met b\n", b"b met a\n")


def test_what_is_run_alone_is_run_by_the_first_and_needs_no_other(desk: Desk) -> None:
    first = desk.keeper()
    pool, before = KeeperPool(first), keepers(first)
    seen: list[list[int]] = []
    watch = Seen(lambda _: seen.append(keepers(first)) or CONTINUE)  # type: ignore[func-returns-value]
    for _ in range(2):
        command = sh(desk, "echo up")
        assert pool.run(command, watch).code == 0
        assert turn_journal.read_turn_file(command.turn_file).keeper[0] == first.pid
    assert all(pids == before for pids in seen)


def test_the_first_is_taken_before_others_that_are_idle(desk: Desk) -> None:
    """It alone hears a signal at once."""
    first = desk.keeper()
    pool, runs = KeeperPool(first), list[Running]()
    for number in range(3):
        runs.append(Running(pool, sh(desk, PATIENT.format(f"go{number}", number))))
        until(runs[-1].up)
    for number in (1, 0):
        (desk.folder / f"go{number}").touch()
        runs[number].end()
    command = sh(desk, "true")
    pool.run(command, Seen())
    assert turn_journal.read_turn_file(command.turn_file).keeper[0] == first.pid
    (desk.folder / "go2").touch()
    runs[2].end()


def test_the_others_go_when_nothing_runs_and_the_first_is_left_to_its_maker(desk: Desk) -> None:
    first = desk.keeper()
    pool, before = KeeperPool(first), keepers(first)
    runs = [Running(pool, sh(desk, PATIENT.format("go", 0))) for _ in range(3)]
    until(lambda: all(run.up() for run in runs))
    assert len(keepers()) == len(before) + 2
    (desk.folder / "go").touch()
    assert [run.end().code for run in runs] == [0, 0, 0]
    assert keepers() == before
    pool.close()
    assert pool.run(sh(desk, "exit 4"), Seen()).code == 4


def test_a_pool_that_is_closed_lets_a_busy_one_end_its_command(desk: Desk) -> None:
    first = desk.keeper()
    pool, before = KeeperPool(first), keepers(first)
    runs = []
    for number in range(3):
        runs.append(Running(pool, sh(desk, PATIENT.format(f"go{number}", number))))
        until(runs[-1].up)
    (desk.folder / "go2").touch()
    runs[2].end()
    pool.close()
    assert len(keepers()) == len(before) + 1  # the idle one went
    for name in ("go0", "go1"):
        (desk.folder / name).touch()
    assert [run.end().code for run in runs] == [0, 1, 2]
    assert keepers() == before


def test_every_keeper_hides_the_same_and_bounds_its_logs_alike(desk: Desk) -> None:
    pool = KeeperPool(desk.keeper(secrets=("xyzzy-secret",), sizes=(4096, 4096, 2)))
    pool.options.add_secrets(["later-secret"])
    script = f"{MEET}; echo xyzzy-secret later-secret; head -c 100000 /dev/zero"
    runs = [Running(pool, sh(desk, script.format(*names))) for names in (("a", "b"), ("b", "a"))]
    for run in runs:
        assert run.end().dropped_bytes > 0
        assert b"secret" not in run.watch.output_bytes


def test_every_keeper_has_the_stand_in_of_the_first_and_the_first_its_wake_up(desk: Desk) -> None:
    first = desk.keeper()
    pool, asked = KeeperPool(first), []
    reader, writer = os.pipe()
    pool.wake_fd = reader
    pool.options.stand_in = lambda command: asked.append(command.turn_file)
    assert (first.wake_fd, pool.wake_fd, first.options.stand_in) == (reader, reader, pool.options.stand_in)
    runs = [Running(pool, sh(desk, MEET.format(*names))) for names in (("a", "b"), ("b", "a"))]
    assert [run.end().code for run in runs] == [0, 0]
    assert sorted(asked) == sorted(run.command.turn_file for run in runs)
    pool.wake_fd = None
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_keeper_killed_among_others_leaves_nothing_and_the_others_what_is_theirs(desk: Desk, victim: int) -> None:
    pool = KeeperPool(desk.keeper())
    mine = subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)
    naps, order = ("1", "2"), [TREE, PATIENT] if victim == 0 else [PATIENT, TREE]
    runs = []
    for script, nap in zip(order, naps, strict=True):
        runs.append(Running(pool, sh(desk, script.format("go", 7), nap)))
        until(runs[-1].up)
    until(lambda: len(nappers(desk, naps[victim])) == 3)
    [daemon] = until(lambda: nappers(desk, naps[1 - victim]))
    os.kill(runs[victim].keeper, signal.SIGKILL)
    ended = runs[victim].end()
    assert (ended.why, ended.survivors) == ("interrupted", ())
    assert nappers(desk, naps[victim]) == []
    assert nappers(desk, naps[1 - victim]) == [daemon]
    assert mine.poll() is None
    (desk.folder / "go").touch()
    other = runs[1 - victim].end()
    assert (other.why, other.code) == ("exit", 7)
    assert nappers(desk, naps[1 - victim]) == []
    assert pool.run(sh(desk, "exit 3"), Seen()).code == 3
    mine.kill()
    mine.wait()


def test_when_both_keepers_are_killed_both_trees_end(desk: Desk) -> None:
    pool = KeeperPool(desk.keeper())
    runs = [Running(pool, sh(desk, TREE)) for _ in range(2)]
    until(lambda: len(desk.nappers()) == 6)
    for pid in [run.keeper for run in runs]:
        os.kill(pid, signal.SIGKILL)
    assert [run.end().why for run in runs] == ["interrupted", "interrupted"]
    assert desk.nappers() == []
    assert pool.run(sh(desk, "exit 3"), Seen()).code == 3


class Held(Seen):
    """Takes as long as it is wanted to over what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.free = Event()

    def output(self, chunk: bytes) -> None:
        super().output(chunk)
        self.free.wait(20)


def test_nothing_begins_before_a_dead_keeper_is_cleaned_up_after(desk: Desk) -> None:
    """Whoever is new might be taken for something that the dead one left."""
    pool, watch = KeeperPool(desk.keeper()), Held()
    doomed = Running(pool, sh(desk, TREE), watch)
    until(doomed.up)
    os.kill(doomed.keeper, signal.SIGKILL)
    until(lambda: not is_alive(*turn_journal.read_turn_file(doomed.command.turn_file).keeper))
    runs = [Running(pool, sh(desk, f"echo {number} >> starts; exit {number}")) for number in range(3)]
    time.sleep(0.3)  # nothing happens, and of that there is nothing to see
    assert not (desk.folder / "starts").exists()
    watch.free.set()
    assert doomed.end().why == "interrupted"
    assert [(run.end().why, run.end().code) for run in runs] == [("exit", number) for number in range(3)]
    assert sorted(desk.text("starts").split()) == list("012")
    assert desk.nappers() == []


def test_one_that_is_made_while_another_is_cleaned_up_after_runs_its_command_once(desk: Desk) -> None:
    """To start a keeper and to look for what a dead one left may meet."""
    pool = KeeperPool(desk.keeper())
    doomed = Running(pool, sh(desk, f"trap '' TERM; {TREE}"))
    until(doomed.up)
    os.kill(doomed.keeper, signal.SIGKILL)
    runs = [Running(pool, sh(desk, f"echo {number} >> starts; echo up; exit {number}")) for number in range(6)]
    assert [(run.end().why, run.end().code) for run in runs] == [("exit", number) for number in range(6)]
    assert doomed.end().why == "interrupted"
    assert sorted(desk.text("starts").split()) == list("012345")
    assert desk.nappers() == []


def test_many_threads_and_short_commands_leave_no_process(desk: Desk) -> None:
    first = desk.keeper()
    pool, before = KeeperPool(first), keepers(first)
    codes: list[int | None] = []

    def work(worker: int) -> None:
        for number in range(5):
            command = sh(desk, f"exit {number}", turn=f"w{worker}_{number}")
            codes.append(pool.run(command, Seen()).code)

    threads = [Thread(target=work, args=(worker,)) for worker in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(map(str, codes)) == sorted("01234" * 6)
    assert keepers() == before


class Wishing(Seen):
    """Notes when it is asked, and what it then wants."""

    def __init__(self, wants: Callable[[Seen], int] = lambda _: CONTINUE) -> None:
        super().__init__(wants)
        self.asked: list[float] = []

    def tick(self) -> int:
        self.asked.append(time.monotonic())
        return super().tick()


@pytest.mark.parametrize(("wanted", "why"), [(STOP, "stopped"), (KILL, "killed")])
def test_a_signal_reaches_all_that_run_at_once(desk: Desk, wanted: int, why: str) -> None:
    """A tick is due twice a second; nobody waits for it."""
    reader, writer = os.pipe()
    pool, wish = KeeperPool(desk.keeper(wake_fd=reader)), [CONTINUE]
    runs = []
    for _ in range(3):  # the first of them is the first keeper's
        runs.append(Running(pool, sh(desk, TREE, grace_s=0.5), Wishing(lambda _: wish[0])))
        until(runs[-1].up)
    wish[0], rung = wanted, time.monotonic()
    os.write(writer, b"!")
    assert [run.end().why for run in runs] == [why] * 3
    heard = [next(at for at in run.watch.asked if at > rung) for run in runs if isinstance(run.watch, Wishing)]
    assert max(heard) - rung < 0.45
    assert desk.nappers() == []
    os.close(reader)
    os.close(writer)


def test_a_wish_that_one_watcher_hears_first_is_asked_of_the_others_without_delay(desk: Desk) -> None:
    pool, wish = KeeperPool(desk.keeper()), [CONTINUE]
    runs = [Running(pool, sh(desk, TREE), Wishing(lambda _: wish[0]))]
    until(runs[0].up)
    chatty = "echo up; until [ -e go ]; do sleep 0.01; done; echo more; sleep $NAP"
    runs.append(Running(pool, sh(desk, TREE), Wishing(lambda _: wish[0])))
    until(runs[1].up)
    quiet = runs[1].watch
    assert isinstance(quiet, Wishing)
    runs.append(Running(pool, sh(desk, chatty), Wishing(lambda _: wish[0])))
    until(runs[2].up)
    count = len(quiet.asked)
    until(lambda: len(quiet.asked) > count)  # so its next tick is not due for half a second
    last, wish[0] = quiet.asked[-1], KILL
    (desk.folder / "go").touch()
    assert [run.end().why for run in runs] == ["killed"] * 3
    assert next(at for at in quiet.asked if at > last) - last < 0.4


def test_a_signal_is_answered_within_a_second_where_the_keeper_that_hears_it_is_idle(desk: Desk) -> None:
    reader, writer = os.pipe()
    pool, wish = KeeperPool(desk.keeper(wake_fd=reader)), [CONTINUE]
    first = Running(pool, sh(desk, PATIENT.format("go", 0)))
    until(first.up)
    others = []
    for _ in range(2):
        others.append(Running(pool, sh(desk, f"trap '' TERM; {TREE}", grace_s=10.0), Wishing(lambda _: wish[0])))
        until(others[-1].up)
    (desk.folder / "go").touch()
    assert first.end().code == 0
    wish[0], rung = KILL, time.monotonic()
    os.write(writer, b"!")
    assert [run.end().why for run in others] == ["killed", "killed"]
    assert time.monotonic() - rung < 1.0
    assert desk.nappers() == []
    os.close(reader)
    os.close(writer)


def harness(folder: str, nap: str, *codes: str) -> None:
    """A process of its own that runs several commands at the same time, and is killed meanwhile."""
    desk = Desk(Path(folder))
    desk.nap = nap
    pool = KeeperPool(desk.keeper())
    for thread in [Running(pool, _turn(desk, code)) for code in codes]:
        thread.end(60)


def _turn(desk: Desk, code: str) -> Command:
    return sh(desk, PATIENT.format("go", code), turn=f"t{code}", mark=f"{desk.folder}-{code}")


@pytest.mark.parametrize("adopted", [True, False])
def test_commands_outlive_their_harness_and_none_is_run_twice(desk: Desk, adopted: bool) -> None:
    codes = ("3", "4", "5")
    paths = f"{ROOT}:{ROOT / 'src'}"
    killed = subprocess.Popen(
        [sys.executable, __file__, str(desk.folder), desk.nap, *codes], env={**os.environ, "PYTHONPATH": paths}
    )
    commands = [_turn(desk, code) for code in codes]
    until(lambda: len(desk.nappers()) == 3)
    pasts = [turn_journal.read_turn_file(command.turn_file) for command in commands]
    killed.kill()
    killed.wait()
    assert len({past.keeper[0] for past in pasts}) == 3
    assert all(is_alive(*past.keeper) for past in pasts)
    if not adopted:
        (desk.folder / "go").touch()
        until(lambda: not any(is_alive(*past.keeper) for past in pasts))
        assert desk.nappers() == []
    pool = KeeperPool(desk.keeper())
    runs = [Running(pool, command) for command in commands]
    if adopted:
        until(lambda: all(run.up() for run in runs))
        (desk.folder / "go").touch()
    assert [(run.end().why, run.end().code) for run in runs] == [("exit", 3), ("exit", 4), ("exit", 5)]
    assert [run.watch.output_bytes for run in runs] == [b"up\n"] * 3
    assert desk.text("starts") == "started\n" * 3
    until(lambda: not any(is_alive(*past.keeper) for past in pasts))
    assert desk.nappers() == []


if __name__ == "__main__":
    harness(*sys.argv[1:])
