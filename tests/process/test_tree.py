"""Finding processes, and ending what is found."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable

import pytest

from ralphproof.process import tree
from ralphproof.process.tree import child_pids, find_marked_processes, kill_until_gone, signal_each
from ralphproof.runs.recovery import end_leftover_processes
from tests.process.workbench import Workbench, until


def test_children_are_found_however_many_there_are() -> None:
    many = [os.posix_spawn("/bin/true", ["true"], {}) for _ in range(1100)]  # their numbers fill more than a page
    try:
        assert set(many) <= set(child_pids(os.getpid()))  # until they are waited for, the ended ones too
    finally:
        for pid in many:
            os.waitpid(pid, 0)


def test_kill_until_gone_needs_two_empty_scans() -> None:
    hopper = subprocess.Popen(["/bin/sleep", "60"])
    looks = [[], [hopper.pid]]  # as of a process whose child we came too early for, and itself too late
    try:
        assert kill_until_gone(lambda: looks.pop(0) if looks else []) == []
        assert hopper.wait(2) == -9
    finally:
        hopper.kill()
        hopper.wait()


def test_what_a_leftover_starts_while_it_is_ended_is_ended_too(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start() -> int:
        pid = os.posix_spawn("/bin/sleep", ["sleep", bench.nap], {"RALPH_TURN": f"{bench.nap}/agent_001"})
        until(lambda: pid in find_marked_processes(bench.nap))  # right after its start a process has no environment yet
        return pid

    def start_and_signal(pids: Iterable[int], number: int) -> None:
        if len(started) < 3:
            started.append(start())
        signal_each(pids, number)

    started = [start()]
    monkeypatch.setattr(tree, "signal_each", start_and_signal)
    try:
        assert end_leftover_processes(bench.nap) == ["3 processes of it were ended"]
        assert find_marked_processes(bench.nap) == []
    finally:
        signal_each(started, 9)
        for pid in started:
            os.waitpid(pid, 0)


def test_processes_that_start_during_a_scan_for_marks_are_found(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    child = subprocess.Popen(["/bin/sleep", "60"], env={"RALPH_TURN": bench.nap})
    until(lambda: find_marked_processes(bench.nap) == [child.pid])
    lists = [[gone.pid], [gone.pid, child.pid]]  # a process that forked and ended before its environment was read
    monkeypatch.setattr(tree, "list_processes", lambda: lists.pop(0) if len(lists) > 1 else lists[0])
    try:
        assert find_marked_processes(bench.nap) == [child.pid]
    finally:
        child.kill()
        child.wait()
