"""What a program asks of the proxy, read strictly: whatever two servers could read in two ways is refused."""

from __future__ import annotations

import re

from ralphproof.sandboxes.egress_names import joined, split
from ralphproof.value import value

MOST_HEAD_BYTES = 65_536
CHUNKED = -1

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_LINE = re.compile(rb"(" + _TOKEN + rb"{1,32}) ([\x21-\x7e\x80-\xff]+) HTTP/1\.([01])")
_FIELD = re.compile(rb"(" + _TOKEN + rb"+):([\t\x20-\x7e\x80-\xff]*)")
_URL = re.compile(rb"(?i:http)://([^/?#]*)([/?][^#]*)?")
_LENGTH = re.compile(rb"[0-9]{1,15}")
# What is between us and one of the two sides, and never passed on; so is whatever `Connection` names.
_HOP = {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
_OURS = {b"host", b"content-length"}


@value
class Errand:
    """One request. `target` is what the server is asked for, empty for CONNECT. `length` is of its body, or CHUNKED."""

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


def errand(head: bytes) -> Errand | str:
    """The request whose lines these are, up to the empty one, which is not among them; or what is wrong with it."""
    try:
        return _errand(head)
    except ValueError as wrong:
        return str(wrong)


def _errand(head: bytes) -> Errand:
    if len(head) > MOST_HEAD_BYTES:
        raise ValueError("the head is longer than 64 KiB")
    first, *lines = head.split(b"\r\n")
    line = _LINE.fullmatch(first)
    if line is None:
        raise ValueError("the request line is not one of HTTP/1.0 or HTTP/1.1")
    fields = tuple(_field(one) for one in lines)
    method = line[1].decode("ascii")
    host, port, target = _connect(line[2]) if method == "CONNECT" else _url(line[2])
    made = Errand(method, host, port, target, line[3], fields, _length(fields, line[3]))
    if method == "CONNECT" and made.length:
        raise ValueError("CONNECT has no body")
    if any(b"websocket" in value.lower() for value in made.all_of(b"upgrade")):
        raise ValueError("a WebSocket over plain HTTP is not passed on; use wss://")
    return made


def _field(line: bytes) -> tuple[bytes, bytes]:
    found = _FIELD.fullmatch(line)
    if found is None:
        raise ValueError("a header field is malformed")
    return found[1], found[2].strip(b" \t")


def _connect(target: bytes) -> tuple[str, int, bytes]:
    """Host and port of a CONNECT."""
    return *_place(target, 0), b""


def _url(url: bytes) -> tuple[str, int, bytes]:
    """Host, port, and what the host is asked for."""
    found = _URL.fullmatch(url)
    if found is None:
        raise ValueError("this is a proxy: it wants CONNECT, or the whole http:// address")
    rest = found[2] or b"/"
    return *_place(found[1], 80), rest if rest.startswith(b"/") else b"/" + rest


def _place(text: bytes, usual: int) -> tuple[str, int]:
    place = text.decode("ascii", "replace")
    host, port = split(place)
    if "@" in place or not host or (":" in host and not host.startswith("[")) or not (port or usual):
        raise ValueError("the host and its port cannot be told")
    return host, port or usual


def _length(fields: tuple[tuple[bytes, bytes], ...], minor: bytes) -> int:
    """The length of the body, told in one way alone."""
    lengths = {value for name, value in fields if name.lower() == b"content-length"}
    codings = [value.lower() for name, value in fields if name.lower() == b"transfer-encoding"]
    if codings:
        if lengths or codings != [b"chunked"] or minor == b"0":
            raise ValueError("the length of the body is told in two ways, or in one that is not known here")
        return CHUNKED
    if len(lengths) > 1 or not all(_LENGTH.fullmatch(one) for one in lengths):
        raise ValueError("the length of the body cannot be told")
    return int(next(iter(lengths), b"0"))


def passed_on(asked: Errand, host: str) -> bytes:
    """The head of the request for the server itself, with this host and nothing that was meant for us."""
    named = {token.strip().lower() for value in asked.all_of(b"connection") for token in value.split(b",")}
    place = (joined(host, asked.port) if asked.port != 80 else joined(host, 0).removesuffix(":0")).encode("ascii")
    lines = [asked.method.encode("ascii") + b" " + asked.target + b" HTTP/1." + asked.minor, b"Host: " + place]
    for name, given in asked.fields:
        lower = name.lower()
        if lower not in _HOP and lower not in _OURS and lower not in named and not lower.startswith(b"proxy-"):
            lines.append(name + b": " + given)
    if asked.length == CHUNKED:
        lines.append(b"Transfer-Encoding: chunked")
    elif asked.all_of(b"content-length"):
        lines.append(b"Content-Length: %d" % asked.length)
    return b"\r\n".join([*lines, b"Connection: close", b"", b""])
