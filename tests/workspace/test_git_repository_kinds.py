"""Repositories of every shape, and what happens when one breaks."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ralphproof.base.errors import DiskFull, Refused
from ralphproof.base.git_layout import git_folders
from ralphproof.base.value import replace
from ralphproof.workspace import git_objects, private_index
from ralphproof.workspace.git_workspace import GitWorkspace
from tests.needs import require

if TYPE_CHECKING:
    from tests.workspace.conftest import Repo

    Opens = Callable[..., GitWorkspace]


def sums(folder: Path) -> dict[str, tuple[str, int, int]]:
    """Content, time and inode of every file, git's own included, our additions aside."""
    found = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_file() and not path.is_symlink() and not name.startswith((".git/objects/", ".git/refs/ralph/")):
            state = path.stat()
            found[name] = (hashlib.sha256(path.read_bytes()).hexdigest(), state.st_mtime_ns, state.st_ino)
    return found


def test_saving_leaves_index_head_and_every_file_alone(repo: Repo, open_git: Opens) -> None:
    repo.sh("echo dirty >> src/f1; echo staged >> src/f2; git add src/f2; echo more >> src/f2; echo new > new;"
            "rm src/f3; git rm -q --cached src/f4; git checkout -q -b side; git stash list")  # fmt: skip
    before, status = sums(repo.path), repo.git("--no-optional-locks", "status", "--porcelain=v2", "--branch")
    workspace = open_git(repo)
    begun = workspace.begin("r")
    saved = workspace.save("r", "1")
    workspace.diff(begun, saved)
    workspace.change(begun, saved)
    assert sums(repo.path) == before
    assert repo.git("--no-optional-locks", "status", "--porcelain=v2", "--branch") == status


def test_a_merge_in_progress_is_not_disturbed(repo: Repo, open_git: Opens) -> None:
    repo.sh("git checkout -qb o; echo o > src/f1; git commit -qam o; git checkout -q main; echo m > src/f1;"
            "git commit -qam m; git merge o || true")  # fmt: skip
    before = sums(repo.path)
    workspace = open_git(repo)
    saved = workspace.begin("r")
    assert saved.id
    assert sums(repo.path) == before
    assert b"<<<<<<<" in repo.blob(saved.id, "src/f1")


SHAPES = {
    "detached HEAD": "git checkout -q --detach",
    "packed": "git gc -q",
    "packed refs": "git pack-refs --all --prune",
    "sparse checkout": "mkdir other; echo > other/x; git add other; git commit -qm o; git sparse-checkout set src",
    "split index": "git update-index --split-index",
    "index version 4": "git update-index --index-version 4",
    "untracked cache": "git update-index --untracked-cache || true",
    "git dir elsewhere": "mv .git ../elsewhere; echo 'gitdir: ../elsewhere' > .git",
    "git dir behind a link": "mv .git ../elsewhere; ln -s ../elsewhere .git",
    "objects borrowed": "mv .git ../o; git clone -q --shared ../o ../c; mv ../c/.git .git",
    "shallow": "git commit -q --allow-empty -m 2; git clone -q --depth 1 file://$PWD ../c; rm -rf .git;"
    "mv ../c/.git .git",
    "a replaced commit": "git replace HEAD $(git commit-tree -m x 'HEAD^{tree}')",
    "a submodule": "git init -q ../m; (cd ../m; echo m > m; git add m; git commit -qm m);"
    "git -c protocol.file.allow=always submodule -q add ../m sub; git commit -qm s",
    "a large history of refs": "for i in 1 2 3 4 5; do git branch b$i; done; git pack-refs --all",
    "a symbolic branch": "git symbolic-ref refs/heads/alias refs/heads/main; git symbolic-ref HEAD refs/heads/alias",
    "an empty config": ": > .git/config",
    "CRLF in .git files": "printf '[core]\\r\\n\\tbare = false\\r\\n' > .git/config",
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_every_shape_is_saved_and_compared(repo: Repo, open_git: Opens, shape: str) -> None:
    repo.sh(shape)
    workspace = open_git(repo)
    before = workspace.begin("r")
    assert before.head == repo.git("rev-parse", "HEAD")
    repo.write("src/f1", "edited")
    repo.write("fresh", "new")
    after = workspace.save("r", "1")
    change = workspace.change(before, after)
    assert change.paths == ("fresh", "src/f1")
    assert not change.committed
    assert not change.rewritten
    assert repo.blob(after.id, "fresh") == b"new"
    repo.sh("git add -A . && git commit -qm 1 && git commit -q --allow-empty -m 2")
    committed = workspace.change(after, workspace.save("r", "2"))
    assert (committed.committed, committed.rewritten, committed.known) == (True, False, True)


@pytest.mark.parametrize("wide", [False, True], ids=["sha1", "sha256"])
def test_a_repository_without_commits(make_repo: Callable[..., Repo], open_git: Opens, wide: bool) -> None:
    repo = make_repo(*(["--object-format=sha256"] if wide else []), first=False)
    workspace = open_git(repo)
    empty = workspace.begin("r")
    assert empty.head is None
    assert repo.files(empty.id) == set()
    repo.write("a/b", "x")
    after = workspace.save("r", "1")
    change = workspace.change(empty, after)
    assert (change.paths, change.committed) == (("a/b",), False)
    assert repo.git("rev-list", "--parents", str(after.id)) == after.id
    repo.sh("git add a && git commit -qm first")
    last = workspace.save("r", "2")
    moved = workspace.change(after, last)
    assert (moved.paths, moved.committed, moved.rewritten, moved.is_empty) == ((), True, False, False)
    assert workspace.restore(empty, last) == ("a/b",)
    repo.git("fsck", "--strict")


def test_a_sha256_repository_works_throughout(make_repo: Callable[..., Repo], open_git: Opens) -> None:
    repo = make_repo("--object-format=sha256")
    workspace = open_git(repo)
    before = workspace.begin("r")
    assert before.id
    assert len(before.id) == 64
    repo.write("src/f1", "x")
    after = workspace.save("r", "1")
    assert workspace.change(before, after).paths == ("src/f1",)
    assert b"+x" in workspace.diff(before, after)
    assert workspace.restore(before, after) == ("src/f1",)
    repo.git("fsck", "--strict")


def test_refs_that_are_no_files_are_left_to_git(repo: Repo, open_git: Opens) -> None:
    workspace = open_git(repo)
    folders = git_folders(str(repo.path))
    assert folders
    workspace._index.folders = replace(folders, ref_files=False)
    repo.write(".git/hooks/reference-transaction", "#!/bin/sh\ntouch ~/ran\n").chmod(0o755)
    before = workspace.begin("r")
    repo.sh("echo x > src/f1; git commit -qam x")
    (repo.home / "ran").unlink()
    after = workspace.save("r", "1")
    assert workspace.change(before, after).committed
    assert not (repo.home / "ran").exists()
    assert repo.git("rev-parse", "refs/ralph/r/1") == after.id


def test_a_linked_worktree_shares_objects_and_keeps_its_own_head(repo: Repo, open_git: Opens) -> None:
    repo.git("worktree", "add", "-q", "-b", "side", "../side")
    side = repo.base / "side"
    workspace = open_git(repo, side)
    before = workspace.begin("r")
    (side / "src/f1").write_text("x")
    subprocess.run(["git", "commit", "-qam", "side"], cwd=side, env=repo.environ, check=True)
    after = workspace.save("r", "1")
    change = workspace.change(before, after)
    assert (change.paths, change.committed, change.rewritten) == (("src/f1",), True, False)
    assert repo.git("rev-parse", "refs/ralph/r/1") == after.id
    assert repo.git("rev-parse", "HEAD") == before.head != after.head


def test_work_inside_a_submodule_is_saved_as_files(repo: Repo, open_git: Opens) -> None:
    repo.sh(SHAPES["a submodule"])
    workspace = open_git(repo)
    before = workspace.begin("r")
    assert repo.blob(before.id, "sub/m") == b"m\n"
    repo.write("sub/m", "edited")
    repo.write("sub/new", "new")
    after = workspace.save("r", "1")
    assert workspace.change(before, after).paths == ("sub/m", "sub/new")
    assert workspace.restore(before, after) == ("sub/m", "sub/new")


REWRITES = {
    "amend": "git commit -q --amend -m other",
    "reset": "git reset -q --hard HEAD~1",
    "orphan": "git checkout -q --orphan empty",
    "branch deleted": "git checkout -q --detach HEAD~1; git branch -qD main",
    "another root": "git checkout -q --orphan o; git commit -qm o",
    "ref deleted": "rm .git/refs/heads/main",
    "HEAD names an object that is not there": "echo 1111111111111111111111111111111111111111 > .git/refs/heads/main",
    "a new repository": "rm -rf .git; git init -q; git add -A; git commit -qm again",
    "no repository": "rm -rf .git",
    "amended and pruned": "git commit -q --amend -m other; git reflog expire --expire=now --all;"
    "git for-each-ref --format='delete %(refname)' refs/ralph | git update-ref --stdin; git gc -q --prune=now",
}


@pytest.mark.parametrize("rewrite", REWRITES.values(), ids=REWRITES)
def test_rewritten_history_is_seen(repo: Repo, open_git: Opens, rewrite: str) -> None:
    repo.sh("echo 2 >> src/f1; git commit -qam second")
    workspace = open_git(repo)
    before = workspace.begin("r")
    repo.sh(rewrite)
    change = workspace.change(before, workspace.save("r", "1"))
    assert change.rewritten
    assert not change.is_empty


FORWARD = {
    "commit": "git commit -q --allow-empty -m x",
    "many commits": "for i in 1 2 3; do git commit -q --allow-empty -m $i; done",
    "a new branch": "git checkout -qb new; git commit -q --allow-empty -m x",
    "a merge": "git checkout -qb s HEAD~1; git commit -q --allow-empty -m s; git checkout -q main; git merge -q s -m m",
}


@pytest.mark.parametrize("forward", FORWARD.values(), ids=FORWARD)
def test_history_that_only_grows_is_not_rewritten(repo: Repo, open_git: Opens, forward: str) -> None:
    repo.sh("echo 2 >> src/f1; git commit -qam second")
    workspace = open_git(repo)
    before = workspace.begin("r")
    repo.sh(forward)
    change = workspace.change(before, workspace.save("r", "1"))
    assert (change.committed, change.rewritten, change.known) == (True, False, True)


BROKEN = {
    "no .git": "rm -rf .git",
    ".git moved away": "mv .git ../moved",
    "HEAD gone": "rm .git/HEAD",
    "HEAD is garbage": "echo garbage > .git/HEAD",
    "HEAD is a FIFO": "rm .git/HEAD; mkfifo .git/HEAD",
    "objects are a file": "rm -rf .git/objects; echo > .git/objects",
    "our refs are a file": "rm -rf .git/refs/ralph; echo > .git/refs/ralph",
    "our refs are a link": "rm -rf .git/refs/ralph; mkdir -p ../out; ln -s $PWD/../out .git/refs/ralph",
}


@pytest.mark.parametrize("breakage", BROKEN.values(), ids=BROKEN)
def test_a_broken_repository_is_unknown_never_unchanged(repo: Repo, open_git: Opens, breakage: str) -> None:
    workspace = open_git(repo)
    before = workspace.begin("r")
    repo.write("src/f1", "x")
    repo.sh(breakage)
    after = workspace.save("r", "1")
    assert after.id is None
    assert after.problem
    assert not workspace.change(before, after).known


def test_saving_goes_on_once_the_repository_is_whole_again(repo: Repo, open_git: Opens) -> None:
    workspace = open_git(repo)
    before = workspace.begin("r")
    repo.sh("mv .git ../away")
    assert workspace.save("r", "1").id is None
    repo.sh("mv ../away .git; echo x > src/f1")
    assert workspace.change(before, workspace.save("r", "2")).paths == ("src/f1",)


def test_a_new_repository_in_the_old_place_saves_everything_again(repo: Repo, open_git: Opens) -> None:
    workspace = open_git(repo)
    workspace.begin("r")
    repo.sh("rm -rf .git; git init -q; git add -A; git commit -qm again; echo x > src/f1")
    saved = workspace.save("r", "1")
    assert saved.id
    assert repo.blob(saved.id, "src/f2") == b"2\n"
    repo.git("fsck", "--strict")


def test_a_lock_left_by_a_crash_does_not_block_our_refs(
    repo: Repo, open_git: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_objects, "LOCK_WAIT_S", 0.05)
    workspace = open_git(repo)
    workspace.begin("r")
    repo.write(".git/refs/ralph/r/1.lock", "")
    assert workspace.save("r", "1").id


def test_a_dead_helper_process_is_replaced(repo: Repo, open_git: Opens) -> None:
    workspace = open_git(repo)
    before = workspace.begin("r")
    repo.write("src/f1", "x")
    workspace.save("r", "1")
    batch = workspace._objects._cat_file
    assert batch
    os.kill(batch[2], 9)
    repo.write("src/f2", "x")
    workspace._trees.clear_cache()
    seen = [workspace.save("r", "2"), workspace.save("r", "3")]
    assert workspace.change(before, seen[1]).paths == ("src/f1", "src/f2")


def test_closing_ends_the_helper_process(repo: Repo, open_git: Opens) -> None:
    workspace = open_git(repo)
    workspace.change(workspace.begin("r"), workspace.save("r", "1"))
    batch = workspace._objects._cat_file
    assert batch
    workspace.close()
    with pytest.raises(ProcessLookupError):
        os.kill(batch[2], 0)
    workspace.close()


def test_a_fifo_that_git_would_wait_for_makes_the_state_unknown(
    repo: Repo, open_git: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = open_git(repo)
    before = workspace.begin("r")
    monkeypatch.setattr(private_index, "TIMEOUT_S", 0.5)
    os.mkfifo(repo.path / "src" / ".gitignore")
    after = workspace.save("r", "1")
    assert "in time" in after.problem
    assert not workspace.change(before, after).known
    (repo.path / "src" / ".gitignore").unlink()
    assert workspace.change(before, workspace.save("r", "2")).is_empty


def test_files_that_were_only_touched_are_read_once(
    repo: Repo, open_git: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = open_git(repo)
    before = workspace.begin("r")
    for file in (repo.path / "src").iterdir():
        os.utime(file, (1, 1))
    monkeypatch.setattr(private_index, "SLOW_LISTING_S", -1000.0)
    assert workspace.change(before, workspace.save("r", "1")).is_empty
    private = {"GIT_DIR": str(repo.base / "private"), "GIT_OBJECT_DIRECTORY": str(repo.path / ".git/objects")}
    environ = repo.environ | private | {"GIT_WORK_TREE": str(repo.path)}
    told = subprocess.run(["git", "diff-files"], cwd=repo.path, env=environ, check=True, capture_output=True)
    assert told.stdout == b""
    repo.write("src/f1", "x")
    assert workspace.change(before, workspace.save("r", "2")).paths == ("src/f1",)


def test_losing_the_objects_that_we_build_on_is_noticed(repo: Repo, open_git: Opens) -> None:
    workspace = open_git(repo)
    workspace.begin("r")
    repo.write("src/f1", "x")
    workspace.save("r", "1")
    repo.sh("git update-ref -d refs/ralph/r/0; git reflog expire --expire=now --all; git gc -q --prune=now")
    repo.write("src/f1", "y")
    saved = workspace.save("r", "2")
    assert saved.id
    repo.git("fsck", "--strict", "--no-dangling")
    assert repo.blob(saved.id, "src/f1") == b"y"


def test_a_full_disk_is_told_apart(repo: Repo, open_git: Opens, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)]
    mounted = os.getuid() == 0 and subprocess.run(mount, capture_output=True).returncode == 0
    require(mounted, "root may mount a small disk")
    try:
        shutil.copytree(repo.path / ".git", small / "g")
        shutil.rmtree(repo.path / ".git")
        repo.write(".git", f"gitdir: {small}/g\n")
        workspace = open_git(repo)
        workspace.begin("r")
        repo.write("big", os.urandom(3 << 20))
        with pytest.raises(DiskFull):
            workspace.save("r", "1")
        with pytest.raises(DiskFull):
            workspace.begin("r2")
        repo.write("big", "small")
        assert workspace.save("r", "2").id
        assert not [name for name in os.listdir(small / "g/objects") if name.startswith("tmp_obj_ralph")]
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_files_that_vanish_or_change_meanwhile_never_break_a_save(repo: Repo, open_git: Opens) -> None:
    workspace = open_git(repo)
    workspace.begin("r")
    stop = threading.Event()

    def churn() -> None:
        shuffle = random.Random(1)
        while not stop.is_set():
            path = repo.path / "churn" / str(shuffle.randrange(20))
            path.parent.mkdir(exist_ok=True)
            if path.is_symlink() or path.is_file():
                path.unlink()
            elif path.is_dir():
                path.rmdir()
            match shuffle.randrange(4):
                case 0:
                    path.write_bytes(b"x" * shuffle.randrange(100_000))
                case 1:
                    path.symlink_to("nowhere")  # git itself may follow a link that just was a folder
                case 2:
                    path.mkdir()
                case _:
                    pass

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        saves = [workspace.save("r", str(number)) for number in range(1, 15)]
        begins = [workspace.begin(f"again{number}") for number in range(3)]
    finally:
        stop.set()
        thread.join()
    assert [save.problem for save in saves + begins] == [""] * 17
    quiet = workspace.save("r", "99")
    assert {path for path in repo.files(quiet.id) if path.startswith("churn/")} == {
        f"churn/{path.name}" for path in (repo.path / "churn").iterdir() if path.is_symlink() or path.is_file()
    }
    repo.git("fsck", "--strict", "--no-dangling")


@pytest.mark.parametrize("seed", range(12))
def test_random_trees_are_what_git_itself_would_save(repo: Repo, open_git: Opens, seed: int) -> None:
    rng = random.Random(seed)
    names = ["a", "b", "a.b", "a-b", "A", "ab", "é", "z z"]
    workspace = open_git(repo)
    workspace.begin("r")

    def path() -> Path:
        return repo.path.joinpath(*(rng.choice(names) for _ in range(rng.randint(1, 3))))

    for number in range(1, 7):
        for _ in range(rng.randint(1, 25)):
            act(rng, path())
        saved = workspace.save("r", str(number))
        index = repo.environ | {"GIT_INDEX_FILE": str(repo.base / "check")}
        (repo.base / "check").unlink(missing_ok=True)
        subprocess.run(["git", "add", "-A"], cwd=repo.path, env=index, check=True)
        theirs = subprocess.run(["git", "write-tree"], cwd=repo.path, env=index, check=True, capture_output=True)
        assert saved.tree == theirs.stdout.decode().strip()
        if rng.random() < 0.3:
            repo.git("add", "-A")
            repo.git("commit", "-q", "--allow-empty", "-m", "x")


def act(rng: random.Random, path: Path) -> None:
    """One random thing that can happen to a file; what is impossible does nothing."""
    try:
        match rng.randrange(6):
            case 0 | 1:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(rng.randbytes(rng.randrange(40)))
            case 2:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            case 3:
                path.chmod(rng.choice([0o644, 0o755]))
            case 4:
                path.symlink_to(rng.choice(["a", "b/c", "missing/c"]))
            case _:
                path.rename(path.with_name(rng.choice(["a", "b", "moved"])))
    except OSError:
        return


def test_a_folder_without_git_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="git repository"):
        GitWorkspace(str(tmp_path), str(tmp_path / "private"))
