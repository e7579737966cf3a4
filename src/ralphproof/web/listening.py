"""The socket that is listened on."""

from __future__ import annotations

import errno
import os
import socket

from ralphproof.errors import Refused

BACKLOG = 128


def listening(host: str, port: int | None, usual: int) -> tuple[socket.socket, bool]:
    """A socket that listens, and whether the usual port was taken. Only where no port was given another one is."""
    family, at = _place(host)
    try:
        return _bound(family, at, usual if port is None else port), False
    except OSError as error:
        if error.errno != errno.EADDRINUSE or port is not None:
            raise _refused(error, host, usual if port is None else port) from None
    return _bound(family, at, 0), True


def _place(host: str) -> tuple[int, str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise Refused(f"there is no address {host} here to listen on ({why})") from None
    family, _, _, _, place = sorted(found, key=lambda one: one[0] != socket.AF_INET)[0]
    return family, str(place[0])


def _bound(family: int, host: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # a server that ended a moment ago does not hold its port
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def _refused(error: OSError, host: str, port: int) -> Refused:
    if error.errno == errno.EADDRINUSE:
        return Refused(f"port {port} of {host} is taken; give another --port, or 0 for a free one")
    return Refused(f"cannot listen on port {port} of {host} ({error.strerror})")
