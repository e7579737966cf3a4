"""Asking git for objects: what it does not answer is not taken for an answer."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from ralphproof.workspace.git_command import GitFailed
from ralphproof.workspace.git_objects import ObjectMissing
from ralphproof.workspace.git_workspace import GitWorkspace

if TYPE_CHECKING:
    from tests.workspace.conftest import Repo

    Opens = Callable[..., GitWorkspace]

BATCH = 'case "$*" in *"cat-file --batch"*) %s;; esac'
OTHER = "1" * 40
SPEAKS = f"while read name; do echo {OTHER} blob 1; echo x; done; exit"


def helper(workspace: GitWorkspace) -> int:
    batch = workspace._objects._cat_file
    assert batch is not None
    return batch[2]


def test_a_helper_that_somebody_killed_is_replaced(repo: Repo, open_git: Opens) -> None:
    """As `pkill git` does, which an agent may run."""
    workspace = open_git(repo)
    before = workspace.begin("r")
    head = repo.git("rev-parse", "HEAD")
    assert workspace.commits.has(head)
    first = helper(workspace)
    repo.write("src/f1", "changed\n")
    os.kill(first, 9)
    after = workspace.save("r", "1")
    assert (after.head, after.problem) == (head, "")
    assert workspace.change(before, after).paths == ("src/f1",)
    workspace.commits.clear_cache()
    os.kill(helper(workspace), 9)
    assert workspace.commits.has(head)


def test_what_git_says_is_not_there_is_missing(repo: Repo, open_git: Opens) -> None:
    workspace = open_git(repo)
    assert not workspace.commits.has(OTHER)
    with pytest.raises(ObjectMissing):
        workspace.commits.read_blob(OTHER)


@pytest.mark.parametrize("does", ["kill -9 $$", "exit 1", SPEAKS], ids=["is killed", "ends", "speaks of another"])
def test_a_git_that_cannot_be_asked_does_not_mean_that_nothing_is_there(repo: Repo, does: str) -> None:
    """Else saved work would count as pruned, a branch as without history, a secret as not in it."""
    workspace = GitWorkspace(str(repo.path), str(repo.base / "private"), repo.asking_first(BATCH % does))
    head = repo.git("rev-parse", "HEAD")
    for question in (workspace.commits.has, workspace.commits.read_blob):
        with pytest.raises(GitFailed, match="could not be asked"):
            question(head)
    workspace.close()


def test_a_save_by_a_git_that_cannot_be_asked_says_so(repo: Repo) -> None:
    workspace = GitWorkspace(str(repo.path), str(repo.base / "private"), repo.asking_first(BATCH % "exit 1"))
    saved = workspace.begin("r")
    assert saved.id is None
    assert "could not be asked" in saved.problem
    with pytest.raises(GitFailed):
        workspace.commits.read_entry(repo.git("rev-parse", "HEAD"), b"src/f1")
    workspace.close()


def test_tracked_files_are_not_taken_for_new_ones_while_git_cannot_list_them(repo: Repo, open_git: Opens) -> None:
    """A file that is ignored and tracked all the same would count as the run's, and be removed with its work."""
    repo.sh("mkdir build; echo mine > build/kept; git add -f build/kept; git commit -qm forced")
    lists = 'case "$*" in *"-c -i"*) kill -9 $$;; esac'
    blind = GitWorkspace(str(repo.path), str(repo.base / "blind"), repo.asking_first(lists))
    assert blind.begin("r").id is None
    blind.close()
    assert "build/kept" in repo.files(open_git(repo).begin("r").id)
