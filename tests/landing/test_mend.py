"""The work tree of work that is to be mended, as its agent finds it."""

from __future__ import annotations

import pytest

from ralphproof.landing.rework import Rework, prepare_rework
from ralphproof.landing.worktree_run import update_worktree_branch
from ralphproof.runs.request import RunRequest
from ralphproof.store.landings import LandingItem
from ralphproof.workspace.worktrees import RunWorktrees
from tests.landing.tasking import TARGET, landed, prepared, tasks, work
from tests.ralph import Ralph

COMMIT = ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q")


def test_what_a_sparse_checkout_leaves_out_is_not_deleted_and_its_branch_is_checked_out(ralph: Ralph) -> None:
    ralph.write({"lib/a": "a\n", "big/x": "x\n"})
    ralph.commit()
    ralph.git("sparse-checkout", "set", "lib")
    made = RunWorktrees(str(ralph.root), str(ralph.folder / "trees"), ralph.env).create("T-1", "HEAD")
    ralph.git("-C", made.path, "checkout", "-q", "--detach")
    (ralph.folder / "trees/T-1/lib/a").write_text("b\n", encoding="utf-8")
    ralph.git("-C", made.path, *COMMIT, "-a", "-m", "work")
    done = ralph.git("-C", made.path, "rev-parse", "HEAD", "HEAD^{tree}").split()
    update_worktree_branch(made, LandingItem("run", done[0], "work"))
    assert "S big/x" in ralph.git("-C", made.path, "ls-files", "-t")
    prepare_rework(RunRequest(("make it so", None), {}, None), made, Rework(made.base, done[1], done[0], "", ""))
    assert ralph.git("-C", made.path, "status", "--porcelain") == " M lib/a\n"
    assert ralph.git("-C", made.path, "symbolic-ref", "HEAD") == "refs/heads/ralph/T-1\n"
    assert ralph.git("-C", made.path, "rev-parse", "HEAD").strip() == made.base


@pytest.mark.thorough
def test_mended_work_lands_in_a_sparse_clone_without_the_loss_of_what_is_not_there(ralph: Ralph) -> None:
    prepared(ralph)
    ralph.write({"big/x": "x\n"})
    ralph.commit()
    ralph.git("sparse-checkout", "set", "lib")
    tasks(ralph, "conflict_1", "conflict_2")
    ended = work(ralph)
    assert ended.code == 0, ended
    assert sorted(landed(ralph)) == ["conflict_1", "conflict_2"]
    assert ralph.git("show", f"{TARGET}:big/x") == "x\n"
