"""Rework: the worktree of rejected work as the agent finds it, and its second landing."""

from __future__ import annotations

import pytest

from ralphproof.landing.schedulers import Rework, prepare_rework
from ralphproof.landing.worktree_run import update_worktree_branch
from ralphproof.runs.request import RunRequest
from ralphproof.store.landings import LandingItem
from ralphproof.workspace.checkouts import RunWorktrees
from tests.landing.parallel_work import TARGET, create_project, create_tasks, landed_tasks, work
from tests.ralph import Ralph

COMMIT = ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q")


def test_rework_in_a_sparse_checkout_deletes_no_files_and_checks_its_branch_out(ralph: Ralph) -> None:
    ralph.write({"lib/a": "a\n", "big/x": "x\n"})
    ralph.commit()
    ralph.git("sparse-checkout", "set", "lib")
    worktree = RunWorktrees(str(ralph.root), str(ralph.folder / "trees"), ralph.env).create("T-1", "HEAD")
    ralph.git("-C", worktree.path, "checkout", "-q", "--detach")
    (ralph.folder / "trees/T-1/lib/a").write_text("b\n", encoding="utf-8")
    ralph.git("-C", worktree.path, *COMMIT, "-a", "-m", "work")
    done = ralph.git("-C", worktree.path, "rev-parse", "HEAD", "HEAD^{tree}").split()
    update_worktree_branch(worktree, LandingItem("run", done[0], "work"))
    assert "S big/x" in ralph.git("-C", worktree.path, "ls-files", "-t")
    rework = Rework(worktree.base, done[1], done[0], "", "")
    prepare_rework(RunRequest(("make it so", None), {}, None), worktree, rework)
    assert ralph.git("-C", worktree.path, "status", "--porcelain") == " M lib/a\n"
    assert ralph.git("-C", worktree.path, "symbolic-ref", "HEAD") == "refs/heads/ralph/T-1\n"
    assert ralph.git("-C", worktree.path, "rev-parse", "HEAD").strip() == worktree.base


@pytest.mark.thorough
def test_reworked_tasks_land_in_a_sparse_clone_without_losing_files(ralph: Ralph) -> None:
    create_project(ralph)
    ralph.write({"big/x": "x\n"})
    ralph.commit()
    ralph.git("sparse-checkout", "set", "lib")
    create_tasks(ralph, "conflict_1", "conflict_2")
    ended = work(ralph)
    assert ended.code == 0, ended
    assert sorted(landed_tasks(ralph)) == ["conflict_1", "conflict_2"]
    assert ralph.git("show", f"{TARGET}:big/x") == "x\n"
