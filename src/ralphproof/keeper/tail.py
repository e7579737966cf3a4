"""Reads a log while it grows, each byte once and in order."""

from __future__ import annotations

import os

from ralphproof.keeper.log import opened
from ralphproof.keeper.stitch import gap, leftover_segments, segment
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST = 1 << 18


class Tail:
    """A reader's place in a log. `offset` counts the bytes of the stream that are behind it."""

    def __init__(self, path: str, sizes: tuple[int, int, int]) -> None:
        self.path = path
        self.offset = 0
        self._head, self._segment, _ = sizes
        self._number = 0  # of the file that is open: 0 is the head
        self._end = self._head  # where in the stream that file ends
        self._fd = -1

    def grown(self) -> Iterator[bytes]:
        """What has come since, while the keeper writes."""
        # The head is never read past its end: it may be stitched any time.
        while True:
            if self.offset == self._end:
                self._turn_to(self._number + 1)
            if self._fd < 0 and not self._open():
                skipped = self._skip()
                if not skipped:
                    return
                yield skipped
                continue
            data = self._read()
            if not data:
                return
            self.offset += len(data)
            yield data

    def rest(self, stored: int, evicted: int) -> Iterator[bytes]:
        """What is left, once the log is closed and put together."""
        self.close()
        self._fd = opened(self.path)
        if self._fd < 0:
            return
        yield from self._until(min(stored, self._head), self.offset)
        if self._head <= self.offset < self._head + evicted:
            yield gap(self._head + evicted - self.offset)
            self.offset = self._head + evicted
        if self.offset < stored:
            yield from self._until(stored, os.fstat(self._fd).st_size - (stored - self.offset))
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _until(self, end: int, position: int) -> Iterator[bytes]:
        while self.offset < end and (data := os.pread(self._fd, min(_MOST, end - self.offset), position)):
            self.offset += len(data)
            position += len(data)
            yield data

    def _open(self) -> bool:
        self._fd = opened(segment(self.path, self._number) if self._number else self.path)
        return self._fd >= 0

    def _read(self) -> bytes:
        try:
            return os.read(self._fd, min(_MOST, self._end - self.offset))
        except OSError:  # of a disk that fails; `rest` tries again
            return b""

    def _turn_to(self, number: int) -> None:
        self.close()
        self._number = number
        self._end = self._head + number * self._segment

    def _skip(self) -> bytes:
        """Go on at the next segment that is still there, if ours went before we came."""
        if self._closing():
            return b""  # ours is on its way to the head, where `rest` will find it
        later = [number for number in leftover_segments(self.path) if number >= self._number] if self._number else []
        if not later or later[0] == self._number:  # it came while we looked
            return b""
        before = self.offset
        self._turn_to(later[0])
        self.offset = self._end - self._segment
        return gap(self.offset - before)

    def _closing(self) -> bool:
        """The keeper puts the log together: the head grows past its end before the first segment goes."""
        try:
            return os.stat(self.path, follow_symlinks=False).st_size > self._head
        except OSError:
            return False
