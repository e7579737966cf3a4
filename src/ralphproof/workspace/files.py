"""Reading of work tree files, again only where they may have changed, and their change times."""

from __future__ import annotations

import errno
import os
import stat
import time

from ralphproof.base.git_layout import read_descriptor
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.workspace.git_objects import MODE_EXECUTABLE, MODE_FILE, MODE_LINK
from ralphproof.workspace.restore_files import TEMPORARY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ralphproof.workspace.git_objects import Entry

    Signature = tuple[int, ...]


OWN_NAMES = (b".ralph", b".ralph-active")  # at the top of a project; never saved
MAX_FILE_BYTES = 50 * 1024 * 1024
SETTLED_NS = 2_000_000_000  # a file changed less than this before we read it may change again unseen (coarse clocks)


class UnreadableFile(Exception):
    """The path exists and cannot be read; `signature` tells whether it is unchanged."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature


class FileReader:
    """Reads paths below `root` as git entries; `keep` stores a content and returns its id."""

    def __init__(self, root: str, keep: Callable[[bytes], str]) -> None:
        self.root, self._keep = os.fsencode(root), keep
        self._seen: dict[bytes, tuple[Signature, Entry, int]] = {}
        self._folders: dict[bytes, bool] = {b"": True}
        self.too_large: set[bytes] = set()

    def start_scan(self) -> None:
        """Begin a new pass over all files."""
        self._folders = {b"": True}
        self.too_large = set()

    def read_entry(self, path: bytes) -> Entry | None:
        """The entry at the path; None where there is nothing to save. A file over the size limit is added to
        `too_large`.
        """
        full = self.root + b"/" + path
        try:
            state = os.lstat(full) if self._is_inside_root(os.path.dirname(path)) else None
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError:
            raise UnreadableFile(()) from None
        if state is None or not (stat.S_ISREG(state.st_mode) or stat.S_ISLNK(state.st_mode)):
            return None
        if state.st_size > MAX_FILE_BYTES:
            self.too_large.add(path)
            return None
        return self._entry(path, full, state)

    def _is_inside_root(self, folder: bytes) -> bool:
        """Whether no symbolic link is among the parent folders: behind one are files outside the root."""
        if folder not in self._folders:
            above = self._is_inside_root(os.path.dirname(folder))
            self._folders[folder] = above and stat.S_ISDIR(os.lstat(self.root + b"/" + folder).st_mode)
        return self._folders[folder]

    def _entry(self, path: bytes, full: bytes, state: os.stat_result) -> Entry | None:
        signature = _signature(state)
        seen = self._seen.get(path)
        if seen and seen[0] == signature and seen[2] - state.st_ctime_ns > SETTLED_NS:
            return seen[1]
        started = time.time_ns()
        try:
            read = _read_stable(full)
        except PermissionError:
            raise UnreadableFile(signature) from None
        if read is None:
            return None
        entry = (read[0], self._keep(read[1]))
        if read[2] == signature:
            self._seen[path] = (signature, entry, started)
        return entry

    def clear_cache(self) -> None:
        """Read every file again."""
        self._seen.clear()


def _signature(state: os.stat_result) -> Signature:
    return (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_mode)


def _read_stable(full: bytes) -> tuple[bytes, bytes, Signature] | None:
    """Mode, content, and the signature of both. A file that keeps changing is taken as last read."""
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
        return (MODE_LINK, os.readlink(full), _signature(before)), True
    descriptor = os.open(full, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        content = read_descriptor(descriptor, MAX_FILE_BYTES)
        after = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    steady = _signature(before) == _signature(after) and len(content) == after.st_size
    return (git_mode(after), content, _signature(after) if steady else ()), steady


def git_mode(state: os.stat_result) -> bytes:
    return MODE_EXECUTABLE if state.st_mode & 0o100 else MODE_FILE


# Separation of a turn's changes from earlier ones by ctime.
#
# The ctime of a file cannot be set back. A changed file whose ctime lies before the turn was changed by a check or by a
# person, not by this turn. The mark is the ctime of a file too, because the clock that stamps files is coarser than the
# one that programs read.


IGNORED_FOLDERS = frozenset((b".git", b".ralph", b".ralph-active", b"node_modules", b".venv", b"__pycache__"))
CLOCK_STEP_S = 0.001  # well under a step of that clock, which takes some milliseconds


class ChangeTimes:
    """A mark in time, and which files were changed after it."""

    def __init__(self, root: str, private: str) -> None:
        self._root, self._stamp = os.fsencode(root), os.path.join(os.fsencode(private), b"instant")
        self._mark_ns = self._last_look_ns = self._stored_mark()

    def mark_now(self) -> None:
        """Set the mark to now. Waits for the next step of the coarse file clock, so that it is later than any earlier
        change.
        """
        before = self._touch(self._stamp)
        while (instant := self._touch(self._stamp)) == before:
            time.sleep(CLOCK_STEP_S)
        self._mark_ns = self._last_look_ns = instant

    def unchanged_since_mark(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Those of the paths that were not changed since the mark; for a deleted path its folder counts."""
        return tuple(path for path in paths if self._ctime_ns(path.encode("utf-8", "surrogateescape")) < self._mark_ns)

    def changed_since(self, paths: Iterable[str], instant_ns: int) -> tuple[str, ...]:
        """Those of the paths that were last changed after this instant, without our own temporary files."""
        names = ((path, path.encode("utf-8", "surrogateescape")) for path in paths)
        others = ((path, name) for path, name in names if not os.path.basename(name).startswith(TEMPORARY_PREFIX))
        return tuple(path for path, name in others if self._ctime_ns(name) > instant_ns)

    def has_activity(self) -> bool:
        """Whether any file or folder was changed since the mark, or since the last call."""
        before, self._last_look_ns = self._last_look_ns, self._touch(self._stamp + b"-looked")
        return any(changed >= before for changed in _ctimes_below(self._root))

    def _stored_mark(self) -> int:
        """The mark that another process set last: this process may continue its run."""
        try:
            return os.stat(self._stamp).st_ctime_ns
        except OSError:
            return 0

    def _touch(self, stamp: bytes) -> int:
        file = os.open(stamp, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.utime(file)
            return os.fstat(file).st_ctime_ns
        finally:
            os.close(file)

    def _ctime_ns(self, path: bytes) -> int:
        while True:
            try:
                return os.lstat(os.path.join(self._root, path)).st_ctime_ns
            except OSError:
                if not path:
                    return self._mark_ns  # the root itself is gone: that is news
                path = os.path.dirname(path)


def _ctimes_below(folder: bytes) -> Iterable[int]:
    folders = [folder]
    while folders:
        here = folders.pop()
        try:
            yield os.lstat(here).st_ctime_ns
            entries = list(os.scandir(here))
        except OSError:
            continue  # it went away while we looked
        for entry in entries:
            if entry.name in IGNORED_FOLDERS:
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
                continue
            try:
                yield entry.stat(follow_symlinks=False).st_ctime_ns
            except OSError:
                continue
