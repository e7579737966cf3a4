"""Repositories inside a work tree: what they alone have does not go with the tree."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ralphproof.workspace.worktrees import find_unshared_repositories
from tests.landing.test_run_apart import CHECK, begin, trees
from tests.ralph import Ralph, done

COMMIT = "git -c user.name=a -c user.email=a@b commit -q"
FETCH = "git -c protocol.file.allow=always submodule --quiet"


def shell(folder: Path, text: str) -> None:
    subprocess.run(["sh", "-ec", text], cwd=folder, check=True)


def with_submodule(ralph: Ralph) -> None:
    begin(ralph)
    upstream = ralph.folder / "upstream"
    upstream.mkdir()
    shell(upstream, f"git init -q . && echo x > f && git add f && {COMMIT} -m one")
    shell(ralph.root, f"{FETCH} add {upstream} mod && {COMMIT} -m mod")


@pytest.mark.thorough
def test_a_worktree_stays_whose_submodule_has_a_commit_that_is_nowhere_else(ralph: Ralph) -> None:
    with_submodule(ralph)
    words = f"{FETCH} update --init; cd mod; echo y > f; {COMMIT} -am two; cd ..; {COMMIT} -am up; echo > done"
    agent = ralph.script([{"run": ["sh", "-ec", words]}, done()])
    ended = ralph("run", "-p", "make it so", "--agent", agent, *CHECK, "--worktree")
    assert ended.code == 0, ended
    assert "commits that are nowhere else (mod)" in ended.err
    (tree,) = trees(ralph)
    named = ralph.git("rev-parse", f"ralph/{ralph.runs()[0].id}:mod").strip()
    shell(Path(tree) / "mod", f"git cat-file -e {named}")


def test_only_repositories_with_something_of_their_own_are_told(ralph: Ralph) -> None:
    with_submodule(ralph)
    base = ralph.git("rev-parse", "HEAD").strip()
    shell(ralph.root, "git clone -q ../upstream cloned; git init -q empty; git init -q own")
    shell(ralph.root / "own", f"{COMMIT} --allow-empty -m x")
    shell(ralph.root / "mod", "git checkout -q --detach; git branch | sed 1d | xargs git branch -q -D")
    shell(ralph.root / "mod", "git remote remove origin")
    assert find_unshared_repositories(str(ralph.root), base, ralph.env) == ("own",)
