"""Two users, each with a state folder of their own, in one project folder."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from pathlib import Path

import pytest

from ralphproof.store.locks import DirectoryLock
from tests.misbehaviour.crashing import CHECK, QUICK, RUN, at_work, go_on, kill, nothing_left, resume
from tests.needs import require
from tests.ralph import Ralph, Step, done, until, write


def other_user(ralph: Ralph) -> dict[str, str]:
    return {"RALPH_STATE_DIR": str(ralph.folder / "another")}


def test_another_users_run_is_refused_while_a_turn_is_at_work_also_without_its_harness(ralph: Ralph) -> None:
    ralph.commit()
    live = at_work(ralph)

    def by_another() -> str:
        asked = ralph(*RUN, "--agent", ralph.script(QUICK, name="b"), "--check", CHECK, env=other_user(ralph))
        assert asked.code == 2, asked
        return asked.err

    refused = by_another()
    assert f"(pid {live.process.pid}, user " in refused
    assert "git worktree add" in refused
    kill(live)
    assert f"(what pid {live.process.pid} left at work)" in by_another()
    go_on(ralph)
    assert resume(ralph).code == 0  # its own user takes it up
    ended = ralph(*RUN, "--agent", ralph.script(QUICK, name="b"), "--check", CHECK, env=other_user(ralph))
    assert ended.code == 0, ended
    nothing_left(ralph)


def test_a_lock_that_the_user_put_around_the_command_is_named(ralph: Ralph) -> None:
    require(shutil.which("flock") is not None, "flock of util-linux")
    ended = ralph(*RUN, "--agent", ralph.script(QUICK), "--check", CHECK, via=("flock", "."))
    assert ended.code == 2, ended
    assert "which started this command; have it lock a file, not this folder" in ended.err


def test_no_program_that_a_run_starts_holds_the_folder(ralph: Ralph) -> None:
    ralph.commit()
    look = 'for fd in /proc/self/fd/*; do readlink "$fd"; done >> ../open; true'
    step: Step = {"run": ["sh", "-c", look]}
    agent = ralph.script([step, write(work="done"), done()])
    assert ralph(*RUN, "--agent", agent, "--check", look).code == 0
    held = (ralph.folder / "open").read_text(encoding="utf-8").splitlines()
    assert held
    assert not [path for path in held if path == str(ralph.root) or "/locks/" in path]


@pytest.mark.parametrize("error", ["EBADF", "ENOLCK", "EOPNOTSUPP"])
def test_a_folder_that_cannot_be_locked_is_told_and_worked_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    """As NFS answers for a folder."""
    flock, number = fcntl.flock, getattr(errno, error)

    def refused(file: int, how: int) -> None:
        if os.path.samestat(os.fstat(file), os.stat(tmp_path)):
            raise OSError(number, os.strerror(number))
        flock(file, how)

    monkeypatch.setattr("ralphproof.store.locks.fcntl.flock", refused)
    lock = DirectoryLock(str(tmp_path / "state"), str(tmp_path), "a")
    lock.take()
    assert lock.folder.remark.startswith(f"{tmp_path} cannot be locked ({os.strerror(number)})")
    assert lock.folder.descriptors() == ()
    lock.release()


def test_a_task_folder_that_another_run_has_is_refused(ralph: Ralph, tmp_path: Path) -> None:
    """Its marker would complete both."""
    other, task = Ralph(tmp_path / "other"), tmp_path / "task"
    for one in (ralph, other):
        one.write(
            {"agent.sh": 'touch ../started; while ! test -e ../go; do sleep 0.01; done; touch "$TASK_FOLDER/DONE"'}
        )
        one.commit()
    words = ("supervise", "--restart-delay", "0", "--task-folder", str(task), "--", "sh", "agent.sh")
    live = ralph.start(*words)
    until((ralph.folder / "started").exists, "its agent is at work")
    run = ralph.runs()[0].id

    def refused() -> None:
        ended = other(*words, env={"RALPH_STATE_DIR": str(ralph.state_dir)})
        assert (ended.code, f"run {run} uses the task folder {task}; " in ended.err) == (2, True), ended
        assert f"(pid {live.process.pid}" not in ended.err
        assert other(*words).code == 2, "nor is another user's"

    refused()
    kill(live)
    refused()
    go_on(ralph)
    assert resume(ralph).code == 0
    go_on(other)
    assert other(*words).code == 0
    assert not [path for path in (ralph.state_dir / "locks").iterdir() if path.name.startswith("task-")]
