"""What passes between a program and a server over plain HTTP, piece by piece: just one request, just one answer."""

from __future__ import annotations

import re

from ralphproof.sandboxes.egress_request import CHUNKED, MOST_HEAD_BYTES
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_MOST_LINE = 4096
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: [^\r\n]*)?")
_HOP = (b"connection:", b"keep-alive:", b"proxy-", b"upgrade:")
_NO_ANSWER = b"ralph sandbox: the server gave no answer that is HTTP/1\n"
NO_ANSWER = (
    b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
) % (len(_NO_ANSWER), _NO_ANSWER)


def body_of(length: int) -> Counted | Chunked:
    """What lets the body of this length pass, and nothing after it."""
    return Chunked() if length == CHUNKED else Counted(length)


class Counted:
    """Lets so many bytes pass."""

    def __init__(self, length: int) -> None:
        self._left = length

    def take(self, data: bytes) -> bytes:
        """What of it belongs to the body."""
        passed = data[: self._left]
        self._left -= len(passed)
        return passed


class Chunked:
    """Lets one chunked body pass, without extensions and trailers."""

    def __init__(self) -> None:
        self._held = bytearray()  # the beginning of a line
        self._left = 0  # of the chunk, with the line end after it
        self._next: Callable[[], bytes | None] = self._size

    def take(self, data: bytes) -> bytes:
        """What of it belongs to the body, ValueError where it is malformed."""
        self._held += data
        passed = bytearray()
        while (step := self._next()) is not None:
            passed += step
        return bytes(passed)

    def _size(self) -> bytes | None:
        line = self._line()
        if line is None:
            return None
        found = _SIZE.fullmatch(line)
        if found is None:
            raise ValueError("a chunk has no size")
        self._left = int(found[1], 16)
        self._next = self._data if self._left else self._trailer
        return b"%x\r\n" % self._left

    def _data(self) -> bytes | None:
        if self._left:
            passed = bytes(self._held[: self._left])
            del self._held[: len(passed)]
            self._left -= len(passed)
            return passed or None
        line = self._line()
        if line is None:
            return None
        if line:
            raise ValueError("a chunk is longer than its size")
        self._next = self._size
        return b"\r\n"

    def _trailer(self) -> bytes | None:
        line = self._line()
        if line is None:
            return None
        if line:
            return b""
        self._next = self._over
        return b"\r\n"

    def _over(self) -> None:
        self._held.clear()

    def _line(self) -> bytes | None:
        """The next line without its end; None where it is not all there."""
        end = self._held.find(b"\r\n")
        if end > _MOST_LINE or (end < 0 and len(self._held) > _MOST_LINE):
            raise ValueError("a line between chunks is too long")
        if end < 0:
            return None
        line = bytes(self._held[:end])
        del self._held[: end + 2]
        return line


class Answer:
    """Lets one answer pass, which then says that it is the last of its connection."""

    def __init__(self) -> None:
        self._held: bytearray | None = bytearray()  # the beginning of a head; None once the body has begun
        self._begun = self._bad = False

    def take(self, data: bytes) -> bytes:
        """What the program gets of it; no data: the server has ended."""
        if self._bad:
            return b""
        if self._held is None:
            return data
        self._held += data
        passed = bytearray()
        while self._held is not None and (end := self._held.find(b"\r\n\r\n")) >= 0 and not self._bad:
            passed += self._head(self._held, end)
        if self._held is not None and (not data or len(self._held) > MOST_HEAD_BYTES):
            self._bad = True
        return bytes(passed) + (NO_ANSWER if self._bad and not self._begun else b"")

    def _head(self, held: bytearray, end: int) -> bytes:
        """The head that ends there; with all that follows it, unless it announces another head."""
        status, *lines = bytes(held[:end]).split(b"\r\n")
        found = _STATUS.fullmatch(status)
        if found is None or found[1] == b"101":  # nobody was asked to speak anything else
            self._bad = True
            return b""
        del held[: end + 4]
        self._begun = True
        if found[1].startswith(b"1"):
            return b"\r\n".join([status, *lines, b"", b""])
        self._held = None
        kept = [line for line in lines if not line.lower().startswith(_HOP)]
        return b"\r\n".join([status, *kept, b"Connection: close", b"", b""]) + held
