from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ralphproof.base.git_layout import enclosing_repository, find_project_root
from ralphproof.workspace import repository_id
from ralphproof.workspace.repository_id import lookup_repository_id
from ralphproof.workspace.repository_id import repository_id as repository_id_repository_id


@pytest.fixture
def state(tmp_path: Path) -> str:
    return str(tmp_path / "state")


@pytest.fixture(params=["git", "plain"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    if request.param == "git":
        init(folder)
    else:
        (folder / ".ralph").mkdir()
    return folder


def init(folder: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    who = ["-c", "user.name=U", "-c", "user.email=u@example.com"]
    subprocess.run(["git", "init", "-q", "."], cwd=folder, env=environ, check=True)
    subprocess.run(["git", *who, "commit", "-q", "--allow-empty", "-m", "x"], cwd=folder, env=environ, check=True)


def note(project: Path) -> Path:
    return project / ".git/ralph-id" if (project / ".git").exists() else project / ".ralph/id"


def test_the_id_stays_and_the_repository_carries_it(project: Path, state: str) -> None:
    first = repository_id_repository_id(str(project), state)
    assert repository_id_repository_id(str(project), state) == first
    assert note(project).read_text().strip() == first
    assert not set(first) - set("0123456789abcdef")
    assert os.stat(state).st_mode & 0o777 == 0o700


def test_a_moved_repository_keeps_its_id(project: Path, state: str, tmp_path: Path) -> None:
    first = repository_id_repository_id(str(project), state)
    moved = project.rename(tmp_path / "moved \udcff")
    assert repository_id_repository_id(str(moved), state) == first
    again = moved.rename(tmp_path / "again")
    assert repository_id_repository_id(str(again), state) == first


def test_a_copy_gets_its_own_id(project: Path, state: str, tmp_path: Path) -> None:
    first = repository_id_repository_id(str(project), state)
    shutil.copytree(project, tmp_path / "copy")
    copied = repository_id_repository_id(str(tmp_path / "copy"), state)
    assert copied != first
    assert repository_id_repository_id(str(project), state) == first
    assert repository_id_repository_id(str(tmp_path / "copy"), state) == copied


@pytest.mark.parametrize("at", ["elsewhere", "where it was", "on another disk"])
def test_a_copy_of_a_moved_repository_does_not_keep_its_id(
    project: Path, state: str, tmp_path: Path, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = repository_id_repository_id(str(project), state)
    moved = project.rename(tmp_path / "moved")
    assert lookup_repository_id(str(moved), state) == first
    copy = shutil.copytree(moved, tmp_path / "copy" if at != "where it was" else project)
    if at == "on another disk":
        place = repository_id._inode_of
        monkeypatch.setattr(repository_id, "_inode_of", lambda path: f"{'9' * path.startswith(str(copy))}{place(path)}")
    taken = repository_id_repository_id(str(copy), state) == first
    assert taken == (at != "elsewhere"), "what may have come from another disk, or out of a backup, goes on for now"
    for _ in range(2):
        assert repository_id_repository_id(str(moved), state) == first
        assert repository_id_repository_id(str(copy), state) != first


def test_a_new_repository_where_a_moved_one_was_gets_its_own_id(project: Path, state: str, tmp_path: Path) -> None:
    first = repository_id_repository_id(str(project), state)
    project.rename(tmp_path / "moved")
    project.mkdir()
    init(project)
    assert repository_id_repository_id(str(project), state) != first
    assert repository_id_repository_id(str(tmp_path / "moved"), state) == first


def test_linked_worktrees_share_the_id(tmp_path: Path, state: str) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    init(folder)
    subprocess.run(["git", "worktree", "add", "-q", "../side"], cwd=folder, check=True, capture_output=True)
    assert repository_id_repository_id(str(tmp_path / "side"), state) == repository_id_repository_id(str(folder), state)


def test_a_project_that_becomes_a_git_repository_keeps_its_id(tmp_path: Path, state: str) -> None:
    folder = tmp_path / "project"
    (folder / ".ralph").mkdir(parents=True)
    first = repository_id_repository_id(str(folder), state)
    init(folder)
    assert lookup_repository_id(str(folder), state) == first
    assert repository_id_repository_id(str(folder), state) == first
    assert (folder / ".git/ralph-id").read_text().strip() == first
    moved = folder.rename(tmp_path / "moved")
    assert repository_id_repository_id(str(moved), state) == first
    shutil.rmtree(moved / ".git")
    assert repository_id_repository_id(str(moved), state) == first


def test_a_repository_does_not_take_the_id_that_a_copied_note_names(tmp_path: Path, state: str) -> None:
    folder = tmp_path / "project"
    (folder / ".ralph").mkdir(parents=True)
    first = repository_id_repository_id(str(folder), state)
    shutil.copytree(folder, tmp_path / "copy")
    init(tmp_path / "copy")
    assert repository_id_repository_id(str(tmp_path / "copy"), state) != first
    assert repository_id_repository_id(str(folder), state) == first


def test_a_worktree_inside_a_project_does_not_take_its_id(tmp_path: Path, state: str) -> None:
    folder = tmp_path / "project"
    (folder / ".ralph").mkdir(parents=True)
    first = repository_id_repository_id(str(folder), state)
    (tmp_path / "main").mkdir()
    init(tmp_path / "main")
    subprocess.run(["git", "worktree", "add", "-q", "../side"], cwd=tmp_path / "main", check=True, capture_output=True)
    (tmp_path / "side/.git").rename(folder / ".git")
    assert repository_id_repository_id(str(folder), state) != first


def test_a_repository_whose_store_lies_in_another_project_does_not_take_its_id(tmp_path: Path, state: str) -> None:
    holder, folder = tmp_path / "holder", tmp_path / "project"
    (holder / ".ralph").mkdir(parents=True)
    folder.mkdir()
    first = repository_id_repository_id(str(holder), state)
    subprocess.run(["git", "init", "-q", f"--separate-git-dir={holder}/store"], cwd=folder, check=True)
    assert repository_id_repository_id(str(folder), state) != first


@pytest.mark.parametrize(
    ("git", "place", "around"),
    [([""], "sub", True), ([""], "a/b", True), (["sub"], "sub", False), (["", "sub"], "sub", False), ([""], "", False),
     ([], "sub", False)],
)  # fmt: skip
def test_a_project_inside_a_repository_is_told_from_one_that_is_one(
    tmp_path: Path, git: list[str], place: str, around: bool
) -> None:
    top = tmp_path / "top"
    (top / place).mkdir(parents=True)
    for folder in git:
        init(top / folder)
    (top / ".git-no").mkdir()
    assert enclosing_repository(str(top / place)) == (str(top) if around else None)


def put_link(file: Path) -> None:
    target = file.parent.parent.parent / "victim"
    target.write_text("victim")
    file.unlink()
    file.symlink_to(target)


def put_fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


TAMPERING: dict[str, Callable[[Path], object]] = {
    "garbage": lambda file: file.write_bytes(b"\xff\0../../etc"),
    "empty": lambda file: file.write_text(""),
    "huge": lambda file: file.write_text("a" * 1_000_000),
    "another id": lambda file: file.write_text("0" * 32),
    "deleted": lambda file: file.unlink(),
    "a link": put_link,
    "a FIFO": put_fifo,
}


@pytest.mark.parametrize("tamper", TAMPERING.values(), ids=TAMPERING)
def test_tampering_with_the_id_file_changes_nothing(
    project: Path, state: str, tmp_path: Path, tamper: Callable[[Path], object]
) -> None:
    first = repository_id_repository_id(str(project), state)
    tamper(note(project))
    assert repository_id_repository_id(str(project), state) == first
    assert note(project).read_text().strip() == first
    assert not note(project).is_symlink()
    if (tmp_path / "victim").exists():
        assert (tmp_path / "victim").read_text() == "victim"


def test_claiming_the_id_of_a_neighbour_does_not_work(project: Path, state: str, tmp_path: Path) -> None:
    neighbour = tmp_path / "neighbour"
    neighbour.mkdir()
    init(neighbour)
    theirs, ours = repository_id_repository_id(str(neighbour), state), repository_id_repository_id(str(project), state)
    note(project).write_text(theirs)
    assert repository_id_repository_id(str(project), state) == ours
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    init(stranger)
    note(stranger).write_text(theirs)
    assert repository_id_repository_id(str(stranger), state) not in (theirs, ours)


def test_a_linked_ralph_folder_is_never_written_through(tmp_path: Path, state: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    project = tmp_path / "project"
    project.mkdir()
    (project / ".ralph").symlink_to(outside)
    first = repository_id_repository_id(str(project), state)
    assert list(outside.iterdir()) == []
    assert repository_id_repository_id(str(project), state) == first


def test_without_the_registry_the_id_file_counts(project: Path, state: str) -> None:
    first = repository_id_repository_id(str(project), state)
    shutil.rmtree(state)
    assert repository_id_repository_id(str(project), state) == first


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b'{"a": 1}', b"\xff"])
def test_a_damaged_registry_is_set_aside(project: Path, state: str, damage: bytes) -> None:
    first = repository_id_repository_id(str(project), state)
    Path(state, "registry.json").write_bytes(damage)
    assert repository_id_repository_id(str(project), state) == first
    assert first in json.loads(Path(state, "registry.json").read_text())
    assert Path(state, "registry.json.damaged").read_bytes() == damage


def test_a_folder_without_git_or_ralph_is_known_by_its_path(tmp_path: Path, state: str) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    assert repository_id_repository_id(str(bare), state) == repository_id_repository_id(str(bare), state)
    assert list(bare.iterdir()) == []


@pytest.mark.parametrize(
    ("made", "start", "found"),
    [
        (["p/.git/HEAD", "p/a/b/"], "p/a/b", "p"),
        (["p/.git/HEAD", "p/a/.ralph/settings.json", "p/a/b/"], "p/a/b", "p/a"),
        (["p/.git", "p/a/"], "p/a", "p"),
        (["p/a/.ralph/", "p/.git/HEAD"], "p/a", "p"),
        (["p/.git/", "p/a/"], "p/a", "p/a"),
        (["p/.git/", "p/a/"], "p", "p"),
        (["q/a/"], "q/a", "q/a"),
    ],
)
def test_the_root_is_the_nearest_project(tmp_path: Path, made: list[str], start: str, found: str) -> None:
    for name in made:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).mkdir(exist_ok=True) if name.endswith("/") else (tmp_path / name).write_text("")
    assert find_project_root(str(tmp_path / start)) == str(tmp_path / found)


def test_a_project_whose_repository_is_deleted_and_comes_back_keeps_its_id(tmp_path: Path) -> None:
    root, states = tmp_path / "project", str(tmp_path / "states")
    root.mkdir()
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    known = repository_id_repository_id(str(root), states)
    (root / ".git").rename(tmp_path / "aside")
    assert lookup_repository_id(str(root), states) == known
    assert repository_id_repository_id(str(root), states) == known
    (tmp_path / "aside").rename(root / ".git")
    assert repository_id_repository_id(str(root), states) == known


def test_a_new_repository_in_the_place_of_a_deleted_one_is_another(tmp_path: Path) -> None:
    root, states = tmp_path / "project", str(tmp_path / "states")
    root.mkdir()
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    known = repository_id_repository_id(str(root), states)
    (root / ".git").rename(tmp_path / "aside")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    assert repository_id_repository_id(str(root), states) != known
