"""What is promised of `refs/ralph/`: nothing saved is lost, and nothing of it leaves the repository unasked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from ralphproof.engine.workspace import Snapshot
from ralphproof.workspace.files import MAX_FILE_BYTES
from ralphproof.workspace.git_workspace import GitWorkspace

if TYPE_CHECKING:
    from tests.workspace.conftest import Repo

    Opens = Callable[..., GitWorkspace]

RUN = "20261115-210507-k3f9"
SECRET = "only a saved tree has this\n"


@pytest.fixture
def saved(repo: Repo, open_git: Opens) -> tuple[Snapshot, Snapshot]:
    """The start, with work that was not committed, and an iteration; the files are those of HEAD again."""
    workspace = open_git(repo)
    repo.write("src/f1", "edited, not committed\n")
    repo.write("new/ü", "untracked\n")
    start = workspace.begin(RUN)
    repo.write("only-saved", SECRET)
    first = workspace.save(RUN, "1")
    repo.git("checkout", "-q", ".")
    repo.git("clean", "-fdq")
    return start, first


@pytest.mark.parametrize(
    "tidying",
    ["git gc -q --prune=now --aggressive", "git pack-refs --all --prune", "git reflog expire --expire=now --all",
     "git prune --expire=now", "git pack-refs --all; git repack -q -a -d; git gc -q --prune=now",
     "git maintenance run"],
)  # fmt: skip
def test_snapshots_survive_garbage_collection(
    repo: Repo, open_git: Opens, saved: tuple[Snapshot, Snapshot], tidying: str
) -> None:
    repo.sh(tidying)
    start, first = saved
    assert repo.blob(first.id, "only-saved") == SECRET.encode()
    again = open_git(repo, private="another")
    assert again.find_snapshot(RUN, "1") == Snapshot(first.id, first.tree, first.ref, first.head)
    now = again.save(RUN, "now")
    assert again.restore(start, now)
    assert (repo.path / "src/f1").read_text() == "edited, not committed\n"
    assert (repo.path / "new/ü").read_text() == "untracked\n"
    assert again.save(RUN, "2").tree == start.tree, "and saving goes on"


@pytest.mark.parametrize(
    "push",
    ["push -q origin main", "push -q --all origin", "push -q --tags origin", "push -q --follow-tags origin main",
     "-c push.default=matching push -q origin", "-c push.default=current push -q origin"],
)  # fmt: skip
def test_usual_pushes_do_not_send_snapshot_refs(repo: Repo, saved: tuple[Snapshot, Snapshot], push: str) -> None:
    bare = repo.base / "bare.git"
    repo.git("init", "-q", "--bare", str(bare))
    repo.git("remote", "add", "origin", str(bare))
    repo.git("push", "-q", "origin", "main:main")
    repo.git("commit", "-q", "--allow-empty", "-m", "more")
    repo.git("tag", "v1")
    repo.git(*push.split())
    sent = repo.git("--git-dir", str(bare), "for-each-ref")
    assert "refs/heads/main" in sent
    assert "ralph" not in sent
    assert not repo.git("--git-dir", str(bare), "cat-file", "-t", str(saved[1].id), check=False)


@pytest.mark.parametrize("how", ["clone -q", "clone -q --no-local", "clone -q --bare"])
def test_clones_do_not_copy_snapshot_refs(repo: Repo, saved: tuple[Snapshot, Snapshot], how: str) -> None:
    there = repo.base / "clone"
    repo.git(*how.split(), str(repo.path), str(there))
    assert "ralph" not in repo.git("-C", str(there), "for-each-ref")
    repo.git("-C", str(there), "fetch", "-q")
    assert "ralph" not in repo.git("-C", str(there), "for-each-ref")


def test_a_mirror_is_a_copy_of_all_unless_they_are_hidden(repo: Repo, saved: tuple[Snapshot, Snapshot]) -> None:
    for hidden in (False, True):
        if hidden:
            repo.git("config", "transfer.hideRefs", "refs/ralph")
        there = repo.base / f"mirror-{hidden}"
        repo.git("clone", "-q", "--mirror", str(repo.path), str(there))
        assert ("ralph" in repo.git("-C", str(there), "for-each-ref")) is not hidden


@pytest.mark.parametrize(
    "asked",
    ["branch -a", "tag", "log --oneline", "log --oneline --branches --tags --remotes", "status", "stash list",
     "log --oneline --exclude=refs/ralph/* --all", "log --oneline --reflog", "describe --always --all",
     "log --oneline --decorate=full", "shortlog -s HEAD",
     "-c transfer.hideRefs=refs/ralph log --oneline --exclude-hidden=uploadpack --all"],
)  # fmt: skip
def test_usual_git_commands_do_not_show_snapshot_refs(repo: Repo, saved: tuple[Snapshot, Snapshot], asked: str) -> None:
    before = repo.git(*asked.split())
    shown = {str(one.id)[:7] for one in saved}
    assert "ralph" not in before
    assert not [one for one in shown if one in before]
    for line in repo.git("for-each-ref", "--format=%(refname)", "refs/ralph").splitlines():
        repo.git("update-ref", "-d", line)
    assert repo.git(*asked.split()) == before


def test_a_log_of_all_refs_has_them_and_git_has_no_setting_against_it(
    repo: Repo, saved: tuple[Snapshot, Snapshot]
) -> None:
    """If this fails, git has one by now: the documents can say how."""
    for setting in (
        "transfer.hideRefs=refs/ralph",
        "uploadpack.hideRefs=refs/ralph",
        "log.excludeDecoration=refs/ralph/",
    ):
        told = repo.git("-c", setting, "log", "--oneline", "--decorate=full", "--all")
        assert str(saved[1].id)[:7] in told
        assert "(refs/ralph" not in told, "their names decorate nothing"
    repo.git("config", "alias.everything", "log --exclude=refs/ralph/* --all")
    assert str(saved[1].id) not in repo.git("everything")


def test_files_over_the_bound_are_left_out_and_named(repo: Repo, open_git: Opens) -> None:
    with repo.write("large", b"").open("r+b") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    with repo.write("just right", b"").open("r+b") as file:
        file.truncate(1 << 20)
    snapshot = open_git(repo).begin(RUN)
    assert snapshot.left_out == ("large",)
    assert "large" not in repo.files(snapshot.id)
    assert "just right" in repo.files(snapshot.id)
