"""The throw-away place of `ralph verify` goes, and what runs in it ends, also when nobody is left to see to it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from ralphproof.keeper.tree import LINUX
from tests.cli.verifying import WORKSPACE, settled
from tests.ralph import Ralph, until

STUBBORN = "trap '' TERM INT HUP; (env -i setsid sleep 300 &)"


@pytest.mark.skipif(not LINUX, reason="who belongs to a turn is known on Linux alone")
@pytest.mark.parametrize("setup", [False, True], ids=["check", "setup"])
def test_killed_it_leaves_neither_processes_nor_a_folder(ralph: Ralph, tmp_path: Path, setup: bool) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    ralph.env["TMPDIR"] = str(temporary)
    waits = f"{WORKSPACE} || {{ {STUBBORN}; mkdir -p shut/in; chmod 0 shut; echo $$ > ../../at-work; sleep 300; }}"
    settled(ralph, *(["test -f work"] if setup else [waits]), **({"setup": [waits]} if setup else {}))
    live = ralph.start("verify", "latest")
    until(lambda: (temporary / "at-work").exists(), "it is at work")
    assert len(ralph.processes("verify")) > 0
    os.kill(live.process.pid, signal.SIGKILL)
    live.end(20)
    until(lambda: [*temporary.iterdir()] == [temporary / "at-work"], "its folder goes")
    until(lambda: not ralph.processes("verify"), "all that it ran ends")
