from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from ralphproof.base.programs import run_program, start_program

SLOW = "sleep 0.1; printf word; printf complaint >&2; exit 3"  # longer than one look at its pipes


def sh(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


def test_output_printed_at_the_end_of_a_program_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may keep us from our work between two looks, at its pipes and at itself."""
    reap = os.waitpid

    def late(pid: int, flags: int) -> tuple[int, int]:
        return reap(pid, 0)

    monkeypatch.setattr("ralphproof.base.programs.os.waitpid", late)
    reply = run_program(sh(SLOW), os.environ)
    assert (reply.code, reply.out, reply.err) == (3, b"word", b"complaint")


def test_processes_left_behind_by_a_program_are_not_waited_for() -> None:
    reply = run_program(sh("sleep 5 & echo $!"), os.environ)
    assert reply.code == 0
    os.kill(int(reply.out), 9)  # it was there


def test_a_program_that_takes_too_long_is_ended() -> None:
    reply = run_program(sh("echo begun; exec sleep 60"), os.environ, timeout_s=0.2)
    assert (reply.code, reply.out) == (-9, b"begun\n")
    assert "did not finish in time" in reply.said


def test_a_program_with_too_much_output_is_ended() -> None:
    reply = run_program(sh("exec yes"), os.environ, most_bytes=100_000)
    assert reply.code == -9
    assert "said more than 100000 bytes" in reply.said


def test_a_program_can_wait_for_its_children_although_we_ignore_sigchld() -> None:
    reader, writer = os.pipe()
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        pid = start_program(["/bin/grep", "SigIgn", "/proc/self/status"], {}, reader, writer, writer)
        with pytest.raises(ChildProcessError):  # that is what to ignore them means; it has ended
            os.waitpid(pid, 0)
    finally:
        signal.signal(signal.SIGCHLD, before)
    ignored = int(os.read(reader, 100).split()[1], 16)
    os.close(reader)
    os.close(writer)
    assert not ignored & 1 << signal.SIGCHLD - 1


def test_a_program_does_not_outlive_the_call_that_ctrl_c_ends(tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        if not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            return
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_program(sh(f"echo $$ > {tmp_path}/pid; exec sleep 60"), os.environ)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
