"""Which files of a work tree there are to look at."""

from __future__ import annotations

import os

from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.index import NOT_OURS, OURS, GitFailed

if TYPE_CHECKING:
    from ralphproof.workspaces.index import PrivateIndex

HIDDEN_MOST = 2000  # newly ignored files in one folder: past this it is a build's output, named and not saved
NESTED_DEEPEST = 8
VANISHED = (": No such file or directory", ": Not a directory")


class Listing:
    """Paths that differ from the private index, and what git complained about on the way."""

    def __init__(self, index: PrivateIndex, own: frozenset[bytes]) -> None:
        self._index, self._own = index, own
        self._theirs: tuple[int, ...] | None = None
        self._forced: set[bytes] = set()
        self._settled: set[bytes] = set()
        self.complaints: set[str] = set()

    def changed(self) -> set[bytes]:
        """Modified, deleted and new paths; files inside nested repositories one by one."""
        self.complaints = set()
        reply = self._list("-t", "-m", "-d", "-o", "--exclude-standard", *NOT_OURS)
        paths = {record[2:] for record in reply.split(b"\0") if record}
        return self._whole(paths) | (self._ignored_but_tracked() - self._settled)

    def settle(self, unreadable: set[bytes]) -> None:
        """The private index now holds all that was listed, save these."""
        self._settled = self._forced - unreadable

    def everything(self) -> set[bytes]:
        """Every path that is not ignored, whether tracked or not; the private index must be empty."""
        self.complaints = set()
        self._theirs = None
        env = self._index.env | {"GIT_INDEX_FILE": os.path.join(self._index.folder, "none")}
        reply = self._list("-o", "--exclude-standard", *NOT_OURS, env=env)
        return self._whole(set(reply.split(b"\0")) - {b""}) | self._ignored_but_tracked()

    def unhidden(self, rules: str) -> set[bytes]:
        """Every path outside the private index that these rules alone do not ignore."""
        reply = self._list("-o", f"--exclude-from={rules}", *NOT_OURS)
        return self._whole(set(reply.split(b"\0")) - {b""})

    def _list(self, *args: str, env: dict[str, str] | None = None) -> bytes:
        reply = self._index.must("ls-files", "-z", *args, env=env)
        lines = reply.err.decode("utf-8", "replace").splitlines()
        self.complaints |= {line for line in lines if line and not line.endswith(VANISHED)}
        return reply.out

    def _whole(self, paths: set[bytes]) -> set[bytes]:
        nested = {path for path in paths if path.endswith(b"/")}
        found = paths - nested
        for folder in nested:
            found |= self._nested(folder, NESTED_DEEPEST)
        return {path for path in found - self._own if path.split(b"/", 1)[0] not in OURS}

    def _nested(self, folder: bytes, deepest: int) -> set[bytes]:
        """The files of a repository inside the work tree: git alone would keep only a link to its commit."""
        if deepest == 0:
            raise GitFailed("repositories are nested too deeply")
        inside = os.path.join(self._index.root, os.fsdecode(folder))
        env = self._index.env | {"GIT_WORK_TREE": inside, "GIT_INDEX_FILE": os.path.join(self._index.folder, "none")}
        found: set[bytes] = set()
        for path in set(self._list_in(inside, env).split(b"\0")) - {b""}:
            found |= self._nested(folder + path, deepest - 1) if path.endswith(b"/") else {folder + path}
        return found

    def _list_in(self, folder: str, env: dict[str, str]) -> bytes:
        reply = self._index.ask("-C", folder, "ls-files", "-z", "-o", "--exclude-standard", env=env)
        if reply.code != 0 and os.path.isdir(folder):
            raise GitFailed(f"git ls-files: {reply.said}")
        return reply.out if reply.code == 0 else b""

    def _ignored_but_tracked(self) -> set[bytes]:
        """Files that match an ignore rule and are in the user's index all the same."""
        git_dir = self._index.folders.git_dir
        try:
            state = os.stat(os.path.join(git_dir, "index"))
        except OSError:
            return self._forced
        theirs = (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
        if theirs != self._theirs:
            env = {name: text for name, text in self._index.env.items() if name != "GIT_OBJECT_DIRECTORY"}
            reply = self._index.ask("ls-files", "-z", "-c", "-i", "--exclude-standard", *NOT_OURS,
                                    env=env | {"GIT_DIR": git_dir})  # fmt: skip
            if reply.code == 0:
                tracked = {path for path in reply.out.split(b"\0") if path and path.split(b"/", 1)[0] not in OURS}
                self._forced, self._theirs = self._forced | tracked, theirs
        return self._forced


def fold_away(hidden: set[bytes]) -> tuple[set[bytes], set[bytes]]:
    """The newly hidden files to save, and the folders that hold too many of them."""
    counts: dict[bytes, int] = {}
    for path in hidden:
        top = path.split(b"/", 1)[0]
        counts[top] = counts.get(top, 0) + 1
    heavy = {top for top, count in counts.items() if count > HIDDEN_MOST}
    return {path for path in hidden if path.split(b"/", 1)[0] not in heavy}, {top + b"/" for top in heavy}
