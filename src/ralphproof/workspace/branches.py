"""Branches and tags before and after a turn: which moved, which were lost."""

from __future__ import annotations

import os

from ralphproof.base.git_layout import is_object_id, read_regular_file
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.workspace.git_command import GitFailed
from ralphproof.workspace.git_objects import decode_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ralphproof.workspace.git_objects import CommitStore

    Refs = dict[str, str]

HEAD, HEADS, TAGS, STASH = "HEAD", "refs/heads/", "refs/tags/", "refs/stash"
STASH_LOG = b"logs/refs/stash"  # every stash but the newest is named there alone
PACKED_REFS = b"packed-refs"
REF_FILES = ("HEAD", "packed-refs", "refs/heads/", "refs/tags/", "refs/remotes/", STASH, STASH_LOG.decode())
MAX_TIPS = 2000  # past this only tips that are lost get a name of ours
TIPS_NAME, LOST_PREFIX = "tips", "lost-"
MAX_LISTED = 10
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
        import shlex

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
