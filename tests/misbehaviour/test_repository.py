"""Projects of every shape: without git, with half of git, with the user's work in it, with names nobody expects."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ralphproof.engine.records import Judged, Saved, ScmEnded
from tests.misbehaviour.agents import case, facts
from tests.misbehaviour.invariants import hold
from tests.misbehaviour.machine import recorded, small_disk
from tests.ralph import Ended, Ralph, done, write


def run(ralph: Ralph, *flags: str, agent: str = "") -> Ended:
    """A run of one iteration that does a little work and is completed."""
    agent = agent or ralph.script([write(work="done"), done()])
    ended = ralph("run", "-p", "make it so", "--agent", agent, "--check", "test -f work", "-m", "1", *flags)
    hold(ralph, ended)
    assert ended.code == 0, ended
    return ended


def changed(ralph: Ralph) -> list[tuple[str, ...]]:
    """What each iteration changed; fails where that is unknown."""
    saved = recorded(ralph, Saved)
    assert all(record.change.known for record in saved), saved
    return [record.change.paths for record in saved]


def kept_by_git(ralph: Ralph) -> None:
    """Have work that passes committed by the user's own git."""
    ralph.git("config", "user.name", "user")
    ralph.git("config", "user.email", "user@localhost")
    ralph.settings(scm={"command": "git", "tasks": ["commit"]})


def detached(ralph: Ralph) -> None:
    ralph.commit()
    ralph.git("checkout", "-q", "--detach")


def unborn(ralph: Ralph) -> None:
    ralph.git("init", "-q")


def worktree(ralph: Ralph) -> None:
    main = Ralph(ralph.folder / "main")
    main.write({"old": "1"})
    main.commit()
    main.git("worktree", "add", "-q", str(ralph.root))


def sparse(ralph: Ralph) -> None:
    ralph.write({"seen/a": "1", "unseen/b": "2"})
    ralph.commit()
    ralph.git("sparse-checkout", "set", "seen")
    assert not (ralph.root / "unseen").exists()


def shallow(ralph: Ralph) -> None:
    origin = Ralph(ralph.folder / "origin")
    for content in "123":
        origin.write({"old": content})
        origin.commit()
    ralph.git("clone", "-q", "--depth=1", origin.root.as_uri(), ".")


@pytest.mark.parametrize(
    ("shape", "commits"),
    [
        case("EN-06-detached", detached, 1),
        case("EN-07-no-commit", unborn, 0),
        case("EN-07-one-commit", Ralph.commit, 1),
        case("EN-09-linked-worktree", worktree, 1),
        case("EN-09-sparse", sparse, 1),
        case("EN-09-shallow", shallow, 1),
    ],
)
@pytest.mark.parametrize("scm", [False, True])
def test_a_repository_of_any_shape_works(ralph: Ralph, shape: Callable[[Ralph], None], commits: int, scm: bool) -> None:
    """EN-06, EN-07, EN-09"""
    shape(ralph)
    branches, head = (
        ralph.git("branch", "--list"),
        (ralph.git("rev-parse", "--symbolic-full-name", "HEAD") if commits else ""),
    )
    if scm:
        kept_by_git(ralph)
    run(ralph)
    assert changed(ralph) == [("work",)]
    assert facts(ralph)["workspace"] == "git"
    assert int(ralph.git("rev-list", "--count", "HEAD") if commits + scm else 0) == commits + scm
    if commits:
        assert ralph.git("rev-parse", "--symbolic-full-name", "HEAD") == head
        assert len(ralph.git("branch", "--list").splitlines()) == len(branches.splitlines()), "no branch was made"
    assert ralph.git("diff", "--name-only", "--diff-filter=D", *(["HEAD"] if commits + scm else [])) == "", (
        "nothing is gone"
    )


def test_work_inside_a_submodule_is_seen(ralph: Ralph) -> None:
    """EN-09"""
    inner = Ralph(ralph.folder / "inner")
    inner.write({"old": "1"})
    inner.commit()
    ralph.commit()
    ralph.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.root), "sub")
    ralph.commit()
    run(ralph, agent=ralph.script([write(**{"work": "1", "sub/old": "2", "sub/new": "3"}), done()]))
    assert changed(ralph) == [("sub/new", "sub/old", "work")]


@pytest.mark.parametrize("scm", [False, True])
def test_the_users_own_changes_stay_and_are_nobody_elses_work(ralph: Ralph, scm: bool) -> None:
    """EN-08"""
    ralph.write({"edited": "1", "staged": "1", "gone": "1"})
    ralph.commit()
    ralph.write({"edited": "2", "staged": "2", "new": "1"})
    (ralph.root / "gone").unlink()
    ralph.git("add", "staged")
    if scm:
        kept_by_git(ralph)
    before = ralph.git("status", "--porcelain", "--", ":!.ralph"), ralph.git("diff"), ralph.git("diff", "--cached")
    run(ralph)
    assert changed(ralph) == [("work",)]
    after = (
        ralph.git("status", "--porcelain", "--", ":!.ralph", ":!work"),
        ralph.git("diff"),
        ralph.git("diff", "--cached"),
    )
    assert after == before
    assert (ralph.root / "new").read_text() == "1"
    assert ralph.git("log", "--format=%s", "-1").strip() == (
        "Apply the scripted change" if scm else "a state of the project"
    )
    began = ralph.state().trees.run_start
    assert ralph.git("show", f"{began.ref}:edited") == "2", "and they can be had again from the run's first save"


def test_a_project_without_git_is_watched_all_the_same(ralph: Ralph) -> None:
    """EN-05: no repository."""
    ralph.write({"old": "1"})
    agent = ralph.script([write(work="1"), {"delete": ["old"]}, done()])
    run(ralph, agent=agent)
    assert facts(ralph)["workspace"] == "plain"
    assert changed(ralph) == [("old", "work")]


@pytest.mark.parametrize("scm", [False, True])
def test_a_machine_without_git_is_told_and_changes_are_seen_all_the_same(ralph: Ralph, scm: bool) -> None:
    """EN-05: no git."""
    ralph.write({"old": "1"})
    ralph.commit()
    if scm:
        kept_by_git(ralph)
    os.symlink("/bin/sh", ralph.bin / "sh")
    ralph.env["PATH"] = str(ralph.bin)
    agent = ralph.script([write(work="1"), {"delete": ["old"]}, done()])
    ended = ralph("run", "-p", "make it so", "--agent", agent, "--check", "test -f work", "-m", "1")
    if scm:
        hold(ralph, ended, refused=True)
        assert "git" in ended.err
        return
    hold(ralph, ended)
    assert ended.code == 0, ended
    assert changed(ralph) == [("old", "work")]
    assert "git was not found" in ended.err


def test_an_index_lock_that_was_left_behind_is_told_and_left(ralph: Ralph) -> None:
    """EN-26"""
    ralph.commit()
    kept_by_git(ralph)
    lock = ralph.root / ".git" / "index.lock"
    lock.touch()
    ended = run(ralph)
    assert changed(ralph) == [("work",)], "our own saves do not need it"
    (kept,) = recorded(ralph, ScmEnded)
    assert kept.committed.commit is None
    assert "index.lock" in kept.committed.error
    assert "index.lock" in ended.err
    assert lock.exists()
    assert (ralph.root / "work").read_text() == "done"


@pytest.mark.thorough
def test_twenty_thousand_files_stay_within_bounds(tmp_path: Path) -> None:
    """EN-11: the slow one."""
    with small_disk(tmp_path / "memory", kib=512 * 1024) as memory:  # only to have the files made quickly
        ralph = Ralph(memory / "test")
        for folder in range(200):
            path = ralph.root / f"folder{folder:03d}"
            path.mkdir()
            for file in range(100):
                (path / f"file{file:02d}").write_bytes(b"%d\n" % folder)
        ralph.commit()
        agent = ralph.script([write(work="1")], [write(**{"folder111/file11": "new"})], [write(work="3"), done()])
        began = time.monotonic()
        run(ralph, "-m", "3", agent=agent)
        assert time.monotonic() - began < 15
        assert changed(ralph) == [("work",), ("folder111/file11",), ("work",)]
        first, second, third = [record.elapsed_s for record in recorded(ralph, Judged)]
        assert max(second - first, third - second) < 5, "and not only on average"


ODD = [
    "\udcff.py",
    "line\nbreak",
    "-rf",
    "quo'te\"",
    "ta\tb",
    "sp ace",
    "ünï🐛",
    "\x1b[31mred",
    "a\\b",
    "$(touch ../pwned)",
]


@pytest.mark.parametrize("in_git", [True, False])
def test_file_names_that_nobody_expects_are_kept_as_they_are(ralph: Ralph, in_git: bool) -> None:
    """EN-12"""
    if in_git:
        ralph.commit()
    names = dict.fromkeys(ODD, "x")
    agent = ralph.script([write(**names), write(work="1")], [{"delete": ODD[:2]}, done()])
    ended = ralph(
        "run", "-p", "make it so", "--agent", agent, "--check", "test -f work", "--json", "--verbose", "-m", "2"
    )
    hold(ralph, Ended(ended.code, "", ended.err))
    assert ended.code == 0
    assert changed(ralph) == [tuple(sorted([*ODD, "work"])), tuple(sorted(ODD[:2]))]
    told = [line["data"]["files"] for line in ended.lines if line["type"] == "work.saved"]
    assert [sorted(paths) for paths in told] == [sorted(paths) for paths in changed(ralph)]
    assert "\x1b" not in ended.err
    shown = json.loads(ralph("status", "--json").out)
    assert sorted(shown["timeline"][0]["files"]) == sorted([*ODD, "work"])
    assert not (ralph.folder / "pwned").exists()


@pytest.mark.parametrize(
    "name", ["a b", 'it\'s "quoted"', "line\nbreak", "🐛 ünï", "$(touch pwned)", "%7e?#", "-rf", "\udcff"]
)
@pytest.mark.parametrize("in_git", [True, False])
def test_a_project_may_have_any_path(tmp_path: Path, name: str, in_git: bool) -> None:
    """EN-13"""
    ralph = Ralph(tmp_path / name)
    if in_git:
        ralph.commit()
    ralph.script([write(work="done"), {"run": ["sh", "-c", 'test "$PWD" = "$0"', str(ralph.root)]}, done()])
    run(ralph, agent="scripted ../script.json")
    assert changed(ralph) == [("work",)]
    assert ralph("status").code == 0
    ralph.close()
