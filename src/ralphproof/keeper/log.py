"""A log on disk that is bounded: the beginning of a stream, its end, and how much was dropped between.

Past the head the stream goes to numbered segments of which only the last few stay. At the end they are stitched to the
head. A reader that follows the log (`tail`) has time to read a segment before it goes.
"""

from __future__ import annotations

import os
import stat

from ralphproof.keeper.stitch import segment, stitch

# Bytes of the head, bytes of a segment, how many full segments stay.
SIZES = (32 << 20, 8 << 20, 4)


def opened(path: str) -> int:
    """A descriptor to read a log with; -1 where there is none, or something else that somebody put in its place."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return -1
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return -1


class Log:
    """Takes every byte and never fails: what the disk refuses is counted in `lost`, and `error` says why."""

    def __init__(self, path: str, sizes: tuple[int, int, int]) -> None:
        self.path = path
        self.stored = 0  # bytes that went to disk, whether or not they are still there
        self.lost = 0
        self.evicted = 0
        self.error = ""
        self._head, self._segment, self._keep = sizes
        self._made = 0
        self._live: list[str] = []
        self._room = self._head
        self._fd = self._head_fd = -1
        try:
            self._fd = self._head_fd = _fresh(path)
        except OSError as error:
            self.error = f"{path}: {error.strerror}"

    @property
    def dropped(self) -> int:
        """Bytes of the stream that are not in the log."""
        return self.lost + self.evicted

    def write(self, data: bytes) -> None:
        """Append; a disk that is full now may take the next bytes."""
        view = memoryview(data)
        while view:
            try:
                if self._room == 0:
                    self._next()
                wrote = os.write(self._fd, view[: self._room])
            except OSError as error:
                self.error = self.error or f"{self.path}: {error.strerror}"
                self.lost += len(view)
                return
            self._room -= wrote
            self.stored += wrote
            view = view[wrote:]

    def _next(self) -> None:
        path = segment(self.path, self._made + 1)
        fd = _fresh(path)
        if self._fd != self._head_fd:
            os.close(self._fd)
        self._fd, self._room = fd, self._segment
        self._made += 1
        self._live.append(path)
        if len(self._live) > self._keep + 1:
            os.unlink(self._live.pop(0))
            self.evicted += self._segment

    def close(self) -> None:
        """Put the log together; nothing is written after this."""
        if self._fd != self._head_fd:
            os.close(self._fd)
        if self._live:
            try:
                stitch(self._head_fd, self._live, self.evicted)
            except OSError as error:
                self.error = self.error or f"{self.path}: {error.strerror}"
                self.evicted = self.stored - self._head
                os.ftruncate(self._head_fd, self._head)
        if self._head_fd >= 0:
            os.close(self._head_fd)


def _fresh(path: str) -> int:
    """A new file, whatever stood there: a planted link must not lead our writes elsewhere."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
