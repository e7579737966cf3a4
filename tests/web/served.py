"""A server that `ralph serve` started, and those who ask it: programs, browsers, and others."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tests.ralph import SOURCE, Live, Ralph, until

TIMEOUT_S = 20.0
IMPATIENT = (sys.executable, str(Path(__file__).with_name("impatient.py")))


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        assert set(self.json) == {"v", "type", "error"}, self.json
        said: str = self.json["error"]
        return said


@dataclass(frozen=True)
class Told:
    """One event of a stream."""

    event: str
    id: str
    data: Any


@dataclass
class Served:
    """The server's process, where it is reached, and the token."""

    live: Live
    address: str
    port: int
    told: dict[str, Any] = field(default_factory=dict)

    @property
    def token(self) -> str:
        return self.address.partition("token=")[2]

    @property
    def pid(self) -> int:
        return int(self.told["pid"])

    @property
    def cookie(self) -> str:
        return f"ralph_{self.port}={self.token}"

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def said(self) -> str:
        """What it wrote to standard error."""
        return Path(self.live.err.name).read_text(encoding="utf-8")

    def ask(
        self, path: str, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes | None = None,
        known: bool = True, host: str | None = None,
    ) -> Answer:  # fmt: skip
        """One request, as a program that has the token; without `known`, as somebody who has not."""
        connection = self._connected(path, method, headers or {}, body, known, host)
        try:
            response = connection.getresponse()
            headers = {name.lower(): text for name, text in response.getheaders()}
            goes_on = headers.get("content-type", "").startswith("text/event-stream")
            return Answer(response.status, headers, b"" if goes_on else response.read())
        finally:
            connection.close()

    def steer(self, run: str, wish: str, data: object = None) -> Answer:
        """What a page of its own would send."""
        headers = {"Cookie": self.cookie, "Origin": self.origin, "Content-Type": "application/json"}
        body = b"" if data is None else json.dumps(data).encode()
        return self.ask(f"/api/runs/{run}/{wish}", "POST", headers, body, known=False)

    def look_on(
        self, path: str, last: int | None = None, receive_bytes: int | None = None, accepts: str = "*/*"
    ) -> Onlooker:
        """Somebody to whom events are sent."""
        headers = {"Accept": accepts} | ({} if last is None else {"Last-Event-ID": str(last)})
        return Onlooker(self._connected(path, "GET", headers, None, True, None, receive_bytes))

    def raw(self, data: bytes, whole: bool = True) -> bytes:
        """What is answered to these very bytes until the server closes, or nothing comes."""
        with socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S) as sock:
            sock.sendall(data)
            received = b""
            while piece := sock.recv(65536):
                received += piece
                if not whole:
                    break
            return received

    def end(self, number: int = signal.SIGINT) -> int:
        """Ask it to end; its exit code."""
        os.kill(self.pid, number)
        return self.live.end(TIMEOUT_S).code

    def _connected(
        self, path: str, method: str, headers: Mapping[str, str], body: bytes | None, known: bool, host: str | None,
        receive_bytes: int | None = None,
    ) -> http.client.HTTPConnection:  # fmt: skip
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        if receive_bytes:
            connection.sock = socket.socket()
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            connection.sock.settimeout(TIMEOUT_S)
            connection.sock.connect(("127.0.0.1", self.port))
        connection.putrequest(method, path, skip_host=True)
        connection.putheader("Host", host or f"127.0.0.1:{self.port}")
        if known:
            connection.putheader("Authorization", f"Bearer {self.token}")
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        for name, text in headers.items():
            connection.putheader(name, text)
        connection.endheaders(body)
        return connection


class Onlooker:
    """One who is sent events, and reads them when it likes."""

    there: ClassVar[list[Onlooker]] = []  # all of them, so that none stays after its test

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self.there.append(self)
        self.connection = connection
        self.response = connection.getresponse()

    def __iter__(self) -> Iterator[Told]:
        """Every event until the stream ends; one that only says that it is still there is not waited for."""
        fields: dict[str, str] = {}
        deadline = time.monotonic() + TIMEOUT_S
        while line := self.response.readline():
            assert time.monotonic() < deadline, "waited in vain for an event"
            text = line.decode().rstrip("\n")
            if text and not text.startswith(":"):
                name, _, rest = text.partition(": ")
                fields[name] = rest
            elif "event" in fields:
                if fields["event"] != "still":
                    yield Told(fields["event"], fields.get("id", ""), json.loads(fields["data"]))
                fields = {}

    def until(self, wanted: Callable[[Told], object]) -> list[Told]:
        """All events up to the first that is wanted."""
        seen = []
        for told in self:
            seen.append(told)
            if wanted(told):
                return seen
        raise AssertionError(f"the stream ended before: {[told.event for told in seen]}")

    def close(self) -> None:
        self.response.close()
        self.connection.close()


def serve(ralph: Ralph, *flags: str, env: Mapping[str, str] | None = None, port: int = 0) -> Served:
    """`ralph serve` at work, on a free port."""
    return _served(ralph.start("serve", "--port", str(port), "--json", *flags, env=env))


def serve_impatiently(ralph: Ralph, *flags: str, env: Mapping[str, str] | None = None) -> Served:
    """The same with little patience, and with faults that a test can plant: see `impatient.py`."""
    number = len(ralph.live)
    out, err = ((ralph.folder / f"live-{number}.{end}").open("w+", encoding="utf-8") for end in ("out", "err"))
    process = subprocess.Popen(
        [*IMPATIENT, "--port", "0", "--json", *flags], cwd=ralph.root, start_new_session=True, text=True,
        env=ralph.env | {"PYTHONPATH": str(SOURCE)} | dict(env or {}), stdin=subprocess.DEVNULL, stdout=out, stderr=err,
    )  # fmt: skip
    ralph.live.append(Live(process, out, err))
    return _served(ralph.live[-1])


def _served(live: Live) -> Served:
    def line() -> str:
        assert live.process.poll() is None, Path(live.err.name).read_text()
        return Path(live.out.name).read_text(encoding="utf-8")

    until(lambda: line().endswith("\n"), "it tells where it is")
    told = json.loads(line())
    return Served(live, told["address"], told["port"], told)


def connections(served: Served) -> int:
    """How many the server has open, as the kernel knows it."""
    mine = set(opened(served.pid))
    with open(f"/proc/{served.pid}/net/tcp") as table:
        rows = [line.split() for line in table]
    return sum(row[3] == "01" and f"socket:[{row[9]}]" in mine for row in rows)


def opened(pid: int) -> Iterator[str]:
    """What a process has open; what it closes meanwhile is left out."""
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            yield os.readlink(f"/proc/{pid}/fd/{name}")
        except FileNotFoundError:
            continue
