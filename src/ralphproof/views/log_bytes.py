"""Where the bytes of a log lie: in one file, and while it is written in several.

They are counted as they were printed, so each keeps its number when the log is put together at its end.
"""

from __future__ import annotations

import os

from ralphproof.keeper.log import SIZES, opened
from ralphproof.keeper.stitch import gap, leftover_segments, noted, segment
from ralphproof.value import value


@value
class Stretch:
    """The bytes from `start` to `end`, in a file from `at` on; without a path they were dropped."""

    start: int
    end: int
    path: str = ""
    at: int = 0


@value
class LogBytes:
    """All stretches of a log, in order. While it is put together only its head can be read: the rest is `coming`."""

    stretches: tuple[Stretch, ...] = ()
    coming: bool = False

    @property
    def size(self) -> int:
        return self.stretches[-1].end if self.stretches else 0

    def dropped_at(self, place: int) -> Stretch | None:
        """What was dropped where this byte was."""
        return next((one for one in self.stretches if not one.path and one.start <= place < one.end), None)

    def bounds(self, place: int) -> tuple[int, int]:
        """From where to where everything is there around this byte."""
        gaps = [one for one in self.stretches if not one.path]
        low = max((one.end for one in gaps if one.end <= place), default=0)
        return low, min((one.start for one in gaps if one.start >= place), default=self.size)

    def read(self, low: int, high: int) -> bytes:
        """These bytes, of which none was dropped; fewer where a file went at this moment."""
        data = b""
        for one in self.stretches:
            if one.path and one.end > low + len(data) and low + len(data) < high:
                begin = low + len(data)
                data += _read(one.path, one.at + begin - one.start, min(high, one.end) - begin)
        return data


def bytes_of(path: str, live: bool, sizes: tuple[int, int, int] = SIZES) -> LogBytes | None:
    """Where a log lies; None where there is none."""
    file = opened(path) if path else -1
    if file < 0:
        return None
    head = sizes[0]
    try:
        size = os.fstat(file).st_size
        dropped = noted(os.pread(file, 64, head)) if size > head and not live else 0
    finally:
        os.close(file)
    if live and size >= head:
        return _growing(path, size, sizes)
    if not dropped:
        return LogBytes((Stretch(0, size, path),))
    rest, again = head + len(gap(dropped)), head + dropped
    ends = Stretch(head, again), Stretch(again, again + size - rest, path, rest)
    return LogBytes((Stretch(0, head, path), *ends))


def _growing(path: str, size: int, sizes: tuple[int, int, int]) -> LogBytes:
    """A log that is longer than its head: what follows is in segments, of which the first may be gone."""
    head, each, _ = sizes
    found = [Stretch(0, head, path)]
    if size > head:
        return LogBytes((*found,), coming=True)
    for number in leftover_segments(path):
        start, name = head + (number - 1) * each, segment(path, number)
        if start > found[-1].end:
            found.append(Stretch(found[-1].end, start))
        found.append(Stretch(start, start + _size(name), name))
    return LogBytes((*found,))


def _size(path: str) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_size
    except OSError:  # it went while we looked
        return 0


def _read(path: str, at: int, most: int) -> bytes:
    file = opened(path)
    if file < 0:
        return b""
    try:
        return os.pread(file, most, at)
    finally:
        os.close(file)
