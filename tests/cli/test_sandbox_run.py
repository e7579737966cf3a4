"""Signals to a command in the sandbox by hand: whom they reach, and whom they never reach."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import ralphproof

RUN = """
import os, signal
from ralphproof.sandbox import runner
from ralphproof.engine.sandbox import Command

def terminate(*_):
    os.kill(os.getpid(), signal.SIGTERM)
    return []

{}
print(runner._run_at_terminal(Command(({!r}, "60"), "/", (), "", "", "")))
"""
AT_THE_FORK = """
fork = os.fork
os.fork = lambda: (child := fork()) and (terminate() or child)
"""
AFTER_THE_END = """
runner.kill_until_gone = terminate
runner.signal_each = lambda pids, number: print("sent to", [*pids])
"""


def ran(program: str, when: str) -> tuple[int, str]:
    env = {**os.environ, "PYTHONPATH": str(Path(ralphproof.__file__).parents[1])}
    words = [sys.executable, "-c", RUN.format(when, program)]
    process = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        process.wait(10)
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # nothing was left
    return process.returncode, process.communicate()[0]


def test_a_signal_that_comes_as_the_command_is_started_is_passed_on() -> None:
    assert ran("/bin/sleep", AT_THE_FORK) == (0, "143\n")


def test_a_signal_that_comes_after_the_end_of_the_command_reaches_nobody() -> None:
    """Its number may have been given to another process."""
    assert ran("/bin/true", AFTER_THE_END) == (0, "0\n")
