"""One loop a directory, whatever became of the loop before."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ralphproof.base.errors import Busy, DiskFull, RalphError, Refused
from ralphproof.base.processes import ProcessIdentity, boot_id, current_process, process_start_time
from ralphproof.store import locks as lock_module
from ralphproof.store.locks import DirectoryLock
from tests.needs import require
from tests.store.subprocesses import environment, python, said

TAKE = """
import sys
from ralphproof.base.errors import RalphError
from ralphproof.store.locks import DirectoryLock
lock = DirectoryLock(*sys.argv[1:])
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


def check_one_works(tmp_path: Path, parents: list[str]) -> None:
    """Of runs with these parents that start at one moment exactly one works, and all others name it."""
    started = [(f"run-{number}", parent) for number, parent in enumerate(parents)]
    children = [python(TAKE, str(tmp_path / "state"), str(tmp_path), *one) for one in started]
    assert {said(child) for child in children} == {"ready"}
    for child in children:
        tell(child)
    answers = [said(child) for child in children]
    for child in children:
        child.communicate("go\n")
    (winner,) = [number for number, answer in enumerate(answers) if answer.startswith("taken")]
    losers = [answer for number, answer in enumerate(answers) if number != winner]
    assert all(f"run run-{winner} (pid {children[winner].pid}) works in {tmp_path}" in answer for answer in losers)
    assert all(f"end it: ralph cancel run-{winner}; " in answer for answer in losers)
    assert all(answer.endswith("git worktree add ../NAME -b BRANCH") for answer in losers)


def killed(tmp_path: Path, run: str, parent: str = "") -> int:
    """The pid of a harness that took the lock and died over it."""
    child = python(TAKE, str(tmp_path / "state"), str(tmp_path), run, parent)
    tell(child)
    assert (said(child), said(child)) == ("ready", "taken")
    child.send_signal(signal.SIGKILL)
    child.communicate()
    return child.pid


def test_of_twenty_simultaneous_starts_exactly_one_works(tmp_path: Path) -> None:
    """EN-19"""
    check_one_works(tmp_path, [""] * 20)


def test_a_lock_given_back_can_be_taken_without_a_word(tmp_path: Path) -> None:
    for run in ("a", "b"):
        lock = DirectoryLock(str(tmp_path), str(tmp_path), run)
        lock.take()
        assert lock.reclaimed == ""
        lock.release()
        lock.release()


@pytest.mark.parametrize("who", ["archive", "plan-20261116-1"])
def test_a_verb_that_has_the_directory_is_no_run_to_cancel(tmp_path: Path, who: str) -> None:
    lock = DirectoryLock(str(tmp_path), str(tmp_path), who)
    lock.take()
    with pytest.raises(Busy, match=rf"^ralph {who.partition('-')[0]} \(pid \d+\) works in .*; wait for it$"):
        DirectoryLock(str(tmp_path), str(tmp_path), "b").take()
    lock.release()


def test_the_same_directory_by_another_name_is_the_same_lock(tmp_path: Path) -> None:
    """EN-18"""
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


@pytest.mark.parametrize(
    ("name", "called"),
    [("lost", "run lost"), ("archive", "ralph archive"), ("plan-20261115-210507-k3f9", "ralph plan")],
)
def test_a_lock_left_by_a_dead_process_is_taken_and_noted(tmp_path: Path, name: str, called: str) -> None:
    """EN-20"""
    pid = killed(tmp_path, name)
    lock = DirectoryLock(str(tmp_path / "state"), str(tmp_path), "new")
    lock.take()
    assert lock.reclaimed == f"{called} (pid {pid}) did not end properly; its lock was taken over"
    lock.release()


GARBAGE = [
    "", "{", "[]", "null", '{"pid": "x"}', '{"pid": 1, "run": "a"}\n', "\0" * 5000, '{"pid": 1}' + "x" * 9000,
    "[" * 4096, '{"pid": 1e999, "run": "a", "boot": "", "start": ""}\n',
    '{"pid": 1, "run": "../../x", "boot": "", "start": ""}\n', '{"pid": 1, "run": "", "boot": "", "start": ""}\n',
]  # fmt: skip


@pytest.mark.parametrize("text", GARBAGE, ids=range(len(GARBAGE)))
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


def test_a_record_of_another_boot_is_no_obstacle_even_where_all_else_is_the_same(tmp_path: Path) -> None:
    """EN-21"""
    lock, me = DirectoryLock(str(tmp_path), str(tmp_path), "new"), current_process()
    os.makedirs(os.path.dirname(lock.path))
    Path(lock.path).write_text(json.dumps({"pid": me.pid, "run": "old", "boot": "then", "start": me.start}) + "\n")
    lock.take()
    assert lock.reclaimed.startswith(f"run old (pid {me.pid}) did not end properly")
    lock.release()


@pytest.mark.parametrize("text", GARBAGE, ids=range(len(GARBAGE)))
def test_a_holder_whose_record_is_garbage_still_holds(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_module, "_MAX_INSPECTIONS", 3)
    holder = DirectoryLock(str(tmp_path), str(tmp_path), "a")
    holder.take()
    Path(holder.path).write_text(text)
    for parent in ("", "a"):
        with pytest.raises(Busy, match=f"another process works in {tmp_path}, and holds {holder.path}"):
            DirectoryLock(str(tmp_path), str(tmp_path), "b", parent).take()
    holder.release()


def test_who_only_looks_whether_a_lock_is_free_keeps_nobody_out(tmp_path: Path) -> None:
    lock = DirectoryLock(str(tmp_path), str(tmp_path), "a")
    lock.take()
    lock.release()
    looking = os.open(lock.path, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    closing = threading.Timer(0.05, lambda: os.close(looking))
    closing.start()
    lock.take()
    closing.join()
    lock.release()


@pytest.mark.parametrize("plant", [os.mkfifo, os.mkdir])
def test_something_else_in_the_place_of_the_lock_is_said_in_one_line(
    tmp_path: Path, plant: Callable[[str], None]
) -> None:
    for parent in ("", "a"):
        lock = DirectoryLock(str(tmp_path / (parent or "none")), str(tmp_path), "b", parent)
        os.makedirs(os.path.dirname(lock.path))
        plant(lock.path)
        with pytest.raises(RalphError, match=f"cannot write {lock.path}") as error:
            lock.take()
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("parent", ["", "a"])
def test_a_file_in_the_place_of_the_folder_of_locks_is_refused(tmp_path: Path, parent: str) -> None:
    (tmp_path / "locks").write_text("mine")
    with pytest.raises(Refused, match="RALPH_STATE_DIR"):
        DirectoryLock(str(tmp_path), str(tmp_path), "b", parent).take()


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


# Children


def taken(tmp_path: Path, run: str, parent: str = "", directory: str = "") -> DirectoryLock:
    lock = DirectoryLock(str(tmp_path / "state"), directory or str(tmp_path), run, parent)
    lock.take()
    return lock


def busy(tmp_path: Path, run: str, parent: str = "") -> str:
    with pytest.raises(Busy) as error:
        taken(tmp_path, run, parent)
    return str(error.value)


def ends(*locks: DirectoryLock) -> list[str]:
    """What the names of the locks' files have behind the directory's; all are given back."""
    for lock in locks:
        lock.release()
    return [os.path.basename(lock.path)[16:] for lock in locks]


def test_a_child_works_beside_its_parent_and_a_child_of_its_own_beside_that(tmp_path: Path) -> None:
    locks = [taken(tmp_path, run, parent) for run, parent in [("a", ""), ("b", "a"), ("c", "b"), ("d", "c")]]
    assert [lock.reclaimed for lock in locks] == [""] * 4
    assert len({lock.path for lock in locks}) == 4
    assert ends(*locks) == [".lock", "-a.lock", "-b.lock", "-c.lock"]
    assert ends(taken(tmp_path, "stranger")) == [".lock"]


def test_one_child_of_a_parent_works_at_a_time(tmp_path: Path) -> None:
    parent, first = taken(tmp_path, "a"), taken(tmp_path, "b", "a")
    assert f"run b (pid {os.getpid()}) works in {tmp_path}" in busy(tmp_path, "c", "a")
    first.release()
    assert ends(taken(tmp_path, "c", "a"), parent) == ["-a.lock", ".lock"]


def test_a_child_takes_the_plain_lock_where_its_parent_does_not_work(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    parent = taken(tmp_path, "a", directory=str(elsewhere))
    child = taken(tmp_path, "b", "a")
    assert "ralph cancel b" in busy(tmp_path, "c", "a")
    assert "ralph cancel b" in busy(tmp_path, "c")
    assert ends(child, parent) == [".lock", ".lock"]


@pytest.mark.parametrize("parent", ["other", "a.lock", "../a", "b\0", "", "x" * 300])
def test_a_parent_that_does_not_work_here_opens_no_door(tmp_path: Path, parent: str) -> None:
    holder = taken(tmp_path, "a")
    assert "ralph cancel a" in busy(tmp_path, "c", parent)
    holder.release()


def test_a_child_works_beside_a_parent_whose_harness_died_and_keeps_strangers_out(tmp_path: Path) -> None:
    pid = killed(tmp_path, "a")
    child = taken(tmp_path, "b", "a")
    assert os.path.basename(child.path).endswith("-a.lock")
    assert "ralph cancel b" in busy(tmp_path, "stranger")
    assert "ralph cancel b" in busy(tmp_path, "c", "a")
    grandchild = taken(tmp_path, "d", "b")
    resumed = taken(tmp_path, "a")
    assert resumed.reclaimed == f"run a (pid {pid}) did not end properly; its lock was taken over"
    assert ends(grandchild, child, resumed) == ["-b.lock", "-a.lock", ".lock"]


def test_a_child_whose_parent_has_left_keeps_strangers_out_and_its_family_in(tmp_path: Path) -> None:
    parent, child = taken(tmp_path, "a"), taken(tmp_path, "b", "a")
    parent.release()
    for run, above in (("stranger", ""), ("c", "a"), ("stranger", "nobody")):
        assert "ralph cancel b" in busy(tmp_path, run, above)
    grandchild = taken(tmp_path, "d", "b")
    parent.take()
    child.release()
    assert "ralph cancel a" in busy(tmp_path, "stranger")
    parent.release()
    assert "ralph cancel d" in busy(tmp_path, "stranger")
    parent.take()
    assert ends(grandchild, parent) == ["-b.lock", ".lock"]
    assert ends(taken(tmp_path, "stranger")) == [".lock"]


def test_a_dead_child_is_taken_over_by_the_next_and_is_no_obstacle(tmp_path: Path) -> None:
    parent = taken(tmp_path, "a")
    pid = killed(tmp_path, "b", "a")
    below = taken(tmp_path, "d", "b")  # the agent of the dead one goes on
    child = taken(tmp_path, "c", "a")
    assert child.reclaimed == f"run b (pid {pid}) did not end properly; its lock was taken over"
    assert ends(below, child, parent) == ["-b.lock", "-a.lock", ".lock"]
    killed(tmp_path, "a")
    killed(tmp_path, "b", "a")
    stranger = taken(tmp_path, "stranger")
    assert stranger.reclaimed.startswith("run a ")
    assert "ralph cancel stranger" in busy(tmp_path, "c", "a")
    assert "ralph cancel stranger" in busy(tmp_path, "d", "b")
    stranger.release()


def test_runs_that_name_each_other_as_parents_hang_nobody(tmp_path: Path) -> None:
    lock = taken(tmp_path, "a")
    record = Path(lock.path).read_text()
    Path(lock.beside("a")).write_text(record.replace('"a"', '"b"'))
    Path(lock.beside("b")).write_text(record.replace('"a"', '"a"'))
    assert "ralph cancel a" in busy(tmp_path, "c", "d")
    assert ends(lock) == [".lock"]


def test_of_many_children_at_once_exactly_one_works(tmp_path: Path) -> None:
    parent = taken(tmp_path, "a")
    check_one_works(tmp_path, ["a"] * 10)
    parent.release()


def test_of_strangers_and_children_of_a_dead_parent_at_once_exactly_one_works(tmp_path: Path) -> None:
    killed(tmp_path, "a")
    check_one_works(tmp_path, ["a", ""] * 6)


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
    me = current_process()
    assert me.alive
    assert me.pid == os.getpid()
    assert not ProcessIdentity(me.pid, "1", me.boot).alive
    assert not ProcessIdentity(me.pid, me.start, "another boot").alive
    assert ProcessIdentity(me.pid).alive


def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = ProcessIdentity(child.pid, process_start_time(child.pid), boot_id())
    assert process.alive
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not process.alive
    child.communicate()
    assert not process.alive
