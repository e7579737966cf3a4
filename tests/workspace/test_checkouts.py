"""Checkouts beside the repository: exactly what a commit holds, and nothing of what the repository configures."""

from __future__ import annotations

import os
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralphproof.base.errors import Refused
from ralphproof.base.git_layout import git_folders
from ralphproof.workspace.checkouts import PendingWork, check_out, check_out_pending_work, object_folders, resolve_tree
from ralphproof.workspace.git_workspace import GitWorkspace

if TYPE_CHECKING:
    from tests.workspace.conftest import Repo

    Opens = Callable[..., GitWorkspace]
    Makes = Callable[..., Repo]


def out(repo: Repo, revision: str = "HEAD", name: str = "place") -> Path:
    place = repo.base / name
    check_out(str(repo.path), revision, str(place), repo.environ)
    return place


def git(repo: Repo, place: Path, *args: str) -> str:
    ran = subprocess.run(["git", *args], cwd=place, env=repo.environ, capture_output=True, check=True)
    return ran.stdout.decode("utf-8", "surrogateescape").strip()


def files(place: Path) -> dict[str, bytes]:
    """All files by their names, but for the repository's own."""
    found = (path for path in place.rglob("*") if ".git" not in path.relative_to(place).parts)
    return {
        str(path.relative_to(place)): os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes()
        for path in found
        if path.is_symlink() or path.is_file()
    }


def stood(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file below, with its size and when it was last written."""
    return {
        str(path): (path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in folder.rglob("*")
        if not path.is_dir() or path.is_symlink()
    }


def test_it_has_the_files_of_the_commit_whatever_lies_in_the_project(repo: Repo) -> None:
    repo.write("run.sh", "#!/bin/sh\n").chmod(0o755)
    (repo.path / "link").symlink_to("src/f1")
    (repo.path / "dangling").symlink_to("nowhere")
    odd = os.fsencode(repo.path) + b"/odd \xff\n name"
    Path(os.fsdecode(odd)).write_bytes(b"\0\r\n\xfe")
    repo.git("add", "-A")
    repo.git("commit", "-qm", "odd ones")
    repo.write("src/f1", "changed\n")
    repo.write("new", "1\n")
    repo.write("build/made", "1\n")
    place = out(repo)
    kept = {f"src/f{number}": f"{number}\n".encode() for number in range(1, 7)}
    assert files(place) == {
        **kept, ".gitignore": b"build/\n", "run.sh": b"#!/bin/sh\n", "link": b"src/f1", "dangling": b"nowhere",
        "odd \udcff\n name": b"\0\r\n\xfe",
    }  # fmt: skip
    assert stat.S_IMODE((place / "run.sh").stat().st_mode) & 0o111
    assert not stat.S_IMODE((place / "src/f1").stat().st_mode) & 0o111
    assert git(repo, place, "status", "--porcelain") == ""


def test_its_head_is_the_commit_with_all_history_and_tags(repo: Repo) -> None:
    repo.git("tag", "-a", "v1", "-m", "one")
    repo.git("tag", "light")
    repo.write("more", "1\n")
    repo.git("add", "-A")
    repo.git("commit", "-qm", "second")
    place = out(repo)
    assert git(repo, place, "rev-parse", "HEAD") == repo.git("rev-parse", "HEAD")
    assert git(repo, place, "describe") == repo.git("describe")
    assert git(repo, place, "log", "--format=%s").split() == ["second", "first"]
    assert git(repo, place, "tag") == "light\nv1"
    assert git(repo, place, "rev-parse", "--abbrev-ref", "HEAD") == "HEAD"


def test_a_tree_alone_gets_a_commit_that_the_source_never_sees(repo: Repo) -> None:
    tree = repo.git("rev-parse", "HEAD^{tree}")
    place = out(repo, tree)
    commit = git(repo, place, "rev-parse", "HEAD")
    assert git(repo, place, "rev-parse", "HEAD^{tree}") == tree
    assert git(repo, place, "rev-list", "--count", "HEAD") == "1"
    assert repo.git("cat-file", "-t", commit, check=False) == ""
    assert git(repo, out(repo, tree, "again"), "rev-parse", "HEAD") == commit


def test_nothing_of_the_sources_settings_runs_and_nothing_is_written_there(repo: Repo) -> None:
    ran = repo.base / "ran"
    trap = repo.write("../trap", f"#!/bin/sh\necho $0 >> {ran}\ncat\n")
    trap.chmod(0o755)
    repo.write(".gitattributes", "*.f filter=trap diff=trap merge=trap\n")
    repo.write("a.f", "bytes\n")
    repo.git("add", "-A")
    repo.git("commit", "-qm", "attributes")
    repo.git("tag", "v1")
    for name in (
        "filter.trap.smudge",
        "filter.trap.clean",
        "filter.trap.process",
        "core.fsmonitor",
        "diff.trap.textconv",
    ):
        repo.git("config", name, str(trap))
    repo.git("config", "filter.trap.required", "true")
    for hook in ("post-checkout", "reference-transaction", "post-index-change"):
        made = repo.write(f".git/hooks/{hook}", trap.read_bytes())
        made.chmod(0o755)
    (repo.home / ".gitconfig").write_text(f'[filter "trap"]\n\tsmudge = {trap}\n[core]\n\thooksPath = {repo.base}\n')
    before = stood(repo.path)
    place = out(repo)
    assert resolve_tree(str(repo.path), "HEAD", repo.environ)
    assert (place / "a.f").read_bytes() == b"bytes\n"
    assert not ran.exists()
    assert stood(repo.path) == before
    assert not (place / ".git" / "hooks").exists()
    assert "trap" not in (place / ".git" / "config").read_text()


def test_line_ends_are_as_git_checks_them_out_whatever_the_user_has_set(repo: Repo) -> None:
    repo.write(".gitattributes", "*.crlf text eol=crlf\n*.raw -text\n")
    for name, data in (("a.crlf", b"1\r\n2\r\n"), ("b.raw", b"1\r\n2\n"), ("c.txt", b"1\r\n2\n")):
        repo.write(name, data)
    repo.git("add", "-A")
    repo.git("commit", "-qm", "line ends")
    repo.git("config", "core.autocrlf", "true")
    place = out(repo)
    assert [files(place)[name] for name in ("a.crlf", "b.raw", "c.txt")] == [b"1\r\n2\r\n", b"1\r\n2\n", b"1\r\n2\n"]


def test_a_linked_worktree_a_borrower_and_a_shallow_clone_are_sources_too(repo: Repo) -> None:
    repo.write("more", "1\n")
    repo.git("add", "-A")
    repo.git("commit", "-qm", "second")
    repo.git("worktree", "add", "-q", "-b", "side", str(repo.base / "side"))
    repo.git("clone", "-q", "--shared", str(repo.path), str(repo.base / "borrower"))
    repo.git("clone", "-q", "--depth=1", f"file://{repo.path}", str(repo.base / "shallow"))
    for number, name in enumerate(("side", "borrower", "shallow")):
        place = repo.base / f"place{number}"
        check_out(str(repo.base / name), "HEAD", str(place), repo.environ)
        assert (place / "more").read_bytes() == b"1\n"
        assert git(repo, place, "status", "--porcelain") == ""
        assert git(repo, place, "log", "--format=%s").split()[0] == "second"
    borrowed = git_folders(str(repo.base / "borrower"))
    assert borrowed is not None
    assert object_folders(borrowed) == (borrowed.objects, str(repo.path / ".git" / "objects"))


def test_a_place_with_odd_letters_and_a_repository_of_wide_names_work(make_repo: Makes) -> None:
    repo = make_repo("--object-format=sha256", name='#re"po\n')
    place = repo.base / '"pl\nace'
    check_out(str(repo.path), "HEAD", str(place), repo.environ)
    assert git(repo, place, "status", "--porcelain") == ""
    assert len(git(repo, place, "rev-parse", "HEAD")) == 64


def test_a_submodules_folder_is_empty(repo: Repo, tmp_path: Path) -> None:
    repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(repo.path), "inner")
    repo.git("commit", "-qm", "submodule")
    place = out(repo)
    assert list((place / "inner").iterdir()) == []
    assert ".gitmodules" in files(place)


def test_what_cannot_be_checked_out_is_refused_in_one_line(repo: Repo) -> None:
    place = repo.base / "place"
    for revision in ("nope", "--help", "HEAD:src/f1", "", "0" * 40):
        with pytest.raises(Refused, match="is no commit or tree"):
            check_out(str(repo.path), revision, str(place), repo.environ)
        assert resolve_tree(str(repo.path), revision, repo.environ) is None
        assert not place.exists()
    place.mkdir()
    (place / "mine").write_text("1\n")
    with pytest.raises(Refused, match="is not empty"):
        out(repo)
    assert [path.name for path in place.iterdir()] == ["mine"]
    with pytest.raises(Refused, match="not the top of a git repository"):
        check_out(str(place), "HEAD", str(repo.base / "other"), repo.environ)
    with pytest.raises(Refused, match="git was not found"):
        check_out(str(repo.path), "HEAD", str(repo.base / "other"), repo.environ | {"PATH": "/nowhere"})
    assert resolve_tree(str(place), "HEAD", repo.environ) is None


def test_the_tree_of_a_commit_a_tag_and_a_tree_is_told(repo: Repo) -> None:
    tree = repo.git("rev-parse", "HEAD^{tree}")
    repo.git("tag", "-a", "v1", "-m", "one")
    for revision in ("HEAD", "v1", tree, repo.git("rev-parse", "HEAD")):
        assert resolve_tree(str(repo.path), revision, repo.environ) == tree


# What would be committed


class Began:
    """A run that began on the repository as it is now."""

    def __init__(self, repo: Repo, workspace: GitWorkspace) -> None:
        self.repo, self.workspace, self.began = repo, workspace, workspace.begin("r")

    def out(self, *theirs: str) -> dict[str, bytes]:
        """The files of what would be committed now."""
        now = self.workspace.save("r", "1")
        place = self.repo.base / f"place{time.monotonic_ns()}"
        work = PendingWork(self.began, now, frozenset(theirs))
        tree = check_out_pending_work(str(self.repo.path), work, str(place), self.repo.environ)
        assert git(self.repo, place, "rev-parse", "HEAD^{tree}") == tree
        assert git(self.repo, place, "status", "--porcelain") == ""
        return files(place)


def test_what_the_user_had_not_committed_is_not_in_it_and_what_the_run_changed_is(repo: Repo, open_git: Opens) -> None:
    repo.write("src/f1", "mine\n")
    repo.write("mine", "1\n")
    run = Began(repo, open_git(repo))
    repo.write("src/f1", "mine and the run's\n")
    repo.write("src/f2", "the run's\n")
    repo.write("new/deep", "the run's\n")
    repo.write("build/made", "ignored\n")
    (repo.path / "src/f3").unlink()
    found = run.out()
    assert (found["src/f1"], found["src/f2"], found["new/deep"]) == (b"1\n", b"the run's\n", b"the run's\n")
    assert found.keys().isdisjoint({"mine", "src/f3", "build/made"})
    assert "src/f2" in found
    assert run.out("src/f2")["src/f2"] == b"2\n"
    assert repo.git("diff", "--cached", "--name-only") == ""


def test_what_an_agent_committed_is_in_it_unless_it_was_put_back(repo: Repo, open_git: Opens) -> None:
    run = Began(repo, open_git(repo))
    repo.write("src/f1", "committed\n")
    repo.write("src/f2", "committed\n")
    repo.git("commit", "-qam", "the agent's")
    repo.write("src/f2", "2\n")
    found = run.out()
    assert (found["src/f1"], found["src/f2"]) == (b"committed\n", b"2\n")


def test_a_file_that_became_a_folder_and_the_other_way_round(repo: Repo, open_git: Opens) -> None:
    repo.write("a", "file\n")
    repo.write("b/c", "file\n")
    repo.git("add", "-A")
    repo.git("commit", "-qm", "two")
    run = Began(repo, open_git(repo))
    (repo.path / "a").unlink()
    repo.write("a/deep", "1\n")
    repo.sh("rm -r b")
    repo.write("b", "1\n")
    found = run.out()
    assert (found["a/deep"], found["b"]) == (b"1\n", b"1\n")
    assert found.keys().isdisjoint({"a", "b/c"})


def test_before_the_first_commit_all_that_the_run_made_is_in_it(make_repo: Makes, open_git: Opens) -> None:
    repo = make_repo(first=False)
    run = Began(repo, open_git(repo))
    repo.write("new", "1\n")
    assert run.out() == {"new": b"1\n"}


def test_a_file_whose_line_ends_alone_differed_counts_as_the_runs_and_is_as_a_commit_would_have_it(
    repo: Repo, open_git: Opens
) -> None:
    repo.write(".gitattributes", "*.t text\n")
    repo.write("a.t", "1\n2\n")
    repo.git("add", "-A")
    repo.git("commit", "-qm", "text")
    repo.write("a.t", "1\r\n2\r\n")
    run = Began(repo, open_git(repo))
    repo.write("a.t", "1\r\n3\r\n")
    assert run.out()["a.t"] == b"1\n3\n"
