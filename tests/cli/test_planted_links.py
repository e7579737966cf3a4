"""Links that an agent left in `.git` lead no verb out of the project."""

from __future__ import annotations

import os
import re
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralphproof.runs.stories import prepare_marker
from tests.ralph import done, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.ralph import Ralph

EVERY_OBJECT = "for n in $(seq 0 255); do d=$(printf %02x $n); rm -rf .git/objects/$d; ln -s $OUT .git/objects/$d; done"
PLANTS = (
    "COMMIT_EDITMSG", "logs/HEAD", "refs/heads", "refs/ralph", "refs", "logs", "objects/00", "objects/pack", "config",
    "index", "worktrees", "ORIG_HEAD", "HEAD.lock",
)  # fmt: skip


def planted(root: Path, outside: Path, name: str) -> Callable[[], None]:
    """Let a path of the repository lead out of it, to a copy of what was there; how to undo that."""
    place, target = root / ".git" / name, outside / name.replace("/", "-")
    kept = root.parent / f"kept-{name.replace('/', '-')}"
    if place.is_dir():
        shutil.copytree(place, target, symlinks=True)
    elif place.exists():
        shutil.copy(place, target)
    if place.exists():
        place.rename(kept)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)

    def undo() -> None:
        place.unlink()
        if kept.exists():
            kept.rename(place)

    return undo


def everything(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_no_verb_writes_through_a_link_out_of_the_repository(ralph: Ralph, tmp_path: Path) -> None:
    ralph.write({"a.txt": "a\n", "ralph/prd.md": "# wanted\n", "ralph/tasks.json": "{}", "ralph/progress.txt": ""})
    ralph.commit()
    agent = ralph.script([write(b="b\n"), done()])
    assert ralph("run", "-p", "x", "--agent", agent, "--check", "test -f b").code == 0
    outside = tmp_path / "outside"
    outside.mkdir()
    run = ralph.runs()[0].id
    verbs = (
        ("branch", run, "1", "--name", "new"), ("land", run), ("pr", run, "-o", str(tmp_path / "x")),
        ("rewind", run, "0", "--yes"), ("archive",),
        ("run", "-p", "x", "--worktree", "--agent", agent, "--check", "true"),
    )  # fmt: skip
    for name in PLANTS:
        undo = planted(ralph.root, outside, name)
        before = everything(outside)
        for argv in verbs:
            told = ralph(*argv)
            assert (told.code, len(told.err.splitlines())) == (2, 1), (name, argv, told)
            assert f".git/{name}" in told.err, (name, argv, told)
        assert everything(outside) == before, name
        undo()
    place = ralph.root / ".git"
    for other in ("other/.git", "bare"):
        shutil.copytree(place, outside / other, symlinks=True)
    ralph.git("-C", str(outside / "bare"), "config", "core.bare", "true")
    place.rename(tmp_path / "mine")
    for other in ("other/.git", "bare"):
        place.symlink_to(outside / other)
        before = everything(outside)
        for argv in verbs[-1:]:  # others do not find the run, which was in another repository
            told = ralph(*argv)
            assert (told.code, f"look at {place}" in told.err) == (2, True), (argv, told)
        assert everything(outside) == before
        place.unlink()
    (tmp_path / "mine").rename(place)
    os.mknod(place / "fsmonitor--daemon.ipc", stat.S_IFSOCK | 0o600)  # as git's own monitor of files has it
    assert ralph(*verbs[0]).code == 0, "what the user has is in order"


@pytest.mark.parametrize(
    "plant", [EVERY_OBJECT, "rm -rf .git/refs/ralph; ln -s $OUT .git/refs/ralph", "ln -sf $OUT/m .git/COMMIT_EDITMSG"]
)
def test_a_run_saves_and_commits_nothing_through_such_a_link(ralph: Ralph, tmp_path: Path, plant: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    ralph.write({"a.txt": "a\n"})
    ralph.settings(scm={"command": "git", "tasks": ["commit"]})
    ralph.commit()
    script = plant.replace("$OUT", str(outside))
    agent = ralph.script([{"run": ["sh", "-c", script]}, write(b="b\n"), done()], message=[{"text": "a message"}])
    told = ralph("run", "-p", "x", "--agent", agent, "--check", "test -f b")
    assert re.search("git would (write|look) elsewhere than in(to)? the repository", told.out + told.err), told
    assert list(outside.iterdir()) == []


def test_a_repository_put_elsewhere_is_written_to_and_that_of_another_folder_is_not(
    ralph: Ralph, tmp_path: Path
) -> None:
    ralph.write({"a.txt": "a\n"})
    ralph.git("init", "-q", f"--separate-git-dir={tmp_path / 'there'}")
    ralph.commit()
    agent = ralph.script([write(b="b\n"), done()])
    assert ralph("run", "-p", "x", "--agent", agent, "--check", "test -f b").code == 0
    assert ralph("branch", "latest", "1").code == 0
    ralph.git("init", "-q", str(tmp_path / "other"))
    (ralph.root / ".git").write_text(f"gitdir: {tmp_path / 'other' / '.git'}\n")
    told = ralph("run", "-p", "x", "--worktree", "--agent", agent, "--check", "true")
    assert (told.code, told.err.count("\n")) == (2, 1), told
    assert f"look at {ralph.root}/.git" in told.err


@pytest.mark.parametrize("name", ["info", "info/exclude"])
def test_the_marker_of_stories_is_not_excluded_through_a_link(ralph: Ralph, tmp_path: Path, name: str) -> None:
    ralph.write({"a.txt": "a\n"})
    ralph.commit()
    outside = tmp_path / "outside"
    outside.mkdir()
    planted(ralph.root, outside, name)
    before = everything(outside)
    (told,) = prepare_marker(str(ralph.root), "run-1")
    assert "may get into commits" in told
    assert everything(outside) == before
