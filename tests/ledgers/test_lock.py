"""One loop a directory, whatever became of the loop before."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ralphproof.errors import Busy, DiskFull, Refused
from ralphproof.ledgers.lock import DirectoryLock
from ralphproof.ledgers.process import LoopProcess, boot_id, started, this_process
from tests.ledgers.waiting import environment, python, said
from tests.needs import require

TAKE = """
import sys
from ralphproof.errors import RalphError
from ralphproof.ledgers.lock import DirectoryLock
lock = DirectoryLock(sys.argv[1], sys.argv[2], sys.argv[3])
print("ready", flush=True); sys.stdin.readline()
try:
    lock.take()
    print("taken", lock.reclaimed, flush=True)
except RalphError as error:
    print(type(error).__name__, error, flush=True)
sys.stdin.readline()
"""


def tell(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("go\n")
    child.stdin.flush()


def test_of_twenty_simultaneous_starts_exactly_one_works(tmp_path: Path) -> None:
    children = [python(TAKE, str(tmp_path / "state"), str(tmp_path), f"run-{number}") for number in range(20)]
    assert {said(child) for child in children} == {"ready"}
    for child in children:
        tell(child)
    answers = [said(child) for child in children]
    for child in children:
        child.communicate("go\n")
    (winner,) = [number for number, answer in enumerate(answers) if answer.startswith("taken")]
    losers = [answer for number, answer in enumerate(answers) if number != winner]
    assert all(f"run run-{winner} (pid {children[winner].pid}) works in {tmp_path}" in answer for answer in losers)
    assert all(answer.endswith(f"ralph cancel run-{winner}") for answer in losers)


def test_a_lock_given_back_can_be_taken_without_a_word(tmp_path: Path) -> None:
    for run in ("a", "b"):
        lock = DirectoryLock(str(tmp_path), str(tmp_path), run)
        lock.take()
        assert lock.reclaimed == ""
        lock.release()
        lock.release()


def test_the_same_directory_by_another_name_is_the_same_lock(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "link").symlink_to(project)
    lock = DirectoryLock(str(tmp_path), str(project), "a")
    lock.take()
    with pytest.raises(Busy, match="ralph cancel a"):
        DirectoryLock(str(tmp_path), str(tmp_path / "link"), "b").take()
    other = DirectoryLock(str(tmp_path), str(tmp_path), "c")
    other.take()
    other.release()
    lock.release()


def test_a_lock_left_by_a_dead_process_is_taken_and_noted(tmp_path: Path) -> None:
    """EN-20"""
    child = python(TAKE, str(tmp_path), str(tmp_path), "lost")
    tell(child)
    assert (said(child), said(child)) == ("ready", "taken")
    child.send_signal(signal.SIGKILL)
    child.communicate()
    lock = DirectoryLock(str(tmp_path), str(tmp_path), "new")
    lock.take()
    assert lock.reclaimed == f"run lost (pid {child.pid}) did not end properly; its lock was taken over"
    lock.release()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"pid": "x"}', '{"pid": 1, "run": "a"}\n', "\0" * 5000, '{"pid": 1}' + "x" * 9000],
)
def test_an_unreadable_record_of_a_dead_holder_is_no_obstacle(tmp_path: Path, text: str) -> None:
    lock = DirectoryLock(str(tmp_path), str(tmp_path), "new")
    os.makedirs(os.path.dirname(lock.path))
    Path(lock.path).write_text(text)
    lock.take()
    assert lock.reclaimed == ""
    assert json.loads(Path(lock.path).read_text())["run"] == "new"
    lock.release()


def test_a_record_whose_pid_now_belongs_to_another_process_is_no_obstacle(tmp_path: Path) -> None:
    """EN-21"""
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    lock = DirectoryLock(str(tmp_path), str(tmp_path), "new")
    os.makedirs(os.path.dirname(lock.path))
    Path(lock.path).write_text(json.dumps({"pid": bystander.pid, "run": "old", "boot": boot_id(), "start": "1"}) + "\n")
    lock.take()
    lock.release()
    assert bystander.poll() is None
    bystander.communicate(b"\n")
    assert bystander.returncode == 0
    assert "run old" in lock.reclaimed


def test_a_holder_that_has_not_said_its_name_yet_is_not_taken_for_the_one_before(tmp_path: Path) -> None:
    holder = DirectoryLock(str(tmp_path), str(tmp_path), "a")
    holder.take()
    Path(holder.path).write_text(json.dumps({"pid": 1, "run": "old", "boot": "then", "start": "1"}) + "\n")
    with pytest.raises(Busy) as busy:
        DirectoryLock(str(tmp_path), str(tmp_path), "b").take()
    assert "run old" not in str(busy.value)
    assert holder.path in str(busy.value)
    holder.release()


def test_a_program_started_by_the_holder_does_not_hold_the_lock(tmp_path: Path) -> None:
    """EN-23"""
    lock = DirectoryLock(str(tmp_path), str(tmp_path), "a")
    lock.take()
    orphan = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    lock.release()
    again = DirectoryLock(str(tmp_path), str(tmp_path), "b")
    again.take()
    again.release()
    orphan.communicate(b"\n")


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_lock_files_are_private(tmp_path: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        lock = DirectoryLock(str(tmp_path / "state"), str(tmp_path), "a")
        lock.take()
    finally:
        os.umask(old)
    modes = [stat.S_IMODE(os.stat(path).st_mode) for path in (lock.path, os.path.dirname(lock.path))]
    lock.release()
    assert modes == [0o600, 0o700]


def test_a_symbolic_link_in_the_place_of_the_lock_is_refused(tmp_path: Path) -> None:
    lock = DirectoryLock(str(tmp_path), str(tmp_path), "a")
    os.makedirs(os.path.dirname(lock.path))
    os.symlink(tmp_path / "victim", lock.path)
    with pytest.raises(Refused, match="symbolic link"):
        lock.take()
    assert not (tmp_path / "victim").exists()


def injected(rule: str, tmp_path: Path) -> str:
    """What a process says that takes the lock while some of its system calls fail."""
    require(shutil.which("strace") is not None, "strace makes system calls fail")
    argv = ["strace", "-qq", "-o", "/dev/null", "-e", f"trace={rule.partition(':')[0]}", "-e", f"inject={rule}"]
    argv += [sys.executable, "-c", TAKE, str(tmp_path), str(tmp_path), "a"]
    result = subprocess.run(argv, env=environment(), input="go\ngo\n", text=True, capture_output=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()[1]


@pytest.mark.parametrize("error", ["ENOLCK", "EOPNOTSUPP", "ENOSYS"])
def test_without_locks_no_run_starts(tmp_path: Path, error: str) -> None:
    """EN-22"""
    answer = injected(f"flock:error={error}", tmp_path)
    assert answer.startswith("Refused")
    assert "cannot be locked" in answer
    assert "RALPH_STATE_DIR" in answer


@pytest.mark.parametrize(
    ("rule", "raised"),
    [("pwrite64:error=ENOSPC", DiskFull), ("pwrite64:error=EDQUOT", DiskFull), ("flock:error=EACCES", Refused)],
)
def test_a_lock_that_cannot_be_written_is_said(tmp_path: Path, rule: str, raised: type[Exception]) -> None:
    assert injected(rule, tmp_path).startswith(raised.__name__)


def test_a_process_is_known_by_more_than_its_pid() -> None:
    me = this_process()
    assert me.alive
    assert me.pid == os.getpid()
    assert not LoopProcess(me.pid, "1", me.boot).alive
    assert not LoopProcess(me.pid, me.start, "another boot").alive
    assert LoopProcess(me.pid).alive


def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = LoopProcess(child.pid, started(child.pid), boot_id())
    assert process.alive
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not process.alive
    child.communicate()
    assert not process.alive
