"""Tripwires on history: branches, tags, commits, and the user's uncommitted work."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping

from ralphproof.base.git_layout import is_object_id, read_regular_file
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.workspace.files import FileReader, UnreadableFile
from ralphproof.workspace.git_command import GitFailed
from ralphproof.workspace.git_objects import MODE_FILE, START_NAME, CommitStore, ObjectMissing, decode_path
from ralphproof.workspace.protected_paths import ProtectedCopies, ProtectedMatcher, TripwireBaseline, WatchedFolder

Refs = dict[str, str]
ModeAndId = tuple[str | None, str | None]  # mode and id
UncommittedFiles = dict[str, tuple[str | None, ...]]  # path: HEAD's mode and id, if any; the user's mode and id
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


# Refs and commits before and after a turn.


PROJECT_FOLDER, COMMON_FOLDER = "project", "git"


class HistoryTripwires:
    """Compares refs by the files that store them; git is run only when those files changed."""

    def __init__(
        self, commits: CommitStore, run: str, copies: ProtectedCopies, watched: dict[str, WatchedFolder]
    ) -> None:
        self._commits, self._run, self._copies, self._watched = commits, run, copies, watched
        self._ref_table: tuple[tuple[int, ...], bytes] | None = None

    @property
    def repository_missing(self) -> bool:
        """Whether the repository was deleted."""
        folders = self._commits.folders
        return not (os.path.exists(os.path.join(folders.git_dir, "HEAD")) and os.path.exists(folders.objects))

    def keep_tips_reachable(self, states: StatesByFolder) -> None:
        """Keep every tip from being pruned, even if its ref is deleted during the run."""
        tips = {ref: tip for ref, tip in self._read_refs(states).items() if ref.startswith((HEADS, TAGS, STASH))}
        if not tips or len(tips) > MAX_TIPS:
            return
        behind = self._commits.peel_to_commits(dict.fromkeys(tips.values()))
        if parents := dict.fromkeys(behind[tip] for tip in tips.values() if tip in behind):
            lines = "\n".join(f"{tip} {ref}" for ref, tip in sorted(tips.items()))
            message = f"branches, tags and stashes at the start of the run\n\n{lines}"
            self._commits.keep_reachable(self._run, TIPS_NAME, parents, message)

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
        branches: dict[str, str] = {}
        for name in sorted(wanted):
            try:
                head = read_regular_file(os.fsencode(os.path.join(heads[name], HEAD)))
            except OSError:
                continue
            if branch := _branch_of_head(head):
                branches[name] = HEADS + branch
        return branches

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
        states[COMMON_FOLDER][PACKED_REFS] = (MODE_FILE, self._copies.digest_or_store(self._ref_table[1]), 0o600)

    def branch_switch(self, baseline: TripwireBaseline, states: StatesByFolder) -> tuple[str, ...]:
        """The branch checked out before the turn and the one now, where they differ. Not known with a reftable."""
        if self.repository_missing or baseline.repository.missing or not self._commits.folders.ref_files:
            return ()
        before, now = self._read_head(baseline.states, before=True), self._read_head(states)
        return () if before is None or now is None or before == now else (before, now)

    def compare(self, baseline: TripwireBaseline, states: StatesByFolder, changes: ProtectedChanges) -> list[str]:
        """Add protected paths that commits changed; return remarks. Raises GitFailed, ObjectMissing."""
        before, now = self._read_refs(baseline.states, before=True), self._read_refs(states)
        others = dict(baseline.repository.other_worktrees)
        moves = _find_moves(before, now, {*others.values(), *self.other_worktrees(others).values()})
        remarks = self._describe_lost(moves)
        files = baseline.states.get(PROJECT_FOLDER, {})
        for move, touching in self._refs_touching([move for move in moves if move.new], before, changes.matcher):
            in_tip: list[tuple[str, str]] = []
            for path, commits in touching.items():
                where = f"{move.label}, commit {commits[0][:SHORT_ID_CHARS]}"
                # Of a stash, new files are in a commit beside the stash's own.
                tip = commits[0] if move.kind == "stash" else str(move.new)
                entry, was = self._commits.read_entry(tip, path), self._commits.read_entry(f"{commits[-1]}^", path)
                if entry == was:
                    remarks.append(f"{decode_path(path)} was changed and changed back: {where}")
                elif not self._is_known_content(path, entry, move, before, files.get(path)):
                    in_tip.append((decode_path(path), where))
            for shown, where in in_tip:
                way_out = self._removal_command(move, [one for one, _ in in_tip], before, states)
                changes.add_commit(shown, where, way_out)
        return remarks

    def _refs_touching(
        self, moves: list[RefMove], before: Refs, protected: ProtectedMatcher
    ) -> Iterator[tuple[RefMove, CommitsByPath]]:
        """The moved refs with new commits that change protected paths, found by bisection: most have none, and there
        may be many refs. New is what was reachable from no ref `before` the turn.
        """
        if not (moves and protected):
            return
        touching: CommitsByPath = {}
        tips = [str(move.new) for move in moves]
        for commit, paths in self._commits.list_new_commits(tips, sorted(set(before.values()))):
            for path in filter(protected, paths):
                touching.setdefault(path, []).append(commit)
        if touching and len(moves) == 1:
            yield moves[0], touching
        elif touching:
            middle = len(moves) // 2
            yield from self._refs_touching(moves[:middle], before, protected)
            yield from self._refs_touching(moves[middle:], before, protected)

    def _is_known_content(
        self, path: bytes, entry: Entry | None, move: RefMove, before: Refs, file: FileState | None
    ) -> bool:
        """Whether older commits were made anew, as a rebase does, or the user's own changes were committed."""
        if entry in [self._commits.read_entry(tip, path) for tip in (move.old, before.get(HEAD)) if tip]:
            return True
        forced_in = entry is not None and self._was_ignored(path, before.get(HEAD))
        return not forced_in and self._same_content(file, entry)

    def _was_ignored(self, path: bytes, head: str | None) -> bool:
        """Whether a file was neither in a commit nor in the snapshot of the run's start."""
        saved = self._commits.find_saved_commit(self._run, START_NAME)
        known = [commit for commit in (saved, head) if commit and self._commits.object_exists(commit)]
        return bool(known) and not any(self._commits.read_entry(commit, path) for commit in known)

    def _same_content(self, seen: FileState | None, entry: Entry | None) -> bool:
        """Whether an entry has the content that a file had, apart from line endings and LFS, which git converts."""
        if seen is None or entry is None:
            return seen is None and entry is None
        try:
            saved, content = self._commits.read_blob(entry[1]), self._copies.read(seen[1])
        except (ObjectMissing, OSError):
            return False
        pointed = saved.startswith(LFS_POINTER) and seen[1].encode() in saved
        return pointed or saved.replace(b"\r\n", b"\n") == content.replace(b"\r\n", b"\n")

    def _describe_lost(self, moves: list[RefMove]) -> list[str]:
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
        old, short = str(move.old), str(move.old)[:SHORT_ID_CHARS]
        if move.new is None:
            what, name = f"{move.label} was deleted; it was at {short}", move.name
        else:
            what = f"{move.label} was moved from {short} to {move.new[:SHORT_ID_CHARS]}, which does not contain it"
            name = f"{move.name}-before"
        if not self._commits.object_exists(old):
            return f"{what}, and that is no longer in the repository"
        self._commits.write_run_ref(self._run, LOST_PREFIX + short, old)
        back = "stash store" if move.kind == "stash" else f"{move.kind} {shlex.quote(name)}"
        return f"{what}; get it back: git {back} {short}"

    def _removal_command(self, move: RefMove, paths: list[str], before: Refs, states: StatesByFolder) -> str:
        """The command that removes the change of these paths from a ref. Other changes of its commits stay.

        Files of the checked-out branch are not touched: they are restored already, and may be the user's own.
        """
        if move.kind == "stash":
            return f"git stash drop stash@{{{self._stash_number(str(move.new), states)}}}"
        quoted = shlex.quote(move.name)
        if move.kind == "tag":
            return f"git tag -f {quoted} {move.old[:SHORT_ID_CHARS]}" if move.old else f"git tag -d {quoted}"
        start = before.get(HEAD)
        named = [(path, path.encode("utf-8", "surrogateescape")) for path in sorted(set(paths))]
        known = [path for path, name in named if start and self._commits.read_entry(start, name)]
        new = [path for path, _ in named if path not in known]
        here = move.ref == HEAD or self._read_head(states) == move.name
        words = [] if here else [f"git switch {quoted}"]
        which, cached = ("--staged", " --cached") if here else ("--staged --worktree", "")
        words += [f"git restore --source={str(start)[:SHORT_ID_CHARS]} {which} -- {shlex.join(known)}"] if known else []
        words += [f"git rm -q{cached} -- {shlex.join(new)}"] if new else []
        return " && ".join([*words, "git commit -m 'Put back what is protected'"])

    def _stash_number(self, commit: str, states: StatesByFolder) -> int:
        """The number of a stash in `git stash list`: the newest is 0."""
        try:
            log = self._read_content(COMMON_FOLDER, STASH_LOG, states[COMMON_FOLDER][STASH_LOG], before=False)
        except (KeyError, OSError):
            return 0
        newest_first = [line for line in reversed(log.splitlines()) if line]
        return next((at for at, line in enumerate(newest_first) if commit.encode() in line.split()[1:2]), 0)

    def compare_index(self, baseline: TripwireBaseline, states: StatesByFolder, changes: ProtectedChanges) -> None:
        """Note for touched files that the index has the change too: the next commit would take it from there."""
        paths = [path.encode("utf-8", "surrogateescape") for path in changes.protected_paths]
        if not paths:
            return
        refs = (self._read_refs(baseline.states, before=True), self._read_refs(states))
        heads = [known[HEAD] for known in refs if HEAD in known]
        files = baseline.states.get(PROJECT_FOLDER, {})
        for path, entry in self._commits.read_staged(paths).items():
            committed = [self._commits.read_entry(head, path) for head in heads]
            if path in paths and entry not in committed and not self._same_content(files.get(path), entry):
                shown = decode_path(path)
                changes.add_commit(shown, "the index", f"git restore --staged -- {shlex.quote(shown)}")

    def _read_refs(self, states: StatesByFolder, before: bool = False) -> Refs:
        """The refs in the files of a scan; `before`: of the baseline."""
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

    def _read_head(self, states: StatesByFolder, before: bool = False) -> str | None:
        """The branch that is checked out; empty where HEAD is detached, None where it is not known."""
        for name in self._watched:
            if seen := states.get(name, {}).get(b"HEAD"):
                try:
                    return _branch_of_head(self._read_content(name, b"HEAD", seen, before))
                except OSError:
                    continue
        return None

    def _read_content(self, name: str, path: bytes, seen: FileState, before: bool) -> bytes:
        if before:
            return self._copies.read(seen[1])
        if path == PACKED_REFS and self._ref_table is not None:
            return self._ref_table[1]
        return self._watched[name].read_content(path, seen)


def _find_moves(before: Refs, now: Refs, ignored: set[str]) -> list[RefMove]:
    """Branches and tags that are new, deleted or moved; and HEAD, where it is detached."""
    refs = before.keys() | now.keys()
    names = sorted(ref for ref in refs if ref.startswith((HEADS, TAGS, STASH)) and ref not in ignored)
    moves = [RefMove(ref, before.get(ref), now.get(ref)) for ref in names if before.get(ref) != now.get(ref)]
    named = {now[ref] for ref in names if ref in now}
    if now.get(HEAD) != before.get(HEAD) and now.get(HEAD) not in named:
        moves.append(RefMove(HEAD, before.get(HEAD), now.get(HEAD)))
    return moves


def _branch_of_head(head: bytes) -> str:
    """The branch in HEAD; empty where HEAD is detached."""
    return decode_path(head[4:].strip()).removeprefix(HEADS) if head.startswith(b"ref:") else ""


def _stat_signature(path: str) -> tuple[int, ...]:
    try:
        state = os.stat(path)
    except OSError:
        return ()
    return (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
