"""A piece of a log: where it begins and ends so that no letter is cut in two, and no secret is told by halves."""

from __future__ import annotations

from ralphproof.keeper.log import SIZES
from ralphproof.keeper.stitch import gap
from ralphproof.secret import MASK, places
from ralphproof.value import value
from ralphproof.views.log_bytes import LogBytes, bytes_of

MARGIN_BYTES = 64 * 1024  # that are read on both sides of a piece, so that a secret which it cuts is known as one


@value
class LogPiece:
    """What a log says from one byte to another, and how many it has."""

    offset: int
    next: int
    size: int
    text: str
    more: bool  # there is more of it to be had now


def piece_of(
    path: str, offset: int | None, most: int, live: bool, secrets: tuple[str, ...], sizes: tuple[int, int, int] = SIZES
) -> LogPiece:  # fmt: skip
    """The end of a log, or a piece from `offset` on; what was dropped is one line, and belongs to what follows it.

    Of one that grows, half a letter waits for its other half, and what may become a secret for what follows.
    """
    log = bytes_of(path, live, sizes) or LogBytes()
    size = log.size
    if log.coming and offset is not None and offset >= size:
        return LogPiece(offset, offset, offset, "", True)
    start = max(0, size - most) if offset is None else min(max(0, offset), size)
    dropped = log.dropped_at(start)
    if dropped is None:
        return _read(log, start, start + most, live, secrets)
    rest = _read(log, dropped.end, max(dropped.end, start + most), live, secrets)
    marked = gap(dropped.end - dropped.start).decode() + rest.text
    return LogPiece(dropped.start, rest.next, size, marked, rest.next < size)


def _read(log: LogBytes, start: int, end: int, live: bool, secrets: tuple[str, ...]) -> LogPiece:
    """What is there between two places, up to where something was dropped."""
    size, (first, after) = log.size, log.bounds(start)
    end = min(end, after)
    low, high = max(first, start - MARGIN_BYTES), min(end + MARGIN_BYTES, after)
    data = log.read(low, high)
    if len(data) < high - low:  # a file went while we read: whoever asks again is told that
        return LogPiece(start, start, size, "", True)
    open_end = live and high == size
    begin, stop = _whole(data, start - low, end - low, open_end)
    hidden, decided = places(data, secrets, last=not open_end)
    stop = max(begin, min(stop, decided))
    more = log.coming or (end < size and low + stop < size)
    return LogPiece(low + begin, low + stop, size, _text(data, begin, stop, hidden), more)


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
