from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from ralphproof.engine.workspace import Snapshot
from ralphproof.workspace.git_workspace import GitWorkspace

if TYPE_CHECKING:
    from tests.workspace.conftest import Repo

    Opens = Callable[..., GitWorkspace]

TRICKS = [
    ("an edit", "echo a >> src/f1", "src/f1"),
    ("a second edit of a dirty file", "echo a >> src/dirty", "src/dirty"),
    ("an edit that is committed", "echo c >> src/f2; git commit -qam x", "src/f2"),
    ("an edit behind assume-unchanged", "git update-index --assume-unchanged src/f3; echo h >> src/f3", "src/f3"),
    ("an edit behind skip-worktree", "git update-index --skip-worktree src/f4; echo h >> src/f4", "src/f4"),
    ("a file hidden by .git/info/exclude", "echo hid >> .git/info/exclude; echo x > hid", "hid"),
    ("a file hidden by core.excludesFile", "echo h2 > ../e; git config core.excludesFile $PWD/../e; echo x > h2", "h2"),
    ("a file hidden by global rules", "mkdir -p ~/.config/git; echo h3 > ~/.config/git/ignore; echo > h3", "h3"),
    ("same size, times put back", "touch -r src/f5 ../r; printf 'Z\\n' > src/f5; touch -r ../r src/f5", "src/f5"),
    ("a file hidden by an edited .gitignore", "echo sneak >> .gitignore; echo x > sneak", "sneak"),
    ("a file hidden by a new .gitignore below", "mkdir n; echo sneak > n/.gitignore; echo x > n/sneak", "n/sneak"),
    ("an edit while core.bare is set", "git config core.bare true; echo y >> src/f1", "src/f1"),
    ("an edit while core.worktree lies", "git config core.worktree /tmp; echo y >> src/f1", "src/f1"),
    ("uncommitted work in a new nested repository", "git init -q sub; echo w > sub/w", "sub/w"),
    ("a commit in a nested repository", "git init -q sub; cd sub; echo w > w; git add w; git commit -qm w", "sub/w"),
    ("an edit after the index was deleted", "rm .git/index; echo q >> src/f1", "src/f1"),
    ("an edit while index.lock lies around", "touch .git/index.lock; echo q >> src/f1", "src/f1"),
    ("an ignored file that was forced in", "mkdir build; echo b > build/b; git add -f build/b", "build/b"),
    ("a deletion", "rm src/f1", "src/f1"),
    ("a mode change", "chmod +x src/f1", "src/f1"),
    ("a file that became a link", "ln -sf /etc/passwd src/f1", "src/f1"),
    ("a file that became a folder", "rm src/f1; mkdir src/f1; echo x > src/f1/x", "src/f1/x"),
    ("a folder that became a file", "rm -r src; echo x > src", "src"),
    ("a folder moved away behind a link", "mv src ../src; ln -s ../src src", "src/f1"),
    ("a link to a like folder", "cp -a src ../src; rm -r src; ln -s ../src src", "src"),
    ("a link to a folder with other content", "mkdir ../o; echo secret > ../o/f1; rm -r src; ln -s ../o src", "src/f1"),
    ("a rename by git", "git mv src/f1 src/g1", "src/g1"),
    ("CRLF where attributes normalise it",
     "printf '* text eol=crlf\\n' > .gitattributes; printf '1\\r\\n' > src/f1", "src/f1"),
    ("an edit in a merge", "git checkout -qb o; echo o > src/f1; git commit -qam o; git checkout -q main;"
     "echo m > src/f1; git commit -qam m; git merge o || true; echo y > src/f2", "src/f2"),
    ("a file named with a dash", "echo x > -rf", "-rf"),
    ("a file named with a newline and quotes", "printf x > \"$(printf 'a\\nb\"c')\"", "a\nb\"c"),
    ("a file named in no encoding", "printf x > \"$(printf '\\377.py')\"", "\udcff.py"),
    ("a file git's own checks dislike", "printf x > git~1", "git~1"),
    ("our refs deleted", "rm -rf .git/refs/ralph; echo y > src/f1", "src/f1"),
    ("everything packed by gc", "echo y > src/f1; git add src/f1; git gc -q --prune=now", "src/f1"),
]  # fmt: skip


@pytest.mark.parametrize(("trick", "path"), [t[1:] for t in TRICKS], ids=[t[0] for t in TRICKS])
def test_every_way_to_change_a_file_is_seen_and_saved(repo: Repo, open_git: Opens, trick: str, path: str) -> None:
    repo.write("src/dirty", "dirty before\n")
    workspace = open_git(repo)
    before = workspace.begin("r")
    repo.sh(trick)
    after = workspace.save("r", "1")
    change = workspace.change(before, after)
    assert after.problem == ""
    assert change.known
    assert path in change.paths
    assert set(change.paths) >= repo.files(before.id) ^ repo.files(after.id)
    behind_link = (repo.path / path).parent.is_symlink()
    assert (path in repo.files(after.id)) == (os.path.lexists(repo.path / path) and not behind_link)


def test_a_file_that_changes_twice_in_a_second_and_looks_as_before_is_seen(repo: Repo, open_git: Opens) -> None:
    file, workspace = repo.path / "src/f5", open_git(repo)
    for attempt in range(20):  # until all of it happens in one second, as git's clock has it
        os.utime(file, (1e9, 1e9))
        first, before = file.stat(), workspace.begin(f"r{attempt}")
        file.write_text(f"{attempt % 2}\n")
        os.utime(file, (1e9, 1e9))
        saved = [workspace.save(f"r{attempt}", str(number)) for number in (1, 2, 3)]
        assert all(workspace.change(before, after).paths == ("src/f5",) for after in saved)
        if int(first.st_ctime) == int(file.stat().st_ctime):
            return
    raise AssertionError("this machine takes a second for all that")


def test_racy_files_are_left_to_git_after_the_racy_second(repo: Repo, open_git: Opens) -> None:
    workspace = open_git(repo)
    before = workspace.begin("r")
    changed_s = int((repo.path / "src/f6").stat().st_ctime)
    while time.time() < changed_s + 1:
        workspace.save("r", "1")
    assert workspace.change(before, workspace.save("r", "2")).paths == ()
    repo.write("src/f6", "now\n")
    assert workspace.change(before, workspace.save("r", "3")).paths == ("src/f6",)


def test_what_another_process_saved_stands_on_the_same_commit(repo: Repo, open_git: Opens) -> None:
    before = open_git(repo).begin("r")
    again = open_git(repo).find_snapshot("r", "0")
    assert before.head
    assert again is not None
    assert (again.id, again.tree, again.head) == (before.id, before.tree, before.head)


@pytest.mark.parametrize("name", [t[0] for t in TRICKS if "bare" not in t[0] and "worktree" not in t[0]])
def test_every_trick_can_be_put_back(repo: Repo, open_git: Opens, name: str) -> None:
    trick, path = next(t[1:] for t in TRICKS if t[0] == name)
    repo.write("src/dirty", "dirty before\n")
    workspace = open_git(repo)
    before = workspace.begin("r")
    repo.sh(trick)
    after = workspace.save("r", "1")
    assert path in workspace.restore(before, after)
    again = workspace.save("r", "2")
    assert again.tree == before.tree
    assert workspace.change(before, again).paths == ()


def test_two_snapshots_without_changes_do_not_differ(repo: Repo, open_git: Opens) -> None:
    workspace = open_git(repo)
    before = workspace.begin("r")
    repo.sh("touch src/*; mkdir -p .ralph/runs build; echo l > .ralph/runs/log; echo m > .ralph-active; echo > build/o")
    change = workspace.change(before, workspace.save("r", "1"))
    assert change.is_empty
    assert change.tree == before.tree


def test_our_own_files_are_never_saved_even_when_unignored_and_tracked(repo: Repo, open_git: Opens) -> None:
    repo.write(".gitignore", "!.ralph\n!.ralph/**\n!.ralph-active\n")
    repo.write(".ralph/settings.json", "{}")
    repo.write(".ralph-active", "1")
    repo.git("add", "-Af")
    repo.git("commit", "-qm", "ours")
    workspace = open_git(repo)
    before = workspace.begin("r")
    repo.write(".ralph/settings.json", "{1}")
    repo.write(".ralph-active", "2")
    after = workspace.save("r", "1")
    assert not any(path.startswith(".ralph") for path in repo.files(before.id))
    assert workspace.change(before, after).is_empty


CANARIES = {
    "clean filter": "git config filter.e.clean 'touch ~/ran; cat'; echo '* filter=e' > .gitattributes",
    "process filter": "git config filter.e.process 'touch ~/ran'; echo '* filter=e' > .gitattributes",
    "smudge filter": "git config filter.e.smudge 'touch ~/ran; cat'; echo '* filter=e' > .gitattributes",
    "fsmonitor": "git config core.fsmonitor 'touch ~/ran; false'",
    "hooks path": "mkdir h; for n in post-index-change reference-transaction pre-commit post-checkout; do "
    "printf '#!/bin/sh\\ntouch ~/ran\\n' > h/$n; chmod +x h/$n; done; git config core.hooksPath h",
    "textconv": "git config diff.e.textconv 'touch ~/ran; cat'; echo '* diff=e' > .gitattributes",
    "external diff": "git config diff.external 'touch ~/ran'; git config diff.e.command 'touch ~/ran'; "
    "echo '* diff=e' > .gitattributes",
    "pager": "git config core.pager 'touch ~/ran; cat'",
    "global settings": "git config --global core.fsmonitor 'touch ~/ran';"
    "git config --global diff.external 'touch ~/ran'",
    "encoding": "echo '* working-tree-encoding=UTF-16' > .gitattributes",
    "shell in an alias": "git config alias.ls-files '!touch ~/ran'; git config alias.cat-file '!touch ~/ran'",
    "a git in the repository": "printf '#!/bin/sh\\ntouch ~/ran\\n' > git; chmod +x git",
}


@pytest.mark.parametrize("canary", CANARIES.values(), ids=CANARIES)
def test_nothing_that_the_repository_configures_is_run(repo: Repo, open_git: Opens, canary: str) -> None:
    repo.environ["PATH"] = f"{repo.path}:{repo.environ['PATH']}"
    repo.sh("git config index.skipHash false")
    workspace = open_git(repo)
    before = workspace.begin("r")
    repo.sh(canary)
    (repo.home / "ran").unlink(missing_ok=True)
    repo.write("src/f1", "new\n")
    after = workspace.save("r", "1")
    assert repo.path.joinpath("src/f1").read_bytes() == b"new\n"
    assert b"new" in workspace.diff(before, after)
    workspace.restore(before, after)
    fresh = open_git(repo, private="other")
    fresh.begin("r2")
    assert not (repo.home / "ran").exists()
    assert after.problem == ""


def test_bytes_are_saved_raw_whatever_the_attributes_say(repo: Repo, open_git: Opens) -> None:
    content = b"a\r\nb\n$Id$\r\n\xff\xfe\0"
    repo.write(".gitattributes", "* text eol=crlf ident working-tree-encoding=UTF-16 filter=x\n")
    repo.sh("git config core.autocrlf true")
    repo.write("first", content)
    workspace = open_git(repo)
    begun = workspace.begin("r")
    repo.write("second", content)
    saved = workspace.save("r", "1")
    assert repo.blob(begun.id, "first") == repo.blob(saved.id, "second") == content
    (repo.path / "first").unlink()
    workspace.restore(saved, workspace.save("r", "2"))
    assert (repo.path / "first").read_bytes() == content


def test_the_environment_cannot_redirect_us(repo: Repo, open_git: Opens) -> None:
    repo.environ |= {"GIT_DIR": "/nonexistent", "GIT_INDEX_FILE": "/nonexistent", "GIT_WORK_TREE": "/",
                     "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.fsmonitor", "GIT_CONFIG_VALUE_0": "touch ran",
                     "GIT_EXTERNAL_DIFF": "false", "GIT_OBJECT_DIRECTORY": "/nonexistent"}  # fmt: skip
    workspace = open_git(repo)
    before = workspace.begin("r")
    repo.write("src/f1", "x")
    change = workspace.change(before, workspace.save("r", "1"))
    assert change.paths == ("src/f1",)


def test_a_later_save_without_begin_still_knows_the_rules_of_the_start(repo: Repo, open_git: Opens) -> None:
    before = open_git(repo).begin("r")
    repo.sh("echo sneak >> .gitignore; echo x > sneak")
    resumed = open_git(repo)
    after = resumed.save("r", "1")
    assert resumed.change(before, after).paths == (".gitignore", "sneak")


def test_a_private_index_that_someone_replaced_is_built_anew(repo: Repo, open_git: Opens) -> None:
    workspace = open_git(repo)
    before = workspace.begin("r")
    repo.write("src/f1", "x")
    (repo.base / "private" / "index").write_bytes(b"garbage")
    after = workspace.save("r", "1")
    assert workspace.change(before, after).paths == ("src/f1",)


def test_thousands_of_changes_are_absorbed_and_later_ones_still_seen(repo: Repo, open_git: Opens) -> None:
    workspace = open_git(repo)
    before = workspace.begin("r")
    for number in range(600):
        repo.write(f"many/{number % 7}/{number}", str(number))
    first = workspace.save("r", "1")
    assert len(workspace.change(before, first).paths) == 600
    repo.write("many/3/3", "other")
    (repo.path / "many/4/4").unlink()
    second = workspace.save("r", "2")
    assert workspace.change(first, second).paths == ("many/3/3", "many/4/4")
    assert repo.files(second.id) == repo.files(first.id) - {"many/4/4"}


def test_too_many_newly_ignored_files_are_named_instead_of_saved(repo: Repo, open_git: Opens) -> None:
    workspace = open_git(repo)
    workspace.begin("r")
    repo.sh("echo node_modules >> .gitignore; mkdir node_modules; cd node_modules; seq 2100 | xargs touch")
    saved = workspace.save("r", "1")
    assert saved.left_out == ("node_modules/",)
    assert ".gitignore" in repo.files(saved.id)


def test_a_save_is_a_sound_commit_on_top_of_head(repo: Repo, open_git: Opens) -> None:
    workspace = open_git(repo)
    repo.write("new", "x")
    saved: Snapshot = workspace.begin("r")
    assert saved.ref == "refs/ralph/r/0"
    assert repo.git("rev-parse", "refs/ralph/r/0") == saved.id
    assert repo.git("rev-parse", f"{saved.id}^") == repo.git("rev-parse", "HEAD") == saved.head
    assert repo.git("rev-parse", f"{saved.id}^{{tree}}") == saved.tree
    repo.git("fsck", "--strict", "--no-dangling")
    new = repo.git("rev-parse", f"{saved.id}:new")
    assert (repo.path / ".git/objects" / new[:2] / new[2:]).stat().st_mode & 0o777 == 0o444
