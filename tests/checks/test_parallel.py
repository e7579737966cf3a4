"""Several checks at the same time: their answers, who looks on, and that nothing is left of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Barrier, BrokenBarrierError, Event, Lock, Thread, get_ident
from typing import Any

import pytest

from ralphproof.base.errors import KeeperLost
from ralphproof.checks.command import CommandCheck, CommandCheckSpec
from ralphproof.checks.parallel import MAX_PARALLEL, MAX_QUEUED, MIN_PARALLEL, run_checks_in_parallel
from ralphproof.engine.agent import Event as Told
from ralphproof.engine.agent import Said, Spent
from ralphproof.engine.check import Check, CheckWatcher, Finding, Inspection
from ralphproof.engine.sandbox import CONTINUE, KILL, STOP
from ralphproof.engine.workspace import Change, Snapshot
from ralphproof.process.keeper_client import KeeperClient, KeeperPool
from ralphproof.sandbox.runner import DirectRunner
from ralphproof.store.run_folder import RunFolder

ROOT = Path(__file__).parents[2]
AT_ONCE = min(max(os.cpu_count() or MIN_PARALLEL, MIN_PARALLEL), MAX_PARALLEL)
MEET = "touch {0}; until [ -e {1} ]; do sleep 0.01; done; echo {0} met {1}"
# A tree that does not go by itself, with one in it that is scrubbed and in a session of its own.
STAY = "trap '' TERM; (env -i setsid sleep $NAP &); echo up >> up; sleep $NAP & sleep $NAP; sleep $NAP"
LOOKED = Inspection(1, 1, "", Snapshot("s", "t"), Change())


class Watching:
    """Looks on: keeps what it sees, and notes who called it."""

    def __init__(self, wants: Callable[[], int] = lambda: CONTINUE) -> None:
        self.threads: set[int] = set()
        self.chunks: list[bytes] = []
        self.told: list[Told] = []
        self.ticks: list[float] = []
        self._wants = wants

    def output(self, chunk: bytes) -> None:
        self.threads.add(get_ident())
        self.chunks.append(chunk)

    def events(self, events: list[Told]) -> None:
        self.threads.add(get_ident())
        self.told += events

    def tick(self) -> int:
        self.threads.add(get_ident())
        self.ticks.append(time.monotonic())
        return self._wants()


class Asked:
    """A check that is a function of ours."""

    def __init__(self, name: str, ask: Callable[[CheckWatcher], object], key: str = "", required: bool = True) -> None:
        self.name, self.key, self.required, self._ask = name, key, required, ask

    def run(self, inspection: Inspection, watch: CheckWatcher) -> Finding:
        self._ask(watch)
        return Finding(self.name, True, seconds=1.0, spent=Spent(5), key=self.key, required=self.required)


class Place:
    """A project in which commands are asked."""

    def __init__(self, path: Path, nap: str = "") -> None:
        self.root, self.first = path / "project", KeeperClient()
        self.root.mkdir(exist_ok=True)
        self.pool = KeeperPool(self.first)
        self.folder = RunFolder(str(self.root), "run", str(path / "state"))
        self.folder.begin()
        self.nap = nap or f"{os.getpid() + 3000}.{time.monotonic_ns()}"

    def command(self, command: str, name: str, **more: Any) -> CommandCheck:
        env = (("PATH", os.environ["PATH"]), ("NAP", self.nap))
        own = {"timeout_s": 30.0, "env": (("WHO", name),)}  # else two that are alike would be asked once
        question = CommandCheckSpec(command, name, name, **{**own, **more})
        return CommandCheck(question, DirectRunner(self.pool), self.folder, str(self.root), env)

    def up(self, count: int) -> bool:
        """Whether so many have said that they are."""
        path = self.root / "up"
        return path.exists() and path.read_text().count("up") >= count

    def napping(self) -> bool:
        """Whether one of the trees is still there."""
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = path.read_bytes()
            except OSError:
                continue
            if b"sleep\0" + self.nap.encode() in line:
                return True
        return False


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.pool.close()
    made.first.close()
    assert not made.napping()


def names(found: tuple[Finding, ...]) -> list[str]:
    return [finding.check for finding in found]


def test_commands_run_at_the_same_time_and_answer_in_their_order(place: Place) -> None:
    pair = place.command(f"{MEET.format('a', 'b')}; sleep 0.1", "one"), place.command(MEET.format("b", "a"), "two")
    found = run_checks_in_parallel(pair, LOOKED, Watching())
    assert [(one.check, one.passed, one.output) for one in found] == [
        ("one", True, "a met b\n"), ("two", True, "b met a\n"),
    ]  # fmt: skip


def test_each_has_its_own_answer(place: Place) -> None:
    checks = tuple(place.command(f"echo {code}; exit {code}", f"c{code}") for code in range(6))
    found = run_checks_in_parallel(checks, LOOKED, Watching())
    assert [(one.check, one.code, one.output) for one in found] == [(f"c{n}", n, f"{n}\n") for n in range(6)]
    assert len({one.log for one in found}) == 6
    assert all((place.root / one.log).read_text() == one.output for one in found)


def test_logs_are_published_one_after_the_other(place: Place, tmp_path: Path) -> None:
    """They go to one folder, and whoever finds it gone makes it again."""
    inside, both = Lock(), Event()

    class Narrow(RunFolder):
        def publish(self, name: str) -> None:
            if not inside.acquire(blocking=False):
                both.set()
                return
            both.wait(0.2)
            super().publish(name)
            inside.release()

    place.folder = Narrow(str(place.root), "run", str(tmp_path / "state"))
    run_checks_in_parallel(
        (place.command(MEET.format("a", "b"), "one"), place.command(MEET.format("b", "a"), "two")), LOOKED, Watching()
    )
    assert not both.is_set()


def test_a_run_folder_that_checks_delete_under_each_other_is_made_again(place: Place) -> None:
    checks = tuple(place.command(f"rm -rf .ralph; echo {n}", f"c{n}") for n in range(8))
    assert [one.passed for one in run_checks_in_parallel(checks, LOOKED, Watching())] == [True] * 8


def test_the_watcher_is_called_from_the_calling_thread_only(place: Place) -> None:
    loud = "i=0; while [ $i -lt 20 ]; do echo line $i; i=$((i+1)); done"

    def tell(ear: CheckWatcher) -> None:
        for number in range(500):
            ear.events([Said(f"{number}")])

    watch = Watching()  # not all at once: where that much waits to be heard, output is left to its log
    run_checks_in_parallel((place.command(loud, "one"), place.command(loud, "two")), LOOKED, watch)
    assert b"".join(watch.chunks).count(b"line 19\n") == 2
    run_checks_in_parallel((Asked("tells", tell), place.command("true", "beside")), LOOKED, watch)
    assert watch.threads == {get_ident()}
    assert watch.told == [Said(f"{n}") for n in range(500)]  # every one, in order


def test_a_single_check_runs_in_the_calling_thread() -> None:
    threads: list[int] = []
    found = run_checks_in_parallel((Asked("one", lambda _: threads.append(get_ident())),), LOOKED, Watching())
    assert (names(found), threads) == (["one"], [get_ident()])
    assert run_checks_in_parallel((), LOOKED, Watching()) == ()


def test_no_more_are_asked_at_once_than_the_machine_has_processors() -> None:
    lock, inside, most, full = Lock(), [0], [0], Barrier(AT_ONCE)

    def ask(_: CheckWatcher) -> None:
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        try:
            full.wait(0.3)  # so many are there together; the last ones are fewer
        except BrokenBarrierError:
            pass
        with lock:
            inside[0] -= 1

    checks = tuple(Asked(f"c{n}", ask) for n in range(AT_ONCE * 2 + 1))
    assert names(run_checks_in_parallel(checks, LOOKED, Watching())) == [f"c{n}" for n in range(AT_ONCE * 2 + 1)]
    assert most[0] == AT_ONCE


def test_output_for_a_blocked_watcher_is_bounded() -> None:
    stuck, poured = Event(), Event()

    def pour(ear: CheckWatcher) -> None:
        ear.tick()
        stuck.wait(10)
        for _ in range(10_000):
            ear.output(b"x" * 1000)
        poured.set()

    def wants() -> int:
        if len(watch.ticks) > 1:
            stuck.set()
            poured.wait(10)
        return CONTINUE

    watch = Watching(wants)
    found = run_checks_in_parallel((Asked("waits", lambda _: poured.wait(10)), Asked("pours", pour)), LOOKED, watch)
    assert [one.passed for one in found] == [True, True]
    assert poured.is_set()
    assert 0 < len(watch.chunks) <= MAX_QUEUED


def test_time_is_told_twice_a_second_and_at_once_when_one_has_ended() -> None:
    ended, began = [0.0], time.monotonic()

    def short(_: CheckWatcher) -> None:
        ended[0] = time.monotonic()

    watch, long = Watching(), Asked("long", lambda _: time.sleep(1.3))
    # Whoever asks the short one has another to ask.
    checks = (*[long] * (AT_ONCE - 1), Asked("short", short), Asked("next", lambda _: time.sleep(0.4)))
    run_checks_in_parallel(checks, LOOKED, watch)
    gaps = [later - before for before, later in zip([began, *watch.ticks], watch.ticks, strict=False)]
    assert max(gaps) < 0.9
    assert min(tick - ended[0] for tick in watch.ticks if tick > ended[0]) < 0.2
    assert len(watch.ticks) < 8 + AT_ONCE


def test_a_check_is_told_what_is_wanted_now_and_not_before_it_asked() -> None:
    wish, heard = [CONTINUE], []

    def ask(ear: CheckWatcher) -> None:
        for wanted in (CONTINUE, STOP, CONTINUE, KILL, CONTINUE):
            wish[0] = wanted
            heard.append(ear.tick())
        done.set()

    done = Event()
    pair = Asked("asks", ask), Asked("waits", lambda _: done.wait(10))
    run_checks_in_parallel(pair, LOOKED, Watching(lambda: wish[0]))
    assert heard == [CONTINUE, STOP, CONTINUE, KILL, CONTINUE]


def test_checks_that_ask_the_same_are_asked_once(place: Place) -> None:
    same = [place.command("echo run >> runs; exit 3", name, env=()) for name in ("one", "two", "three")]
    found = run_checks_in_parallel((*same, place.command("echo other", "four")), LOOKED, Watching())
    assert (place.root / "runs").read_text() == "run\n"
    assert [(one.check, one.code, one.passed) for one in found] == [
        ("one", 3, False), ("two", 3, False), ("three", 3, False), ("four", 0, True),
    ]  # fmt: skip
    assert [(one.runs, one.seconds > 0) for one in found] == [(1, True), (0, False), (0, False), (1, True)]
    assert len({one.key for one in found[:3]}) == 1
    assert {one.log for one in found[:3]} == {found[0].log}


def test_what_is_asked_once_costs_once_also_where_nothing_else_is_asked() -> None:
    calls: list[int] = []
    pair = tuple(Asked(name, lambda _: calls.append(1), key="k") for name in ("one", "two"))
    one, two = run_checks_in_parallel(pair, LOOKED, Watching())
    assert (len(calls), one.spent, two.spent, two.check, two.runs) == (1, Spent(5), None, "two", 0)
    _, other = run_checks_in_parallel(
        (Asked("warns", str, "k", required=False), Asked("must", str, "k")), LOOKED, Watching()
    )
    assert other.required  # one that only warns cannot make another one that only warns
    run_checks_in_parallel(tuple(Asked(name, lambda _: calls.append(1)) for name in ("one", "two")), LOOKED, Watching())
    assert len(calls) == 3  # without a key no two are the same


def until(met: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def test_an_exception_of_a_check_ends_the_others_and_is_raised_after_them(place: Place) -> None:
    def lose(_: CheckWatcher) -> None:
        until(lambda: place.up(1))
        raise KeeperLost("no more processes")

    stays = [place.command(STAY, f"c{n}") for n in range(AT_ONCE - 1)]
    checks: tuple[Check, ...] = (*stays, Asked("loses", lose), place.command("touch later", "later"))
    began = time.monotonic()
    with pytest.raises(KeeperLost, match="no more processes"):
        run_checks_in_parallel(checks, LOOKED, Watching())
    assert not place.napping()
    assert not (place.root / "later").exists()
    assert time.monotonic() - began < 5  # it was killed, and not asked to leave


@pytest.mark.parametrize("fault", [KeyboardInterrupt, ValueError])
def test_an_exception_of_the_watcher_is_raised_after_all_checks_ended(place: Place, fault: type[BaseException]) -> None:
    def wants() -> int:
        if place.up(2):
            raise fault
        return CONTINUE

    with pytest.raises(fault):
        run_checks_in_parallel((place.command(STAY, "one"), place.command(STAY, "two")), LOOKED, Watching(wants))
    assert not place.napping()


def test_a_watcher_that_fails_before_anything_began_is_heard_and_nothing_begins(place: Place) -> None:
    def wants() -> int:
        raise KeyboardInterrupt

    checks = tuple(place.command("touch ran", name) for name in ("one", "two"))
    with pytest.raises(KeyboardInterrupt):
        run_checks_in_parallel(checks, LOOKED, Watching(wants))
    assert not (place.root / "ran").exists()


@pytest.mark.parametrize("wanted", [STOP, KILL])
def test_those_that_run_are_ended_and_those_that_have_not_begun_never_begin(place: Place, wanted: int) -> None:
    stays = [place.command("echo up >> up; sleep $NAP", f"c{n}") for n in range(AT_ONCE)]
    waits = [place.command("touch ran", f"w{n}", required=False) for n in range(3)]
    watch = Watching(lambda: wanted if place.up(AT_ONCE) else CONTINUE)
    found = run_checks_in_parallel((*stays, *waits), LOOKED, watch)
    assert {one.why for one in found} == {"stopped"}
    assert not any(one.passed for one in found)
    assert [one.runs for one in found[AT_ONCE:]] == [0] * 3
    assert [one.required for one in found] == [True] * AT_ONCE + [False] * 3
    assert not (place.root / "ran").exists()


def test_a_signal_is_answered_within_a_second_and_a_second_one_at_once(place: Place) -> None:
    reader, writer = os.pipe()
    place.pool.wake_fd = reader
    urgency, rung = [CONTINUE], list[float]()

    def ring() -> None:
        until(lambda: place.up(2))
        for wanted in (STOP, KILL):
            urgency[0] = wanted
            rung.append(time.monotonic())
            os.write(writer, b"!")
            until(lambda: watch.ticks[-1] > rung[-1])

    watch = Watching(lambda: urgency[0])
    ringing = Thread(target=ring)
    ringing.start()
    found = run_checks_in_parallel((place.command(STAY, "one"), place.command(STAY, "two")), LOOKED, watch)
    assert time.monotonic() - rung[1] < 1.0  # a command has five seconds to leave where it is asked once
    assert rung[1] - rung[0] < 0.4  # until it was heard, where time is told twice a second
    assert [one.why for one in found] == ["stopped", "stopped"]
    ringing.join()
    os.close(reader)
    os.close(writer)


HARNESS = """
import sys
from pathlib import Path
from tests.checks.test_parallel import LOOKED, STAY, Place, Watching, run_checks_in_parallel

place = Place(Path(sys.argv[1]), sys.argv[2])
pair = place.command(STAY, "one"), place.command(STAY, "two")
try:
    run_checks_in_parallel(pair, LOOKED, Watching())
finally:
    print("napping" if place.napping() else "nothing left", flush=True)
    place.first.close()
"""


def test_two_interrupts_in_a_row_leave_no_process(tmp_path: Path) -> None:
    nap = f"{os.getpid() + 4000}.{time.monotonic_ns()}"
    harness = subprocess.Popen(
        [sys.executable, "-c", HARNESS, str(tmp_path), nap], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}, text=True, start_new_session=True,
    )  # fmt: skip
    up = tmp_path / "project" / "up"
    until(lambda: up.exists() and up.read_text().count("up") == 2)
    harness.send_signal(signal.SIGINT)
    time.sleep(0.05)  # the first one is on its way up
    harness.send_signal(signal.SIGINT)
    said, complaint = harness.communicate(timeout=20)
    assert said == "nothing left\n"
    assert "KeyboardInterrupt" in complaint
    assert harness.returncode != 0
