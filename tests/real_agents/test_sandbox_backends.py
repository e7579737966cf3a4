"""Real Claude Code in the other kinds of sandbox, and as a user without rights: one short loop in each."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ralphproof.base.interpreter import LAUNCHER
from ralphproof.engine.records import TurnEnded
from tests.agents import real_clis
from tests.ralph import Ended, Ralph
from tests.real_agents.conftest import DONE, Json, runs
from tests.real_agents.sandboxed_project import ATTEMPTS, BLOCKED, HOST, SECRET, Boxed, holds, refused
from tests.sandbox.fenced import Person, stranger

pytestmark = pytest.mark.thorough

# What Landlock does not hold: paths within the project, which are looked at afterwards.
UNHELD = {
    "a protected file", "a protected folder", "ralph's settings", "claude's settings", "codex's settings", "a hook",
    "git's settings",
}  # fmt: skip


def short_loop(boxed: Boxed, kind: str) -> Ended:
    """It tries to reach what it may not, and does its work; and nothing is left outside of the project."""
    holds(kind, boxed.ralph)
    ended = boxed.run([runs("sh attempts.sh"), *DONE], f"--sandbox={kind}")
    assert boxed.answered()[:2] == [0, 1], ended
    assert f"sandbox {kind} (" in ended.err
    assert SECRET not in boxed.shown(1)
    assert not (boxed.ralph.folder / "made.txt").exists()
    assert not (boxed.ralph.home / ".bashrc").exists()
    allowed = {line["host"] for line in boxed.audit() if line["allowed"]}
    assert allowed == {HOST}
    (reply,) = [record.reply for record in boxed.recorded(TurnEnded)]
    assert set(reply.exit.blocked) == set(BLOCKED)
    return ended


def test_in_a_container(ralph: Ralph) -> None:
    boxed = Boxed(ralph, "claude")
    ended = short_loop(boxed, "container")
    assert refused(boxed.shown(1)) == set(ATTEMPTS)
    assert (ended.code, ralph.outcome()["iterations"]) == (0, 1), ended


def test_behind_landlock(ralph: Ralph) -> None:
    """What it changes in protected places is put back, and the run is stopped."""
    boxed = Boxed(ralph, "claude")
    ended = short_loop(boxed, "landlock")
    assert refused(boxed.shown(1)) == set(ATTEMPTS) - UNHELD
    assert ended.code != 0, "its protected files were touched"


@dataclass
class Stranger(Boxed):
    """The same as another user, who can read the agent's program."""

    person: Person = field(default_factory=stranger)

    def _via(self, turns: Sequence[Json], script: Mapping[str, Any]) -> list[str]:
        words = [self.person.python if word == sys.executable else word for word in super()._via(turns, script)]
        self._give()
        # By `-m` nothing would be found of what is installed for the tests: it may lie in a repository.
        start = shlex.join(("-I", LAUNCHER, sysconfig.get_path("purelib"), "--", "ralphproof.__main__"))
        return [*self.person.prefix, *words, "sh", "-c", f'shift 3; exec "$0" {start} "$@"', self.person.python]

    def _give(self) -> None:
        for folder, _, names in os.walk(self.ralph.folder):
            for name in (".", *names):
                os.chown(os.path.join(folder, name), self.person.uid, self.person.uid, follow_symlinks=False)


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stranger]:
    """A project of a user without rights; a copy of the agent that they can read, which is made of links."""
    person = stranger()
    with tempfile.TemporaryDirectory(dir="/tmp") as top:  # pytest's own folders are closed to other users
        os.chmod(top, 0o755)
        own = real_clis.folder("claude")
        shutil.copytree(own, Path(top, own.name), symlinks=True, copy_function=_linked)
        monkeypatch.setenv("RALPH_TEST_AGENTS", top)
        ralph = Ralph(Path(top, "test"), warm=False)
        ralph.env["PATH"] = os.defpath
        ralph.git("config", "--global", "safe.directory", "*")
        try:
            yield Stranger(ralph, "claude", person=person)
        finally:
            ralph.close()


def _linked(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


def test_as_a_user_without_rights(nobody: Stranger) -> None:
    ended = short_loop(nobody, "bubblewrap")
    assert refused(nobody.shown(1)) == set(ATTEMPTS)
    assert (ended.code, nobody.ralph.outcome()["iterations"]) == (0, 1), ended
    assert (nobody.ralph.root / "done.txt").stat().st_uid == nobody.person.uid
