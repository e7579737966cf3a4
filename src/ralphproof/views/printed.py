"""What a command of a run printed, read in pieces: a log of any size, finished or growing, as text for people."""

from __future__ import annotations

import os

from ralphproof.keeper.log import SIZES, opened
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PIECE_BYTES = 1 << 18
LINE_BYTES = 1 << 20  # a longer line is shown in parts


def whole(path: str, start: int = 0) -> Iterator[bytes]:
    """A finished log from `start` to its end, piece by piece."""
    file = opened(path)
    if file < 0:
        return
    try:
        while piece := os.pread(file, PIECE_BYTES, start):
            start += len(piece)
            yield piece
    finally:
        os.close(file)


class Growing:
    """A log that is read while its command still writes it."""

    def __init__(self, path: str, turn_file: str) -> None:
        from ralphproof.keeper.tail import Tail

        self.path, self._turn_file = path, turn_file
        self._tail = Tail(path, SIZES)

    def more(self) -> Iterator[bytes]:
        """What has come since it was last asked."""
        return self._tail.grown()

    def rest(self) -> Iterator[bytes]:
        """What is left now that the command has ended, and its log has been put together."""
        from ralphproof.keeper.journal import read

        if self._tail.offset <= SIZES[0]:  # up to there the file and the stream are the same
            self._tail.close()
            return whole(self.path, self._tail.offset)
        counts = read(self._turn_file).result or {}
        lost = int(counts.get("lost_bytes", 0))
        stored, evicted = int(counts.get("out_bytes", 0)) - lost, int(counts.get("dropped_bytes", 0)) - lost
        return self._tail.rest(stored, evicted)


class Lines:
    """Pieces of a stream as whole lines; a line longer than the bound comes in parts."""

    def __init__(self) -> None:
        self._part = b""

    def feed(self, piece: bytes) -> Iterator[str]:
        """The lines that this piece completes, with their newlines."""
        *lines, self._part = (self._part + piece).split(b"\n")
        for line in lines:
            yield _text(line) + "\n"
        while len(self._part) > LINE_BYTES:
            part, self._part = self._part[:LINE_BYTES], self._part[LINE_BYTES:]
            yield _text(part)

    def end(self) -> Iterator[str]:
        """What is left without a newline."""
        if self._part:
            yield _text(self._part) + "\n"
        self._part = b""


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace")


def event_text(line: str) -> str:
    """A line of the scripted agent's log as people read it: what it said and did; other lines stay as they are."""
    import json

    from ralphproof.event import Ended, Event, Said, ToolStarted
    from ralphproof.value import unpack

    try:
        event = unpack(json.loads(line))
    except (ValueError, TypeError, RecursionError):
        return line
    match event:
        case Said(str(text)):
            return text if text.endswith("\n") else text + "\n"
        case ToolStarted(_, name, summary):
            return f"> {name} {summary}".rstrip() + "\n"
        case Ended(_, _, error):
            return f"error: {error}\n" if error else ""
        case _:
            return "" if isinstance(event, Event) else line
