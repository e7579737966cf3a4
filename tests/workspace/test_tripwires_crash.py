"""A harness that is killed while it compares or puts back is followed by another that ends with the same answer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralphproof.engine.workspace import TripwireReport
from ralphproof.workspace import files
from tests.workspace.tripwire_project import TripwireProject, all_files, create_files

pytestmark = pytest.mark.thorough

if TYPE_CHECKING:
    from ralphproof.workspace.git_workspace import GitWorkspace

DEEDS = ("write", "fsync", "rename", "unlink", "rmdir", "symlink", "chmod", "fchmod")
# Ends a process for good at the so many-th thing that it does to the disk.
KILLED = f"""
import os, sys
from pathlib import Path
from ralphproof.workspace.git_workspace import GitWorkspace
from tests.workspace.conftest import Repo
from tests.workspace.tripwire_project import TripwireProject

base, at, done = Path(sys.argv[1]), int(sys.argv[2]), 0
repo = Repo.__new__(Repo)
repo.base, repo.path, repo.environ = base, base / "repo", dict(os.environ)
trap = TripwireProject(repo, GitWorkspace(str(repo.path), str(base / "private"), repo.environ))

def deadly(call):
    def called(*args, **more):
        global done
        done += 1
        if done == at:
            os._exit(9)
        return call(*args, **more)
    return called

for name in {DEEDS}:
    setattr(os, name, deadly(getattr(os, name)))
trap.wires.check_and_restore("agent_001")
"""
SCRIPT = (
    "git checkout -q src/f1; echo x >> src/auth/a.py; git mv src/auth/run.sh run.sh; git commit -qam x;"
    "echo n > src/auth/new.py; rm -r migrations; ln -s /etc migrations; rm .env; mkdir .env; echo x > .env/x;"
    "git config core.pager evil; git config user.name agent; echo x > .git/hooks/pre-push; git branch -qD side;"
    "echo '{1}' > .ralph/settings.json"
)


class Killed(BaseException):
    """As if the process ended here: nothing of ours catches it."""


class Stage:
    """A project, its vault and all that lies around it, which can be brought back to one moment again and again."""

    def __init__(self, trap: TripwireProject, patch: pytest.MonkeyPatch) -> None:
        self.trap, self.base, self._patch = trap, trap.repo.base, patch
        self.copy = self.base.parent / "copy"

    def keep(self) -> None:
        shutil.copytree(self.base, self.copy, symlinks=True)

    def again(self) -> None:
        shutil.rmtree(self.base)
        shutil.copytree(self.copy, self.base, symlinks=True)

    def killed(self, call: Callable[[], object], every: int = 1) -> Iterator[int]:
        """Let this be killed at each thing that it does, one after the other, until it comes through."""
        for at in range(1, 500, every):
            self.again()
            alive = self._came_through(at, call)
            yield at
            if alive:
                return

    def _came_through(self, at: int, call: Callable[[], object]) -> bool:
        done, me = [0], threading.get_ident()

        def deadly(deed: Callable[..., object]) -> Callable[..., object]:
            def does(*args: object, **more: object) -> object:
                if threading.get_ident() == me:
                    done[0] += 1
                    if done[0] == at:
                        raise Killed
                return deed(*args, **more)

            return does

        with self._patch.context() as patch:
            for name in DEEDS:
                patch.setattr(os, name, deadly(getattr(os, name)))
            try:
                call()
            except Killed:
                return False
        return True


@pytest.fixture
def stage(tmp_path: Path, open_git: Callable[..., GitWorkspace], monkeypatch: pytest.MonkeyPatch) -> Stage:
    from tests.workspace.conftest import Repo

    monkeypatch.setattr(os, "fsync", lambda file: None)  # processes die here, not the machine
    (tmp_path / "base").mkdir()
    repo = Repo(tmp_path / "base", "--template=")
    create_files(repo)
    repo.sh("git branch side; git gc -q; echo mine >> src/f1; mkdir -p .git/hooks")
    return Stage(TripwireProject(repo, open_git(repo, private="base/private")).arm(), monkeypatch)


def test_a_kill_at_any_instant_of_a_comparison_changes_neither_the_answer_nor_the_files(stage: Stage) -> None:
    trap, root = stage.trap, stage.trap.repo.path
    trap.git = None
    trap.wires = trap.anew()
    trap.wires.start_watching()
    trap.repo.sh(SCRIPT)
    stage.keep()
    expected = trap.wires.check_and_restore("agent_001")
    files, patch = all_files(root), Path(expected.patch).read_bytes()
    assert (len(expected.touched), expected.remarks) == (9, ())
    steps = 0
    for steps in stage.killed(lambda: trap.anew().check_and_restore("agent_001")):
        after = trap.anew()
        assert after.check_and_restore("agent_001") == expected, steps
        assert all_files(root) == files, steps
        assert Path(expected.patch).read_bytes() == patch, steps
        assert after.check_and_restore("agent_002") == TripwireReport(), steps
    assert steps > 40


def test_a_kill_while_a_repository_is_compared_changes_neither_the_answer_nor_its_settings(stage: Stage) -> None:
    trap, root = stage.trap, stage.trap.repo.path
    trap.repo.sh(SCRIPT)
    stage.keep()
    expected = trap.wires.check_and_restore("agent_001")
    files, patch = all_files(root), Path(expected.patch).read_bytes()
    config = (root / ".git/config").read_bytes()
    assert (len(expected.touched), len(expected.remarks)) == (10, 2)
    assert b"evil" not in config
    steps = 0
    for steps in stage.killed(lambda: trap.anew().check_and_restore("agent_001"), every=4):
        after = trap.anew()
        assert after.check_and_restore("agent_001") == expected, steps
        assert all_files(root) == files, steps
        assert (Path(expected.patch).read_bytes(), (root / ".git/config").read_bytes()) == (patch, config), steps
        assert after.check_and_restore("agent_002") == TripwireReport(), steps
    assert steps > 40


def test_a_kill_at_any_instant_leaves_nothing_unfinished_to_the_next_iteration(stage: Stage) -> None:
    trap, root = stage.trap, stage.trap.repo.path
    trap.repo.sh("echo x >> src/auth/a.py; rm .env; echo n > src/auth/new.py")
    stage.keep()
    trap.wires.check_and_restore("agent_001")
    files, known = all_files(root), 0
    for steps in stage.killed(lambda: trap.anew().check_and_restore("agent_001")):
        if not list(trap.vault.glob("answer-*.json")):
            continue  # nothing is known yet: whoever comes next must ask
        known += 1
        trap.anew().start_watching() if steps % 2 else trap.anew().discard()
        assert all_files(root) == files, steps
    assert known > 10


def test_a_kill_changes_nothing_about_what_cannot_be_put_back(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(13, "Permission denied")

    trap = stage.trap
    trap.repo.sh("echo x >> .env; echo x >> src/auth/a.py")
    stage.keep()
    monkeypatch.setattr(files, "_write_file", refused)
    expected = trap.wires.check_and_restore("agent_001")
    assert ["Permission denied; what it was is kept" in one.trouble for one in expected.touched] == [True, True]
    for steps in stage.killed(lambda: trap.anew().check_and_restore("agent_001")):
        assert trap.anew().check_and_restore("agent_001") == expected, steps
        assert (trap.kept / "agent_001.0.was").read_text() == "SECRET=1\n", steps


def test_a_kill_at_any_instant_of_arming_leaves_wires_that_can_be_armed(stage: Stage) -> None:
    trap, root = stage.trap, stage.trap.repo.path
    trap.repo.sh("echo more >> .env; echo y > src/auth/user.py; git commit -q --allow-empty -m user; git branch more")
    stage.keep()
    files, steps = all_files(root), 0
    for steps in stage.killed(lambda: trap.anew().start_watching()):
        trap.wires = trap.anew()
        trap.wires.start_watching()
        assert trap.after("rm .env src/auth/user.py").touched, steps
        assert all_files(root) == files, steps
    assert steps > 5


@pytest.mark.parametrize("at", [8, 20, 40])
def test_a_process_that_is_really_killed_is_followed_by_another(stage: Stage, at: int) -> None:
    trap, root = stage.trap, stage.trap.repo.path
    trap.repo.sh(SCRIPT)
    stage.keep()
    expected, files = trap.wires.check_and_restore("agent_001"), all_files(root)
    stage.again()
    environ = {**trap.repo.environ, "PYTHONPATH": os.getcwd()}
    ran = subprocess.run([sys.executable, "-c", KILLED, str(stage.base), str(at)], env=environ, capture_output=True)
    assert ran.returncode == 9, ran.stderr
    assert trap.anew().check_and_restore("agent_001") == expected
    assert all_files(root) == files


def test_another_process_needs_no_arming_to_answer(stage: Stage) -> None:
    trap = stage.trap
    trap.repo.sh("mv src lib; ln -s lib src; git config core.pager evil")
    sprung = trap.anew().check_and_restore("agent_001")
    assert (sprung.touched[0].path, sprung.touched[-1].path) == ("src", ".git/config")
    assert trap.wires.check_and_restore("agent_001") == sprung
