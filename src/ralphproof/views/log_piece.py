"""A piece of a log: where it begins and ends so that no letter is cut in two."""

from __future__ import annotations

import os

from ralphproof.keeper.log import opened
from ralphproof.value import value

MARGIN_BYTES = 4  # that are read on both sides of a piece: no letter is longer


@value
class LogPiece:
    """Bytes of a log, of which those from `begin` to `end` are meant; the others tell what these are part of."""

    data: bytes
    begin: int
    end: int
    at: int  # of the first byte in the log
    size: int  # of the log
    more: bool  # there is more of it to be had now

    @property
    def offset(self) -> int:
        return self.at + self.begin

    @property
    def next(self) -> int:
        return self.at + self.end


def piece_of(path: str, offset: int | None, most: int, live: bool) -> LogPiece:
    """The end of a log, or a piece from `offset` on. Of one that grows, half a letter waits for its other half."""
    file = opened(path)
    if file < 0:
        return LogPiece(b"", 0, 0, 0, 0, False)
    try:
        size = os.fstat(file).st_size
        start = max(0, size - most) if offset is None else min(max(0, offset), size)
        end = min(start + most, size)
        low = max(0, start - MARGIN_BYTES)
        data = os.pread(file, min(end + MARGIN_BYTES, size) - low, low)
    finally:
        os.close(file)
    begin, stop = _whole(data, start - low, min(end - low, len(data)), live)
    return LogPiece(data, begin, stop, low, size, end < size and low + stop < size)


def _whole(data: bytes, begin: int, end: int, live: bool) -> tuple[int, int]:
    """The same with whole letters alone: one that it begins in is left out, one that it ends in too."""
    if _letter(data, begin, unfinished=False) < begin:
        while begin < len(data) and _continues(data, begin):
            begin += 1
    stop = max(begin, _letter(data, end, unfinished=live))
    if stop == begin < end and end < len(data):  # not even one: whoever asks for less gets that one
        stop += 1
        while stop < len(data) and _continues(data, stop):
            stop += 1
    return begin, stop


def _letter(data: bytes, place: int, *, unfinished: bool) -> int:
    """Where the letter begins in whose middle a place is, else the place itself.

    At the end of the data nobody knows whether the last letter goes on: it does where it may be unfinished.
    """
    if not (_continues(data, place) if place < len(data) else unfinished):
        return place
    for begin in range(place - 1, max(place - 4, -1), -1):
        if not _continues(data, begin):
            return begin if _length(data[begin]) > place - begin else place
    return place


def _continues(data: bytes, place: int) -> bool:
    return data[place] & 0xC0 == 0x80


def _length(first: int) -> int:
    return 4 if first >= 0xF0 else 3 if first >= 0xE0 else 2 if first >= 0xC0 else 1
