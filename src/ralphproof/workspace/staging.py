"""Selection of the changes of a run that go into a commit, and the temporary index that stages them."""

from __future__ import annotations

import os

from ralphproof.base.programs import ProgramResult
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.workspace.git_objects import decode_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

    from ralphproof.engine.workspace import Snapshot

    RunGit = Callable[..., ProgramResult]  # raises where git fails


# The changes of a run that go into the user's commit: not the user's own work in progress.


RAW_DIFF_COMMAND = ("diff-tree", "-r", "-z", "--no-renames", "--raw", "--full-index", "--no-ext-diff", "--no-textconv")


@value
class StagingPlan:
    """Paths to add, paths to remove, and changes of the run that are left out."""

    add: tuple[bytes, ...]
    remove: tuple[bytes, ...]
    left_out: tuple[str, ...]


@value
class RawChange:
    """One line of `git diff-tree --raw`."""

    path: bytes
    old_mode: bytes
    new_mode: bytes
    old: str
    new: str

    @property
    def index_line(self) -> bytes:
        """As input of `git update-index --index-info`."""
        mode = b"0" if self.new_mode == b"000000" else self.new_mode
        return b"%s %s 0\t%s\0" % (mode, self.new.encode(), self.path)


def list_raw_changes(ask: RunGit, before: str, after: str) -> list[RawChange]:
    """Every file that differs between two trees or commits."""
    fields = ask(*RAW_DIFF_COMMAND, before, after).out.split(b"\0")
    changes = []
    for about, path in zip(fields[::2], fields[1::2], strict=False):
        old_mode, new_mode, old, new, _ = about.lstrip(b":").split(b" ")
        changes.append(RawChange(path, old_mode, new_mode, old.decode(), new.decode()))
    return changes


def choose_staged_paths(
    ask: RunGit, root: str, began: Snapshot, now: Snapshot, empty: str, staged: frozenset[str],
    ours: frozenset[str] = frozenset(),
) -> StagingPlan:  # fmt: skip
    """The paths to stage. A path that the user had changed, staged or flagged before the run is left out.

    Files of `ours` are always staged: we may have written them after the snapshot.
    """
    if began.tree is None or now.tree is None:
        return StagingPlan((), (), ())
    run, moved = list_raw_changes(ask, began.tree, now.tree), now.head not in (None, began.head)
    old = list_raw_changes(ask, began.head or empty, began.tree) if run or moved else []
    dirty = {change.path: change for change in old}
    run += _reverted_changes(ask, root, now, {*dirty, *(change.path for change in run)}, staged) if moved else []
    flagged = flagged_paths(ask) if run or ours else set()
    add: list[bytes] = []
    remove: list[bytes] = []
    left: list[str] = []
    for change in run:
        path = change.path
        theirs = decode_path(path) in staged or (path in dirty and not _is_same_after_filters(ask, dirty[path]))
        if (theirs and decode_path(path) not in ours) or path in flagged or is_in_nested_repository(root, path):
            left.append(decode_path(path))
        else:
            (remove if change.new_mode == b"000000" else add).append(path)
    known = {change.path for change in run} | flagged
    add += [path for path in map(os.fsencode, sorted(ours)) if path not in known and _is_file(root, path)]
    ignored = git_ignored_paths(ask, add)
    return StagingPlan(tuple(path for path in add if path not in ignored), tuple(remove), tuple(left))


def _is_file(root: str, path: bytes) -> bool:
    return os.path.isfile(os.path.join(os.fsencode(root), path)) and not is_in_nested_repository(root, path)


def _reverted_changes(
    ask: RunGit, root: str, now: Snapshot, known: set[bytes], staged: frozenset[str]
) -> list[RawChange]:
    """Changes that an agent committed and that were reverted since: its commit is not the result of the run."""
    uncommitted = [
        change for change in list_raw_changes(ask, now.head or "", now.tree or "") if not _is_unsaved(root, change)
    ]
    return [change for change in uncommitted if change.path not in known and decode_path(change.path) not in staged]


def _is_unsaved(root: str, change: RawChange) -> bool:
    """Whether a file is missing in the snapshot only, since our own and ignored files are not saved."""
    return change.new_mode == b"000000" and os.path.lexists(os.path.join(os.fsencode(root), change.path))


def _is_same_after_filters(ask: RunGit, change: RawChange) -> bool:
    """Whether a file whose bytes differ is stored by git as the same blob (line endings, LFS)."""
    if change.old_mode != change.new_mode or change.new_mode not in (b"100644", b"100755"):
        return False
    content = ask("cat-file", "blob", change.new).out
    object_id = ask("hash-object", "--stdin", f"--path={os.fsdecode(change.path)}", stdin=content).out
    return object_id.strip().decode() == change.old


def flagged_paths(ask: RunGit) -> set[bytes]:
    """Paths that the user marked skip-worktree or assume-unchanged."""
    records = ask("ls-files", "-z", "-v").out.split(b"\0")
    return {record[2:] for record in records if record and (record[:1] == b"S" or record[:1].islower())}


def is_in_nested_repository(root: str, path: bytes) -> bool:
    """Whether the path lies in a repository below the root."""
    folder = os.path.dirname(path)
    while folder:
        if os.path.lexists(os.path.join(os.fsencode(root), folder, b".git")):
            return True
        folder = os.path.dirname(folder)
    return False


def git_ignored_paths(ask: RunGit, paths: Iterable[bytes]) -> set[bytes]:
    """Those of the paths that ignore rules keep out of commits; tracked paths are not among them.

    `git check-ignore` knows no literal pathspecs, so each path is written such that it is no pattern.
    """
    patterns = {b"./" + path: path for path in paths}
    if not patterns:
        return set()
    words = ("--no-literal-pathspecs", "check-ignore", "-z", "--stdin")
    reply = ask(*words, stdin=b"".join(path + b"\0" for path in patterns), good=(0, 1))
    return {patterns[path] for path in reply.out.split(b"\0") if path in patterns}


INDEX_PREFIX = "ralph-index-"  # the number of the process that made it follows


class TemporaryIndex:
    """A temporary copy of the user's index, for one commit. Copies of dead processes are removed first."""

    def __init__(self, git_dir: str) -> None:
        self._git_dir = git_dir
        self.user_index = os.path.join(git_dir, "index")
        self.path = os.path.join(git_dir, f"{INDEX_PREFIX}{os.getpid()}")
        self.copied = False

    def __enter__(self) -> Self:
        for name in os.listdir(self._git_dir):
            if name.startswith(INDEX_PREFIX) and _is_abandoned(name):
                os.unlink(os.path.join(self._git_dir, name))
        if os.path.exists(self.user_index):
            self._copy()
        return self

    def __exit__(self, *_: object) -> None:
        for leftover in (self.path, self.path + ".lock"):
            if os.path.lexists(leftover):
                os.unlink(leftover)

    def _copy(self) -> None:
        with open(self.user_index, "rb") as source, open(self.path, "wb") as copy:
            copy.write(source.read())
            written = os.fstat(source.fileno()).st_mtime_ns
        os.utime(self.path, ns=(written, written))  # git mistrusts files as new as their index; a newer copy would not
        self.copied = True


def _is_abandoned(name: str) -> bool:
    """Whether the process that made this file is gone, or had our process id before us."""
    number = name.removeprefix(INDEX_PREFIX).removesuffix(".lock")
    if not number.isdigit():
        return False
    if int(number) == os.getpid():
        return True
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return False


GIT_TIMEOUT_S = 60.0  # of a git call that runs no hook
UNFINISHED_OPERATIONS = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply")
USER_HOOKS_OPTIONS = ("-c", "core.fsmonitor=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false")
