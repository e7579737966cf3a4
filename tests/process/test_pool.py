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
from ralphproof.process.keeper_client import KeeperClient, KeeperPool
from ralphproof.process.tree import KEEPER_SCRIPT, child_pids, is_alive
from tests.process.workbench import RecordingWatcher, Workbench, running, until

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

    def __init__(
        self, pool: KeeperPool | KeeperClient, command: Command, watch: RecordingWatcher | None = None
    ) -> None:
        self.command, self.watch = command, watch or RecordingWatcher()
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


def sh(bench: Workbench, script: str, nap: str = "", **more: Any) -> Command:
    env = (("PATH", os.environ["PATH"]), ("NAP", nap + bench.nap))
    return bench.command("/bin/sh", "-c", script, env=env, **more)


def sleepers(bench: Workbench, nap: str = "") -> list[int]:
    """Those that sleep for just so long."""
    return running(f"sleep {nap}{bench.nap}")


def keepers(*known: KeeperClient) -> list[int]:
    """Those of this process that are more than their exit status; a new one has no name for a moment."""
    living = [keeper.pid for keeper in known]
    for pid in child_pids(os.getpid()):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        living += [pid] if KEEPER_SCRIPT in line and pid not in living else []
    return sorted(living)


def test_two_commands_run_at_the_same_time(bench: Workbench) -> None:
    pool = KeeperPool(bench.keeper())
    one, other = (Running(pool, sh(bench, MEET.format(*names))) for names in (("a", "b"), ("b", "a")))
    assert (one.end().code, other.end().code) == (0, 0)
    assert (one.watch.output_bytes, other.watch.output_bytes) == (b"a met b\n", b"b met a\n")


def test_a_single_command_is_run_by_the_first_keeper(bench: Workbench) -> None:
    first = bench.keeper()
    pool, before = KeeperPool(first), keepers(first)
    seen: list[list[int]] = []
    watch = RecordingWatcher(lambda _: seen.append(keepers(first)) or CONTINUE)  # type: ignore[func-returns-value]
    for _ in range(2):
        command = sh(bench, "echo up")
        assert pool.run(command, watch).code == 0
        assert turn_journal.read_turn_file(command.turn_file).keeper[0] == first.pid
    assert all(pids == before for pids in seen)


def test_the_first_keeper_is_preferred_when_idle(bench: Workbench) -> None:
    """It alone hears a signal at once."""
    first = bench.keeper()
    pool, runs = KeeperPool(first), list[Running]()
    for number in range(3):
        runs.append(Running(pool, sh(bench, PATIENT.format(f"go{number}", number))))
        until(runs[-1].up)
    for number in (1, 0):
        (bench.folder / f"go{number}").touch()
        runs[number].end()
    command = sh(bench, "true")
    pool.run(command, RecordingWatcher())
    assert turn_journal.read_turn_file(command.turn_file).keeper[0] == first.pid
    (bench.folder / "go2").touch()
    runs[2].end()


def test_other_keepers_end_when_nothing_runs_and_the_first_stays(bench: Workbench) -> None:
    first = bench.keeper()
    pool, before = KeeperPool(first), keepers(first)
    runs = [Running(pool, sh(bench, PATIENT.format("go", 0))) for _ in range(3)]
    until(lambda: all(run.up() for run in runs))
    assert len(keepers()) == len(before) + 2
    (bench.folder / "go").touch()
    assert [run.end().code for run in runs] == [0, 0, 0]
    assert keepers() == before
    pool.close()
    assert pool.run(sh(bench, "exit 4"), RecordingWatcher()).code == 4


def test_closing_the_pool_lets_a_busy_keeper_finish(bench: Workbench) -> None:
    first = bench.keeper()
    pool, before = KeeperPool(first), keepers(first)
    runs = []
    for number in range(3):
        runs.append(Running(pool, sh(bench, PATIENT.format(f"go{number}", number))))
        until(runs[-1].up)
    (bench.folder / "go2").touch()
    runs[2].end()
    pool.close()
    assert len(keepers()) == len(before) + 1  # the idle one went
    for name in ("go0", "go1"):
        (bench.folder / name).touch()
    assert [run.end().code for run in runs] == [0, 1, 2]
    assert keepers() == before


def test_all_keepers_share_secrets_and_log_sizes(bench: Workbench) -> None:
    pool = KeeperPool(bench.keeper(secrets=("xyzzy-secret",), sizes=(4096, 4096, 2)))
    pool.options.add_secrets(["later-secret"])
    script = f"{MEET}; echo xyzzy-secret later-secret; head -c 100000 /dev/zero"
    runs = [Running(pool, sh(bench, script.format(*names))) for names in (("a", "b"), ("b", "a"))]
    for run in runs:
        assert run.end().dropped_bytes > 0
        assert b"secret" not in run.watch.output_bytes


def test_all_keepers_share_the_stand_in_and_only_the_first_has_the_wake_fd(bench: Workbench) -> None:
    first = bench.keeper()
    pool, asked = KeeperPool(first), []
    reader, writer = os.pipe()
    pool.wake_fd = reader
    pool.options.stand_in = lambda command: asked.append(command.turn_file)
    assert (first.wake_fd, pool.wake_fd, first.options.stand_in) == (reader, reader, pool.options.stand_in)
    runs = [Running(pool, sh(bench, MEET.format(*names))) for names in (("a", "b"), ("b", "a"))]
    assert [run.end().code for run in runs] == [0, 0]
    assert sorted(asked) == sorted(run.command.turn_file for run in runs)
    pool.wake_fd = None
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_keeper_is_cleaned_up_and_the_others_go_on(bench: Workbench, victim: int) -> None:
    pool = KeeperPool(bench.keeper())
    mine = subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)
    naps, order = ("1", "2"), [TREE, PATIENT] if victim == 0 else [PATIENT, TREE]
    runs = []
    for script, nap in zip(order, naps, strict=True):
        runs.append(Running(pool, sh(bench, script.format("go", 7), nap)))
        until(runs[-1].up)
    until(lambda: len(sleepers(bench, naps[victim])) == 3)
    [daemon] = until(lambda: sleepers(bench, naps[1 - victim]))
    os.kill(runs[victim].keeper, signal.SIGKILL)
    ended = runs[victim].end()
    assert (ended.why, ended.survivors) == ("interrupted", ())
    assert sleepers(bench, naps[victim]) == []
    assert sleepers(bench, naps[1 - victim]) == [daemon]
    assert mine.poll() is None
    (bench.folder / "go").touch()
    other = runs[1 - victim].end()
    assert (other.why, other.code) == ("exit", 7)
    assert sleepers(bench, naps[1 - victim]) == []
    assert pool.run(sh(bench, "exit 3"), RecordingWatcher()).code == 3
    mine.kill()
    mine.wait()


def test_when_both_keepers_are_killed_both_trees_end(bench: Workbench) -> None:
    pool = KeeperPool(bench.keeper())
    runs = [Running(pool, sh(bench, TREE)) for _ in range(2)]
    until(lambda: len(bench.sleepers()) == 6)
    for pid in [run.keeper for run in runs]:
        os.kill(pid, signal.SIGKILL)
    assert [run.end().why for run in runs] == ["interrupted", "interrupted"]
    assert bench.sleepers() == []
    assert pool.run(sh(bench, "exit 3"), RecordingWatcher()).code == 3


class Held(RecordingWatcher):
    """Takes as long as it is wanted to over what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.free = Event()

    def output(self, chunk: bytes) -> None:
        super().output(chunk)
        self.free.wait(20)


def test_nothing_begins_before_a_dead_keeper_is_cleaned_up_after(bench: Workbench) -> None:
    """Whoever is new might be taken for something that the dead one left."""
    pool, watch = KeeperPool(bench.keeper()), Held()
    doomed = Running(pool, sh(bench, TREE), watch)
    until(doomed.up)
    os.kill(doomed.keeper, signal.SIGKILL)
    until(lambda: not is_alive(*turn_journal.read_turn_file(doomed.command.turn_file).keeper))
    runs = [Running(pool, sh(bench, f"echo {number} >> starts; exit {number}")) for number in range(3)]
    time.sleep(0.3)  # nothing happens, and of that there is nothing to see
    assert not (bench.folder / "starts").exists()
    watch.free.set()
    assert doomed.end().why == "interrupted"
    assert [(run.end().why, run.end().code) for run in runs] == [("exit", number) for number in range(3)]
    assert sorted(bench.text("starts").split()) == list("012")
    assert bench.sleepers() == []


def test_a_keeper_started_during_a_cleanup_runs_its_command_once(bench: Workbench) -> None:
    """To start a keeper and to look for what a dead one left may meet."""
    pool = KeeperPool(bench.keeper())
    doomed = Running(pool, sh(bench, f"trap '' TERM; {TREE}"))
    until(doomed.up)
    os.kill(doomed.keeper, signal.SIGKILL)
    runs = [Running(pool, sh(bench, f"echo {number} >> starts; echo up; exit {number}")) for number in range(6)]
    assert [(run.end().why, run.end().code) for run in runs] == [("exit", number) for number in range(6)]
    assert doomed.end().why == "interrupted"
    assert sorted(bench.text("starts").split()) == list("012345")
    assert bench.sleepers() == []


def test_many_threads_and_short_commands_leave_no_process(bench: Workbench) -> None:
    first = bench.keeper()
    pool, before = KeeperPool(first), keepers(first)
    codes: list[int | None] = []

    def work(worker: int) -> None:
        for number in range(5):
            command = sh(bench, f"exit {number}", turn=f"w{worker}_{number}")
            codes.append(pool.run(command, RecordingWatcher()).code)

    threads = [Thread(target=work, args=(worker,)) for worker in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(map(str, codes)) == sorted("01234" * 6)
    assert keepers() == before


class Wishing(RecordingWatcher):
    """Notes when it is asked, and what it then wants."""

    def __init__(self, wants: Callable[[RecordingWatcher], int] = lambda _: CONTINUE) -> None:
        super().__init__(wants)
        self.asked: list[float] = []

    def tick(self) -> int:
        self.asked.append(time.monotonic())
        return super().tick()


@pytest.mark.parametrize(("wanted", "why"), [(STOP, "stopped"), (KILL, "killed")])
def test_a_signal_reaches_all_that_run_at_once(bench: Workbench, wanted: int, why: str) -> None:
    """A tick is due twice a second; nobody waits for it."""
    reader, writer = os.pipe()
    pool, wish = KeeperPool(bench.keeper(wake_fd=reader)), [CONTINUE]
    runs = []
    for _ in range(3):  # the first of them is the first keeper's
        runs.append(Running(pool, sh(bench, TREE, grace_s=0.5), Wishing(lambda _: wish[0])))
        until(runs[-1].up)
    wish[0], rung = wanted, time.monotonic()
    os.write(writer, b"!")
    assert [run.end().why for run in runs] == [why] * 3
    heard = [next(at for at in run.watch.asked if at > rung) for run in runs if isinstance(run.watch, Wishing)]
    assert max(heard) - rung < 0.45
    assert bench.sleepers() == []
    os.close(reader)
    os.close(writer)


def test_a_request_of_one_watcher_causes_a_tick_of_the_others(bench: Workbench) -> None:
    pool, wish = KeeperPool(bench.keeper()), [CONTINUE]
    runs = [Running(pool, sh(bench, TREE), Wishing(lambda _: wish[0]))]
    until(runs[0].up)
    chatty = "echo up; until [ -e go ]; do sleep 0.01; done; echo more; sleep $NAP"
    runs.append(Running(pool, sh(bench, TREE), Wishing(lambda _: wish[0])))
    until(runs[1].up)
    quiet = runs[1].watch
    assert isinstance(quiet, Wishing)
    runs.append(Running(pool, sh(bench, chatty), Wishing(lambda _: wish[0])))
    until(runs[2].up)
    count = len(quiet.asked)
    until(lambda: len(quiet.asked) > count)  # so its next tick is not due for half a second
    last, wish[0] = quiet.asked[-1], KILL
    (bench.folder / "go").touch()
    assert [run.end().why for run in runs] == ["killed"] * 3
    assert next(at for at in quiet.asked if at > last) - last < 0.4


def test_a_signal_is_answered_within_a_second_where_the_keeper_that_hears_it_is_idle(bench: Workbench) -> None:
    reader, writer = os.pipe()
    pool, wish = KeeperPool(bench.keeper(wake_fd=reader)), [CONTINUE]
    first = Running(pool, sh(bench, PATIENT.format("go", 0)))
    until(first.up)
    others = []
    for _ in range(2):
        others.append(Running(pool, sh(bench, f"trap '' TERM; {TREE}", grace_s=10.0), Wishing(lambda _: wish[0])))
        until(others[-1].up)
    (bench.folder / "go").touch()
    assert first.end().code == 0
    wish[0], rung = KILL, time.monotonic()
    os.write(writer, b"!")
    assert [run.end().why for run in others] == ["killed", "killed"]
    assert time.monotonic() - rung < 1.0
    assert bench.sleepers() == []
    os.close(reader)
    os.close(writer)


def harness(folder: str, nap: str, *codes: str) -> None:
    """A process of its own that runs several commands at the same time, and is killed meanwhile."""
    bench = Workbench(Path(folder))
    bench.nap = nap
    pool = KeeperPool(bench.keeper())
    for thread in [Running(pool, _turn(bench, code)) for code in codes]:
        thread.end(60)


def _turn(bench: Workbench, code: str) -> Command:
    return sh(bench, PATIENT.format("go", code), turn=f"t{code}", mark=f"{bench.folder}-{code}")


@pytest.mark.parametrize("adopted", [True, False])
def test_commands_outlive_their_harness_and_none_is_run_twice(bench: Workbench, adopted: bool) -> None:
    codes = ("3", "4", "5")
    paths = f"{ROOT}:{ROOT / 'src'}"
    killed = subprocess.Popen(
        [sys.executable, __file__, str(bench.folder), bench.nap, *codes], env={**os.environ, "PYTHONPATH": paths}
    )
    commands = [_turn(bench, code) for code in codes]
    until(lambda: len(bench.sleepers()) == 3)
    pasts = [turn_journal.read_turn_file(command.turn_file) for command in commands]
    killed.kill()
    killed.wait()
    assert len({past.keeper[0] for past in pasts}) == 3
    assert all(is_alive(*past.keeper) for past in pasts)
    if not adopted:
        (bench.folder / "go").touch()
        until(lambda: not any(is_alive(*past.keeper) for past in pasts))
        assert bench.sleepers() == []
    pool = KeeperPool(bench.keeper())
    runs = [Running(pool, command) for command in commands]
    if adopted:
        until(lambda: all(run.up() for run in runs))
        (bench.folder / "go").touch()
    assert [(run.end().why, run.end().code) for run in runs] == [("exit", 3), ("exit", 4), ("exit", 5)]
    assert [run.watch.output_bytes for run in runs] == [b"up\n"] * 3
    assert bench.text("starts") == "started\n" * 3
    until(lambda: not any(is_alive(*past.keeper) for past in pasts))
    assert bench.sleepers() == []


if __name__ == "__main__":
    harness(*sys.argv[1:])
