"""Repositories inside a worktree: the worktree is kept while they have unshared commits."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ralphproof.workspace.checkouts import find_unshared_repositories
from tests.landing.test_worktree_run import CHECK, create_project, worktree_paths
from tests.ralph import Ralph, done

COMMIT = "git -c user.name=a -c user.email=a@b commit -q"
FETCH = "git -c protocol.file.allow=always submodule --quiet"


def shell(folder: Path, text: str) -> None:
    subprocess.run(["sh", "-ec", text], cwd=folder, check=True)


def add_submodule(ralph: Ralph) -> None:
    create_project(ralph)
    upstream = ralph.folder / "upstream"
    upstream.mkdir()
    shell(upstream, f"git init -q . && echo x > f && git add f && {COMMIT} -m one")
    shell(ralph.root, f"{FETCH} add {upstream} mod && {COMMIT} -m mod")


@pytest.mark.thorough
def test_a_worktree_with_an_unshared_submodule_commit_is_kept(ralph: Ralph) -> None:
    add_submodule(ralph)
    script = f"{FETCH} update --init; cd mod; echo y > f; {COMMIT} -am two; cd ..; {COMMIT} -am up; echo > done"
    agent = ralph.script([{"run": ["sh", "-ec", script]}, done()])
    ended = ralph("run", "-p", "make it so", "--agent", agent, *CHECK, "--worktree")
    assert ended.code == 0, ended
    assert "commits that are nowhere else (mod)" in ended.err
    (tree,) = worktree_paths(ralph)
    named = ralph.git("rev-parse", f"ralph/{ralph.runs()[0].id}:mod").strip()
    shell(Path(tree) / "mod", f"git cat-file -e {named}")


def test_only_repositories_with_unshared_commits_are_listed(ralph: Ralph) -> None:
    add_submodule(ralph)
    base = ralph.git("rev-parse", "HEAD").strip()
    shell(ralph.root, "git clone -q ../upstream cloned; git init -q empty; git init -q own")
    shell(ralph.root / "own", f"{COMMIT} --allow-empty -m x")
    shell(ralph.root / "mod", "git checkout -q --detach; git branch | sed 1d | xargs git branch -q -D")
    shell(ralph.root / "mod", "git remote remove origin")
    assert find_unshared_repositories(str(ralph.root), base, ralph.env) == ("own",)
