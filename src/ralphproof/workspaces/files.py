"""Looking at files: what a path holds now, read again only where it may have changed."""

from __future__ import annotations

import errno
import os
import stat
import time

from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.layout import read_all
from ralphproof.workspaces.trees import FILE, LINK, PROGRAM

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.workspaces.trees import Entry

    Signature = tuple[int, ...]

LARGEST_BYTES = 50 * 1024 * 1024
SETTLED_NS = 2_000_000_000  # a file changed less than this before we read it may change again unseen (coarse clocks)


class Unreadable(Exception):
    """The path is there and cannot be read; `signature` tells whether it is still as it was."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature


class Files:
    """Turns paths below `root` into entries; content goes to `keep`, which names it."""

    def __init__(self, root: str, keep: Callable[[bytes], str]) -> None:
        self.root, self._keep = os.fsencode(root), keep
        self._seen: dict[bytes, tuple[Signature, Entry, int]] = {}
        self._folders: dict[bytes, bool] = {b"": True}
        self.large: set[bytes] = set()

    def begin(self) -> None:
        """Start a new look at everything."""
        self._folders = {b"": True}
        self.large = set()

    def look(self, path: bytes) -> Entry | None:
        """What the path holds; None where it holds nothing that is saved. Too large a file goes to `large`."""
        full = self.root + b"/" + path
        try:
            state = os.lstat(full) if self._inside(os.path.dirname(path)) else None
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError:
            raise Unreadable(()) from None
        if state is None or not (stat.S_ISREG(state.st_mode) or stat.S_ISLNK(state.st_mode)):
            return None
        if state.st_size > LARGEST_BYTES:
            self.large.add(path)
            return None
        return self._entry(path, full, state)

    def _inside(self, folder: bytes) -> bool:
        """Whether no symbolic link lies on the way: behind one are files of somewhere else."""
        if folder not in self._folders:
            above = self._inside(os.path.dirname(folder))
            self._folders[folder] = above and stat.S_ISDIR(os.lstat(self.root + b"/" + folder).st_mode)
        return self._folders[folder]

    def _entry(self, path: bytes, full: bytes, state: os.stat_result) -> Entry | None:
        signature = _signature(state)
        seen = self._seen.get(path)
        if seen and seen[0] == signature and seen[2] - state.st_ctime_ns > SETTLED_NS:
            return seen[1]
        started = time.time_ns()
        try:
            read = _read(full)
        except PermissionError:
            raise Unreadable(signature) from None
        if read is None:
            return None
        entry = (read[0], self._keep(read[1]))
        if read[2] == signature:
            self._seen[path] = (signature, entry, started)
        return entry

    def forget(self) -> None:
        """Read everything again."""
        self._seen.clear()


def _signature(state: os.stat_result) -> Signature:
    return (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_mode)


def _read(full: bytes) -> tuple[bytes, bytes, Signature] | None:
    """Mode, content, and the signature that both belong to. A file that keeps changing is taken as last read."""
    last = None
    for _ in range(3):
        try:
            last, steady = _read_once(full)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.EINVAL):
                raise
            continue  # it became something else between two calls
        if steady:
            return last
    return last


def _read_once(full: bytes) -> tuple[tuple[bytes, bytes, Signature], bool]:
    before = os.lstat(full)
    if stat.S_ISLNK(before.st_mode):
        return (LINK, os.readlink(full), _signature(before)), True
    descriptor = os.open(full, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        content = read_all(descriptor, LARGEST_BYTES)
        after = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    steady = _signature(before) == _signature(after) and len(content) == after.st_size
    return (mode_of(after), content, _signature(after) if steady else ()), steady


def mode_of(state: os.stat_result) -> bytes:
    return PROGRAM if state.st_mode & 0o100 else FILE
