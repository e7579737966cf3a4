"""Ghosts: what is made so that something can lie over it is removed again, whoever dies on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ralphproof.sandbox.plan import Protection
from ralphproof.sandbox.project_mounts import RECORD_FILE, Placeholders
from tests.sandbox.fenced import SOURCE

# Lays ghosts, says so, and waits to be ended.
LAY = """
import sys
sys.path.append(sys.argv[1])
from ralphproof.sandbox.plan import Protection
from ralphproof.sandbox.project_mounts import Placeholders
placeholders = Placeholders(sys.argv[2])
held = placeholders.acquire()
placeholders.create(Protection(placeholders=tuple(sys.argv[3:])))
print("laid", flush=True)
sys.stdin.read()
"""
# Dies at the second thing that it makes.
DIE = """
import os, sys
sys.path.append(sys.argv[1])
from ralphproof.sandbox import project_mounts
from ralphproof.sandbox.plan import Protection
create, created = project_mounts._create_placeholder, []
def create_one_then_die(*args):
    if created:
        os.kill(os.getpid(), 9)
    created.append(create(*args))
project_mounts._create_placeholder = create_one_then_die
placeholders = project_mounts.Placeholders(sys.argv[2])
held = placeholders.acquire()
placeholders.create(Protection(placeholders=tuple(sys.argv[3:])))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


@pytest.fixture
def placeholders(tmp_path: Path) -> Placeholders:
    return Placeholders(str(tmp_path / "private"))


def laid(placeholders: Placeholders, files: list[str], folders: list[str]) -> int:
    held = placeholders.acquire()
    placeholders.create(Protection(placeholders=tuple(files), folders=tuple(folders)))
    return held


def there(project: Path) -> list[str]:
    return sorted(str(path.relative_to(project)) for path in project.rglob("*"))


def test_what_is_missing_is_made_and_removed(project: Path, placeholders: Placeholders) -> None:
    held = laid(placeholders, [f"{project}/a/.env", f"{project}/.mcp"], [f"{project}/a", f"{project}/hooks"])
    assert there(project) == [".mcp", "a", "a/.env", "hooks"]
    placeholders.release(held)
    assert there(project) == []


def test_what_is_there_is_left_alone(project: Path, placeholders: Placeholders) -> None:
    (project / "empty").touch()
    (project / "link").symlink_to("nowhere")
    (project / "folder").mkdir()
    held = laid(placeholders, [f"{project}/empty", f"{project}/link", f"{project}/new"], [f"{project}/folder"])
    placeholders.release(held)
    assert there(project) == ["empty", "folder", "link"]


def test_what_was_filled_meanwhile_stays(project: Path, placeholders: Placeholders) -> None:
    held = laid(placeholders, [f"{project}/file"], [f"{project}/folder"])
    (project / "file").chmod(0o644)
    (project / "file").write_text("mine")
    (project / "folder/x").touch()
    placeholders.release(held)
    assert there(project) == ["file", "folder", "folder/x"]


def test_they_stay_for_as_long_as_somebody_needs_them(project: Path, placeholders: Placeholders) -> None:
    first, second = laid(placeholders, [f"{project}/a"], []), laid(placeholders, [f"{project}/a", f"{project}/b"], [])
    placeholders.release(first)
    placeholders.release()
    assert there(project) == ["a", "b"]
    planned = placeholders.acquire()  # by one that has yet to say what it needs
    placeholders.release(second)
    assert there(project) == ["a", "b"]
    placeholders.release(planned)
    assert there(project) == []


def laying(tmp_path: Path, *paths: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-I", "-S", "-c", LAY, str(SOURCE), str(tmp_path / "private"), *paths]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_those_of_one_who_was_killed_are_lifted_by_the_next(
    tmp_path: Path, project: Path, placeholders: Placeholders
) -> None:
    with laying(tmp_path, f"{project}/.env") as process:
        assert process.stdout
        process.stdout.readline()
        process.kill()
    assert there(project) == [".env"]
    placeholders.release()
    assert there(project) == []
    assert not (tmp_path / "private" / RECORD_FILE).exists()


def test_those_of_one_who_died_in_the_middle_are_lifted_too(
    tmp_path: Path, project: Path, placeholders: Placeholders
) -> None:
    paths = [f"{project}/{name}" for name in ("a", "b", "c")]
    argv = [sys.executable, "-I", "-S", "-c", DIE, str(SOURCE), str(tmp_path / "private"), *paths]
    assert subprocess.run(argv).returncode == -signal.SIGKILL
    assert there(project) == ["a"]
    placeholders.release()
    assert there(project) == []


def test_many_at_a_time_forget_none(tmp_path: Path, project: Path, placeholders: Placeholders) -> None:
    every = [laying(tmp_path, *(f"{project}/{number}-{name}" for name in range(20))) for number in range(8)]
    for process in every:
        with process:
            assert process.stdout
            process.stdout.readline()
            process.kill()
    assert len(there(project)) == 160
    placeholders.release()
    assert there(project) == []


@pytest.mark.parametrize("text", ["", "{", "7", '[1, null, "/nowhere/at/all"]'])
def test_a_list_that_cannot_be_read_is_no_list(
    text: str, tmp_path: Path, project: Path, placeholders: Placeholders
) -> None:
    placeholders.release(laid(placeholders, [], []))
    (tmp_path / "private" / RECORD_FILE).write_text(text)
    placeholders.release(laid(placeholders, [f"{project}/a"], []))
    assert there(project) == []


def test_to_git_the_ghost_of_a_common_folder_says_that_all_is_there(project: Path, placeholders: Placeholders) -> None:
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    held = laid(placeholders, [f"{project}/.git/commondir"], [])
    assert subprocess.run(["git", "-C", str(project), "status"], capture_output=True).returncode == 0
    placeholders.release(held)
    assert not os.path.exists(project / ".git/commondir")
