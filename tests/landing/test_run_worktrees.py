"""Worktrees of runs: creation, reuse, removal."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from ralphproof.base.errors import DiskFull, Refused, TaskWrong
from ralphproof.workspace.checkouts import RunWorktree, RunWorktrees, has_unshared_commits
from tests.needs import require
from tests.ralph import Ralph


@pytest.fixture
def project(ralph: Ralph) -> Ralph:
    ralph.write({"a.txt": "a\n"})
    ralph.commit()
    return ralph


def run_worktrees(ralph: Ralph) -> RunWorktrees:
    return RunWorktrees(str(ralph.root), str(ralph.folder / "trees"), ralph.env)


def test_a_worktree_has_the_files_of_its_commit_and_its_own_branch(project: Ralph) -> None:
    worktree = run_worktrees(project).create("T-1", "HEAD")
    assert (Path(worktree.path) / "a.txt").read_text(encoding="utf-8") == "a\n"
    assert worktree.branch == "ralph/T-1"
    assert project.git("rev-parse", "ralph/T-1").strip() == worktree.base


def test_an_existing_worktree_is_reused(project: Ralph) -> None:
    first = run_worktrees(project).create("T-1", "HEAD")
    (Path(first.path) / "work").write_text("half", encoding="utf-8")
    assert run_worktrees(project).create("T-1", "HEAD") == first
    assert (Path(first.path) / "work").exists()


def test_a_half_created_worktree_is_created_again(project: Ralph) -> None:
    place = project.folder / "trees" / "T-1"
    project.git("worktree", "add", "-q", "-b", "ralph/T-1", str(place))
    (place / "a.txt").unlink()
    worktree = run_worktrees(project).create("T-1", "HEAD")
    assert (Path(worktree.path) / "a.txt").exists()
    assert worktree.branch == "ralph/T-1-2", "a branch that is there may be somebody's work"


def test_a_worktree_without_its_git_file_is_not_deleted(project: Ralph) -> None:
    worktree = run_worktrees(project).create("T-1", "HEAD")
    (Path(worktree.path) / ".git").unlink()
    (Path(worktree.path) / "work").write_text("half", encoding="utf-8")
    with pytest.raises(TaskWrong, match=r"has no \.git any more"):
        run_worktrees(project).create("T-1", "HEAD")
    assert (Path(worktree.path) / "work").exists()


def test_a_branch_name_that_is_a_folder_of_branches_gets_a_suffix(project: Ralph) -> None:
    project.git("branch", "ralph/feature/login")
    assert run_worktrees(project).create("feature", "HEAD").branch == "ralph/feature-2"


def test_the_users_checkout_is_not_touched(project: Ralph) -> None:
    project.write({"a.txt": "mine\n", "new": "mine"})
    index = (project.root / ".git/index").read_bytes()
    before = project.git("status", "--porcelain"), project.git("rev-parse", "HEAD")
    worktrees = run_worktrees(project)
    worktrees.remove(worktrees.create("T-1", "HEAD"), branch=True)
    assert (project.git("status", "--porcelain"), project.git("rev-parse", "HEAD")) == before
    assert (project.root / ".git/index").read_bytes() == index


def test_uncommitted_settings_are_copied_to_the_worktree(project: Ralph) -> None:
    project.write({".ralph/settings.local.json": "{}", ".ralph/skills/own/SKILL.md": "x", ".ralph/runs/1/log": "x"})
    place = Path(run_worktrees(project).create("T-1", "HEAD").path)
    assert (place / ".ralph/settings.local.json").exists()
    assert (place / ".ralph/skills/own/SKILL.md").exists()
    assert not (place / ".ralph/runs").exists()


def test_removing_a_worktree_keeps_its_branch_unless_asked(project: Ralph) -> None:
    worktrees = run_worktrees(project)
    one, two = worktrees.create("one", "HEAD"), worktrees.create("two", "HEAD")
    worktrees.remove(one)
    worktrees.remove(two, branch=True)
    assert not os.path.exists(one.path)
    assert worktrees.list_all() == ()
    assert project.git("branch", "--list", "ralph/*").split() == ["ralph/one"]


def test_removing_a_worktree_does_not_prune_the_users_unmounted_worktrees(project: Ralph) -> None:
    mine = project.folder / "mine"
    project.git("worktree", "add", "-q", "-b", "mine", str(mine))
    mine.rename(project.folder / "away")
    worktrees = run_worktrees(project)
    one, two = worktrees.create("one", "HEAD"), worktrees.create("two", "HEAD")
    (Path(two.path) / ".git").unlink()
    worktrees.remove(one)
    worktrees.remove(two)
    output = project.git("worktree", "list", "--porcelain")
    assert f"worktree {mine}\n" in output
    assert one.path not in output
    assert two.path not in output


def test_unshared_commits_of_a_worktree_or_its_branch_are_detected(project: Ralph) -> None:
    worktree = run_worktrees(project).create("T-1", "HEAD")
    commit = ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x")
    assert not has_unshared_commits(worktree, project.env, branch=True)
    project.git("-C", worktree.path, *commit)
    assert not has_unshared_commits(worktree, project.env, branch=False)
    assert has_unshared_commits(worktree, project.env, branch=True), "its branch alone has it"
    project.git("update-ref", "refs/ralph/run/1", "ralph/T-1")
    assert not has_unshared_commits(worktree, project.env, branch=True)
    project.git("-C", worktree.path, "checkout", "-q", "--detach")
    project.git("-C", worktree.path, *commit)
    assert has_unshared_commits(worktree, project.env, branch=False), "no branch has it"


def test_concurrent_creations_give_separate_worktrees(project: Ralph) -> None:
    created: list[RunWorktree] = []
    threads = [
        threading.Thread(
            target=lambda number=number: created.append(run_worktrees(project).create(f"T-{number}", "HEAD"))
        )
        for number in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one.path for one in created}) == 6
    assert {one.name for one in run_worktrees(project).list_all()} == {one.name for one in created}


def test_a_repository_without_a_commit_is_refused(ralph: Ralph) -> None:
    ralph.git("init", "-q")
    with pytest.raises(Refused, match="commit something first"):
        run_worktrees(ralph).create("T-1", "HEAD")


def test_a_full_disk_is_reported_and_leaves_neither_files_nor_a_branch(project: Ralph, tmp_path: Path) -> None:
    require(os.geteuid() == 0 and shutil.which("mount") is not None, "root, to make a small disk")
    small = tmp_path / "small"
    small.mkdir()
    project.write({"big": os.urandom(1 << 21).hex()})
    project.commit()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], check=True)
    try:
        worktrees = RunWorktrees(str(project.root), str(small / "trees"), project.env)
        with pytest.raises(DiskFull, match="no space is left"):
            worktrees.create("T-1", "HEAD")
        assert worktrees.list_all() == ()
        assert project.git("branch", "--list", "ralph/*") == ""
        assert len(project.git("worktree", "list").splitlines()) == 1
    finally:
        subprocess.run(["umount", str(small)], check=True)
