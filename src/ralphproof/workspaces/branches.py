"""Branches and tags before and after a turn: which ones moved, and which were lost."""

from __future__ import annotations

import os

from ralphproof.value import TYPE_CHECKING, value
from ralphproof.workspaces.index import GitFailed
from ralphproof.workspaces.layout import is_id, read_small
from ralphproof.workspaces.trees import decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ralphproof.workspaces.commits import Commits

    Refs = dict[str, str]

HEAD, HEADS, TAGS, STASH = "HEAD", "refs/heads/", "refs/tags/", "refs/stash"
STASHED = b"logs/refs/stash"  # every stash but the newest is named there alone
PACKED = b"packed-refs"
REF_FILES = ("HEAD", "packed-refs", "refs/heads/", "refs/tags/", "refs/remotes/", STASH, STASHED.decode())
MOST_TIPS = 2000  # past this only tips that are lost get a name of ours
TIPS, LOST = "tips", "lost-"
MOST_TOLD = 10
SHORT = 12


def is_ref_file(path: bytes) -> bool:
    """Whether a file of the repository's folder says what a ref names."""
    return path in (PACKED, b"HEAD", b"refs", STASHED) or path.startswith(b"refs/")


def refs_in(contents: Mapping[bytes, bytes]) -> Refs:
    """What branches, tags and remote branches name, and HEAD, by the files that say so. Symbolic ones are left out."""
    found: Refs = {}
    packed = (line.partition(b" ") for line in contents.get(PACKED, b"").split(b"\n"))
    loose = ((content.strip(), b"", path) for path, content in contents.items() if path.startswith(b"refs/"))
    for name, _, ref in (*packed, *loose):
        if is_id(named := name.decode("ascii", "replace")):
            found[decode(ref)] = named
    for line in contents.get(STASHED, b"").splitlines():
        if is_id(named := line[41:81].decode("ascii", "replace")) or is_id(
            named := line[65:129].decode("ascii", "replace")
        ):
            found[f"{STASH}/{named}"] = named
            if found.get(STASH) == named:
                del found[STASH]
    head = contents.get(b"HEAD", b"").strip()
    current = found.get(decode(head[4:].strip())) if head.startswith(b"ref:") else head.decode("ascii", "replace")
    return found | ({HEAD: current} if current and is_id(current) else {})


@value
class Moved:
    """A ref that names something else than before; None where it was, or is, not there."""

    ref: str
    old: str | None
    new: str | None

    @property
    def kind(self) -> str:
        return "tag" if self.ref.startswith(TAGS) else "stash" if self.ref.startswith(STASH) else "branch"

    @property
    def name(self) -> str:
        """What people call it."""
        return self.ref.removeprefix(TAGS if self.kind == "tag" else HEADS)

    @property
    def shown(self) -> str:
        return self.ref if self.ref == HEAD else "a stash" if self.kind == "stash" else f"{self.kind} {self.name}"


class Branches:
    """The branches and tags of one repository, for one run."""

    def __init__(self, commits: Commits, run: str) -> None:
        self._commits, self._run = commits, run

    @property
    def gone(self) -> bool:
        """Whether the repository itself is not there any more."""
        folders = self._commits.folders
        needed = (os.path.join(folders.git_dir, "HEAD"), folders.objects)
        return not all(map(os.path.exists, needed))

    def tie(self, refs: Refs) -> None:
        """Keep every tip from being pruned, whatever becomes of its name during the run."""
        tips = {ref: name for ref, name in refs.items() if ref.startswith((HEADS, TAGS, STASH))}
        if not tips or len(tips) > MOST_TIPS:
            return
        behind = self._commits.behind(dict.fromkeys(tips.values()))
        lines = "\n".join(f"{name} {ref}" for ref, name in sorted(tips.items()))
        parents = dict.fromkeys(behind[name] for name in tips.values() if name in behind)
        if parents:
            self._commits.tie(
                self._run, TIPS, parents, f"branches, tags and stashes at the start of the run\n\n{lines}"
            )

    def elsewhere(self, known: Iterable[str] | None = None) -> dict[str, str]:
        """The branches that other worktrees work on, by worktree; of the known ones alone, if they are given.

        Somebody else may commit there at any time.
        """
        folders = self._commits.folders
        heads = {"": folders.common} if folders.git_dir != folders.common else {}
        above = os.path.join(folders.common, "worktrees")
        names = sorted(os.listdir(above)) if os.path.isdir(above) else []
        heads |= {name: os.path.join(above, name) for name in names if os.path.join(above, name) != folders.git_dir}
        wanted = heads.keys() if known is None else heads.keys() & set(known)
        return {name: text for name in sorted(wanted) if (text := _head(heads[name]))}

    def moves(self, before: Refs, now: Refs, others: Iterable[str]) -> list[Moved]:
        """Branches and tags that are new, gone, or somewhere else; and HEAD, where it is on no branch."""
        spared = set(others)
        kinds = (HEADS, TAGS, STASH)
        names = sorted(ref for ref in before.keys() | now.keys() if ref.startswith(kinds) and ref not in spared)
        found = [Moved(ref, before.get(ref), now.get(ref)) for ref in names if before.get(ref) != now.get(ref)]
        named = {now[ref] for ref in names if ref in now}
        if now.get(HEAD) != before.get(HEAD) and now.get(HEAD) not in named:
            found.append(Moved(HEAD, before.get(HEAD), now.get(HEAD)))
        return found

    def lost(self, moves: list[Moved]) -> list[str]:
        """A remark for each tip that no longer has its name, with the way to get it back. It is named anew, for us."""
        told = [move for move in moves if move.ref != HEAD and (move.kind != "stash" or move.new is None)]
        lost = [move for move in told if move.old and not self._holds(move)]
        remarks = [self._remark(move) for move in lost[:MOST_TOLD]]
        if len(lost) > MOST_TOLD:
            where = f"refs/ralph/{self._run}/{TIPS}"
            remarks.append(
                f"{len(lost) - MOST_TOLD} more branches, tags and stashes were lost; git log -1 {where} names all"
            )
        return remarks

    def _holds(self, move: Moved) -> bool:
        if move.new is None or move.old is None or move.kind == "tag":
            return False
        try:
            return self._commits.descends(move.old, move.new)
        except GitFailed:
            return False  # parts of the history are missing

    def _remark(self, move: Moved) -> str:
        import shlex

        old = str(move.old)
        if move.new is None:
            what, name = f"{move.shown} was deleted; it was at {old[:SHORT]}", move.name
        else:
            what = f"{move.shown} was moved from {old[:SHORT]} to {move.new[:SHORT]}, which does not hold it"
            name = f"{move.name}-before"
        if not self._commits.is_there(old):
            return f"{what}, and that is no longer in the repository"
        self._commits.name(self._run, LOST + old[:SHORT], old)
        back = "stash store" if move.kind == "stash" else f"{move.kind} {shlex.quote(name)}"
        return f"{what}; get it back: git {back} {old[:SHORT]}"


def _head(folder: str) -> str:
    """The branch that a worktree works on; nothing where it is on none."""
    try:
        text = read_small(os.fsencode(os.path.join(folder, HEAD))).strip()
    except OSError:
        return ""
    return decode(text[4:].strip()) if text.startswith(b"ref:") else ""
