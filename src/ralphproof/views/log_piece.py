"""A piece of a log: where it begins and ends so that no letter is cut in two, and no secret is told by halves."""

from __future__ import annotations

import os

from ralphproof.keeper.log import opened
from ralphproof.secret import MASK, places
from ralphproof.value import value

MARGIN_BYTES = 64 * 1024  # that are read on both sides of a piece, so that a secret which it cuts is known as one


@value
class LogPiece:
    """What a log says from one byte to another, and how many it has."""

    offset: int
    next: int
    size: int
    text: str
    more: bool  # there is more of it to be had now


def piece_of(path: str, offset: int | None, most: int, live: bool, secrets: tuple[str, ...]) -> LogPiece:
    """The end of a log, or a piece from `offset` on.

    Of one that grows, half a letter waits for its other half, and what may become a secret for what follows.
    """
    file = opened(path)
    if file < 0:
        return LogPiece(0, 0, 0, "", False)
    try:
        size = os.fstat(file).st_size
        start = max(0, size - most) if offset is None else min(max(0, offset), size)
        end = min(start + most, size)
        low, high = max(0, start - MARGIN_BYTES), min(end + MARGIN_BYTES, size)
        data = os.pread(file, high - low, low)
    finally:
        os.close(file)
    begin, stop = _whole(data, start - low, min(end - low, len(data)), live)
    hidden, decided = places(data, secrets, last=not live or high < size)
    stop = max(begin, min(stop, decided))
    return LogPiece(low + begin, low + stop, size, _text(data, begin, stop, hidden), end < size and low + stop < size)


def _text(data: bytes, begin: int, end: int, hidden: list[tuple[int, int]]) -> str:
    """These bytes without secrets. One that they begin in was told of by the piece before."""
    told: list[bytes] = []
    at = begin
    for first, after in hidden:
        if after > begin and first < end:
            told += (data[at:first], MASK.encode() if first >= begin else b"")
            at = after
    return b"".join((*told, data[at:end])).decode("utf-8", "replace")


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
