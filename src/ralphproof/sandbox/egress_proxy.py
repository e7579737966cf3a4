"""Egress proxy: an HTTP proxy that connects to the hosts of an allow-list and no others."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from _socket import IPPROTO_TCP, SHUT_WR, SO_LINGER, SOL_SOCKET, TCP_NODELAY

from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.sandbox.egress_parsing import (
    MAX_HEAD_BYTES,
    NOT_TLS,
    ClientHello,
    ClientHelloReader,
    ProxyRequest,
    ResponseFilter,
    body_filter,
    forwarded_head,
    parse_request,
)
from ralphproof.sandbox.egress_rules import (
    ALLOWABLE_REFUSALS,
    allow_list_entry_for,
    format_host_port,
    is_ip_address,
    normalise_host,
    resolve_addresses,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ralphproof.sandbox.egress_rules import AllowList, Resolve, Sockaddr


# Audit log of outgoing calls: one file of JSON lines for each turn.


MAX_BYTES = 1 << 20  # of lines as they come; the counts at the end are bounded by the number of those
MAX_HOST_CHARS = 300
MAX_LINE_BYTES = 16_384
MAX_BLOCKED = 50
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class EgressAudit:
    """Appends to a private file. A repeated call is written once, and its count at the end."""

    def __init__(self, path: str) -> None:
        import threading

        self._file: int | None = os.open(path, _FLAGS, 0o600)
        os.fchmod(self._file, 0o600)
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, int, str, bool, str], tuple[float, int]] = {}
        self._bytes_left = MAX_BYTES - os.fstat(self._file).st_size
        self._unwritten = 0

    def record(self, host: str, port: int, how: str, allowed: bool, why: str = "") -> None:
        """Record one call. Never raises: a full disk must not block calls."""
        import time

        at = time.time()
        call = (host[:MAX_HOST_CHARS], port, how[:MAX_HOST_CHARS], allowed, why[:MAX_HOST_CHARS])
        with self._lock:
            if call in self._seen:
                self._seen[call] = (at, self._seen[call][1] + 1)
            elif self._file is not None and self._write(_format_line(at, *call)):
                self._seen[call] = (at, 1)
            else:
                self._unwritten += 1

    def close(self) -> None:
        """Write the counts of repeated calls, and how many calls were not written."""
        import time

        with self._lock:
            if self._file is None:
                return
            self._bytes_left = MAX_BYTES * 2
            for call, (at, count) in self._seen.items():
                if count > 1:
                    self._write(_format_line(at, *call, count=count))
            if self._unwritten:
                self._write(
                    _format_line(time.time(), "", 0, "", False, "not written: the log is full", count=self._unwritten)
                )
            os.close(self._file)
            self._file = None

    def _write(self, line: bytes) -> bool:
        if self._file is None or len(line) > self._bytes_left:
            return False
        self._bytes_left -= len(line)
        try:
            return os.write(self._file, line) == len(line)
        except OSError:
            return False


def _format_line(at: float, host: str, port: int, how: str, allowed: bool, why: str, **more: int) -> bytes:
    import json

    told = {"at": round(at, 3), "host": host, "port": port, "how": how, "allowed": allowed, "why": why, **more}
    return json.dumps(told).encode() + b"\n"


def read_blocked_hosts(path: str) -> tuple[str, ...]:
    """The distinct `host:port` that were refused, in order; empty if there is no such file."""
    found: dict[str, None] = {}
    for place in _read_refusals(path):
        found[place] = None
        if len(found) == MAX_BLOCKED:
            break
    return tuple(found)


def _read_refusals(path: str) -> Iterator[str]:
    """Refused `host:port` of every valid line."""
    import json

    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
        with open(file, "rb") as lines:
            while line := lines.readline(MAX_LINE_BYTES):
                try:
                    told = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(told, dict) and told.get("allowed") is False and (place := _parse_place(told)):
                    yield place
    except OSError:
        return


def _parse_place(told: dict[str, object]) -> str:
    host, port = told.get("host"), told.get("port")
    if not isinstance(host, str) or not isinstance(port, int) or not 0 < port < 65536:
        return ""
    clean = "".join(sign for sign in host[:MAX_HOST_CHARS] if sign.isprintable() and not sign.isspace())
    shown = f"[{clean.strip('[]')}]" if ":" in clean else clean
    return f"{shown}:{port}" if clean else ""


# Reading with a deadline, connecting, refusing and closing.


CHUNK_BYTES = 65_536
_HEAD_END = b"\r\n\r\n"
_REASONS = {
    400: "Bad Request", 403: "Blocked by ralph sandbox", 407: "Proxy Authentication Required", 502: "Bad Gateway",
    503: "Service Unavailable",
}  # fmt: skip
_CLOSE_TIMEOUT_S = 2.0  # for a client to take our last word, and to end
_MAX_DRAINED_BYTES = 1 << 24


@value
class ProxyRefusal:
    """An error response. `fields` are additional header lines."""

    status: int
    text: str
    fields: tuple[str, ...] = ()


def read_head(client: socket.socket, within_s: float) -> tuple[bytes, bytes] | None:
    """A request head without its final empty line, and the data after it; None if it does not arrive in time.

    An overlong head is returned as far as it was read.
    """
    end_s = time.monotonic() + within_s
    data = bytearray()
    end = -1
    while end < 0 and len(data) <= MAX_HEAD_BYTES:
        piece = _receive(client, end_s)
        if not piece:
            return None
        looked_at = max(0, len(data) - len(_HEAD_END))
        data += piece
        end = data.find(_HEAD_END, looked_at)
    return (bytes(data), b"") if end < 0 else (bytes(data[:end]), bytes(data[end + len(_HEAD_END) :]))


def read_client_hello(client: socket.socket, first: bytes, within_s: float) -> tuple[bytes, ClientHello | str]:
    """All data received, and the TLS hello in it or why there is none; the reason is empty if nothing arrived."""
    end_s = time.monotonic() + within_s
    reader, data = ClientHelloReader(), bytearray(first)
    said = reader.feed(first)
    while said is None:
        piece = _receive(client, end_s)
        if not piece:
            return bytes(data), NOT_TLS if data or piece is None else ""
        data += piece
        said = reader.feed(piece)
    return bytes(data), said


def _receive(client: socket.socket, end_s: float) -> bytes | None:
    """The next data: empty if the client has ended, None at the deadline."""
    left_s = end_s - time.monotonic()
    if left_s <= 0:
        return None
    client.settimeout(left_s)
    try:
        return client.recv(CHUNK_BYTES)
    except TimeoutError:
        return None


def connect_to_first(places: list[tuple[int, Sockaddr]], each_s: float) -> socket.socket:
    """A connection to the first address that answers; OSError with the last reason if none does."""
    from socket import socket

    why = "it has no address"
    for family, address in places:
        server = socket(family)
        try:
            server.settimeout(each_s)
            server.connect(address)
            disable_nagle(server)
            return server
        except OSError as failed:
            server.close()
            why = failed.strerror or str(failed)
    raise OSError(why)


def disable_nagle(connection: socket.socket) -> None:
    """Send small pieces at once."""
    try:
        connection.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
    except OSError:
        return


def send_refusal(client: socket.socket, refusal: ProxyRefusal, bodiless: bool = False) -> None:
    """Send the refusal and close so that the client receives it."""
    body = f"ralph sandbox: {refusal.text}\n".encode("ascii", "replace")
    lines = (
        f"HTTP/1.1 {refusal.status} {_REASONS[refusal.status]}", "Content-Type: text/plain",
        f"Content-Length: {len(body)}", *refusal.fields, "Connection: close", "", "",
    )  # fmt: skip
    client.settimeout(_CLOSE_TIMEOUT_S)
    client.sendall("\r\n".join(lines).encode("ascii", "replace") + (b"" if bodiless else body))
    close_gracefully(client)


def close_gracefully(client: socket.socket) -> None:
    """Shut our side down and drain the other for a moment: unread data would cause a reset that discards what was sent
    last.
    """
    client.shutdown(SHUT_WR)
    end_s, left = time.monotonic() + _CLOSE_TIMEOUT_S, _MAX_DRAINED_BYTES
    while left > 0 and (piece := _receive(client, end_s)):
        left -= len(piece)


def reset_on_close(connection: socket.socket) -> None:
    """Let the peer see a reset when this is closed, so that it knows that data is missing."""
    import struct

    try:
        connection.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    except OSError:
        return


# Relay between two connections in the caller's thread, with bounded memory.


def _unchanged(data: bytes) -> bytes:
    return data


class _RelayDirection:
    """One direction of a relay. Nothing is read while data waits to be written."""

    def __init__(self, source: socket.socket, target: socket.socket, through: Callable[[bytes], bytes]) -> None:
        self._source, self._target, self._transform = source, target, through
        self._source_open = True
        self.pending = memoryview(b"")
        self.finished = False

    def awaited_event(self) -> tuple[int, int]:
        """The descriptor and event to poll for."""
        return (self._target.fileno(), select.POLLOUT) if self.pending else (self._source.fileno(), select.POLLIN)

    def advance(self) -> None:
        """Move what can be moved now. Raises OSError if the source broke off, ValueError for data that may not pass."""
        if not self.pending and self._source_open:
            self._read()
        if self.pending:
            self._write()
        if not self.pending and not self._source_open and not self.finished:
            self._end()

    def _read(self) -> None:
        try:
            data = self._source.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        self._source_open = bool(data)
        self.pending = memoryview(self._transform(data))

    def _write(self) -> None:
        try:
            self.pending = self.pending[self._target.send(self.pending) :]
        except BlockingIOError:
            return
        except ConnectionError:  # it takes no more, but what it has said still counts
            self.finished = True

    def _end(self) -> None:
        self.finished = True
        try:
            self._target.shutdown(SHUT_WR)
        except OSError:
            return


def relay(
    client: socket.socket, server: socket.socket, idle_s: float, *, first: bytes = b"",
    out: Callable[[bytes], bytes] = _unchanged, back: Callable[[bytes], bytes] | None = None,
) -> None:  # fmt: skip
    """Relay `first` and then everything until both sides have ended, or the server alone if `back` is given.

    `out` and `back` filter the data of each direction. A side that has ended can still receive. Raises OSError if one
    breaks off or nothing moved for `idle_s`; ValueError for data that may not pass.
    """
    to_server, to_client = _RelayDirection(client, server, out), _RelayDirection(server, client, back or _unchanged)
    to_server.pending = memoryview(first)
    client.setblocking(False)
    server.setblocking(False)
    try:
        while not to_client.finished or (back is None and not to_server.finished):
            _relay_once([flow for flow in (to_server, to_client) if not flow.finished], idle_s)
    except (OSError, ValueError):
        reset_on_close(client)
        reset_on_close(server)
        raise


def _relay_once(flows: list[_RelayDirection], idle_s: float) -> None:
    """Wait until data can be moved, and move it."""
    ready = _ready_descriptors(flows, idle_s)
    for flow in flows:
        if flow.awaited_event()[0] in ready:
            flow.advance()


def _ready_descriptors(flows: list[_RelayDirection], idle_s: float) -> set[int]:
    """Descriptors with an event, at least one."""
    wanted: dict[int, int] = {}
    for file, event in (flow.awaited_event() for flow in flows):
        wanted[file] = wanted.get(file, 0) | event
    poll = select.poll()
    for file, events in wanted.items():
        poll.register(file, events)
    ready = {file for file, _ in poll.poll(idle_s * 1000)}
    if not ready:
        raise TimeoutError("nothing moved")
    return ready


# The servers.


_CONNECTED = b"HTTP/1.1 200 Connection established\r\n\r\n"


@value
class ProxyLimits:
    """Timeouts for a head or TLS hello, for connecting to one address and for idle connections; and the number of
    connections.
    """

    head_s: float = 15.0
    connect_s: float = 10.0
    idle_s: float = 600.0
    connections: int = 256


DEFAULT_PROXY_LIMITS = ProxyLimits()


@value
class _ProxyCall:
    """A request, the host that it is allowed to reach, and the connection to it."""

    request: ProxyRequest
    host: str
    server: socket.socket


class _ConnectionServer:
    """Serves each connection to its end in the caller's thread."""

    def __init__(self, limits: ProxyLimits) -> None:
        self._limits = limits
        self._slots = threading.Semaphore(limits.connections)

    def serve(self, connection: socket.socket) -> None:
        """Serve one connection and close it. Never raises."""
        has_slot = self._slots.acquire(blocking=False)
        with connection:
            try:
                disable_nagle(connection)
                if has_slot:
                    self._handle(connection)
                else:
                    self._reject(connection)
            except (OSError, ValueError):
                reset_on_close(connection)
            finally:
                if has_slot:
                    self._slots.release()

    def _handle(self, client: socket.socket) -> None:
        raise NotImplementedError

    def _reject(self, client: socket.socket) -> None:
        reset_on_close(client)


class PortForward(_ConnectionServer):
    """Forwards to a port of this machine that is allowed from inside."""

    def __init__(self, port: int, audit: EgressAudit, *, limits: ProxyLimits = DEFAULT_PROXY_LIMITS) -> None:
        super().__init__(limits)
        self._port, self._audit = port, audit

    def _handle(self, client: socket.socket) -> None:
        """Connect to 127.0.0.1, else to ::1."""
        places: list[tuple[int, Sockaddr]] = [
            (socket.AF_INET, ("127.0.0.1", self._port)),
            (socket.AF_INET6, ("::1", self._port, 0, 0)),
        ]
        try:
            server = connect_to_first(places, self._limits.connect_s)
        except OSError as why:
            self._audit.record("localhost", self._port, "LOCAL", True, f"could not be reached: {why}")
            raise
        self._audit.record("localhost", self._port, "LOCAL", True)
        with server:
            relay(client, server, self._limits.idle_s)


class EgressProxy(_ConnectionServer):
    """Connects clients to allowed hosts. For any other host there is not even a DNS lookup."""

    def __init__(
        self,
        rules: AllowList,
        audit: EgressAudit,
        token: str = "",
        *,
        resolve: Resolve | None = None,
        limits: ProxyLimits = DEFAULT_PROXY_LIMITS,
    ) -> None:
        """With a token, a request must bring it as the password of the user `ralph`."""
        super().__init__(limits)
        self._rules, self._audit, self._resolve, self._credentials = rules, audit, resolve, _basic_credentials(token)

    def _reject(self, client: socket.socket) -> None:
        send_refusal(client, ProxyRefusal(503, "too many connections at a time"))

    def _handle(self, client: socket.socket) -> None:
        received = read_head(client, self._limits.head_s)
        if received is None:
            return
        head, rest = received
        call = self._connect(head)
        if isinstance(call, ProxyRefusal):
            send_refusal(client, call, bodiless=head.startswith(b"HEAD "))
            return
        with call.server:
            if call.request.method == "CONNECT":
                self._tunnel(client, rest, call)
            else:
                self._forward(client, rest, call)

    def _connect(self, head: bytes) -> _ProxyCall | ProxyRefusal:
        """A connection to the host if it is allowed, at an address that was checked, after one lookup."""
        request = self._read(head)
        if isinstance(request, ProxyRefusal):
            return request
        allowed = self._rules.judge(request.host, request.port)
        if isinstance(allowed, str):
            return self._refuse(
                request,
                allowed,
                allow_list_entry_for(request.host, request.port) if allowed in ALLOWABLE_REFUSALS else "",
            )
        try:
            server = connect_to_first(
                resolve_addresses(allowed, request.port, resolve=self._resolve), self._limits.connect_s
            )
        except PermissionError as why:
            return self._refuse(
                request, str(why), "" if allowed.private else allow_list_entry_for(request.host, request.port, True)
            )
        except OSError as why:
            self._audit.record(allowed.host, request.port, request.method, True, f"could not be reached: {why}")
            return ProxyRefusal(502, f"{format_host_port(allowed.host, request.port)} could not be reached: {why}")
        self._audit.record(allowed.host, request.port, request.method, True)
        return _ProxyCall(request, allowed.host, server)

    def _read(self, head: bytes) -> ProxyRequest | ProxyRefusal:
        request = parse_request(head)
        if isinstance(request, str):
            method, _, target = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
            self._audit.record(target, 0, method, False, request)
            return ProxyRefusal(400, request)
        if self._credentials and not _is_authorised(request.all_of(b"proxy-authorization"), self._credentials):
            return ProxyRefusal(
                407, "this proxy is for one sandbox alone", ('Proxy-Authenticate: Basic realm="ralph"',)
            )
        return request

    def _refuse(self, request: ProxyRequest, why: str, entry: str) -> ProxyRefusal:
        host = _normalise_or_keep(request.host)[:MAX_HOST_CHARS]
        self._audit.record(host, request.port, request.method, False, why)
        place = format_host_port(host, request.port)
        advice = f"; the user can allow it with --allow-host {entry}" if entry else ""
        return ProxyRefusal(403, f"{place} {why}{advice}", (f"X-Ralph-Blocked: {place}",))

    def _tunnel(self, client: socket.socket, rest: bytes, call: _ProxyCall) -> None:
        """Relay both ways if the client begins with a TLS hello for this host."""
        client.settimeout(self._limits.head_s)
        client.sendall(_CONNECTED)
        first, said = read_client_hello(client, rest, self._limits.head_s)
        match said:
            case ClientHello(name) if _normalise_or_keep(name) == call.host or (not name and is_ip_address(call.host)):
                relay(client, call.server, self._limits.idle_s, first=first)
            case ClientHello(""):
                self._audit.record(call.host, call.request.port, "SNI", False, "is not named in the TLS hello")
            case ClientHello(name):
                why = f"is named in the TLS hello, but CONNECT was for {call.host}"
                self._audit.record(_normalise_or_keep(name), call.request.port, "SNI", False, why)
            case why if why:
                self._audit.record(call.host, call.request.port, "SNI", False, f"what is sent {why}")

    def _forward(self, client: socket.socket, rest: bytes, call: _ProxyCall) -> None:
        """Forward this one request, and its response."""
        body = body_filter(call.request.length)
        first = forwarded_head(call.request, call.host) + body.take(rest)
        relay(client, call.server, self._limits.idle_s, first=first, out=body.take, back=ResponseFilter().take)
        close_gracefully(client)


def _normalise_or_keep(host: str) -> str:
    """The normalised host, or the host as sent if it has no normal form."""
    try:
        return normalise_host(host)
    except ValueError:
        return host


def _basic_credentials(token: str) -> bytes:
    """The expected credentials of the `Basic` scheme; empty if no token is required."""
    from binascii import b2a_base64

    return b2a_base64(b"ralph:" + token.encode(), newline=False) if token else b""


def _is_authorised(given: list[bytes], key: bytes) -> bool:
    from hmac import compare_digest

    scheme, _, found = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
    return scheme.lower() == b"basic" and compare_digest(found.strip(), key)
