"""The server name in the first message of a TLS connection (RFC 8446 §4.1.2, RFC 6066 §3)."""

from __future__ import annotations

from ralphproof.value import value

MOST_BYTES = 16_384  # of one hello; real ones have up to 4 KiB
_HEADER = 5
_BEGINNING = ((22,), (3,), (1, 2, 3, 4))  # handshake, version
_CLIENT_HELLO, _SERVER_NAME, _HOST_NAME = 1, 0, 0
_MOST_RECORD = 16_384
NOT_TLS = "does not begin with a TLS hello"
_BROKEN = "begins with a broken TLS hello"


@value
class Hello:
    """A complete hello. `name` is the server that it asks for, as it was sent; empty where it names none."""

    name: str


class HelloReader:
    """Reads the first bytes of a connection as they come. A hello may lie in any number of pieces and records.

    Everything about it must be right, so that no server reads another name in it.
    """

    def __init__(self) -> None:
        self._record = bytearray()
        self._message = bytearray()

    def feed(self, data: bytes) -> Hello | str | None:
        """What all bytes so far say: a hello, why it is none, or None where more is needed to tell."""
        self._record += data
        while len(self._record) >= _HEADER:
            size = int.from_bytes(self._record[3:_HEADER])
            if not _may_begin(self._record) or not 0 < size <= _MOST_RECORD:
                break
            if len(self._record) < _HEADER + size:
                return None
            self._message += self._record[_HEADER : _HEADER + size]
            del self._record[: _HEADER + size]
            if (told := self._told()) is not None:
                return told
        if self._message:
            return None if len(self._record) < _HEADER else _BROKEN
        return None if len(self._record) < _HEADER and _may_begin(self._record) else NOT_TLS

    def _told(self) -> Hello | str | None:
        """What the message says so far, between two records."""
        message = self._message
        if message[0] != _CLIENT_HELLO or len(message) > MOST_BYTES:
            return _BROKEN
        wanted = 4 + int.from_bytes(message[1:4])
        if len(message) < 4 or len(message) < wanted:
            return None
        return _named(bytes(message[4:])) if len(message) == wanted else _BROKEN


def _may_begin(header: bytearray) -> bool:
    """Whether this begins, as far as it goes, like a handshake record of TLS 1.0 or later."""
    return all(byte in wanted for byte, wanted in zip(header, _BEGINNING, strict=False))


def _named(body: bytes) -> Hello | str:
    try:
        extensions = _extensions(body)
        return Hello(_server_name(extensions[_SERVER_NAME]) if _SERVER_NAME in extensions else "")
    except ValueError:
        return _BROKEN


def _extensions(body: bytes) -> dict[int, bytes]:
    """The extensions of a hello by their kind."""
    rest = _Bytes(body)
    rest.take(2 + 32)  # version, random
    for size in (1, 2, 1):  # session, ciphers, compression
        rest.vector(size)
    found: dict[int, bytes] = {}
    if not rest.left:
        return found
    inner = _Bytes(rest.vector(2))
    rest.end()
    while inner.left:
        kind = inner.number(2)
        if kind in found:
            raise ValueError("twice")
        found[kind] = inner.vector(2)
    return found


def _server_name(extension: bytes) -> str:
    """The one name of the extension."""
    rest = _Bytes(extension)
    names = _Bytes(rest.vector(2))
    rest.end()
    kind, name = names.number(1), names.vector(2)
    names.end()
    if kind != _HOST_NAME or not name:
        raise ValueError("no host name")
    return name.decode("ascii")


class _Bytes:
    """Reads what TLS calls vectors; ValueError where there is too little, or too much."""

    def __init__(self, data: bytes) -> None:
        self.left = data

    def take(self, count: int) -> bytes:
        if len(self.left) < count:
            raise ValueError("too short")
        taken, self.left = self.left[:count], self.left[count:]
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def vector(self, size: int) -> bytes:
        return self.take(self.number(size))

    def end(self) -> None:
        if self.left:
            raise ValueError("too long")
