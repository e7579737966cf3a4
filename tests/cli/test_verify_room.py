"""The throw-away place of `ralph verify` goes, and what runs in it ends, also when nobody is left to see to it."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from ralphproof.process.tree import LINUX, is_alive, start_time
from ralphproof.proof.verification import end_abandoned
from tests.cli.proof_files import WORKSPACE, settled
from tests.needs import require
from tests.ralph import Ralph, until

STRAY = "env -i setsid sh -c 'echo $$ > ../../stray; exec sleep 300'"
WAITS = f"trap '' TERM INT HUP; ({STRAY} &); mkdir -p shut/in; chmod 0 shut; echo $$ $PPID > ../../at-work; sleep 300"


def numbers(*files: Path) -> list[int]:
    return [int(word) for file in files if file.exists() for word in file.read_text().split()]


def test_killed_it_leaves_neither_processes_nor_a_folder(ralph: Ralph) -> None:
    require(LINUX, "who belongs to a turn is known on Linux alone")
    temporary = ralph.folder / "temporary"
    temporary.mkdir()
    ralph.env["TMPDIR"] = str(temporary)
    settled(ralph, f"{WORKSPACE} || {{ {WAITS}; }}")
    live = ralph.start("verify", "latest")
    files = [temporary / "at-work", temporary / "stray"]
    until(lambda: len(numbers(*files)) == 3, "the check, its keeper and what escaped")
    known = [(pid, start_time(pid)) for pid in numbers(*files)]
    os.kill(live.process.pid, signal.SIGKILL)
    try:
        live.end(20)
        until(lambda: sorted(temporary.iterdir()) == files, "its folder goes")
        until(lambda: not any(is_alive(*one) for one in known), "all that it ran ends, and what ran it")
    finally:
        for pid, _ in filter(lambda one: is_alive(*one), known):
            os.kill(pid, signal.SIGKILL)


def test_without_its_keeper_nobody_else_is_ended(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        end_abandoned(str(tmp_path), other.pid)
        assert other.poll() is None
        assert tmp_path.exists()
        other.kill()
