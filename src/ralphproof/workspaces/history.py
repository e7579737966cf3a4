"""The tripwires of history: refs and commits, before and after a turn."""

from __future__ import annotations

import os

from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.branches import HEAD, PACKED, SHORT, STASHED, Branches, is_ref_file, refs_in
from ralphproof.workspaces.holding import Holding
from ralphproof.workspaces.index import GitFailed
from ralphproof.workspaces.lost import POINTER, START
from ralphproof.workspaces.objects import ObjectMissing
from ralphproof.workspaces.trees import FILE, decode

if TYPE_CHECKING:
    from ralphproof.workspaces.attempt import Attempt
    from ralphproof.workspaces.branches import Moved, Refs
    from ralphproof.workspaces.commits import Commits
    from ralphproof.workspaces.trees import Entry
    from ralphproof.workspaces.vault import Armed, Vault
    from ralphproof.workspaces.watched import Place, Seen, Sight

    Sights = dict[str, Sight]

PROJECT, COMMON = "project", "git"


class HistoryWires:
    """Watches what the files in these places say of refs; git is asked only when they say something new."""

    def __init__(self, commits: Commits, run: str, vault: Vault, places: dict[str, Place]) -> None:
        self._commits, self._run, self._vault, self._places = commits, run, vault, places
        self._branches = Branches(commits, run)
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
        mark = _mark(os.path.join(self._commits.folders.common, "reftable", "tables.list"))
        try:
            if self._table is None or self._table[0] != mark or not mark:
                self._table = (mark, self._commits.refs())
        except GitFailed:
            self._table = ((), b"")
        sights[COMMON][PACKED] = (FILE, self._vault.contents.take(self._table[1]), 0o600)

    def switched(self, armed: Armed, sights: Sights) -> tuple[str, ...]:
        """The branch that was checked out, and the one that is now, where they differ. A reftable does not tell."""
        for name in self._places:
            old, new = armed.sights.get(name, {}).get(b"HEAD"), sights[name].get(b"HEAD")
            if old is None or new is None or old == new or not self._commits.folders.ref_files:
                continue
            try:
                found = [self._content(name, b"HEAD", seen, seen is old) for seen in (old, new)]
            except OSError:
                continue
            before, now = (_branch(text) for text in found)
            if before != now:
                return before, now
        return ()

    def judge(self, armed: Armed, sights: Sights, attempt: Attempt) -> list[str]:
        """Add to the attempt what commits hold; return what else to tell. Raises GitFailed, ObjectMissing."""
        before, now = self._refs(armed.sights, before=True), self._refs(sights, before=False)
        others = dict(armed.besides.elsewhere)
        spared = [*others.values(), *self._branches.elsewhere(others).values()]
        moves = self._branches.moves(before, now, spared)
        remarks = self._branches.lost(moves)
        files = armed.sights.get(PROJECT, {})

        def as_it_was(path: bytes, entry: Entry | None) -> bool:
            forced_in = entry is not None and self._was_ignored(path, before.get(HEAD))
            return not forced_in and self._is(files.get(path), entry)

        holding = Holding(self._commits, before, attempt.guard, as_it_was)
        found = holding.by(moves) if attempt.guard else []
        standing = [held for held in found if held.stands]
        for held in standing:
            paths = [one.path for one in standing if one.move == held.move]
            attempt.held(held.path, held.by, self._way_out(held.move, paths, before, sights))
        return [
            *remarks,
            *(f"{held.path} was changed and changed back: {held.by}" for held in found if not held.stands),
        ]

    def _way_out(self, move: Moved, paths: list[str], before: Refs, sights: Sights) -> str:
        """The command that takes these paths out of a ref. Other changes of its commits stay.

        Files of the branch that is checked out are left alone: they were put back, and may be the user's own.
        """
        import shlex

        if move.kind == "stash":
            return f"git stash drop stash@{{{self._stash_number(str(move.new), sights)}}}"
        if move.kind == "tag":
            old = f"-f {shlex.quote(move.name)} {move.old[:SHORT]}" if move.old else f"-d {shlex.quote(move.name)}"
            return f"git tag {old}"
        start = before.get(HEAD)
        named = [(path, path.encode("utf-8", "surrogateescape")) for path in sorted(set(paths))]
        known = [path for path, name in named if start and self._commits.entry(start, name)]
        new = [path for path, _ in named if path not in known]
        here = move.ref == HEAD or self._current(sights) == move.name
        words = [] if here else [f"git switch {shlex.quote(move.name)}"]
        which, cached = ("--staged", " --cached") if here else ("--staged --worktree", "")
        words += [f"git restore --source={str(start)[:SHORT]} {which} -- {shlex.join(known)}"] if known else []
        words += [f"git rm -q{cached} -- {shlex.join(new)}"] if new else []
        return " && ".join([*words, "git commit -m 'Put back what is protected'"])

    def _stash_number(self, commit: str, sights: Sights) -> int:
        """Which stash this is, as `git stash list` counts them: the newest is 0."""
        try:
            log = self._content(COMMON, STASHED, sights[COMMON][STASHED], before=False).splitlines()
        except (KeyError, OSError):
            return 0
        newest_first = [line for line in reversed(log) if line]
        return next((at for at, line in enumerate(newest_first) if commit.encode() in line.split()[1:2]), 0)

    def _current(self, sights: Sights) -> str:
        """The branch that is checked out now."""
        for name in self._places:
            if seen := sights[name].get(b"HEAD"):
                return _branch(self._content(name, b"HEAD", seen, before=False))
        return ""

    def staged(self, armed: Armed, sights: Sights, attempt: Attempt) -> None:
        """Say of touched files that the index holds the change as well: the next commit would take it from there."""
        import shlex

        paths = [path.encode("utf-8", "surrogateescape") for path in attempt.stopping]
        if not paths:
            return
        refs = (self._refs(armed.sights, before=True), self._refs(sights, before=False))
        heads = [known[HEAD] for known in refs if HEAD in known]
        files = armed.sights.get(PROJECT, {})
        for path, entry in self._commits.staged(paths).items():
            committed = [self._commits.entry(head, path) for head in heads]
            if path in paths and entry not in committed and not self._is(files.get(path), entry):
                attempt.held(decode(path), "the index", f"git restore --staged -- {shlex.quote(decode(path))}")

    def _was_ignored(self, path: bytes, head: str | None) -> bool:
        """Whether a file was in no commit, and not in what was saved at the run's start either."""
        known = [
            name for name in (self._commits.named(self._run, START), head) if name and self._commits.is_there(name)
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
        pointed = saved.startswith(POINTER) and seen[1].encode() in saved
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
        return refs_in(contents)

    def _content(self, name: str, path: bytes, seen: Seen, before: bool) -> bytes:
        if before:
            return self._vault.contents.read(seen[1])
        if path == PACKED and self._table is not None:
            return self._table[1]
        return self._places[name].content(path, seen)


def _branch(head: bytes) -> str:
    """The branch that HEAD says; empty where it names a commit."""
    return decode(head[4:].strip()).removeprefix("refs/heads/") if head.startswith(b"ref:") else ""


def _mark(path: str) -> tuple[int, ...]:
    try:
        state = os.stat(path)
    except OSError:
        return ()
    return (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
