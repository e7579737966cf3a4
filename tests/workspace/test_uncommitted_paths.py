"""What was not committed when a run began is known without asking git to look at the work tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from ralphproof.base.errors import HarnessFailed
from ralphproof.engine.workspace import Snapshot
from ralphproof.proof.builder import differing_paths
from ralphproof.runs.assembly import uncommitted_at_start
from ralphproof.workspace.git_workspace import GitWorkspace

if TYPE_CHECKING:
    from tests.workspace.conftest import Repo

    Opens = Callable[..., GitWorkspace]


def test_edited_new_and_deleted_files_are_uncommitted(repo: Repo, open_git: Opens) -> None:
    repo.write("src/f1", "edited\n")
    repo.write("new \u00e4", "new\n")
    repo.sh("rm src/f2; git add src/f1")
    workspace = open_git(repo)
    workspace.begin("r")
    assert set(uncommitted_at_start(workspace, "r")) == {"src/f1", "src/f2", "new \u00e4"}


def test_changes_after_the_start_are_not_uncommitted_work_of_the_start(repo: Repo, open_git: Opens) -> None:
    workspace = open_git(repo)
    workspace.begin("r")
    repo.write("src/f1", "edited\n")
    assert uncommitted_at_start(workspace, "r") == ()


def test_files_written_by_the_first_check_run_are_not_uncommitted_work(repo: Repo, open_git: Opens) -> None:
    workspace = open_git(repo)
    workspace.begin("r")
    repo.write("coverage.xml", "x\n")
    workspace.save("r", "0-checked")
    assert uncommitted_at_start(workspace, "r") == ("coverage.xml",)


def test_what_cannot_be_compared_is_not_taken_for_the_same(repo: Repo, open_git: Opens) -> None:
    """Else the user's own work would be committed as the run's, or a proof name what was never checked."""
    workspace = open_git(repo)
    began = workspace.begin("r")
    assert workspace.uncommitted_paths(Snapshot(None, None)) == ()
    with pytest.raises(HarnessFailed, match="cannot be told"):
        workspace.uncommitted_paths(Snapshot(began.id, began.tree, head="0" * 40))
    assert uncommitted_at_start(workspace, "nobody") == ()


def test_a_proof_names_no_commit_of_which_it_cannot_be_told_that_it_is_what_was_checked(
    repo: Repo, open_git: Opens
) -> None:
    """What was checked may be pruned since; HEAD of then is not it."""
    workspace = open_git(repo)
    workspace.begin("r")
    repo.write("src/f1", "work\n")
    saved = workspace.save("r", "1")
    assert saved.head
    assert differing_paths(workspace, saved.head, saved) == ("src/f1",)
    for ref in repo.git("for-each-ref", "--format=%(refname)", "refs/ralph").split():
        repo.git("update-ref", "-d", ref)
    repo.git("gc", "-q", "--prune=now")
    assert differing_paths(open_git(repo, private="later"), saved.head, saved) is None
