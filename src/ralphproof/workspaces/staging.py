"""Which of a run's changes may go into the user's commit: those that were not the user's work in progress."""

from __future__ import annotations

import os

from ralphproof.value import TYPE_CHECKING, value
from ralphproof.workspaces.trees import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ralphproof.workspace import Snapshot
    from ralphproof.workspaces.gitcall import Reply

    Ask = Callable[..., Reply]  # raises where git fails

RAW = ("diff-tree", "-r", "-z", "--no-renames", "--raw", "--full-index", "--no-ext-diff", "--no-textconv")


@value
class Staging:
    """Paths to add, paths to remove, and what the run changed that stays out."""

    add: tuple[bytes, ...]
    remove: tuple[bytes, ...]
    left: tuple[str, ...]


@value
class RawChange:
    """One line of `git diff-tree --raw`."""

    path: bytes
    old_mode: bytes
    new_mode: bytes
    old: str
    new: str

    @property
    def for_index(self) -> bytes:
        """As `git update-index --index-info` wants it."""
        mode = b"0" if self.new_mode == b"000000" else self.new_mode
        return b"%s %s 0\t%s\0" % (mode, self.new.encode(), self.path)


def raw_changes(ask: Ask, before: str, after: str) -> list[RawChange]:
    """Every file that differs between two trees or commits."""
    fields = ask(*RAW, before, after).out.split(b"\0")
    changes = []
    for about, path in zip(fields[::2], fields[1::2], strict=False):
        old_mode, new_mode, old, new, _ = about.lstrip(b":").split(b" ")
        changes.append(RawChange(path, old_mode, new_mode, old.decode(), new.decode()))
    return changes


def choose(
    ask: Ask, root: str, began: Snapshot, now: Snapshot, empty: str, staged: frozenset[str],
    ours: frozenset[str] = frozenset(),
) -> Staging:  # fmt: skip
    """What to stage. A path that was changed, staged or flagged by the user before is theirs and is left.

    Files of `ours` go with the work in any case: we may have written them after it was saved.
    """
    if began.tree is None or now.tree is None:
        return Staging((), (), ())
    run, moved = raw_changes(ask, began.tree, now.tree), now.head not in (None, began.head)
    old = raw_changes(ask, began.head or empty, began.tree) if run or moved else []
    dirty = {change.path: change for change in old}
    run += _taken_back(ask, root, now, {*dirty, *(change.path for change in run)}, staged) if moved else []
    flagged = _flagged(ask) if run or ours else set()
    add: list[bytes] = []
    remove: list[bytes] = []
    left: list[str] = []
    for change in run:
        path = change.path
        theirs = decode(path) in staged or (path in dirty and not _same_after_filters(ask, dirty[path]))
        if (theirs and decode(path) not in ours) or path in flagged or _nested(root, path):
            left.append(decode(path))
        else:
            (remove if change.new_mode == b"000000" else add).append(path)
    known = {change.path for change in run} | flagged
    add += [path for path in map(os.fsencode, sorted(ours)) if path not in known and _is_file(root, path)]
    ignored = ignored_by_git(ask, add)
    return Staging(tuple(path for path in add if path not in ignored), tuple(remove), tuple(left))


def _is_file(root: str, path: bytes) -> bool:
    return os.path.isfile(os.path.join(os.fsencode(root), path)) and not _nested(root, path)


def _taken_back(ask: Ask, root: str, now: Snapshot, known: set[bytes], staged: frozenset[str]) -> list[RawChange]:
    """What an agent committed and was put back since: its commit is not what the run came to."""
    uncommitted = [change for change in raw_changes(ask, now.head or "", now.tree or "") if not _unsaved(root, change)]
    return [change for change in uncommitted if change.path not in known and decode(change.path) not in staged]


def _unsaved(root: str, change: RawChange) -> bool:
    """Whether a file seems to be gone that is there: our own are never saved, nor is what was ignored."""
    return change.new_mode == b"000000" and os.path.lexists(os.path.join(os.fsencode(root), change.path))


def _same_after_filters(ask: Ask, change: RawChange) -> bool:
    """Whether a file that differs byte for byte is what git would have committed all the same (line ends, LFS)."""
    if change.old_mode != change.new_mode or change.new_mode not in (b"100644", b"100755"):
        return False
    content = ask("cat-file", "blob", change.new).out
    made = ask("hash-object", "--stdin", f"--path={os.fsdecode(change.path)}", stdin=content).out
    return made.strip().decode() == change.old


def _flagged(ask: Ask) -> set[bytes]:
    """Paths that the user marked skip-worktree or assume-unchanged."""
    records = ask("ls-files", "-z", "-v").out.split(b"\0")
    return {record[2:] for record in records if record and (record[:1] == b"S" or record[:1].islower())}


def _nested(root: str, path: bytes) -> bool:
    """Whether the path lies in a repository of its own."""
    folder = os.path.dirname(path)
    while folder:
        if os.path.lexists(os.path.join(os.fsencode(root), folder, b".git")):
            return True
        folder = os.path.dirname(folder)
    return False


def ignored_by_git(ask: Ask, paths: Iterable[bytes]) -> set[bytes]:
    """Those of the paths that the user's rules keep out of commits; what is tracked already is not.

    `git check-ignore` takes no literal names, so each is written such that it is no pattern.
    """
    asked = {b"./" + path: path for path in paths}
    if not asked:
        return set()
    words = ("--no-literal-pathspecs", "check-ignore", "-z", "--stdin")
    reply = ask(*words, stdin=b"".join(path + b"\0" for path in asked), good=(0, 1))
    return {asked[path] for path in reply.out.split(b"\0") if path in asked}
