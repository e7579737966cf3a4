"""A stream of bytes as bounded lines and as bounded text."""

from __future__ import annotations

LINE_BYTES = 16 * 1024 * 1024  # a longer line is not parsed
KEPT_BYTES = 128 * 1024  # of the beginning, and as much of the end


class Lines:
    """Splits chunks on newlines. A line longer than the bound is dropped whole, and the next one is read as usual."""

    def __init__(self, most: int = LINE_BYTES) -> None:
        self._most = most
        self._part = bytearray()
        self._skipped = 0
        self.dropped: list[int] = []  # sizes of lines that were too long

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without their newlines."""
        pieces = chunk.split(b"\n")
        self._grow(pieces[0])
        if len(pieces) == 1:
            return []
        lines: list[bytes] = []
        self._finish(lines)
        if len(chunk) <= self._most:  # the usual case: none of them can be too long
            lines += pieces[1:-1]
        else:
            for piece in pieces[1:-1]:
                self._grow(piece)
                self._finish(lines)
        self._grow(pieces[-1])
        return lines

    @property
    def open(self) -> bytes:
        """What has come of a line that is not complete."""
        return bytes(self._part)

    def end(self) -> list[bytes]:
        """What is left without a newline."""
        lines: list[bytes] = []
        if self._part or self._skipped:
            self._finish(lines)
        return lines

    def _grow(self, piece: bytes) -> None:
        if self._skipped or len(self._part) + len(piece) > self._most:
            self._skipped += len(self._part) + len(piece)
            self._part.clear()
        else:
            self._part += piece

    def _finish(self, lines: list[bytes]) -> None:
        if self._skipped:
            self.dropped.append(self._skipped)
        else:
            lines.append(bytes(self._part))
        self._part.clear()
        self._skipped = 0


class Kept:
    """The beginning and the end of a stream, in bounded memory."""

    def __init__(self, each: int = KEPT_BYTES) -> None:
        self._each = each
        self._head = bytearray()
        self._tail = bytearray()
        self._cut = False

    def feed(self, chunk: bytes) -> None:
        room = self._each - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:] if room < len(chunk) else b""
        if len(self._tail) > 2 * self._each:
            del self._tail[: -self._each]
            self._cut = True

    def text(self) -> str:
        """What was kept, as text; a cut in the middle is marked."""
        if len(self._tail) > self._each:
            del self._tail[: -self._each]
            self._cut = True
        middle = b"\n... [truncated]\n" if self._cut else b""
        return bytes(self._head + middle + self._tail).decode("utf-8", "replace")
