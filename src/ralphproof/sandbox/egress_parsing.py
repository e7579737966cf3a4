"""Parsing of proxied traffic: HTTP/1 requests, bodies and responses, and the TLS ClientHello."""

from __future__ import annotations

import re

from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.sandbox.egress_rules import format_host_port, split_host_port

if TYPE_CHECKING:
    from collections.abc import Callable


# Proxy requests are parsed strictly: whatever two servers could read differently is refused.


MAX_HEAD_BYTES = 65_536
CHUNKED = -1

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb"{1,32}) ([\x21-\x7e\x80-\xff]+) HTTP/1\.([01])")
_HEADER_FIELD = re.compile(rb"(" + _TOKEN + rb"+):([\t\x20-\x7e\x80-\xff]*)")
_URL = re.compile(rb"(?i:http)://([^/?#]*)([/?][^#]*)?")
_LENGTH = re.compile(rb"[0-9]{1,15}")
# Hop-by-hop fields, never forwarded; neither are the fields that `Connection` names.
_HOP_BY_HOP_FIELDS = {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
_REWRITTEN_FIELDS = {b"host", b"content-length"}


@value
class ProxyRequest:
    """A request. `target` is the path and query, empty for CONNECT. `length` is that of its body, or CHUNKED."""

    method: str
    host: str
    port: int
    target: bytes
    minor: bytes
    fields: tuple[tuple[bytes, bytes], ...]
    length: int

    def all_of(self, name: bytes) -> list[bytes]:
        """The values of every field of this name."""
        return [value for given, value in self.fields if given.lower() == name]


def parse_request(head: bytes) -> ProxyRequest | str:
    """Parse a request head without its final empty line; a string says what is wrong with it."""
    try:
        return _parse_request_lines(head)
    except ValueError as wrong:
        return str(wrong)


def _parse_request_lines(head: bytes) -> ProxyRequest:
    if len(head) > MAX_HEAD_BYTES:
        raise ValueError("the head is longer than 64 KiB")
    first, *lines = head.split(b"\r\n")
    line = _REQUEST_LINE.fullmatch(first)
    if line is None:
        raise ValueError("the request line is not one of HTTP/1.0 or HTTP/1.1")
    fields = tuple(_parse_field(one) for one in lines)
    method = line[1].decode("ascii")
    host, port, target = _parse_connect(line[2]) if method == "CONNECT" else _parse_url(line[2])
    made = ProxyRequest(method, host, port, target, line[3], fields, _body_length(fields, line[3]))
    if method == "CONNECT" and made.length:
        raise ValueError("CONNECT has no body")
    if any(b"websocket" in value.lower() for value in made.all_of(b"upgrade")):
        raise ValueError("a WebSocket over plain HTTP is not passed on; use wss://")
    return made


def _parse_field(line: bytes) -> tuple[bytes, bytes]:
    found = _HEADER_FIELD.fullmatch(line)
    if found is None:
        raise ValueError("a header field is malformed")
    return found[1], found[2].strip(b" \t")


def _parse_connect(target: bytes) -> tuple[str, int, bytes]:
    """Host and port of a CONNECT."""
    return *_parse_host_port(target, 0), b""


def _parse_url(url: bytes) -> tuple[str, int, bytes]:
    """Host, port and target."""
    found = _URL.fullmatch(url)
    if found is None:
        raise ValueError("this is a proxy: it wants CONNECT, or the whole http:// address")
    rest = found[2] or b"/"
    return *_parse_host_port(found[1], 80), rest if rest.startswith(b"/") else b"/" + rest


def _parse_host_port(text: bytes, usual: int) -> tuple[str, int]:
    place = text.decode("ascii", "replace")
    host, port = split_host_port(place)
    if "@" in place or not host or (":" in host and not host.startswith("[")) or not (port or usual):
        raise ValueError("the host and its port cannot be told")
    return host, port or usual


def _body_length(fields: tuple[tuple[bytes, bytes], ...], minor: bytes) -> int:
    """Length of the body; ValueError if it is declared in two ways."""
    lengths = {value for name, value in fields if name.lower() == b"content-length"}
    codings = [value.lower() for name, value in fields if name.lower() == b"transfer-encoding"]
    if codings:
        if lengths or codings != [b"chunked"] or minor == b"0":
            raise ValueError("the length of the body is told in two ways, or in one that is not known here")
        return CHUNKED
    if len(lengths) > 1 or not all(_LENGTH.fullmatch(one) for one in lengths):
        raise ValueError("the length of the body cannot be told")
    return int(next(iter(lengths), b"0"))


def forwarded_head(request: ProxyRequest, host: str) -> bytes:
    """Head of the request for the server: with this host, without fields meant for the proxy."""
    named = {token.strip().lower() for value in request.all_of(b"connection") for token in value.split(b",")}
    place = (
        format_host_port(host, request.port) if request.port != 80 else format_host_port(host, 0).removesuffix(":0")
    ).encode("ascii")
    lines = [request.method.encode("ascii") + b" " + request.target + b" HTTP/1." + request.minor, b"Host: " + place]
    for name, given in request.fields:
        lower = name.lower()
        if (
            lower not in _HOP_BY_HOP_FIELDS
            and lower not in _REWRITTEN_FIELDS
            and lower not in named
            and not lower.startswith(b"proxy-")
        ):
            lines.append(name + b": " + given)
    if request.length == CHUNKED:
        lines.append(b"Transfer-Encoding: chunked")
    elif request.all_of(b"content-length"):
        lines.append(b"Content-Length: %d" % request.length)
    return b"\r\n".join([*lines, b"Connection: close", b"", b""])


# Filters for plain HTTP: exactly one request and one response pass.


_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_MAX_CHUNK_LINE = 4096
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: [^\r\n]*)?")
_HOP_BY_HOP_PREFIXES = (b"connection:", b"keep-alive:", b"proxy-", b"upgrade:")
_BAD_GATEWAY_TEXT = b"ralph sandbox: the server gave no answer that is HTTP/1\n"
BAD_GATEWAY = (
    b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
) % (len(_BAD_GATEWAY_TEXT), _BAD_GATEWAY_TEXT)


def body_filter(length: int) -> FixedLengthBody | ChunkedBody:
    """A filter that passes a body of this length and nothing after it."""
    return ChunkedBody() if length == CHUNKED else FixedLengthBody(length)


class FixedLengthBody:
    """Passes this many bytes."""

    def __init__(self, length: int) -> None:
        self._remaining = length

    def take(self, data: bytes) -> bytes:
        """The part of the data that belongs to the body."""
        passed = data[: self._remaining]
        self._remaining -= len(passed)
        return passed


class ChunkedBody:
    """Passes one chunked body, without extensions and trailers."""

    def __init__(self) -> None:
        self._buffer = bytearray()  # the beginning of a line
        self._remaining = 0  # of the chunk, with the line end after it
        self._next: Callable[[], bytes | None] = self._size

    def take(self, data: bytes) -> bytes:
        """The part of the data that belongs to the body; ValueError if it is malformed."""
        self._buffer += data
        passed = bytearray()
        while (step := self._next()) is not None:
            passed += step
        return bytes(passed)

    def _size(self) -> bytes | None:
        line = self._line()
        if line is None:
            return None
        found = _CHUNK_SIZE.fullmatch(line)
        if found is None:
            raise ValueError("a chunk has no size")
        self._remaining = int(found[1], 16)
        self._next = self._data if self._remaining else self._trailer
        return b"%x\r\n" % self._remaining

    def _data(self) -> bytes | None:
        if self._remaining:
            passed = bytes(self._buffer[: self._remaining])
            del self._buffer[: len(passed)]
            self._remaining -= len(passed)
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
        self._buffer.clear()

    def _line(self) -> bytes | None:
        """The next line without its end; None if it is incomplete."""
        end = self._buffer.find(b"\r\n")
        if end > _MAX_CHUNK_LINE or (end < 0 and len(self._buffer) > _MAX_CHUNK_LINE):
            raise ValueError("a line between chunks is too long")
        if end < 0:
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 2]
        return line


class ResponseFilter:
    """Passes one response, marked as the last of its connection."""

    def __init__(self) -> None:
        self._buffer: bytearray | None = bytearray()  # the beginning of a head; None once the body has begun
        self._begun = self._bad = False

    def take(self, data: bytes) -> bytes:
        """The part of the data that is passed to the client; no data means that the server has ended."""
        if self._bad:
            return b""
        if self._buffer is None:
            return data
        self._buffer += data
        passed = bytearray()
        while self._buffer is not None and (end := self._buffer.find(b"\r\n\r\n")) >= 0 and not self._bad:
            passed += self._head(self._buffer, end)
        if self._buffer is not None and (not data or len(self._buffer) > MAX_HEAD_BYTES):
            self._bad = True
        return bytes(passed) + (BAD_GATEWAY if self._bad and not self._begun else b"")

    def _head(self, held: bytearray, end: int) -> bytes:
        """The head that ends there, with everything after it unless it is an interim response."""
        status, *lines = bytes(held[:end]).split(b"\r\n")
        found = _STATUS_LINE.fullmatch(status)
        if found is None or found[1] == b"101":  # nobody was asked to speak anything else
            self._bad = True
            return b""
        del held[: end + 4]
        self._begun = True
        if found[1].startswith(b"1"):
            return b"\r\n".join([status, *lines, b"", b""])
        self._buffer = None
        kept = [line for line in lines if not line.lower().startswith(_HOP_BY_HOP_PREFIXES)]
        return b"\r\n".join([status, *kept, b"Connection: close", b"", b""]) + held


# The server name in the first message of a TLS connection (RFC 8446 §4.1.2, RFC 6066 §3).


MAX_HELLO_BYTES = 16_384  # of one hello; real ones have up to 4 KiB
_RECORD_HEADER_BYTES = 5
_RECORD_START = ((22,), (3,), (1, 2, 3, 4))  # handshake, version
_CLIENT_HELLO, _SERVER_NAME, _HOST_NAME = 1, 0, 0
_MAX_RECORD_BYTES = 16_384
NOT_TLS = "does not begin with a TLS hello"
_BROKEN_HELLO = "begins with a broken TLS hello"


@value
class ClientHello:
    """A complete ClientHello. `name` is its server name as sent; empty if it has none."""

    name: str


class ClientHelloReader:
    """Reads a ClientHello from the first bytes of a connection, in any number of pieces and records.

    It is parsed strictly, so that no server can read another name in it.
    """

    def __init__(self) -> None:
        self._record = bytearray()
        self._message = bytearray()

    def feed(self, data: bytes) -> ClientHello | str | None:
        """A hello, why it is none, or None if more data is needed."""
        self._record += data
        while len(self._record) >= _RECORD_HEADER_BYTES:
            size = int.from_bytes(self._record[3:_RECORD_HEADER_BYTES])
            if not _may_be_tls(self._record) or not 0 < size <= _MAX_RECORD_BYTES:
                break
            if len(self._record) < _RECORD_HEADER_BYTES + size:
                return None
            self._message += self._record[_RECORD_HEADER_BYTES : _RECORD_HEADER_BYTES + size]
            del self._record[: _RECORD_HEADER_BYTES + size]
            if (hello := self._parse_message()) is not None:
                return hello
        if self._message:
            return None if len(self._record) < _RECORD_HEADER_BYTES else _BROKEN_HELLO
        return None if len(self._record) < _RECORD_HEADER_BYTES and _may_be_tls(self._record) else NOT_TLS

    def _parse_message(self) -> ClientHello | str | None:
        """Parse the handshake message collected so far."""
        message = self._message
        if message[0] != _CLIENT_HELLO or len(message) > MAX_HELLO_BYTES:
            return _BROKEN_HELLO
        wanted = 4 + int.from_bytes(message[1:4])
        if len(message) < 4 or len(message) < wanted:
            return None
        return _parse_hello(bytes(message[4:])) if len(message) == wanted else _BROKEN_HELLO


def _may_be_tls(header: bytearray) -> bool:
    """Whether the data so far can be the start of a handshake record of TLS 1.0 or later."""
    return all(byte in wanted for byte, wanted in zip(header, _RECORD_START, strict=False))


def _parse_hello(body: bytes) -> ClientHello | str:
    try:
        extensions = _parse_extensions(body)
        return ClientHello(_parse_server_name(extensions[_SERVER_NAME]) if _SERVER_NAME in extensions else "")
    except ValueError:
        return _BROKEN_HELLO


def _parse_extensions(body: bytes) -> dict[int, bytes]:
    """Extensions of a hello by type."""
    rest = _TlsReader(body)
    rest.take(2 + 32)  # version, random
    for size in (1, 2, 1):  # session, ciphers, compression
        rest.vector(size)
    found: dict[int, bytes] = {}
    if not rest.left:
        return found
    inner = _TlsReader(rest.vector(2))
    rest.end()
    while inner.left:
        kind = inner.number(2)
        if kind in found:
            raise ValueError("twice")
        found[kind] = inner.vector(2)
    return found


def _parse_server_name(extension: bytes) -> str:
    """The single name of the extension."""
    rest = _TlsReader(extension)
    names = _TlsReader(rest.vector(2))
    rest.end()
    kind, name = names.number(1), names.vector(2)
    names.end()
    if kind != _HOST_NAME or not name:
        raise ValueError("no host name")
    return name.decode("ascii")


class _TlsReader:
    """Reads TLS vectors; ValueError for missing or surplus data."""

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
