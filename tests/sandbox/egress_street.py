"""A street of loopback servers with a proxy before it, for tests of the way out."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ralphproof.sandbox.egress_proxy import (
    DEFAULT_PROXY_LIMITS,
    EgressAudit,
    EgressProxy,
    PortForward,
    ProxyLimits,
    read_blocked_hosts,
)
from ralphproof.sandbox.egress_rules import AllowList

WAIT_S = 10.0
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
Answering = Callable[[socket.socket], bytes]


def read_all(connection: socket.socket) -> bytes:
    """Everything until the other side ends; a reset ends it too."""
    data = bytearray()
    try:
        while piece := connection.recv(65536):
            data += piece
    except ConnectionError:
        pass
    return bytes(data)


def read_head(connection: socket.socket) -> bytes:
    """Everything until an empty line has come, or the end."""
    data = bytearray()
    while b"\r\n\r\n" not in data and (piece := connection.recv(65536)):
        data += piece
    return bytes(data)


def answer(connection: socket.socket) -> bytes:
    """Read a request, say hello, then hear the other out: whatever else would come is in what is returned.

    Who answers before the body has come may be answered by an end.
    """
    got = read_head(connection)
    length = re.search(rb"(?i)\r\ncontent-length: *(\d{1,4})\r\n", got)
    wanted = got.find(b"\r\n\r\n") + 4 + (int(length[1]) if length else 0)
    while len(got) < wanted and (piece := connection.recv(65536)):
        got += piece
    connection.sendall(OK)
    connection.shutdown(socket.SHUT_WR)
    return got + read_all(connection)


class House:
    """A server on loopback. When it is closed, `got` has the bytes of each connection, and `callers` their number."""

    def __init__(self, answering: Answering = answer, family: socket.AddressFamily = socket.AF_INET) -> None:
        self.got: list[bytes] = []
        self.callers = 0
        self._answering = answering
        self._listener = socket.create_server(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0), family=family)
        self.port = int(self._listener.getsockname()[1])
        self._last = 0
        self._threads = [threading.Thread(target=self._run)]
        self._threads[0].start()

    def _run(self) -> None:
        while True:
            connection, place = self._listener.accept()
            if place[1] == self._last:
                connection.close()
                return
            self.callers += 1
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(WAIT_S)
        with connection:
            try:
                self.got.append(self._answering(connection))
            except OSError:
                self.got.append(b"")

    def close(self) -> None:
        """Serve all who have come, end, and see that nobody is left in it."""
        if not self._last:
            with socket.socket(self._listener.family) as last:
                last.bind((self._listener.getsockname()[0], 0))
                self._last = last.getsockname()[1]
                last.connect(self._listener.getsockname())
        for thread in self._threads:
            thread.join(WAIT_S)
        assert not any(thread.is_alive() for thread in self._threads)
        self._listener.close()


class Street:
    """Houses behind a proxy. Every name leads to 127.0.0.1 unless `leads` says otherwise."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "egress.ndjson"
        self.audit_file = EgressAudit(str(self.log))
        self.leads: dict[str, list[str]] = {}
        self.lookups: list[str] = []
        self._houses: list[House] = []
        self._served: list[threading.Thread] = []

    def house(self, answering: Answering = answer, family: socket.AddressFamily = socket.AF_INET) -> House:
        """A new server."""
        self._houses.append(House(answering, family))
        return self._houses[-1]

    def resolve(self, host: str, port: int, **_: object) -> Sequence[tuple[int, int, int, str, tuple[object, ...]]]:
        """Each answer of a name in turn, the last one for good. The port is a lie."""
        self.lookups.append(host)
        answers = self.leads.get(host, ["127.0.0.1"])
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        if found == "nowhere":
            raise socket.gaierror(-2, "Name or service not known")
        family = socket.AF_INET6 if ":" in found else socket.AF_INET
        return [(family, socket.SOCK_STREAM, 6, "", (found, 1, 0, 0) if ":" in found else (found, 1))]

    def proxy(self, *hosts: str, token: str = "", limits: ProxyLimits = DEFAULT_PROXY_LIMITS) -> EgressProxy:
        """A proxy with this allow-list."""
        return EgressProxy(AllowList(hosts), self.audit_file, token, resolve=self.resolve, limits=limits)

    def enter(self, door: EgressProxy | PortForward) -> socket.socket:
        """A connection that the door serves in a thread."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            client = socket.create_connection(listener.getsockname())
            connection, _ = listener.accept()
        client.settimeout(WAIT_S)
        thread = threading.Thread(target=door.serve, args=(connection,))
        self._served.append(thread)
        thread.start()
        return client

    def ask(self, door: EgressProxy, raw: bytes) -> bytes:
        """Everything that a client gets who says just this, and ends."""
        with self.enter(door) as client:
            client.sendall(raw)
            client.shutdown(socket.SHUT_WR)
            return read_all(client)

    def told(self) -> list[dict[str, Any]]:
        """The lines of the log so far."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def blocked(self) -> tuple[str, ...]:
        return read_blocked_hosts(str(self.log))

    def all_served(self) -> None:
        """Wait until no connection is served any more."""
        for thread in self._served:
            thread.join(WAIT_S)
        assert not any(thread.is_alive() for thread in self._served), "a connection is still served"

    def close(self) -> None:
        """End all, and see that nothing is left."""
        self.all_served()
        for house in self._houses:
            house.close()
        self.audit_file.close()
