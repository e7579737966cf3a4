"""What is said on one connection before bytes pass: reading with a deadline, calling, refusing, and ending well."""

from __future__ import annotations

import time
from _socket import IPPROTO_TCP, SHUT_WR, SO_LINGER, SOL_SOCKET, TCP_NODELAY

from ralphproof.sandboxes.egress_hello import NOT_TLS, Hello, HelloReader
from ralphproof.sandboxes.egress_request import MOST_HEAD_BYTES
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    import socket

    from ralphproof.sandboxes.egress_rules import Sockaddr

PIECE_BYTES = 65_536
_END = b"\r\n\r\n"
_REASONS = {
    400: "Bad Request", 403: "Blocked by ralph sandbox", 407: "Proxy Authentication Required", 502: "Bad Gateway",
    503: "Service Unavailable",
}  # fmt: skip
_PART_S = 2.0  # for a client to take our last word, and to end
_PART_BYTES = 1 << 24


@value
class Refusal:
    """What a client is told instead of an answer. `fields` are further lines of the head."""

    status: int
    text: str
    fields: tuple[str, ...] = ()


def head_of(client: socket.socket, within_s: float) -> tuple[bytes, bytes] | None:
    """A head without the empty line after it, and what came behind; None where it does not come in time.

    One that is too long comes as far as it was read.
    """
    end_s = time.monotonic() + within_s
    data = bytearray()
    end = -1
    while end < 0 and len(data) <= MOST_HEAD_BYTES:
        piece = _received(client, end_s)
        if not piece:
            return None
        looked_at = max(0, len(data) - len(_END))
        data += piece
        end = data.find(_END, looked_at)
    return (bytes(data), b"") if end < 0 else (bytes(data[:end]), bytes(data[end + len(_END) :]))


def hello_of(client: socket.socket, first: bytes, within_s: float) -> tuple[bytes, Hello | str]:
    """All that came so far, and the TLS hello in it or why there is none; the reason is empty where nothing came."""
    end_s = time.monotonic() + within_s
    reader, data = HelloReader(), bytearray(first)
    said = reader.feed(first)
    while said is None:
        piece = _received(client, end_s)
        if not piece:
            return bytes(data), NOT_TLS if data or piece is None else ""
        data += piece
        said = reader.feed(piece)
    return bytes(data), said


def _received(client: socket.socket, end_s: float) -> bytes | None:
    """What comes next: nothing when the client has ended, None when the time is over."""
    left_s = end_s - time.monotonic()
    if left_s <= 0:
        return None
    client.settimeout(left_s)
    try:
        return client.recv(PIECE_BYTES)
    except TimeoutError:
        return None


def called(places: list[tuple[int, Sockaddr]], each_s: float) -> socket.socket:
    """A connection to the first of these that answers; OSError with the last one's reason where none does."""
    from socket import socket

    why = "it has no address"
    for family, address in places:
        server = socket(family)
        try:
            server.settimeout(each_s)
            server.connect(address)
            hurry(server)
            return server
        except OSError as failed:
            server.close()
            why = failed.strerror or str(failed)
    raise OSError(why)


def hurry(connection: socket.socket) -> None:
    """Send small pieces at once, where a connection can wait for more."""
    try:
        connection.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
    except OSError:
        return


def refuse(client: socket.socket, refusal: Refusal, bodiless: bool = False) -> None:
    """Tell it, and end the connection so that it is heard."""
    body = f"ralph sandbox: {refusal.text}\n".encode("ascii", "replace")
    lines = (
        f"HTTP/1.1 {refusal.status} {_REASONS[refusal.status]}", "Content-Type: text/plain",
        f"Content-Length: {len(body)}", *refusal.fields, "Connection: close", "", "",
    )  # fmt: skip
    client.settimeout(_PART_S)
    client.sendall("\r\n".join(lines).encode("ascii", "replace") + (b"" if bodiless else body))
    part(client)


def part(client: socket.socket) -> None:
    """End our side, and hear the other out for a moment: data that nobody reads would take back what we said last."""
    client.shutdown(SHUT_WR)
    end_s, left = time.monotonic() + _PART_S, _PART_BYTES
    while left > 0 and (piece := _received(client, end_s)):
        left -= len(piece)


def break_off(connection: socket.socket) -> None:
    """Let the other side see, when this is closed, that something is missing."""
    import struct

    try:
        connection.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        return
