"""Calls other machines from inside a sandbox, by its proxy; without a sandbox, directly.

What may be called is `allowed.test`, `*.wild.test`, `ported.test:8080` and `rebound.test`, which leads to this machine.
"""

from __future__ import annotations

import base64
import errno
import os
import socket
import ssl
from collections.abc import Callable
from urllib.parse import unquote, urlsplit

from tests.sandbox.attempts import ORDERS

WAIT_S = 5.0
CALLS: dict[str, Callable[[], object]] = {}
OPEN: list[str] = []  # what a sandbox lets through


def caller(name: str, function: Callable[[], object], is_open: bool = False) -> None:
    CALLS[name] = function
    if is_open:
        OPEN.append(name)


def connected(host: str, port: int) -> tuple[socket.socket, str]:
    """A connection to the proxy and what to say to it; without one, to the host itself."""
    proxy = urlsplit(os.environ.get("http_proxy", ""))
    if not proxy.hostname:
        return socket.create_connection((host.strip("[]."), port), WAIT_S), ""
    login = base64.b64encode(unquote(f"{proxy.username}:{proxy.password}").encode()).decode()
    said = f"Proxy-Authorization: Basic {login}\r\n" if proxy.username else ""
    return socket.create_connection((proxy.hostname, proxy.port or 80), WAIT_S), said or "X-Proxied: yes\r\n"


def answered(connection: socket.socket, told: str = "") -> None:
    """Somebody answered, and heard this in the request."""
    said = b""
    while more := connection.recv(65536):
        said += more
    if b"hello" not in said or told.encode() not in said:
        raise PermissionError(errno.EACCES, said[:200].decode(errors="replace"))


def get(host: str, port: int = 80, named: str = "", address: str = "") -> None:
    """Ask for a page as browsers do; `named` is the host that the request itself tells."""
    connection, login = connected(host, port)
    place = address or f"http://{host}:{port}/"
    with connection:
        path = place if login else "/"
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {named or f'{host}:{port}'}\r\n{login}\r\n".encode())
        answered(connection, told=named)


def tunnel(host: str, port: int = 443, first: bytes | None = None, sni: str = "") -> None:
    """Ask for a connection, and say something first: by default what opens an encrypted one."""
    connection, login = connected(host, port)
    with connection:
        if login:
            connection.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n{login}\r\n".encode())
            head = b""
            while b"\r\n\r\n" not in head and (more := connection.recv(65536)):
                head += more
            if b" 200 " not in head[:20]:
                raise PermissionError(errno.EACCES, head[:200].decode(errors="replace"))
        connection.sendall(hello(sni or host) if first is None else first)
        answered(connection)


def hello(name: str) -> bytes:
    """The first words of an encrypted connection to a host of this name."""
    context, heard, said = ssl.create_default_context(), ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        context.wrap_bio(heard, said, server_hostname=name.strip("[].") or None).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return said.read()


def local(port: str) -> None:
    with socket.create_connection(("127.0.0.1", ORDERS[port]), WAIT_S) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        answered(connection)


for name, host in {
    "a listed host": "allowed.test", "a listed host in other letters": "ALLOWED.Test",
    "a listed host with a dot behind it": "allowed.test.", "a host below a star": "a.wild.test",
    "a host further below a star": "b.a.wild.test",
}.items():  # fmt: skip
    caller(name, lambda host=host: tunnel(host), is_open=True)  # type: ignore[misc]
caller("a listed port", lambda: tunnel("ported.test", 8080), is_open=True)
caller("a listed port of this machine", lambda: local("local"), is_open=True)

for name, host in {
    "a host that is not listed": "other.test", "a host that ends like one": "evilallowed.test",
    "a host that begins like one": "allowed.test.evil.test", "the host behind a star": "wild.test",
    "a host that ends like a star": "awild.test", "this machine by name": "localhost",
    "this machine by number": "127.0.0.1", "this machine by one number": "2130706433",
    "this machine by a hexadecimal number": "0x7f.1", "this machine by an octal number": "0177.0.0.1",
    "this machine by a short number": "127.1", "this machine by a number of version 6": "[::ffff:127.0.0.1]",
    "a listed host that leads to this machine": "rebound.test",
}.items():  # fmt: skip
    caller(name, lambda host=host: tunnel(host))  # type: ignore[misc]
    caller(f"{name}, by plain HTTP", lambda host=host: get(host))  # type: ignore[misc]
caller("an address", lambda: tunnel(ORDERS["address"]))
caller("an address, by plain HTTP", lambda: get(ORDERS["address"]))
caller("another port", lambda: tunnel("allowed.test", 8080))
caller("the usual port of one with a listed port", lambda: tunnel("ported.test"))
caller("a listed host by plain HTTP", lambda: get("allowed.test"))
caller("a listed host by plain HTTP at its own port", lambda: get("ported.test", 8080))
caller("a tunnel whose first words name another host", lambda: tunnel("allowed.test", sni="other.test"))
caller("a tunnel whose first words name no host", lambda: tunnel("allowed.test", sni="."))
caller("a tunnel without encryption", lambda: tunnel("allowed.test", first=b"GET / HTTP/1.1\r\n\r\n"))
caller("a tunnel of ssh", lambda: tunnel("allowed.test", first=b"SSH-2.0-x\r\n"))
caller("a request that names another host", lambda: get("allowed.test", named="other.test"))
caller("a host behind a login", lambda: get("other.test", address="http://allowed.test@other.test/"))
caller("a port of this machine that is not listed", lambda: local("tcp"))
