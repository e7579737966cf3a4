"""Tripwires on history: branches, tags, commits, and the user's uncommitted work."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping

from ralphproof.base.git_layout import is_object_id, read_regular_file
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.workspace.files import FileReader, UnreadableFile
from ralphproof.workspace.git_command import GitFailed
from ralphproof.workspace.git_objects import MODE_FILE, START_NAME, CommitStore, ObjectMissing, decode_path
from ralphproof.workspace.protected_paths import ProtectedCopies, TripwireBaseline, WatchedFolder

Refs = dict[str, str]
ModeAndId = tuple[str | None, str | None]  # mode and id
UncommittedFiles = dict[
    str, tuple[str | None, ...]
]  # path: HEAD's mode and id of the time, if any; the user's mode and id
CommitsByPath = dict[bytes, list[str]]  # path: commits, newest first

if TYPE_CHECKING:
    from ralphproof.workspace.git_objects import Entry
    from ralphproof.workspace.protected_paths import FileState, FileStates
    from ralphproof.workspace.tripwires import ProtectedChanges

    StatesByFolder = dict[str, FileStates]


HEAD, HEADS, TAGS, STASH = "HEAD", "refs/heads/", "refs/tags/", "refs/stash"
STASH_LOG = b"logs/refs/stash"  # every stash but the newest is named there alone
PACKED_REFS = b"packed-refs"
REF_FILES = ("HEAD", "packed-refs", "refs/heads/", "refs/tags/", "refs/remotes/", STASH, STASH_LOG.decode())
MAX_TIPS = 2000  # past this only tips that are lost get a name of ours
TIPS_NAME, LOST_PREFIX = "tips", "lost-"
SHORT_ID_CHARS = 12


def is_ref_file(path: bytes) -> bool:
    """Whether this file in the folder of the repository stores refs."""
    return path in (PACKED_REFS, b"HEAD", b"refs", STASH_LOG) or path.startswith(b"refs/")


def parse_ref_files(contents: Mapping[bytes, bytes]) -> Refs:
    """The commits that branches, tags, remote branches, stashes and HEAD name. Symbolic refs are left out."""
    refs: Refs = {}
    packed = (line.partition(b" ") for line in contents.get(PACKED_REFS, b"").split(b"\n"))
    loose = ((content.strip(), b"", path) for path, content in contents.items() if path.startswith(b"refs/"))
    for name, _, ref in (*packed, *loose):
        if is_object_id(commit := name.decode("ascii", "replace")):
            refs[decode_path(ref)] = commit
    for line in contents.get(STASH_LOG, b"").splitlines():
        if is_object_id(commit := line[41:81].decode("ascii", "replace")) or is_object_id(
            commit := line[65:129].decode("ascii", "replace")
        ):
            refs[f"{STASH}/{commit}"] = commit
            if refs.get(STASH) == commit:
                del refs[STASH]
    head = contents.get(b"HEAD", b"").strip()
    current = refs.get(decode_path(head[4:].strip())) if head.startswith(b"ref:") else head.decode("ascii", "replace")
    return refs | ({HEAD: current} if current and is_object_id(current) else {})


@value
class RefMove:
    """A ref that names another object than before; None where it did not, or does not, exist."""

    ref: str
    old: str | None
    new: str | None

    @property
    def kind(self) -> str:
        return "tag" if self.ref.startswith(TAGS) else "stash" if self.ref.startswith(STASH) else "branch"

    @property
    def name(self) -> str:
        """The short name, without `refs/heads/` or `refs/tags/`."""
        return self.ref.removeprefix(TAGS if self.kind == "tag" else HEADS)

    @property
    def label(self) -> str:
        return self.ref if self.ref == HEAD else "a stash" if self.kind == "stash" else f"{self.kind} {self.name}"


class BranchTracker:
    """The branches and tags of one repository, for one run."""

    def __init__(self, commits: CommitStore, run: str) -> None:
        self._commits, self._run = commits, run

    @property
    def repository_missing(self) -> bool:
        """Whether the repository was deleted."""
        folders = self._commits.folders
        needed = (os.path.join(folders.git_dir, "HEAD"), folders.objects)
        return not all(map(os.path.exists, needed))

    def keep_tips_reachable(self, refs: Refs) -> None:
        """Keep every tip from being pruned, even if its ref is deleted during the run."""
        tips = {ref: name for ref, name in refs.items() if ref.startswith((HEADS, TAGS, STASH))}
        if not tips or len(tips) > MAX_TIPS:
            return
        behind = self._commits.peel_to_commits(dict.fromkeys(tips.values()))
        lines = "\n".join(f"{name} {ref}" for ref, name in sorted(tips.items()))
        parents = dict.fromkeys(behind[name] for name in tips.values() if name in behind)
        if parents:
            self._commits.keep_reachable(
                self._run, TIPS_NAME, parents, f"branches, tags and stashes at the start of the run\n\n{lines}"
            )

    def other_worktrees(self, known: Iterable[str] | None = None) -> dict[str, str]:
        """The branches that other worktrees have checked out, by worktree; with `known`, of those worktrees only.

        Their users may commit there at any time.
        """
        folders = self._commits.folders
        heads = {"": folders.common} if folders.git_dir != folders.common else {}
        above = os.path.join(folders.common, "worktrees")
        names = sorted(os.listdir(above)) if os.path.isdir(above) else []
        heads |= {name: os.path.join(above, name) for name in names if os.path.join(above, name) != folders.git_dir}
        wanted = heads.keys() if known is None else heads.keys() & set(known)
        return {name: text for name in sorted(wanted) if (text := _branch_of_worktree(heads[name]))}

    def find_moves(self, before: Refs, now: Refs, others: Iterable[str]) -> list[RefMove]:
        """Branches and tags that are new, deleted or moved; and HEAD, where it is detached."""
        ignored = set(others)
        kinds = (HEADS, TAGS, STASH)
        names = sorted(ref for ref in before.keys() | now.keys() if ref.startswith(kinds) and ref not in ignored)
        moves = [RefMove(ref, before.get(ref), now.get(ref)) for ref in names if before.get(ref) != now.get(ref)]
        named = {now[ref] for ref in names if ref in now}
        if now.get(HEAD) != before.get(HEAD) and now.get(HEAD) not in named:
            moves.append(RefMove(HEAD, before.get(HEAD), now.get(HEAD)))
        return moves

    def describe_lost(self, moves: list[RefMove]) -> list[str]:
        """One remark for each tip that lost its ref, with the command that restores it. The tip gets a ref below
        `refs/ralph/`.
        """
        reported = [move for move in moves if move.ref != HEAD and (move.kind != "stash" or move.new is None)]
        lost = [move for move in reported if move.old and not self._still_contains(move)]
        remarks = [self._describe_loss(move) for move in lost[:MAX_LISTED]]
        if len(lost) > MAX_LISTED:
            where = f"refs/ralph/{self._run}/{TIPS_NAME}"
            remarks.append(
                f"{len(lost) - MAX_LISTED} more branches, tags and stashes were lost; git log -1 {where} names all"
            )
        return remarks

    def _still_contains(self, move: RefMove) -> bool:
        if move.new is None or move.old is None or move.kind == "tag":
            return False
        try:
            return self._commits.is_ancestor(move.old, move.new)
        except GitFailed:
            return False  # parts of the history are missing

    def _describe_loss(self, move: RefMove) -> str:
        old = str(move.old)
        if move.new is None:
            what, name = f"{move.label} was deleted; it was at {old[:SHORT_ID_CHARS]}", move.name
        else:
            moved = f"from {old[:SHORT_ID_CHARS]} to {move.new[:SHORT_ID_CHARS]}"
            what = f"{move.label} was moved {moved}, which does not contain it"
            name = f"{move.name}-before"
        if not self._commits.object_exists(old):
            return f"{what}, and that is no longer in the repository"
        self._commits.write_run_ref(self._run, LOST_PREFIX + old[:SHORT_ID_CHARS], old)
        back = "stash store" if move.kind == "stash" else f"{move.kind} {shlex.quote(name)}"
        return f"{what}; get it back: git {back} {old[:SHORT_ID_CHARS]}"


def _branch_of_worktree(folder: str) -> str:
    """The branch that a worktree has checked out; empty where it is detached."""
    try:
        text = read_regular_file(os.fsencode(os.path.join(folder, HEAD))).strip()
    except OSError:
        return ""
    return decode_path(text[4:].strip()) if text.startswith(b"ref:") else ""


# Tripwires on refs, commits and the user's uncommitted work.


# Uncommitted work of the user at the start of the run.


MAX_EDITED_FILES, MAX_NEW_FILES = 500, 1500  # files that are watched: enough to see that work was swept away
MAX_LISTED = 10
LFS_POINTER = b"version https://git-lfs"


class UncommittedWork:
    """Detects that uncommitted work of the user was lost, by content."""

    def __init__(self, commits: CommitStore, root: str, run: str) -> None:
        self._commits, self._run = commits, run
        self._files = FileReader(root, self._blob_id)

    def _blob_id(self, content: bytes) -> str:
        """The git blob id of a content."""
        return hashlib.new(self._commits.folders.algorithm, b"blob %d\0%s" % (len(content), content)).hexdigest()

    def list_at_start(self) -> UncommittedFiles:
        """The user's uncommitted files at the start of the run; deletions are not work that could be lost."""
        differing = self._commits.uncommitted_changes(self._run, START_NAME)
        mine = [(path, head, saved) for path, (head, saved) in sorted(differing.items()) if saved is not None]
        new = [(path, head, saved) for path, head, saved in mine if head is None][:MAX_NEW_FILES]
        edited = [(path, head, saved) for path, head, saved in mine if head is not None][:MAX_EDITED_FILES]
        watched = new + [
            (path, head, saved) for path, head, saved in edited if not self._converted_by_git(head[1], saved[1])
        ]
        return {decode_path(path): (*_mode_and_id(head), *_mode_and_id(saved)) for path, head, saved in watched}

    def _converted_by_git(self, head: str, saved: str) -> bool:
        """Whether git itself made the difference at checkout."""
        try:
            theirs, ours = self._commits.read_blob(head), self._commits.read_blob(saved)
        except ObjectMissing:
            return False
        return theirs.startswith(LFS_POINTER) or theirs == ours.replace(b"\r\n", b"\n")

    def drop_lost(self, work: UncommittedFiles) -> UncommittedFiles:
        """Without files that were lost while no agent was running."""
        lost = set(self.find_lost(work))
        return {path: ids for path, ids in work.items() if path not in lost}

    def find_lost(self, work: UncommittedFiles) -> list[str]:
        """Those files that are gone, or are again as HEAD had them."""
        self._files.start_scan()
        return [path for path, ids in work.items() if self._is_lost(path.encode("utf-8", "surrogateescape"), ids)]

    def _is_lost(self, path: bytes, ids: tuple[str | None, ...]) -> bool:
        try:
            now = _mode_and_id(self._files.read_entry(path))
        except (UnreadableFile, OSError):
            return False
        return now in ((None, None), ids[:2]) and now != ids[2:] and path not in self._files.too_large

    def describe_lost(self, paths: list[str]) -> str:
        """The remark for the user."""
        more = f" and {len(paths) - MAX_LISTED} more" if len(paths) > MAX_LISTED else ""
        return (
            f"your uncommitted work in {', '.join(paths[:MAX_LISTED])}{more} is gone from the project; it is saved, "
            f"get it back: git restore --source=refs/ralph/{self._run}/{START_NAME} -- {shlex.quote(paths[0])} (or "
            f"each other path), or with everything else that the run did undone: ralph rewind {self._run} {START_NAME}"
        )


def _mode_and_id(entry: Entry | None) -> ModeAndId:
    return (entry[0].decode(), entry[1]) if entry else (None, None)


# Commits of a turn that change protected paths, even if the files themselves are unchanged.


@value
class CommittedChange:
    """A path that new commits of a ref changed. `in_tip` says that the ref's tip still has the change."""

    path: str
    commit: str
    in_tip: bool
    move: RefMove


class CommitScanner:
    """Searches the commits that were reachable from no ref `before` the turn.

    `protected` tells whether a path is protected; `as_it_was` whether an entry has the content of the file before the
    turn.
    """

    def __init__(
        self, commits: CommitStore, before: Refs, protected: Callable[[bytes], bool],
        as_it_was: Callable[[bytes, Entry | None], bool],
    ) -> None:  # fmt: skip
        self._commits, self._before, self._is_protected, self._is_original = commits, before, protected, as_it_was

    def scan(self, moves: list[RefMove]) -> list[CommittedChange]:
        """The protected paths that commits of the moved refs changed."""
        refs = self._refs_touching([move for move in moves if move.new])
        changes = [
            self._committed_change(move, path, commits) for move, touching in refs for path, commits in touching.items()
        ]
        return [change for change in changes if change]

    def _refs_touching(self, moves: list[RefMove]) -> Iterator[tuple[RefMove, CommitsByPath]]:
        """The refs that have such commits, found by bisection: most have none, and there may be many refs."""
        touching = self._commits_touching(*(str(move.new) for move in moves)) if moves else {}
        if touching and len(moves) == 1:
            yield moves[0], touching
        elif touching:
            middle = len(moves) // 2
            yield from self._refs_touching(moves[:middle])
            yield from self._refs_touching(moves[middle:])

    def _commits_touching(self, *tips: str) -> CommitsByPath:
        commits: CommitsByPath = {}
        for commit, paths in self._commits.list_new_commits(tips, sorted(set(self._before.values()))):
            for path in filter(self._is_protected, paths):
                commits.setdefault(path, []).append(commit)
        return commits

    def _committed_change(self, move: RefMove, path: bytes, commits: list[str]) -> CommittedChange | None:
        tip = commits[0] if move.kind == "stash" else str(move.new)  # new files are in a commit beside the stash's own
        now, was = self._commits.read_entry(tip, path), self._commits.read_entry(f"{commits[-1]}^", path)
        usual = [self._commits.read_entry(name, path) for name in (move.old, self._before.get(HEAD)) if name]
        if now != was and (now in usual or self._is_original(path, now)):
            return None  # older commits were made anew, as a rebase does; or the user's own changes were committed
        return CommittedChange(
            decode_path(path), f"{move.label}, commit {commits[0][:SHORT_ID_CHARS]}", now != was, move
        )


# Refs and commits before and after a turn.


PROJECT_FOLDER, COMMON_FOLDER = "project", "git"


class HistoryTripwires:
    """Compares refs by the files that store them; git is run only when those files changed."""

    def __init__(
        self, commits: CommitStore, run: str, copies: ProtectedCopies, watched: dict[str, WatchedFolder]
    ) -> None:
        self._commits, self._run, self._copies, self._watched = commits, run, copies, watched
        self._branches = BranchTracker(commits, run)
        self._ref_table: tuple[tuple[int, ...], bytes] | None = None

    @property
    def repository_missing(self) -> bool:
        """Whether the repository was deleted."""
        return self._branches.repository_missing

    def other_worktrees(self) -> tuple[tuple[str, str], ...]:
        """Other worktrees, with their branches."""
        return tuple(self._branches.other_worktrees().items())

    def keep_tips_reachable(self, states: StatesByFolder) -> None:
        """Keep the tips of all branches and tags from being pruned during the run."""
        self._branches.keep_tips_reachable(self._read_refs(states, before=False))

    def add_ref_table(self, states: StatesByFolder) -> None:
        """Add refs that are not files, because git stores them in a reftable."""
        if self._commits.folders.ref_files or self.repository_missing:
            return
        mark = _stat_signature(os.path.join(self._commits.folders.common, "reftable", "tables.list"))
        try:
            if self._ref_table is None or self._ref_table[0] != mark or not mark:
                self._ref_table = (mark, self._commits.list_refs())
        except GitFailed:
            self._ref_table = ((), b"")
        states[COMMON_FOLDER][PACKED_REFS] = (
            MODE_FILE,
            self._copies.contents.digest_or_store(self._ref_table[1]),
            0o600,
        )

    def branch_switch(self, baseline: TripwireBaseline, states: StatesByFolder) -> tuple[str, ...]:
        """The branch checked out before the turn and the one now, where they differ. Not known with a reftable."""
        for name in self._watched:
            old, new = baseline.states.get(name, {}).get(b"HEAD"), states[name].get(b"HEAD")
            if old is None or new is None or old == new or not self._commits.folders.ref_files:
                continue
            try:
                heads = [self._read_content(name, b"HEAD", seen, seen is old) for seen in (old, new)]
            except OSError:
                continue
            before, now = (_branch_of_head(text) for text in heads)
            if before != now:
                return before, now
        return ()

    def compare(self, baseline: TripwireBaseline, states: StatesByFolder, changes: ProtectedChanges) -> list[str]:
        """Add protected paths changed by commits to `attempt`; return remarks. Raises GitFailed, ObjectMissing."""
        before, now = self._read_refs(baseline.states, before=True), self._read_refs(states, before=False)
        others = dict(baseline.repository.other_worktrees)
        ignored = [*others.values(), *self._branches.other_worktrees(others).values()]
        moves = self._branches.find_moves(before, now, ignored)
        remarks = self._branches.describe_lost(moves)
        files = baseline.states.get(PROJECT_FOLDER, {})

        def as_it_was(path: bytes, entry: Entry | None) -> bool:
            forced_in = entry is not None and self._was_ignored(path, before.get(HEAD))
            return not forced_in and self._same_content(files.get(path), entry)

        scanner = CommitScanner(self._commits, before, changes.matcher, as_it_was)
        committed = scanner.scan(moves) if changes.matcher else []
        in_tip = [change for change in committed if change.in_tip]
        for change in in_tip:
            paths = [one.path for one in in_tip if one.move == change.move]
            changes.add_commit(change.path, change.commit, self._removal_command(change.move, paths, before, states))
        return [
            *remarks,
            *(
                f"{change.path} was changed and changed back: {change.commit}"
                for change in committed
                if not change.in_tip
            ),
        ]

    def _removal_command(self, move: RefMove, paths: list[str], before: Refs, states: StatesByFolder) -> str:
        """The command that removes the change of these paths from a ref. Other changes of its commits stay.

        Files of the checked-out branch are not touched: they are restored already, and may be the user's own.
        """
        if move.kind == "stash":
            return f"git stash drop stash@{{{self._stash_number(str(move.new), states)}}}"
        if move.kind == "tag":
            old = (
                f"-f {shlex.quote(move.name)} {move.old[:SHORT_ID_CHARS]}"
                if move.old
                else f"-d {shlex.quote(move.name)}"
            )
            return f"git tag {old}"
        start = before.get(HEAD)
        named = [(path, path.encode("utf-8", "surrogateescape")) for path in sorted(set(paths))]
        known = [path for path, name in named if start and self._commits.read_entry(start, name)]
        new = [path for path, _ in named if path not in known]
        here = move.ref == HEAD or self._current_branch(states) == move.name
        words = [] if here else [f"git switch {shlex.quote(move.name)}"]
        which, cached = ("--staged", " --cached") if here else ("--staged --worktree", "")
        words += [f"git restore --source={str(start)[:SHORT_ID_CHARS]} {which} -- {shlex.join(known)}"] if known else []
        words += [f"git rm -q{cached} -- {shlex.join(new)}"] if new else []
        return " && ".join([*words, "git commit -m 'Put back what is protected'"])

    def _stash_number(self, commit: str, states: StatesByFolder) -> int:
        """The number of a stash in `git stash list`: the newest is 0."""
        try:
            log = self._read_content(
                COMMON_FOLDER, STASH_LOG, states[COMMON_FOLDER][STASH_LOG], before=False
            ).splitlines()
        except (KeyError, OSError):
            return 0
        newest_first = [line for line in reversed(log) if line]
        return next((at for at, line in enumerate(newest_first) if commit.encode() in line.split()[1:2]), 0)

    def _current_branch(self, states: StatesByFolder) -> str:
        """The branch that is checked out now."""
        for name in self._watched:
            if seen := states[name].get(b"HEAD"):
                return _branch_of_head(self._read_content(name, b"HEAD", seen, before=False))
        return ""

    def compare_index(self, baseline: TripwireBaseline, states: StatesByFolder, changes: ProtectedChanges) -> None:
        """Note for touched files that the index has the change too: the next commit would take it from there."""
        paths = [path.encode("utf-8", "surrogateescape") for path in changes.protected_paths]
        if not paths:
            return
        refs = (self._read_refs(baseline.states, before=True), self._read_refs(states, before=False))
        heads = [known[HEAD] for known in refs if HEAD in known]
        files = baseline.states.get(PROJECT_FOLDER, {})
        for path, entry in self._commits.read_staged(paths).items():
            committed = [self._commits.read_entry(head, path) for head in heads]
            if path in paths and entry not in committed and not self._same_content(files.get(path), entry):
                changes.add_commit(
                    decode_path(path), "the index", f"git restore --staged -- {shlex.quote(decode_path(path))}"
                )

    def _was_ignored(self, path: bytes, head: str | None) -> bool:
        """Whether a file was neither in a commit nor in the snapshot of the run's start."""
        known = [
            name
            for name in (self._commits.find_saved_commit(self._run, START_NAME), head)
            if name and self._commits.object_exists(name)
        ]
        return bool(known) and not any(self._commits.read_entry(name, path) for name in known)

    def _same_content(self, seen: FileState | None, entry: Entry | None) -> bool:
        """Whether an entry has the content that a file had, apart from line endings and LFS, which git converts."""
        if seen is None or entry is None:
            return seen is None and entry is None
        try:
            saved, content = self._commits.read_blob(entry[1]), self._copies.contents.read(seen[1])
        except (ObjectMissing, OSError):
            return False
        pointed = saved.startswith(LFS_POINTER) and seen[1].encode() in saved
        return pointed or saved.replace(b"\r\n", b"\n") == content.replace(b"\r\n", b"\n")

    def _read_refs(self, states: StatesByFolder, before: bool) -> Refs:
        contents: dict[bytes, bytes] = {}
        for name in self._watched:
            for path, seen in states.get(name, {}).items():
                if not is_ref_file(path):
                    continue
                try:
                    contents[path] = self._read_content(name, path, seen, before)
                except OSError:
                    continue  # it went away, or its copy did: then nothing is known of it
        return parse_ref_files(contents)

    def _read_content(self, name: str, path: bytes, seen: FileState, before: bool) -> bytes:
        if before:
            return self._copies.contents.read(seen[1])
        if path == PACKED_REFS and self._ref_table is not None:
            return self._ref_table[1]
        return self._watched[name].read_content(path, seen)


def _branch_of_head(head: bytes) -> str:
    """The branch in HEAD; empty where HEAD is detached."""
    return decode_path(head[4:].strip()).removeprefix("refs/heads/") if head.startswith(b"ref:") else ""


def _stat_signature(path: str) -> tuple[int, ...]:
    try:
        state = os.stat(path)
    except OSError:
        return ()
    return (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
