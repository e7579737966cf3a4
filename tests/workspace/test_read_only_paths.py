"""What a kernel can hold in a project: patterns, defaults, and what git executes; where links lead, never outside."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from ralphproof.sandbox.project_mounts import (
    MAX_MATCHES,
    READ_ONLY_FILES,
    READ_ONLY_FOLDERS,
    ReadOnlyPaths,
    find_read_only_paths,
)
from tests.workspace.conftest import Repo

IN_GIT = {".git/config", ".git/hooks"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


def put(root: Path, *names: str, text: str = "x") -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def told(root: Path, paths: Iterable[str]) -> set[str]:
    return {os.path.relpath(path, root) for path in paths}


def held(root: Path, *protected: str, own: Iterable[str] = (), settings: Iterable[str] = ()) -> ReadOnlyPaths:
    return find_read_only_paths(str(root), protected, own, settings)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("src/auth/", {"src/auth"}),
        ("src/auth", {"src/auth"}),
        ("./src//auth/key.py", {"src/auth/key.py"}),
        ("*.py", {"src/auth/key.py", "src/a.py", "b.py"}),
        ("src/*.py", {"src/a.py"}),
        ("src/**/*.py", {"src/a.py", "src/auth/key.py"}),
        ("src/a?th", {"src/auth"}),
        ("**/auth", {"src/auth", "lib/auth"}),
        ("\\*.py", {"*.py"}),
        ("gone", set()),
        # Packages are not meant by a pattern that roams; they are by one that names them.
        ("package.json", {"package.json"}),
        ("*.json", {"package.json"}),
        ("node_modules/*.json", {"node_modules/x.json"}),
    ],
)
def test_a_pattern_is_read_only_for_its_present_matches(root: Path, pattern: str, found: set[str]) -> None:
    put(root, "src/auth/key.py", "src/a.py", "b.py", "lib/auth/x", "package.json", "node_modules/x.json")
    if pattern.startswith("\\"):
        put(root, "*.py")
    assert told(root, held(root, pattern).found) == found


def test_settings_of_agents_and_editors_are_read_only_and_cannot_be_created(root: Path) -> None:
    paths = held(root)
    assert (paths.found, told(root, paths.files), told(root, paths.folders)) == (
        (),
        {*READ_ONLY_FILES},
        {*READ_ONLY_FOLDERS},
    )
    put(
        root,
        ".mcp.json",
        ".claude/settings.json",
        ".claude/settings.team.json",
        ".vscode/tasks.json",
        ".claude/skills/a",
    )
    paths = held(root)
    assert told(root, paths.found) == {
        ".mcp.json", ".claude/settings.json", ".claude/settings.team.json", ".vscode", ".claude/skills"
    }  # fmt: skip
    assert told(root, paths.files) == {".claude/settings.local.json", ".envrc"}


def test_protected_settings_files_of_agents_cannot_be_created(root: Path) -> None:
    paths = held(root, "later.toml", "new/", "*.key", settings=[".gemini/", "agent.json"])
    assert {"later.toml", "agent.json"} <= told(root, paths.files)
    assert {"new", ".gemini"} <= told(root, paths.folders)


def test_existing_files_of_the_run_are_read_only(root: Path) -> None:
    put(root, "prompt.md")
    paths = held(root, own=["prompt.md", "gone.md"])
    assert told(root, paths.found) == {"prompt.md"}
    assert "gone.md" not in told(root, paths.files)


def test_the_number_of_matches_is_bounded(root: Path) -> None:
    for number in range(MAX_MATCHES + 5):
        (root / f"{number}.key").touch()
    assert len(held(root, "*.key").found) == MAX_MATCHES


# Links


def test_the_target_of_a_link_is_read_only(root: Path) -> None:
    put(root, "lib/auth/key.py", "real.env")
    (root / "src").symlink_to("lib")
    (root / ".env").symlink_to("real.env")
    assert told(root, held(root, "src/auth/", ".env").found) == {"lib/auth", "real.env"}


def test_link_targets_outside_the_project_are_left_out(root: Path, tmp_path: Path) -> None:
    put(tmp_path, "outside/settings.json", "outside/key")
    (root / "key").symlink_to(tmp_path / "outside/key")
    (root / ".claude").symlink_to(tmp_path / "outside")
    (root / ".vscode").symlink_to(tmp_path / "gone")
    paths = held(root, "key")
    assert paths.found == ()
    assert not {
        name for name in told(root, (*paths.files, *paths.folders)) if name.startswith((".claude", "..", ".vscode"))
    }


def test_missing_paths_behind_links_cannot_be_created(root: Path) -> None:
    put(root, "config/claude/notes.md")
    (root / ".claude").symlink_to("config/claude")
    assert {"config/claude/settings.json", "config/claude/settings.local.json"} <= told(root, held(root).files)
    assert "config/claude/hooks" in told(root, held(root).folders)


def test_missing_paths_below_a_file_are_left_out(root: Path) -> None:
    put(root, ".claude", "conf")
    paths = held(root, "conf/new.toml")
    assert not {name for name in told(root, (*paths.files, *paths.folders)) if name.startswith((".claude/", "conf/"))}


# Git


def test_settings_and_hooks_of_the_repository_are_read_only(repo: Repo) -> None:
    paths = held(repo.path)
    assert told(repo.path, paths.found) == IN_GIT
    assert {".git/config.worktree", ".git/info/attributes", ".git/commondir"} <= told(repo.path, paths.files)
    assert (paths.common, paths.shared) == ((), ())
    assert paths.exclude == f"{repo.path}/.git/info/exclude"


def test_hooks_that_were_removed_may_not_come_back(repo: Repo) -> None:
    repo.sh("rm -r .git/hooks")
    assert ".git/hooks" in told(repo.path, held(repo.path).folders)


@pytest.mark.parametrize(
    ("said", "there", "folders", "found"),
    [
        ("git config core.hooksPath .githooks", True, set(), {".githooks"}),
        ("git config core.hooksPath .husky/_", False, {".husky/_"}, set()),
        ('printf "[CORE]\\n\\tHooksPath = \\"my hooks\\"\\n" >> .git/config', False, {"my hooks"}, set()),
        ("git config core.hooksPath $PWD/.githooks", True, set(), {".githooks"}),
        # Outside of the project nobody inside can write.
        ("git config core.hooksPath /usr/share/hooks", False, set(), set()),
        ("git config core.hooksPath ../hooks", False, set(), set()),
        ("git config core.hooksPath '~/hooks'", False, set(), set()),
        ("git config hookspath.x y; git config other.hooksPath z", False, set(), set()),
    ],
)
def test_a_hooks_folder_in_the_project_is_read_only(
    repo: Repo, said: str, there: bool, folders: set[str], found: set[str]
) -> None:
    repo.sh(said)
    if there:
        put(repo.path, ".githooks/pre-commit")
    paths = held(repo.path)
    assert told(repo.path, paths.folders) - {*READ_ONLY_FOLDERS} == folders
    assert told(repo.path, paths.found) == IN_GIT | found


@pytest.mark.parametrize(
    ("said", "file"),
    [
        ("git config include.path ../.gitconfig", ".gitconfig"),
        ("git config includeIf.gitdir:x/.path ../conf/git", "conf/git"),
        ("git config include.path $PWD/shared.cfg", "shared.cfg"),
    ],
)
@pytest.mark.parametrize("there", [True, False])
def test_included_settings_files_in_the_project_are_read_only(repo: Repo, said: str, file: str, there: bool) -> None:
    repo.sh(said)
    if there:
        put(repo.path, file, text="")
    paths = held(repo.path)
    assert (file in told(repo.path, paths.found)) is there
    assert (file in told(repo.path, paths.files)) is not there


def test_submodules_have_settings_and_hooks_too(repo: Repo) -> None:
    inner = Repo(repo.base, name="inner")
    deep = Repo(repo.base, name="deep")
    inner.sh(f"git -c protocol.file.allow=always submodule add -q {deep.path} deep; git commit -qm deep")
    repo.sh(f"git -c protocol.file.allow=always submodule add -q {inner.path} libs/inner")
    repo.sh("git -c protocol.file.allow=always submodule update -q --init --recursive")
    repo.sh("rm -r .git/modules/libs/inner/modules/deep/hooks")
    paths = held(repo.path)
    module = ".git/modules/libs/inner"
    assert {f"{module}/config", f"{module}/hooks", f"{module}/modules/deep/config"} <= told(repo.path, paths.found)
    assert f"{module}/modules/deep/hooks" in told(repo.path, paths.folders)
    assert {f"{module}/commondir", f"{module}/modules/deep/commondir"} <= told(repo.path, paths.files)


def test_a_checkout_of_a_submodule_has_its_repository_elsewhere(repo: Repo) -> None:
    inner = Repo(repo.base, name="inner")
    repo.sh(f"git -c protocol.file.allow=always submodule add -q {inner.path} inner")
    paths = held(repo.path / "inner")
    common = f"{repo.path}/.git/modules/inner"
    assert paths.common == (common,)
    assert common in paths.shared
    assert {f"{common}/config", f"{common}/hooks", f"{repo.path}/inner/.git"} <= {*paths.found}


def test_of_a_linked_worktree_only_what_a_commit_needs_is_shared(repo: Repo) -> None:
    repo.sh("git worktree add -q ../side; git worktree add -q ../third")
    side, common = repo.base / "side", f"{repo.path}/.git"
    paths = held(side)
    assert paths.common == (common,)
    assert paths.shared == tuple(f"{common}/{name}" for name in ("objects", "refs", "logs", "worktrees/side"))
    own = f"{common}/worktrees/side"
    assert {f"{side}/.git", f"{own}/commondir", f"{own}/gitdir", f"{common}/config", f"{common}/hooks"} <= {
        *paths.found
    }
    assert f"{own}/config.worktree" in paths.files
    assert f"{own}/commondir" not in paths.files


def test_in_the_main_worktree_nobody_leads_another_one_elsewhere(repo: Repo) -> None:
    repo.sh("git worktree add -q ../side")
    paths = held(repo.path)
    own = ".git/worktrees/side"
    assert {f"{own}/commondir", f"{own}/gitdir"} <= told(repo.path, paths.found)
    assert f"{own}/config.worktree" in told(repo.path, paths.files)


def test_a_folder_that_is_no_repository_has_no_settings_of_git(root: Path) -> None:
    put(root, ".git/notes")
    paths = held(root)
    assert (paths.exclude, paths.common, told(root, paths.found)) == ("", (), set())
