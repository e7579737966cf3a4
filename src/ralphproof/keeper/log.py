"""A log on disk that is bounded: the beginning of a stream, its end, and how much was dropped between.

Past the head the stream goes to numbered segments of which only the last few stay. At the end they are stitched to the
head. A reader that follows the log (`tail`) has time to read a segment before it goes.
"""

from __future__ import annotations

import os
import stat

# Bytes of the head, bytes of a segment, how many full segments stay.
SIZES = (32 << 20, 8 << 20, 4)


def gap(dropped: int) -> bytes:
    """What stands in a log, and in what a reader gets, where bytes were dropped."""
    return b"\n... [truncated] %d bytes dropped\n" % dropped


def segment(path: str, number: int) -> str:
    """The file of a segment; the first is number 1."""
    return f"{path}.{number}"


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
        if self._head_fd >= 0:
            os.close(self._head_fd)


def stitch(head_fd: int, segments: list[str], evicted: int) -> None:
    """Move the segments to the end of the head. If the disk is too full, the head stays as it was."""
    size = os.fstat(head_fd).st_size
    try:
        if evicted:
            os.write(head_fd, gap(evicted))
        for path in segments:
            _move(path, head_fd)
    except OSError:
        os.ftruncate(head_fd, size)
        raise


def _move(path: str, to: int) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while data := os.read(fd, 1 << 20):
            view = memoryview(data)
            while view:
                view = view[os.write(to, view) :]
    finally:
        os.close(fd)
    os.unlink(path)


def _fresh(path: str) -> int:
    """A new file, whatever stood there: a planted link must not lead our writes elsewhere."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)


def leftover_segments(path: str) -> list[int]:
    """The numbers of segments that are on disk, in order."""
    folder, name = os.path.split(path)
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return []
    numbers = (other[len(name) + 1 :] for other in names if other.startswith(name + "."))
    return sorted(int(number) for number in numbers if number.isdigit())


def close_abandoned(path: str, sizes: tuple[int, int, int]) -> tuple[int, int]:
    """Put a dead keeper's log together: how many bytes it had stored, and how many were evicted."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return 0, 0
    try:
        stored, numbers = os.fstat(fd).st_size, leftover_segments(path)
        if not numbers:
            return stored, 0
        evicted = (numbers[0] - 1) * sizes[1]
        kept = sum(os.stat(segment(path, number)).st_size for number in numbers)
        stitch(fd, [segment(path, number) for number in numbers], evicted)
        return stored + evicted + kept, evicted
    finally:
        os.close(fd)
