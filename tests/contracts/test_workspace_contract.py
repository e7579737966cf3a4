"""What every workspace promises, over every kind of workspace."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

import pytest

from ralphproof.base.errors import HarnessFailed, WorkspaceGone
from ralphproof.base.value import pack, unpack
from ralphproof.engine.workspace import Snapshot, Workspace
from ralphproof.workspace.git_workspace import GitWorkspace
from ralphproof.workspace.plain_workspace import PlainWorkspace
from tests.needs import require

ODD_NAMES = ["plain", "-dash", "a b", "new\nline", "quo\"te's", "\udcff.py", "ünï", "*?[x]", "deep/er/file", "\\back"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "it's a \n project ☃"
    folder.mkdir()
    (folder / "kept").write_text("kept\n")
    (folder / "gone").write_text("gone\n")
    (folder / "edited").write_text("one\ntwo\nthree\n")
    return folder


@pytest.fixture(params=["git", "plain"])
def opens(request: pytest.FixtureRequest, root: Path, tmp_path: Path) -> Iterator[Callable[[], Workspace]]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    if request.param == "git":
        subprocess.run(["git", "init", "-q", "."], cwd=root, env=environ, check=True)
    opened: list[Workspace] = []

    def opening() -> Workspace:
        private = str(tmp_path / "private")
        opened.append(
            GitWorkspace(str(root), private, environ) if request.param == "git" else PlainWorkspace(str(root), private)
        )
        return opened[-1]

    yield opening
    for workspace in opened:
        workspace.close()


@pytest.fixture
def workspace(opens: Callable[[], Workspace]) -> Workspace:
    return opens()


def work(root: Path) -> None:
    (root / "edited").write_text("one\n2\nthree\n")
    (root / "gone").unlink()
    (root / "sub").mkdir()
    (root / "sub" / "new").write_bytes(b"\0\1binary")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "link").symlink_to("/etc/passwd")


WORKED = ("edited", "gone", "link", "run.sh", "sub/new")


def listing(root: Path) -> dict[str, tuple[int, bytes]]:
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            if "/.git/" not in path:
                content = os.fsencode(os.readlink(path)) if os.path.islink(path) else Path(path).read_bytes()
                mode = os.lstat(path).st_mode
                found[os.path.relpath(path, root)] = (stat.S_IFMT(mode) | mode & 0o111, content)
    return found


def test_a_change_names_every_path_once(workspace: Workspace, root: Path) -> None:
    before = workspace.begin("r")
    work(root)
    after = workspace.save("r", "1")
    change = workspace.change(before, after)
    assert change.paths == WORKED
    assert change.known
    assert change.tree == after.tree
    assert not change.is_empty
    assert workspace.change(after, before).paths == WORKED


def test_what_was_touched_before_the_turn_is_not_the_turns(workspace: Workspace, root: Path) -> None:
    before = workspace.begin("run")
    (root / "report.xml").write_text("written by a check")
    (root / "gone").unlink()
    until_clock_moves(root)
    workspace.mark_iteration_start()
    idle = workspace.change(before, workspace.save("run", "1"))
    assert (idle.paths, idle.older) == (("gone", "report.xml"), ("gone", "report.xml"))
    assert idle.is_empty
    (root / "report.xml").write_text("written by the agent")
    busy = workspace.change(before, workspace.save("run", "2"))
    assert busy.older == ("gone",)
    assert not busy.is_empty


def test_another_process_knows_when_the_turn_began(opens: Callable[[], Workspace], root: Path) -> None:
    first = opens()
    before = first.begin("run")
    (root / "report.xml").write_text("written by a check")
    until_clock_moves(root)
    first.mark_iteration_start()
    until_clock_moves(root)
    first.has_activity()  # to look on moves nothing
    (root / "edited").write_text("written by the agent")
    second = opens()
    assert second.change(before, second.save("run", "1")).older == ("report.xml",)


def test_what_was_touched_after_an_instant_is_told_from_the_rest(workspace: Workspace, root: Path) -> None:
    workspace.begin("run")
    (root / "edited").write_text("written by the agent")
    (root / "sub").mkdir()
    (root / "sub" / "new").write_text("this too")
    stamp = root.parent / "ended"
    stamp.write_text("")
    until_clock_moves(root)
    (root / "kept").write_text("written by the user")
    (root / "gone").unlink()
    (root / "sub" / ".ralph-put-0").write_text("ours, left by one who died")
    paths = ("edited", "gone", "kept", "sub/.ralph-put-0", "sub/new")
    assert workspace.changed_since(paths, stamp.stat().st_mtime_ns) == ("gone", "kept")


def test_what_another_process_saved_is_found_by_its_name(opens: Callable[[], Workspace], root: Path) -> None:
    first = opens()
    first.begin("run")
    work(root)
    saved = first.save("run", "1-checked")
    found = opens().find_snapshot("run", "1-checked")
    assert found is not None
    assert (found.id, found.tree, found.head) == (saved.id, saved.tree, saved.head)
    assert opens().find_snapshot("run", "2-checked") is None


def test_a_file_that_somebody_was_putting_back_when_they_died_leaves_nothing(workspace: Workspace, root: Path) -> None:
    before = workspace.begin("run")
    (root / "edited").write_text("changed")
    (root / f".ralph-put-{crc32(b'edited'):08x}").write_text("half of it")
    workspace.restore(before, workspace.save("run", "1"))
    assert (root / "edited").read_text() == "one\ntwo\nthree\n"
    assert not list(root.glob(".ralph-put-*"))


def test_activity_is_reported_while_files_change(workspace: Workspace, root: Path) -> None:
    workspace.begin("run")
    workspace.mark_iteration_start()
    (root / "deep").mkdir()
    (root / "deep" / "new").write_text("x")
    until_clock_moves(root)
    assert [workspace.has_activity(), workspace.has_activity()] == [True, False]
    (root / "deep" / "new").write_text("y")
    assert workspace.has_activity()


def until_clock_moves(root: Path) -> None:
    """The clock that stamps files ticks every few milliseconds; let it tick, outside of the root."""
    beside = root.parent / "beside"
    beside.write_text("")
    start = beside.stat().st_ctime_ns
    while beside.stat().st_ctime_ns <= start:
        beside.write_text("")


def test_two_snapshots_without_work_do_not_differ(workspace: Workspace, root: Path) -> None:
    work(root)
    before = workspace.begin("r")
    after = workspace.save("r", "1")
    assert workspace.change(before, after).is_empty
    assert after.tree == before.tree


def test_a_touched_file_is_not_changed(workspace: Workspace, root: Path) -> None:
    before = workspace.begin("r")
    os.utime(root / "kept", (1, 1))
    (root / "edited").write_text("one\ntwo\nthree\n")
    assert workspace.change(before, workspace.save("r", "1")).is_empty


def test_restoring_brings_back_bytes_modes_and_links(workspace: Workspace, root: Path) -> None:
    before, was = workspace.begin("r"), listing(root)
    work(root)
    after, worked = workspace.save("r", "1"), listing(root)
    assert workspace.restore(before, after) == WORKED
    assert listing(root) == was
    assert not (root / "sub").exists()
    assert workspace.restore(after, before) == WORKED
    assert listing(root) == worked
    assert workspace.restore(after, after) == ()


def test_another_process_can_compare_and_restore(opens: Callable[[], Workspace], root: Path) -> None:
    first = opens()
    before, was = first.begin("r"), listing(root)
    work(root)
    after = first.save("r", "1")
    second = opens()
    assert second.change(before, after).paths == WORKED
    second.restore(before, after)
    assert listing(root) == was


def test_a_restore_never_follows_a_link_out_of_the_root(workspace: Workspace, root: Path, tmp_path: Path) -> None:
    (root / "folder").mkdir()
    (root / "folder" / "file").write_text("mine")
    before = workspace.begin("r")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("theirs")
    (root / "folder" / "file").unlink()
    (root / "folder").rmdir()
    (root / "folder").symlink_to(outside)
    after = workspace.save("r", "1")
    assert workspace.restore(before, after) == ("folder", "folder/file")
    assert (outside / "file").read_text() == "theirs"
    assert (root / "folder" / "file").read_text() == "mine"
    assert not (root / "folder").is_symlink()


def test_a_link_that_appears_before_a_restore_is_not_followed(workspace: Workspace, root: Path, tmp_path: Path) -> None:
    (root / "folder").mkdir()
    (root / "folder" / "file").write_text("mine")
    before = workspace.begin("r")
    (root / "folder" / "file").write_text("changed")
    after = workspace.save("r", "1")
    (tmp_path / "outside").mkdir()
    (root / "folder").rename(tmp_path / "away")
    (root / "folder").symlink_to(tmp_path / "outside")
    with pytest.raises(HarnessFailed, match="folder/file"):
        workspace.restore(before, after)
    assert list((tmp_path / "outside").iterdir()) == []


def test_an_edit_of_the_same_size_with_times_put_back_is_seen(workspace: Workspace, root: Path) -> None:
    last = workspace.begin("r")
    for number, text in enumerate(["gon1\n", "gon2\n", "gon3\n"], start=1):
        state = (root / "gone").stat()
        (root / "gone").write_text(text)
        os.utime(root / "gone", ns=(state.st_atime_ns, state.st_mtime_ns))
        now = workspace.save("r", str(number))
        assert workspace.change(last, now).paths == ("gone",)
        last = now


def test_a_file_that_grew_too_large_is_not_overwritten(workspace: Workspace, root: Path) -> None:
    before = workspace.begin("r")
    with open(root / "kept", "wb") as file:
        file.truncate(50 * 1024 * 1024 + 1)
    after = workspace.save("r", "1")
    assert workspace.change(before, after).paths == ("kept",)
    assert workspace.restore(before, after) == ()
    assert (root / "kept").stat().st_size > 50 * 1024 * 1024


def test_a_failed_restore_is_reported(workspace: Workspace, root: Path, tmp_path: Path) -> None:
    before = workspace.begin("r")
    (root / "gone").unlink()
    after = workspace.save("r", "1")
    (root / "gone").mkdir()
    (root / "gone" / "in the way").write_text("x")
    with pytest.raises(HarnessFailed, match="gone"):
        workspace.restore(before, after)
    assert (root / "gone" / "in the way").read_text() == "x"


def test_a_private_file_stays_private_when_put_back(workspace: Workspace, root: Path) -> None:
    (root / "kept").chmod(0o600)
    before = workspace.begin("r")
    (root / "kept").write_text("other")
    workspace.restore(before, workspace.save("r", "1"))
    assert stat.S_IMODE((root / "kept").stat().st_mode) == 0o600


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_round_trip(workspace: Workspace, root: Path, name: str) -> None:
    before = workspace.begin("r")
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text("x")
    after = workspace.save("r", "1")
    change = workspace.change(before, after)
    assert change.paths == (name,)
    assert unpack(pack(change)) == change
    assert workspace.restore(before, after) == (name,)
    assert not (root / name).exists()
    workspace.restore(after, before)
    assert (root / name).read_text() == "x"


def test_our_own_files_are_not_part_of_the_tree(workspace: Workspace, root: Path) -> None:
    before = workspace.begin("r")
    (root / ".ralph" / "runs").mkdir(parents=True)
    (root / ".ralph" / "runs" / "log").write_text("x")
    (root / ".ralph-active").write_text("x")
    assert workspace.change(before, workspace.save("r", "1")).is_empty


def test_a_large_file_is_left_out_named_and_untouched(workspace: Workspace, root: Path) -> None:
    before = workspace.begin("r")
    with open(root / "large", "wb") as file:
        file.truncate(50 * 1024 * 1024 + 1)
    after = workspace.save("r", "1")
    assert after.left_out == ("large",)
    assert after.problem == ""
    assert workspace.change(before, after).paths == ("large",)
    assert workspace.restore(before, after) == ()
    assert (root / "large").exists()


def test_fifos_and_sockets_are_skipped(workspace: Workspace, root: Path) -> None:
    before = workspace.begin("r")
    os.mkfifo(root / "fifo")
    (root / "kept").unlink()
    os.mkfifo(root / "kept")
    change = workspace.change(before, workspace.save("r", "1"))
    assert change.paths == ("kept",)
    assert change.known


def test_the_patch_shows_the_change(workspace: Workspace, root: Path) -> None:
    before = workspace.begin("r")
    work(root)
    patch = workspace.diff(before, workspace.save("r", "1"))
    assert b"\n-two\n+2\n" in patch
    assert b"deleted file mode" in patch
    assert b"sub/new" in patch
    assert workspace.diff(before, before) == b""


def test_a_patch_can_be_applied(workspace: Workspace, root: Path, tmp_path: Path) -> None:
    (root / "edited").write_bytes(b"a\rb\nno newline")
    before = workspace.begin("r")
    (root / "edited").write_bytes(b"a\rb\nother\x0cend")
    (root / "gone").unlink()
    after = workspace.save("r", "1")
    patch = tmp_path / "patch"
    patch.write_bytes(workspace.diff(before, after))
    workspace.restore(before, after)
    environ = {"PATH": os.environ["PATH"], "GIT_CEILING_DIRECTORIES": str(tmp_path), "HOME": str(tmp_path)}
    subprocess.run(["git", "apply", str(patch)], cwd=root, check=True, env=environ)
    assert workspace.change(after, workspace.save("r", "2")).is_empty


def test_the_log_is_empty_where_there_is_no_history(workspace: Workspace) -> None:
    workspace.begin("r")
    assert workspace.log(5) == ()


def test_the_log_has_the_last_commits_newest_first(workspace: Workspace, root: Path, tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    who = ["-c", "user.name=U", "-c", "user.email=u@example.com"]
    for text in ("first\n\nmore", "second", "third ☃"):
        if workspace.kind == "git":
            argv = ["git", *who, "commit", "-q", "--allow-empty", "-m", text]
            subprocess.run(argv, cwd=root, env=environ, check=True)
    told = [line.partition(" ")[2] for line in workspace.log(2)]
    assert told == (["third ☃", "second"] if workspace.kind == "git" else [])
    assert [len(workspace.log(lines)) for lines in (0, -1, 9)] == ([0, 0, 3] if told else [0, 0, 0])


def test_a_deleted_root_is_gone(workspace: Workspace, root: Path, tmp_path: Path) -> None:
    workspace.begin("r")
    root.rename(tmp_path / "elsewhere")
    with pytest.raises(WorkspaceGone):
        workspace.save("r", "1")


def test_an_unknown_snapshot_proves_nothing(workspace: Workspace, root: Path) -> None:
    before = workspace.begin("r")
    unknown = Snapshot(None, None, problem="no")
    for change in (workspace.change(before, unknown), workspace.change(unknown, before)):
        assert not change.known
        assert not change.is_empty
    with pytest.raises(HarnessFailed):
        workspace.restore(unknown, before)


@pytest.mark.parametrize("word", ["", "a/b", "..", "a..b", "-x", ".x", "x.lock", "a b", "~"])
def test_a_name_that_could_leave_our_refs_is_refused(workspace: Workspace, word: str) -> None:
    with pytest.raises(ValueError, match="cannot be part of a ref"):
        workspace.save("r", word)
    with pytest.raises(ValueError, match="cannot be part of a ref"):
        workspace.begin(word)


def test_saving_under_the_same_name_again_replaces(workspace: Workspace, root: Path) -> None:
    workspace.begin("r")
    first = workspace.save("r", "1")
    (root / "kept").write_text("more")
    second = workspace.save("r", "1")
    assert workspace.change(first, second).paths == ("kept",)


def test_no_descriptor_leaks_to_what_is_started_next(workspace: Workspace, root: Path) -> None:
    before = workspace.begin("r")
    work(root)
    workspace.change(before, workspace.save("r", "1"))
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        if descriptor > 2 and os.path.exists(f"/proc/self/fd/{name}"):
            assert not os.get_inheritable(descriptor)


UNREADABLE = """
import os, sys
from ralphproof.workspace.git_workspace import GitWorkspace
from ralphproof.workspace.plain_workspace import PlainWorkspace
kind, root, private = sys.argv[1:]
env = {"PATH": os.environ["PATH"]}
workspace = GitWorkspace(root, private, env) if kind == "git" else PlainWorkspace(root, private)
before = workspace.begin("r")
assert before.left_out == ("always",), before
assert workspace.change(before, workspace.save("r", "1")).is_empty
os.chmod(root + "/edited", 0)
after = workspace.save("r", "2")
assert "edited" in after.problem, after
change = workspace.change(before, after)
assert not change.known, change
assert not change.is_empty
os.chmod(root + "/edited", 0o644)
again = workspace.save("r", "3")
assert workspace.change(before, again).is_empty, workspace.change(before, again)
os.mkdir(root + "/shut")
open(root + "/shut/in", "w").close()
os.chmod(root + "/shut", 0)
assert not workspace.change(again, workspace.save("r", "4")).known
os.chmod(root + "/shut", 0o755)
workspace.close()
"""


@pytest.mark.parametrize("kind", ["git", "plain"])
def test_an_unreadable_file_makes_the_change_unknown(kind: str) -> None:
    require(os.getuid() == 0, "only root can become another user")
    with tempfile.TemporaryDirectory(dir="/tmp") as base:  # pytest's own folders are closed to other users
        root = Path(base) / "root"
        root.mkdir()
        (root / "edited").write_text("x")
        (root / "always").write_text("secret")
        (root / "always").chmod(0)
        if kind == "git":
            subprocess.run(["git", "init", "-q", "."], cwd=root, check=True)
        for folder, _, names in os.walk(base):
            for name in [".", *names]:
                os.chown(os.path.join(folder, name), 65534, 65534)
        argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", sys.executable, "-c", UNREADABLE]
        ran = subprocess.run([*argv, kind, str(root), f"{base}/private"], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
