"""Commits of a turn that hold changes of protected paths, whatever the files themselves look like."""

from __future__ import annotations

from ralphproof.value import TYPE_CHECKING, value
from ralphproof.workspaces.branches import HEAD, SHORT, Moved
from ralphproof.workspaces.trees import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ralphproof.workspaces.branches import Refs
    from ralphproof.workspaces.commits import Commits
    from ralphproof.workspaces.trees import Entry

    Touching = dict[bytes, list[str]]  # path: commits, newest first


@value
class Held:
    """A path that new commits of a ref changed. It `stands` where the ref's tip still has the change."""

    path: str
    by: str
    stands: bool
    move: Moved


class Holding:
    """Looks through the commits that no ref named `before` the turn held.

    `protected` tells of a path whether it is; `as_it_was` whether what a commit holds there is what the file was.
    """

    def __init__(
        self, commits: Commits, before: Refs, protected: Callable[[bytes], bool],
        as_it_was: Callable[[bytes, Entry | None], bool],
    ) -> None:  # fmt: skip
        self._commits, self._before, self._protected, self._as_it_was = commits, before, protected, as_it_was

    def by(self, moves: list[Moved]) -> list[Held]:
        """What the refs that moved hold now."""
        asked = self._asked([move for move in moves if move.new])
        found = [self._held(move, path, commits) for move, touching in asked for path, commits in touching.items()]
        return [held for held in found if held]

    def _asked(self, moves: list[Moved]) -> Iterator[tuple[Moved, Touching]]:
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

    def _held(self, move: Moved, path: bytes, commits: list[str]) -> Held | None:
        tip = commits[0] if move.kind == "stash" else str(move.new)  # new files are in a commit beside the stash's own
        now, was = self._commits.entry(tip, path), self._commits.entry(f"{commits[-1]}^", path)
        usual = [self._commits.entry(name, path) for name in (move.old, self._before.get(HEAD)) if name]
        if now != was and (now in usual or self._as_it_was(path, now)):
            return None  # older commits were made anew, as a rebase does; or the user's own changes were committed
        return Held(decode(path), f"{move.shown}, commit {commits[0][:SHORT]}", now != was, move)
