"""Work trees that runs have for themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from ralphproof.base.errors import DiskFull, Refused, TaskWrong
from ralphproof.workspace.worktrees import RunWorktree, RunWorktrees, has_unshared_commits
from tests.needs import require
from tests.ralph import Ralph


@pytest.fixture
def project(ralph: Ralph) -> Ralph:
    ralph.write({"a.txt": "a\n"})
    ralph.commit()
    return ralph


def offshoots(ralph: Ralph) -> RunWorktrees:
    return RunWorktrees(str(ralph.root), str(ralph.folder / "trees"), ralph.env)


def test_one_has_the_files_of_its_commit_and_a_branch_of_its_own(project: Ralph) -> None:
    made = offshoots(project).create("T-1", "HEAD")
    assert (Path(made.path) / "a.txt").read_text(encoding="utf-8") == "a\n"
    assert made.branch == "ralph/T-1"
    assert project.git("rev-parse", "ralph/T-1").strip() == made.base


def test_one_that_is_there_is_handed_out_as_it_is(project: Ralph) -> None:
    first = offshoots(project).create("T-1", "HEAD")
    (Path(first.path) / "work").write_text("half", encoding="utf-8")
    assert offshoots(project).create("T-1", "HEAD") == first
    assert (Path(first.path) / "work").exists()


def test_what_was_cut_off_while_it_was_made_is_made_anew(project: Ralph) -> None:
    place = project.folder / "trees" / "T-1"
    project.git("worktree", "add", "-q", "-b", "ralph/T-1", str(place))
    (place / "a.txt").unlink()
    made = offshoots(project).create("T-1", "HEAD")
    assert (Path(made.path) / "a.txt").exists()
    assert made.branch == "ralph/T-1-2", "a branch that is there may be somebody's work"


def test_one_that_lost_its_git_is_not_swept_away_with_what_lies_in_it(project: Ralph) -> None:
    made = offshoots(project).create("T-1", "HEAD")
    (Path(made.path) / ".git").unlink()
    (Path(made.path) / "work").write_text("half", encoding="utf-8")
    with pytest.raises(TaskWrong, match=r"has no \.git any more"):
        offshoots(project).create("T-1", "HEAD")
    assert (Path(made.path) / "work").exists()


def test_a_branch_that_is_a_folder_of_branches_is_nobodys_name(project: Ralph) -> None:
    project.git("branch", "ralph/feature/login")
    assert offshoots(project).create("feature", "HEAD").branch == "ralph/feature-2"


def test_the_users_checkout_is_not_touched(project: Ralph) -> None:
    project.write({"a.txt": "mine\n", "new": "mine"})
    index = (project.root / ".git/index").read_bytes()
    before = project.git("status", "--porcelain"), project.git("rev-parse", "HEAD")
    trees = offshoots(project)
    trees.remove(trees.create("T-1", "HEAD"), branch=True)
    assert (project.git("status", "--porcelain"), project.git("rev-parse", "HEAD")) == before
    assert (project.root / ".git/index").read_bytes() == index


def test_settings_that_nobody_committed_come_along(project: Ralph) -> None:
    project.write({".ralph/settings.local.json": "{}", ".ralph/skills/own/SKILL.md": "x", ".ralph/runs/1/log": "x"})
    place = Path(offshoots(project).create("T-1", "HEAD").path)
    assert (place / ".ralph/settings.local.json").exists()
    assert (place / ".ralph/skills/own/SKILL.md").exists()
    assert not (place / ".ralph/runs").exists()


def test_removing_one_leaves_its_branch_unless_it_is_wanted(project: Ralph) -> None:
    trees = offshoots(project)
    one, two = trees.create("one", "HEAD"), trees.create("two", "HEAD")
    trees.remove(one)
    trees.remove(two, branch=True)
    assert not os.path.exists(one.path)
    assert trees.list_all() == ()
    assert project.git("branch", "--list", "ralph/*").split() == ["ralph/one"]


def test_removing_one_forgets_no_worktree_of_the_users_whose_disk_is_away(project: Ralph) -> None:
    mine = project.folder / "mine"
    project.git("worktree", "add", "-q", "-b", "mine", str(mine))
    mine.rename(project.folder / "away")
    trees = offshoots(project)
    one, two = trees.create("one", "HEAD"), trees.create("two", "HEAD")
    (Path(two.path) / ".git").unlink()
    trees.remove(one)
    trees.remove(two)
    told = project.git("worktree", "list", "--porcelain")
    assert f"worktree {mine}\n" in told
    assert one.path not in told
    assert two.path not in told


def test_commits_that_only_a_worktree_or_its_branch_names_are_seen(project: Ralph) -> None:
    made = offshoots(project).create("T-1", "HEAD")
    commit = ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x")
    assert not has_unshared_commits(made, project.env, branch=True)
    project.git("-C", made.path, *commit)
    assert not has_unshared_commits(made, project.env, branch=False)
    assert has_unshared_commits(made, project.env, branch=True), "its branch alone has it"
    project.git("update-ref", "refs/ralph/run/1", "ralph/T-1")
    assert not has_unshared_commits(made, project.env, branch=True)
    project.git("-C", made.path, "checkout", "-q", "--detach")
    project.git("-C", made.path, *commit)
    assert has_unshared_commits(made, project.env, branch=False), "no branch has it"


def test_many_at_the_same_time_get_one_each(project: Ralph) -> None:
    made: list[RunWorktree] = []
    threads = [
        threading.Thread(target=lambda number=number: made.append(offshoots(project).create(f"T-{number}", "HEAD")))
        for number in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one.path for one in made}) == 6
    assert {one.name for one in offshoots(project).list_all()} == {one.name for one in made}


def test_a_repository_without_a_commit_is_refused(ralph: Ralph) -> None:
    ralph.git("init", "-q")
    with pytest.raises(Refused, match="commit something first"):
        offshoots(ralph).create("T-1", "HEAD")


def test_a_full_disk_is_said_and_leaves_neither_files_nor_a_branch(project: Ralph, tmp_path: Path) -> None:
    require(os.geteuid() == 0 and shutil.which("mount") is not None, "root, to make a small disk")
    small = tmp_path / "small"
    small.mkdir()
    project.write({"big": os.urandom(1 << 21).hex()})
    project.commit()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)], check=True)
    try:
        trees = RunWorktrees(str(project.root), str(small / "trees"), project.env)
        with pytest.raises(DiskFull, match="no space is left"):
            trees.create("T-1", "HEAD")
        assert trees.list_all() == ()
        assert project.git("branch", "--list", "ralph/*") == ""
        assert len(project.git("worktree", "list").splitlines()) == 1
    finally:
        subprocess.run(["umount", str(small)], check=True)
