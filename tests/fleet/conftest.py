"""A remote, and machines that share nothing else."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ralphproof.process import dead_turns
from tests.fleet.machines import Machine, Remote, daemon
from tests.needs import require

Making = Callable[..., Machine]


@pytest.fixture
def room() -> Iterator[Path]:
    """A folder that every user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="ralph-fleet-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def remote(room: Path) -> Iterator[Remote]:
    made = Remote(room / "remote")
    yield made
    dead_turns.end_turn_processes(f"{made.loop}/")


@pytest.fixture
def served(remote: Remote) -> Iterator[Remote]:
    """The same behind a git server."""
    with daemon(remote) as made:
        yield made


@pytest.fixture
def machine(room: Path, remote: Remote) -> Iterator[Making]:
    """Makes machines; with `uid`, one of another user."""
    made: list[Machine] = []

    def make(name: str = "a", uid: int = 0) -> Machine:
        if uid:
            require(os.geteuid() == 0 and shutil.which("setpriv") is not None, "root, to be several users")
        made.append(Machine(room / name, remote, uid, name))
        return made[-1]

    yield make
    for one in made:
        one.close()
    dead_turns.end_turn_processes(f"{remote.loop}/")
