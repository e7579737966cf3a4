"""Frames between harness and keeper: one marshalled value, and open descriptors that travel with it."""

from __future__ import annotations

import _socket
import marshal
import os
import sys

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_MOST_DESCRIPTORS = 8
_CLOSE_ON_EXEC = getattr(_socket, "MSG_CMSG_CLOEXEC", 0)  # not on macOS
QUIET = getattr(_socket, "MSG_NOSIGNAL", 0)


def send(sock: _socket.socket, thing: Any, descriptors: Sequence[int] = ()) -> None:
    """Send a value; the descriptors stay open while they are in flight, whoever dies meanwhile."""
    body = marshal.dumps(thing)
    data = len(body).to_bytes(4, "little") + body
    packed = b"".join(number.to_bytes(4, sys.byteorder) for number in descriptors)
    sent = sock.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)] if packed else [], QUIET)
    sock.sendall(data[sent:], QUIET)


def receive(sock: _socket.socket) -> tuple[Any, list[int]]:
    """The next value and its descriptors, none of them inheritable; (None, []) when the sender is gone."""
    try:
        head, ancillary, _, _ = sock.recvmsg(4, _socket.CMSG_SPACE(4 * _MOST_DESCRIPTORS), _CLOSE_ON_EXEC)
        descriptors = _descriptors(ancillary)
        body = _exactly(sock, int.from_bytes(head + _exactly(sock, 4 - len(head)), "little")) if head else b""
    except ConnectionError:
        return None, []
    if not body:
        for number in descriptors:
            os.close(number)
        return None, []
    return marshal.loads(body), descriptors  # noqa: S302 (from our own other half, over a private socket)


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    found = []
    for level, kind, data in ancillary:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            found += [int.from_bytes(data[at : at + 4], sys.byteorder) for at in range(0, len(data) // 4 * 4, 4)]
    for number in found:
        os.set_inheritable(number, False)
    return found


def _exactly(sock: _socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = sock.recv(count - len(data))
        if not piece:
            return b""
        data += piece
    return bytes(data)
