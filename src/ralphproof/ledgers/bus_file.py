"""The file of a bus, in a folder that an agent may write to: nothing is followed, waited for or read without bound."""

from __future__ import annotations

import errno
import os
import stat
import time

from ralphproof.errors import Refused
from ralphproof.ledgers.files import enter, write_whole
from ralphproof.ledgers.folder import IGNORED
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PIECE_BYTES = 1 << 16
LINE_BYTES = 1 << 20
MARK_BYTES = 256
TOO_LONG = b"\0"  # stands for a line of which nothing is kept
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_SHORTEST_S, _LONGEST_S = 0.0005, 0.02  # between two attempts at a lock


def open_folder(path: str, make: bool) -> int:
    """A descriptor of a folder. What lies in `.ralph`, and else the folder itself, may be no symbolic link."""
    before, mark, inner = (path + os.sep).rpartition("/.ralph/")
    names = [".ralph", *filter(None, inner.split(os.sep))] if mark else [os.path.basename(path)]
    above = before if mark else os.path.dirname(path)
    opened = [os.open(above or os.sep, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
    try:
        for name in names:
            inside, made = enter(opened[-1], name) if make else (_within(opened[-1], name), False)
            opened.append(inside)
            if made and name == ".ralph":
                write_whole(inside, ".gitignore", IGNORED.encode())
        return opened.pop()
    finally:
        for folder in opened:
            os.close(folder)


def _within(folder: int, name: str) -> int:
    return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)


def open_file(folder: int, name: str, path: str, write: bool) -> int:
    """A descriptor of a regular file; whatever else has its name is refused. A writer makes one that is missing."""
    try:
        _must_be_file(os.stat(name, dir_fd=folder, follow_symlinks=False), path, write)
    except FileNotFoundError:
        if not write:
            raise
    ours = os.O_RDWR | os.O_APPEND | os.O_CREAT if write else os.O_RDONLY
    file = os.open(name, ours | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        _must_be_file(os.fstat(file), path, write)
    except Refused:
        os.close(file)
        raise
    return file


def _must_be_file(found: os.stat_result, path: str, write: bool) -> None:
    """What is written to may have no second name either: an agent could have given it one in a place of its choice."""
    if not stat.S_ISREG(found.st_mode):
        raise Refused(f"{path} is not a file; move it away")
    if write and found.st_nlink > 1:
        raise Refused(f"{path} is a file that has another name as well; move it away")


def take(file: int, path: str, until: float) -> None:
    """Keep other writers out until the file is closed; refused where somebody else holds it until then (monotonic)."""
    import fcntl

    wait_s = _SHORTEST_S
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return None  # such a file system still appends what is written at once in one piece
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            if time.monotonic() >= until:
                raise Refused(f"{path} is locked by another process; try again") from None
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, _LONGEST_S)


def is_at(file: int, folder: int, name: str) -> bool:
    """Whether an open file still has this name."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(file))


def append(file: int, data: bytes) -> None:
    """Put whole lines behind what is there; a line that was cut off is ended first."""
    size = os.fstat(file).st_size
    torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
    left = memoryview(b"\n" + data if torn else data)
    while left:  # once, but where the disk is full
        left = left[os.write(file, left) :]


class Tail:
    """The lines of an open file from a place on, in bounded memory. `place` is behind the last one that was read.

    `inside` says that the place may be in the middle of a line, of which nothing is told then.
    """

    def __init__(self, file: int, place: int = 0, inside: bool = False) -> None:
        self.file, self.place = file, place
        self._read = place
        self._kept = b""  # the beginning of a line whose end is not there yet
        self._too_long = inside
        self._mark = b""  # what was read last

    @property
    def torn(self) -> bool:
        """Whether the last line has no end."""
        return bool(self._kept) or self._too_long

    @property
    def lost(self) -> bool:
        """Whether the file no longer has what was read of it last: it was shortened, and may have grown again."""
        return os.pread(self.file, len(self._mark), self._read - len(self._mark)) != self._mark

    def lines(self, end: int | None = None) -> Iterator[bytes]:
        """The lines that are there now, without their breaks; nothing behind `end`."""
        last = os.fstat(self.file).st_size if end is None else end
        while self._read < last and (piece := os.pread(self.file, min(PIECE_BYTES, last - self._read), self._read)):
            self._read += len(piece)
            self._mark = (self._mark + piece)[-MARK_BYTES:]
            *whole, rest = piece.split(b"\n")
            for line in whole:
                full, long = self._kept + line, self._too_long
                self.place += len(full) + 1
                self._kept, self._too_long = b"", False
                yield TOO_LONG if long or len(full) > LINE_BYTES else full
            self._kept += rest
            if len(self._kept) > LINE_BYTES:
                self.place += len(self._kept)
                self._kept, self._too_long = b"", True
