"""Timeouts, stopping, and the end of whole trees."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ralphproof.engine.sandbox import ACTIVE, CONTINUE, KILL, RESULT_SAID, STOP, Exit
from ralphproof.process import keeper_client, tree, turn_journal
from ralphproof.process.dead_turns import end_turn_processes, own_children
from ralphproof.process.keeper_client import KeeperClient
from ralphproof.process.tree import find_marked_processes, is_alive, is_stopped
from tests.process.workbench import RecordingWatcher, Workbench, until


def test_a_program_over_its_time_is_ended(bench: Workbench) -> None:
    ended = bench.sh("sleep $NAP", timeout_s=0.3)
    assert (ended.why, ended.code) == ("timeout", None)
    assert 0.3 <= ended.seconds < 2
    assert bench.sleepers() == []


def test_the_idle_limit_counts_output_on_either_stream(bench: Workbench) -> None:
    ended = bench.sh("for i in 1 2 3 4; do sleep 0.2; echo >&2; done; sleep $NAP", idle_s=0.5)
    assert ended.why == "idle"
    assert ended.seconds >= 1.2


def test_an_active_request_resets_the_idle_limit(bench: Workbench) -> None:
    ended = bench.sh(
        "echo; sleep $NAP", RecordingWatcher(lambda seen: ACTIVE if seen.ticks < 4 else CONTINUE), idle_s=0.8
    )
    assert ended.why == "idle"
    assert ended.seconds > 1.6


class Heard(RecordingWatcher):
    """Says once that the program said its result."""

    told = False

    def tick(self) -> int:
        if self.told or b"RESULT" not in self.output_bytes:
            return super().tick()
        self.told = True
        return RESULT_SAID


def test_after_its_result_a_program_may_only_linger(bench: Workbench) -> None:
    """PR-05"""
    ended = bench.sh("echo RESULT; sleep $NAP", Heard(), linger_s=0.3)
    assert (ended.why, ended.clean) == ("lingered", True)
    assert bench.sleepers() == []


def test_output_after_the_result_lets_it_linger_longer(bench: Workbench) -> None:
    ended = bench.sh("echo RESULT; for i in 1 2 3; do sleep 0.2; echo; done; sleep $NAP", Heard(), linger_s=0.4)
    assert ended.why == "lingered"
    assert ended.seconds >= 1.0


def test_a_program_that_ignores_term_is_killed_after_the_grace(bench: Workbench) -> None:
    ended = bench.sh("trap '' TERM; while :; do sleep $NAP; done", timeout_s=0.2, grace_s=0.3)
    assert (ended.why, ended.signal) == ("timeout", 9)
    assert 0.5 <= ended.seconds < 2
    assert bench.sleepers() == []


def test_a_program_can_clean_up_on_term(bench: Workbench) -> None:
    ended = bench.sh("trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.02; done", timeout_s=0.3, turn="t")
    assert (ended.why, ended.code) == ("timeout", 7)
    assert bench.text("t.out") == "up\nbye\n"


def test_term_comes_once_to_each_process(bench: Workbench) -> None:
    script = "trap 'echo ${1-outer}' TERM; echo up; while :; do sleep 0.02; done"
    (bench.folder / "script").write_text(script)
    inner = "setsid /bin/sh script inner & /bin/sh script child & "
    seen = RecordingWatcher(lambda seen: STOP if seen.output_bytes.count(b"up") == 3 else CONTINUE)
    bench.sh(inner + script, seen, grace_s=0.5)
    assert sorted(seen.output_bytes.split()) == [b"child", b"inner", b"outer", b"up", b"up", b"up"]


def test_a_stopped_program_is_woken_to_obey(bench: Workbench) -> None:
    ended = bench.sh("trap 'exit 7' TERM; kill -STOP $$; sleep 5", timeout_s=0.3)
    assert ended.code == 7


DAEMON = (
    "env -i /bin/sh -c 'trap \"\" TERM; setsid /bin/sh -c \"trap \\\"\\\" TERM; sleep '$NAP' & sleep '$NAP' & wait\" &'"
)


def test_a_scrubbed_daemon_that_holds_stdout_is_gone_soon_after_the_timeout(bench: Workbench) -> None:
    began = time.monotonic()
    ended = bench.sh(f"{DAEMON}; sleep $NAP", timeout_s=0.5)
    assert ended.why == "timeout"
    assert time.monotonic() - began < 6.5
    assert bench.sleepers() == []


def test_what_a_program_leaves_behind_is_ended_and_its_own_code_stands(bench: Workbench) -> None:
    ended = bench.sh("(setsid env -i sleep $NAP &); echo done; exit 3")
    assert (ended.code, ended.why) == (3, "exit")
    assert ended.seconds < 3
    assert bench.sleepers() == []


def test_a_program_that_closes_stdout_early_is_waited_for(bench: Workbench) -> None:
    ended = bench.sh("exec >&- 2>&-; sleep 0.3; exit 9")
    assert (ended.code, ended.seconds >= 0.3) == (9, True)


def test_fifty_orphans_are_ended(bench: Workbench) -> None:
    ended = bench.sh("i=0; while [ $i -lt 50 ]; do (sleep $NAP &) ; i=$((i+1)); done; echo up")
    assert (ended.code, ended.survivors) == (0, ())
    assert bench.sleepers() == []


def test_children_of_other_threads_are_ended_with_term(bench: Workbench) -> None:
    program = (
        "import os,subprocess,threading,time\n"
        "script = 'trap \"touch told; exit\" TERM; echo up; while :; do sleep 0.02; done'\n"
        "run = lambda: subprocess.Popen(['/bin/sh', '-c', script], start_new_session=True)\n"
        "thread = threading.Thread(target=lambda: (run(), time.sleep(60))); thread.start()\n"
    )
    (bench.folder / "threads.py").write_text(program)
    ended = bench.sh(
        "exec python3 -I -S threads.py", RecordingWatcher(lambda seen: STOP if seen.output_bytes else CONTINUE)
    )
    assert ended.why == "stopped"
    assert (bench.folder / "told").exists()


def test_a_watcher_can_stop_a_program(bench: Workbench) -> None:
    seen = RecordingWatcher(lambda seen: STOP if b"up" in seen.output_bytes else CONTINUE)
    ended = bench.sh("trap 'echo tidy; exit 1' TERM; echo up; while :; do sleep 0.02; done", seen)
    assert (ended.why, ended.code) == ("stopped", 1)
    assert seen.output_bytes == b"up\ntidy\n"


def test_a_watcher_can_kill_a_program(bench: Workbench) -> None:
    seen = RecordingWatcher(lambda seen: KILL if b"up" in seen.output_bytes else CONTINUE)
    ended = bench.sh("trap 'echo tidy' TERM; echo up; while :; do sleep 0.02; done", seen)
    assert (ended.why, ended.signal, seen.output_bytes) == ("killed", 9, b"up\n")


def test_a_watcher_that_fails_ends_the_program(bench: Workbench) -> None:
    class Failing(RecordingWatcher):
        def output(self, chunk: bytes) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        bench.sh("trap '' TERM; setsid sleep $NAP & echo up; sleep $NAP", Failing(), turn="t")
    past = until(lambda: (past := turn_journal.read_turn_file(str(bench.folder / "t.turn"))).result and past)
    assert (past.result["why"], bench.sleepers()) == ("killed", [])
    assert bench.sh("exit 3").code == 3


def test_stop_can_be_followed_by_kill(bench: Workbench) -> None:
    seen = RecordingWatcher(
        lambda seen: KILL if b"no" in seen.output_bytes else STOP if b"up" in seen.output_bytes else CONTINUE
    )
    ended = bench.sh("trap 'echo no' TERM; echo up; while :; do sleep 0.02; done", seen, grace_s=60.0)
    assert (ended.why, ended.signal) == ("killed", 9)
    assert ended.seconds < 5


class Flooding(RecordingWatcher):
    """Suspends the keeper at the first output, fills the line to it, and only then wants something; then it goes on."""

    MANY = 3000  # orders: more than a line takes

    def __init__(self, keeper: KeeperClient, bell: int, wants: Callable[[], int]) -> None:
        super().__init__()
        self._keeper, self._bell, self._then, self._active = keeper, bell, wants, 0

    def tick(self) -> int:
        os.write(self._bell, b"!")  # the next tick comes at once
        if self._active == self.MANY:
            self._active += 1
            return self._then()
        if self._active > self.MANY:
            os.kill(self._keeper.pid, signal.SIGCONT)
            return CONTINUE
        if self.output_bytes:
            os.kill(self._keeper.pid, signal.SIGSTOP)
            self._active += 1
        return ACTIVE


@pytest.fixture
def flooded(bench: Workbench) -> Iterator[Callable[[Callable[[], int]], Exit]]:
    reader, writer = os.pipe2(os.O_NONBLOCK)
    keeper = bench.keeper(wake_fd=reader)

    def run(wants: Callable[[], int]) -> Exit:
        flood = Flooding(keeper, writer, wants)
        return bench.sh("echo up; sleep $NAP", flood, turn="t", linger_s=0.2, timeout_s=6.0)

    yield run
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize(("wanted", "why"), [(RESULT_SAID, "lingered"), (STOP, "stopped"), (KILL, "killed")])
def test_an_order_that_finds_the_socket_full_is_sent_again(
    flooded: Callable[[Callable[[], int]], Exit], wanted: int, why: str
) -> None:
    assert flooded(lambda: wanted).why == why


def test_a_watcher_that_fails_ends_the_program_though_the_socket_is_full(
    bench: Workbench, flooded: Callable[[Callable[[], int]], Exit]
) -> None:
    def fail() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        flooded(fail)
    past = until(lambda: (past := turn_journal.read_turn_file(str(bench.folder / "t.turn"))).result and past)
    assert (past.result["why"], bench.sleepers()) == ("killed", [])


@pytest.mark.parametrize(("numbers", "why"), [([signal.SIGTERM], "stopped"), ([signal.SIGQUIT], "killed")])
def test_a_signal_to_the_keeper_ends_the_turn_and_not_the_keeper(
    bench: Workbench, numbers: list[signal.Signals], why: str
) -> None:
    keeper = bench.keeper()

    def send(seen: RecordingWatcher) -> int:
        if seen.output_bytes and numbers:
            os.kill(keeper.pid, numbers.pop())
        return CONTINUE

    pid = keeper.pid
    assert bench.sh("echo up; sleep $NAP", RecordingWatcher(send)).why == why
    assert bench.sh("exit 2").code == 2
    assert keeper.pid == pid


def test_interrupts_and_hangups_do_not_touch_a_turn(bench: Workbench) -> None:
    keeper = bench.keeper()

    def send(seen: RecordingWatcher) -> int:
        os.kill(keeper.pid, signal.SIGINT)
        os.kill(keeper.pid, signal.SIGHUP)
        return CONTINUE

    assert bench.sh("echo up; sleep 0.1; exit 3", RecordingWatcher(send)).code == 3


@pytest.mark.thorough
def test_suspension_of_everything_is_no_timeout(bench: Workbench) -> None:
    keeper = bench.keeper()
    frozen: list[int] = []

    def freeze(seen: RecordingWatcher) -> int:
        if seen.output_bytes and not frozen:
            frozen.extend([keeper.pid, int(seen.output_bytes)])
            for number in (signal.SIGSTOP, signal.SIGCONT):
                for group in frozen:
                    os.killpg(group, number)
                time.sleep(3.0 * (number == signal.SIGSTOP))  # the suspension itself
        return CONTINUE

    ended = bench.sh(
        "echo $$; i=0; while [ $i -lt 20 ]; do sleep 0.05; i=$((i+1)); done", RecordingWatcher(freeze), timeout_s=2.5
    )
    assert (ended.why, ended.code) == ("exit", 0)
    assert ended.paused_s > 1.0


def test_leftovers_are_found_by_the_beginning_of_their_mark_and_ended(bench: Workbench, tmp_path: Path) -> None:
    mark = f"left-{os.getpid()}-{time.monotonic_ns()}"
    pids = [
        os.posix_spawn("/bin/sleep", ["sleep", bench.nap], {"RALPH_TURN": f"{mark}-{turn}"}) for turn in ("one", "two")
    ]
    assert sorted(until(lambda: len(find_marked_processes(mark)) == 2 and find_marked_processes(mark))) == sorted(pids)
    assert find_marked_processes(f"{mark}-t") == pids[1:]
    assert find_marked_processes(mark[1:]) == []
    assert end_turn_processes(mark) == (sorted(pids), [])
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [9, 9]


@pytest.mark.parametrize("pid", [-1, 0])
def test_an_invalid_pid_is_not_alive(pid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "LINUX", False)
    assert not is_alive(pid, 0)


def test_the_children_that_a_turn_remembers_do_not_grow_with_other_runs() -> None:
    keepers = [KeeperClient() for _ in range(3)]
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        known = own_children()
        assert stranger.pid in known
        assert not known & {keeper.pid for keeper in keepers}
    finally:
        stranger.kill()
        stranger.wait()
        for keeper in keepers:
            keeper.close()


def test_a_keeper_that_its_program_stopped_is_ended_when_it_is_due(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it ran is gone, and one result is written."""
    monkeypatch.setattr(keeper_client, "ANSWER_TIMEOUT_S", 0.1)
    bench.keeper()
    stops = "env -i setsid sleep $NAP & sleep $NAP & kill -STOP $PPID; wait"
    ended = bench.sh(stops, timeout_s=0.5, grace_s=0.1, turn="t")
    assert (ended.why, "its keeper did not answer" in ended.error) == ("interrupted", True)
    assert bench.sleepers() == []
    assert bench.text("t.turn").count("result") == 1
    assert bench.sh("exit 3").code == 3, "the next turn has a keeper"


def test_a_keeper_that_is_stopped_once_goes_on_with_its_turn(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper_client, "STOPPED_TIMEOUT_S", 0.1)
    assert bench.sh("kill -STOP $PPID; exit 4").code == 4


@pytest.mark.parametrize("wanted", [STOP, KILL])
def test_a_program_that_stops_its_keeper_again_and_again_is_ended(bench: Workbench, wanted: int) -> None:
    """By the keeper in a moment in which it is not stopped, or from outside."""
    bench.keeper()
    script = "sleep $NAP & echo up; while :; do kill -STOP $PPID; done"
    ended = bench.sh(script, RecordingWatcher(lambda seen: wanted if seen.output_bytes else CONTINUE), grace_s=0.1)
    assert ended.why in ("stopped", "killed")
    assert bench.sleepers() == []


def test_an_adopted_turn_whose_keeper_is_stopped_is_ended_when_it_is_due(
    bench: Workbench, start_harness: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_client, "ANSWER_TIMEOUT_S", 0.1)
    harness = start_harness("sleep $NAP & kill -STOP $PPID; wait", timeout_s=0.5, grace_s=0.1)
    until(lambda: bench.sleepers() and is_stopped(harness.keeper))
    harness.kill()
    ended = harness.next()
    assert (ended.why, "its keeper did not answer" in ended.error) == ("interrupted", True)
    assert bench.sleepers() == []


def test_the_keeper_ends_the_turn_in_time_though_its_harness_is_stopped(bench: Workbench, start_harness: Any) -> None:
    harness = start_harness("echo up; sleep $NAP", timeout_s=0.5)
    until(bench.sleepers)
    os.kill(harness.process.pid, signal.SIGSTOP)
    past = until(lambda: (past := turn_journal.read_turn_file(str(bench.folder / "t.turn"))).result and past)
    assert (past.result["why"], bench.sleepers()) == ("timeout", [])
