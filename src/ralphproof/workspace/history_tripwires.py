"""Tripwires on refs, commits and the user's uncommitted work."""

from __future__ import annotations

import os

from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.workspace.branches import (
    HEAD,
    PACKED_REFS,
    SHORT_ID_CHARS,
    STASH_LOG,
    BranchTracker,
    RefMove,
    is_ref_file,
    parse_ref_files,
)
from ralphproof.workspace.files import FileReader, UnreadableFile
from ralphproof.workspace.git_command import GitFailed
from ralphproof.workspace.git_objects import MODE_FILE, ObjectMissing, decode_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ralphproof.workspace.branches import Refs
    from ralphproof.workspace.git_objects import CommitStore, Entry
    from ralphproof.workspace.protected_copies import ProtectedCopies, TripwireBaseline
    from ralphproof.workspace.protected_paths import Seen, Sight, WatchedFolder
    from ralphproof.workspace.tripwires import ProtectedChanges

    Ids = tuple[str | None, str | None]  # mode and id
    Work = dict[str, tuple[str | None, ...]]  # path: HEAD's mode and id of the time, if any; the user's mode and id
    Touching = dict[bytes, list[str]]  # path: commits, newest first
    Sights = dict[str, Sight]


# The user's uncommitted work: what was there when the run began, in no commit, and is there no more.


START_NAME = "0"
MAX_EDITED_FILES, MAX_NEW_FILES = 500, 1500  # files that are watched: enough to see that work was swept away
MAX_LISTED = 10
LFS_POINTER = b"version https://git-lfs"


class UncommittedWork:
    """Watches uncommitted work by content."""

    def __init__(self, commits: CommitStore, root: str, run: str) -> None:
        self._commits, self._run = commits, run
        self._files = FileReader(root, self._name)

    def _name(self, content: bytes) -> str:
        """As git names the content of a file."""
        import hashlib

        return hashlib.new(self._commits.folders.algorithm, b"blob %d\0%s" % (len(content), content)).hexdigest()

    def at_start(self) -> Work:
        """What the user had not committed when the run began; their deletions are no work that could be lost."""
        differing = self._commits.uncommitted(self._run, START_NAME)
        mine = [(path, head, saved) for path, (head, saved) in sorted(differing.items()) if saved is not None]
        new = [(path, head, saved) for path, head, saved in mine if head is None][:MAX_NEW_FILES]
        edited = [(path, head, saved) for path, head, saved in mine if head is not None][:MAX_EDITED_FILES]
        kept = new + [(path, head, saved) for path, head, saved in edited if not self._converted(head[1], saved[1])]
        return {decode_path(path): (*_mode_and_id(head), *_mode_and_id(saved)) for path, head, saved in kept}

    def _converted(self, head: str, saved: str) -> bool:
        """Whether git itself made the difference, when it checked the file out."""
        try:
            theirs, ours = self._commits.blob(head), self._commits.blob(saved)
        except ObjectMissing:
            return False
        return theirs.startswith(LFS_POINTER) or theirs == ours.replace(b"\r\n", b"\n")

    def still(self, work: Work) -> Work:
        """What of it is still to be watched: not what was swept away when no agent was at work."""
        swept = set(self.swept(work))
        return {path: ids for path, ids in work.items() if path not in swept}

    def swept(self, work: Work) -> list[str]:
        """Those files of it that are gone, or are again as HEAD had them."""
        self._files.begin()
        return [path for path, ids in work.items() if self._is_swept(path.encode("utf-8", "surrogateescape"), ids)]

    def _is_swept(self, path: bytes, ids: tuple[str | None, ...]) -> bool:
        try:
            now = _mode_and_id(self._files.look(path))
        except (UnreadableFile, OSError):
            return False
        return now in ((None, None), ids[:2]) and now != ids[2:] and path not in self._files.large

    def remark(self, paths: list[str]) -> str:
        """What to tell the user of them."""
        import shlex

        more = f" and {len(paths) - MAX_LISTED} more" if len(paths) > MAX_LISTED else ""
        return (
            f"your uncommitted work in {', '.join(paths[:MAX_LISTED])}{more} is gone from the project; it is saved, get "
            f"it back: git restore --source=refs/ralph/{self._run}/{START_NAME} -- {shlex.quote(paths[0])} (or each other "
            f"path), or with everything else that the run did undone: ralph rewind {self._run} {START_NAME}"
        )


def _mode_and_id(entry: Entry | None) -> Ids:
    return (entry[0].decode(), entry[1]) if entry else (None, None)


# Commits of a turn that hold changes of protected paths, whatever the files themselves look like.


@value
class CommittedChange:
    """A path that new commits of a ref changed. It `stands` where the ref's tip still has the change."""

    path: str
    by: str
    stands: bool
    move: RefMove


class CommitScanner:
    """Looks through the commits that no ref named `before` the turn held.

    `protected` tells of a path whether it is; `as_it_was` whether what a commit holds there is what the file was.
    """

    def __init__(
        self, commits: CommitStore, before: Refs, protected: Callable[[bytes], bool],
        as_it_was: Callable[[bytes, Entry | None], bool],
    ) -> None:  # fmt: skip
        self._commits, self._before, self._protected, self._as_it_was = commits, before, protected, as_it_was

    def by(self, moves: list[RefMove]) -> list[CommittedChange]:
        """What the refs that moved hold now."""
        asked = self._asked([move for move in moves if move.new])
        found = [self._held(move, path, commits) for move, touching in asked for path, commits in touching.items()]
        return [held for held in found if held]

    def _asked(self, moves: list[RefMove]) -> Iterator[tuple[RefMove, Touching]]:
        """The refs that hold such commits, found by halves: most hold none, and there may be many."""
        touching = self._touching(*(str(move.new) for move in moves)) if moves else {}
        if touching and len(moves) == 1:
            yield moves[0], touching
        elif touching:
            middle = len(moves) // 2
            yield from self._asked(moves[:middle])
            yield from self._asked(moves[middle:])

    def _touching(self, *tips: str) -> Touching:
        found: Touching = {}
        for commit, paths in self._commits.since(tips, sorted(set(self._before.values()))):
            for path in filter(self._protected, paths):
                found.setdefault(path, []).append(commit)
        return found

    def _held(self, move: RefMove, path: bytes, commits: list[str]) -> CommittedChange | None:
        tip = commits[0] if move.kind == "stash" else str(move.new)  # new files are in a commit beside the stash's own
        now, was = self._commits.entry(tip, path), self._commits.entry(f"{commits[-1]}^", path)
        usual = [self._commits.entry(name, path) for name in (move.old, self._before.get(HEAD)) if name]
        if now != was and (now in usual or self._as_it_was(path, now)):
            return None  # older commits were made anew, as a rebase does; or the user's own changes were committed
        return CommittedChange(
            decode_path(path), f"{move.shown}, commit {commits[0][:SHORT_ID_CHARS]}", now != was, move
        )


# The tripwires of history: refs and commits, before and after a turn.


PROJECT_FOLDER, COMMON_FOLDER = "project", "git"


class HistoryTripwires:
    """Watches what the files in these places say of refs; git is asked only when they say something new."""

    def __init__(
        self, commits: CommitStore, run: str, vault: ProtectedCopies, places: dict[str, WatchedFolder]
    ) -> None:
        self._commits, self._run, self._vault, self._places = commits, run, vault, places
        self._branches = BranchTracker(commits, run)
        self._table: tuple[tuple[int, ...], bytes] | None = None

    @property
    def gone(self) -> bool:
        """Whether the repository itself is not there any more."""
        return self._branches.gone

    def elsewhere(self) -> tuple[tuple[str, str], ...]:
        """Other worktrees, with the branches that they work on."""
        return tuple(self._branches.elsewhere().items())

    def tie(self, sights: Sights) -> None:
        """Keep the tips of all branches and tags from being pruned during the run."""
        self._branches.tie(self._refs(sights, before=False))

    def complete(self, sights: Sights) -> None:
        """Add refs that are told by no files, because git keeps them in a table."""
        if self._commits.folders.ref_files or self.gone:
            return
        mark = _stat_signature(os.path.join(self._commits.folders.common, "reftable", "tables.list"))
        try:
            if self._table is None or self._table[0] != mark or not mark:
                self._table = (mark, self._commits.refs())
        except GitFailed:
            self._table = ((), b"")
        sights[COMMON_FOLDER][PACKED_REFS] = (MODE_FILE, self._vault.contents.take(self._table[1]), 0o600)

    def switched(self, armed: TripwireBaseline, sights: Sights) -> tuple[str, ...]:
        """The branch that was checked out, and the one that is now, where they differ. A reftable does not tell."""
        for name in self._places:
            old, new = armed.sights.get(name, {}).get(b"HEAD"), sights[name].get(b"HEAD")
            if old is None or new is None or old == new or not self._commits.folders.ref_files:
                continue
            try:
                found = [self._content(name, b"HEAD", seen, seen is old) for seen in (old, new)]
            except OSError:
                continue
            before, now = (_branch_of_head(text) for text in found)
            if before != now:
                return before, now
        return ()

    def judge(self, armed: TripwireBaseline, sights: Sights, attempt: ProtectedChanges) -> list[str]:
        """Add to the attempt what commits hold; return what else to tell. Raises GitFailed, ObjectMissing."""
        before, now = self._refs(armed.sights, before=True), self._refs(sights, before=False)
        others = dict(armed.besides.elsewhere)
        spared = [*others.values(), *self._branches.elsewhere(others).values()]
        moves = self._branches.moves(before, now, spared)
        remarks = self._branches.lost(moves)
        files = armed.sights.get(PROJECT_FOLDER, {})

        def as_it_was(path: bytes, entry: Entry | None) -> bool:
            forced_in = entry is not None and self._was_ignored(path, before.get(HEAD))
            return not forced_in and self._is(files.get(path), entry)

        holding = CommitScanner(self._commits, before, attempt.guard, as_it_was)
        found = holding.by(moves) if attempt.guard else []
        standing = [held for held in found if held.stands]
        for held in standing:
            paths = [one.path for one in standing if one.move == held.move]
            attempt.held(held.path, held.by, self._way_out(held.move, paths, before, sights))
        return [
            *remarks,
            *(f"{held.path} was changed and changed back: {held.by}" for held in found if not held.stands),
        ]

    def _way_out(self, move: RefMove, paths: list[str], before: Refs, sights: Sights) -> str:
        """The command that takes these paths out of a ref. Other changes of its commits stay.

        Files of the branch that is checked out are left alone: they were put back, and may be the user's own.
        """
        import shlex

        if move.kind == "stash":
            return f"git stash drop stash@{{{self._stash_number(str(move.new), sights)}}}"
        if move.kind == "tag":
            old = (
                f"-f {shlex.quote(move.name)} {move.old[:SHORT_ID_CHARS]}"
                if move.old
                else f"-d {shlex.quote(move.name)}"
            )
            return f"git tag {old}"
        start = before.get(HEAD)
        named = [(path, path.encode("utf-8", "surrogateescape")) for path in sorted(set(paths))]
        known = [path for path, name in named if start and self._commits.entry(start, name)]
        new = [path for path, _ in named if path not in known]
        here = move.ref == HEAD or self._current(sights) == move.name
        words = [] if here else [f"git switch {shlex.quote(move.name)}"]
        which, cached = ("--staged", " --cached") if here else ("--staged --worktree", "")
        words += [f"git restore --source={str(start)[:SHORT_ID_CHARS]} {which} -- {shlex.join(known)}"] if known else []
        words += [f"git rm -q{cached} -- {shlex.join(new)}"] if new else []
        return " && ".join([*words, "git commit -m 'Put back what is protected'"])

    def _stash_number(self, commit: str, sights: Sights) -> int:
        """Which stash this is, as `git stash list` counts them: the newest is 0."""
        try:
            log = self._content(COMMON_FOLDER, STASH_LOG, sights[COMMON_FOLDER][STASH_LOG], before=False).splitlines()
        except (KeyError, OSError):
            return 0
        newest_first = [line for line in reversed(log) if line]
        return next((at for at, line in enumerate(newest_first) if commit.encode() in line.split()[1:2]), 0)

    def _current(self, sights: Sights) -> str:
        """The branch that is checked out now."""
        for name in self._places:
            if seen := sights[name].get(b"HEAD"):
                return _branch_of_head(self._content(name, b"HEAD", seen, before=False))
        return ""

    def staged(self, armed: TripwireBaseline, sights: Sights, attempt: ProtectedChanges) -> None:
        """Say of touched files that the index holds the change as well: the next commit would take it from there."""
        import shlex

        paths = [path.encode("utf-8", "surrogateescape") for path in attempt.stopping]
        if not paths:
            return
        refs = (self._refs(armed.sights, before=True), self._refs(sights, before=False))
        heads = [known[HEAD] for known in refs if HEAD in known]
        files = armed.sights.get(PROJECT_FOLDER, {})
        for path, entry in self._commits.staged(paths).items():
            committed = [self._commits.entry(head, path) for head in heads]
            if path in paths and entry not in committed and not self._is(files.get(path), entry):
                attempt.held(
                    decode_path(path), "the index", f"git restore --staged -- {shlex.quote(decode_path(path))}"
                )

    def _was_ignored(self, path: bytes, head: str | None) -> bool:
        """Whether a file was in no commit, and not in what was saved at the run's start either."""
        known = [
            name for name in (self._commits.named(self._run, START_NAME), head) if name and self._commits.is_there(name)
        ]
        return bool(known) and not any(self._commits.entry(name, path) for name in known)

    def _is(self, seen: Seen | None, entry: Entry | None) -> bool:
        """Whether a commit holds what a file was, line ends and large files apart, which git converts."""
        if seen is None or entry is None:
            return seen is None and entry is None
        try:
            saved, content = self._commits.blob(entry[1]), self._vault.contents.read(seen[1])
        except (ObjectMissing, OSError):
            return False
        pointed = saved.startswith(LFS_POINTER) and seen[1].encode() in saved
        return pointed or saved.replace(b"\r\n", b"\n") == content.replace(b"\r\n", b"\n")

    def _refs(self, sights: Sights, before: bool) -> Refs:
        contents: dict[bytes, bytes] = {}
        for name in self._places:
            for path, seen in sights.get(name, {}).items():
                if not is_ref_file(path):
                    continue
                try:
                    contents[path] = self._content(name, path, seen, before)
                except OSError:
                    continue  # it went away, or its copy did: then nothing is known of it
        return parse_ref_files(contents)

    def _content(self, name: str, path: bytes, seen: Seen, before: bool) -> bytes:
        if before:
            return self._vault.contents.read(seen[1])
        if path == PACKED_REFS and self._table is not None:
            return self._table[1]
        return self._places[name].content(path, seen)


def _branch_of_head(head: bytes) -> str:
    """The branch that HEAD says; empty where it names a commit."""
    return decode_path(head[4:].strip()).removeprefix("refs/heads/") if head.startswith(b"ref:") else ""


def _stat_signature(path: str) -> tuple[int, ...]:
    try:
        state = os.stat(path)
    except OSError:
        return ()
    return (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
