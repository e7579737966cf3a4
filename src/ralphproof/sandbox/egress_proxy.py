"""Egress proxy: tunnels TLS (CONNECT) to the hosts of an allow-list and to no others, with an audit log.

Plain HTTP is forwarded only to hosts of the user's own network (`private:` entries), such as a model server there:
agents and package registries use HTTPS.
"""

from __future__ import annotations

import json
import os
import re
import select
import socket
import struct
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from hmac import compare_digest

from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.sandbox.egress_rules import (
    ALLOWABLE_REFUSALS,
    AllowList,
    allow_list_entry_for,
    format_host_port,
    is_ip_address,
    normalise_host,
    resolve_addresses,
    split_host_port,
)

if TYPE_CHECKING:
    from ralphproof.sandbox.egress_rules import Resolve, Sockaddr


# Audit log of outgoing calls: one file of JSON lines for each turn.


MAX_BYTES = 1 << 20  # of lines as they come; the counts at the end are bounded by the number of those
MAX_HOST_CHARS = 300
MAX_LINE_BYTES = 16_384
MAX_BLOCKED = 50
PLAIN_HTTP = "plain HTTP is not forwarded; use https://"
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


class EgressAudit:
    """Appends to a private file. A repeated call is written once, and its count at the end."""

    def __init__(self, path: str) -> None:
        self._file: int | None = os.open(path, _FLAGS, 0o600)
        os.fchmod(self._file, 0o600)
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, int, str, bool, str], tuple[float, int]] = {}
        self._bytes_left = MAX_BYTES - os.fstat(self._file).st_size
        self._unwritten = 0

    def record(self, host: str, port: int, how: str, allowed: bool, why: str = "") -> None:
        """Record one call. Never raises: a full disk must not block calls."""
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
    if not clean:
        return ""
    place = format_host_port(clean, port)
    return f"http://{place} ({PLAIN_HTTP})" if told.get("why") == PLAIN_HTTP else place


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


# Requests to the proxy.


MAX_HEAD_BYTES = 65_536
_HEAD_END = b"\r\n\r\n"
_CONNECT_LINE = re.compile(rb"CONNECT ([\x21-\x7e]+) HTTP/1\.[01]")
_PLAIN_LINE = re.compile(rb"([A-Z-]{1,32}) (?i:http)://([^\x00-\x20/?#]+)([/?][^\x00-\x20#]*)? HTTP/1\.([01])")
_CREDENTIALS = re.compile(rb"(?i:proxy-authorization):[ \t]*(?i:basic)[ \t]+([\x21-\x7e]+)[ \t]*")
# Meant for this proxy or replaced by it. `Connection: close` makes the server serve this one request.
_DROPPED_FIELD = re.compile(rb"(?i:host|connection|keep-alive|upgrade|te|proxy-[^:]*)[ \t]*:.*")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_REASONS = {
    400: "Bad Request", 403: "Blocked by ralph sandbox", 405: "Method Not Allowed",
    407: "Proxy Authentication Required", 502: "Bad Gateway", 503: "Service Unavailable",
}  # fmt: skip


@value
class ProxyRequest:
    """A request for a tunnel, or for plain HTTP if it has a `plain_head`, which is the head for the server.

    `credentials` are those of the `Basic` scheme that it brings.
    """

    host: str
    port: int
    credentials: bytes = b""
    plain_head: bytes = b""

    @property
    def how(self) -> str:
        return "HTTP" if self.plain_head else "CONNECT"


@value
class ProxyRefusal:
    """An error response. `fields` are additional header lines."""

    status: int
    text: str
    fields: tuple[str, ...] = ()


def parse_request(head: bytes) -> ProxyRequest:
    """Parse a request head without its final empty line; ValueError says what is wrong with it."""
    first, *fields = head.split(b"\r\n")
    if any(_CONTROL.search(field) for field in fields):
        raise ValueError("a header field has a control character in it")
    tunnel, plain = _CONNECT_LINE.fullmatch(first), _PLAIN_LINE.fullmatch(first)
    if len(head) > MAX_HEAD_BYTES or not (tunnel or plain):
        raise ValueError("this is a proxy for HTTPS: it takes CONNECT host:port")
    given = [found[1] for field in fields if (found := _CREDENTIALS.fullmatch(field))]
    credentials = given[0] if len(given) == 1 else b""
    if tunnel:
        return ProxyRequest(*_parse_authority(tunnel[1], 0), credentials)
    method, authority, target, minor = plain.groups(b"") if plain else (b"",) * 4
    path = target if target.startswith(b"/") else b"/" + target
    kept = [field for field in fields if not _DROPPED_FIELD.fullmatch(field)]
    lines = [method + b" " + path + b" HTTP/1." + minor, b"Host: " + authority, *kept, b"Connection: close", b"", b""]
    return ProxyRequest(*_parse_authority(authority, 80), credentials, b"\r\n".join(lines))


def _parse_authority(text: bytes, usual: int) -> tuple[str, int]:
    host, port = split_host_port(text.decode("ascii", "replace"))
    if "@" in host or "/" in host or not host or (":" in host and host[0] != "[") or not (port or usual):
        raise ValueError("the host and its port cannot be told")
    return host, port or usual


# Reading with a deadline, connecting, refusing and closing.


CHUNK_BYTES = 65_536
_CLOSE_TIMEOUT_S = 2.0  # for a client to take our last word, and to end
_MAX_DRAINED_BYTES = 1 << 24


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
    why = "it has no address"
    for family, address in places:
        server = socket.socket(family)
        try:
            server.settimeout(each_s)
            server.connect(address)
            _set_option(server, socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return server
        except OSError as failed:
            server.close()
            why = failed.strerror or str(failed)
    raise OSError(why)


def send_refusal(client: socket.socket, refusal: ProxyRefusal) -> None:
    """Send the refusal, shut our side down and drain the other for a moment: unread data would cause a reset that
    discards it.
    """
    body = f"ralph sandbox: {refusal.text}\n".encode("ascii", "replace")
    lines = (
        f"HTTP/1.1 {refusal.status} {_REASONS[refusal.status]}", "Content-Type: text/plain",
        f"Content-Length: {len(body)}", *refusal.fields, "Connection: close", "", "",
    )  # fmt: skip
    client.settimeout(_CLOSE_TIMEOUT_S)
    client.sendall("\r\n".join(lines).encode("ascii", "replace") + body)
    client.shutdown(socket.SHUT_WR)
    end_s, left = time.monotonic() + _CLOSE_TIMEOUT_S, _MAX_DRAINED_BYTES
    while left > 0 and (piece := _receive(client, end_s)):
        left -= len(piece)


def reset_on_close(connection: socket.socket) -> None:
    """Let the peer see a reset when this is closed, so that it knows that data is missing."""
    _set_option(connection, socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _set_option(connection: socket.socket, level: int, option: int, to: int | bytes) -> None:
    try:
        connection.setsockopt(level, option, to)
    except OSError:
        return  # the connection is gone


# Relay between two connections in the caller's thread, with one chunk in memory.


def relay(client: socket.socket, server: socket.socket, idle_s: float, first: bytes = b"") -> None:
    """Relay `first` and then everything until both sides have ended. A side that has ended can still receive.

    Raises OSError if one breaks off or nothing moved for `idle_s`.
    """
    client.settimeout(idle_s)
    server.settimeout(idle_s)
    targets = {client: server, server: client}
    try:
        _pass_on(targets, client, first)
        while targets:
            for source in _wait_for_data(list(targets), idle_s):
                if data := source.recv(CHUNK_BYTES):
                    _pass_on(targets, source, data)
                else:
                    _end_writing(targets.pop(source))
    except OSError:
        reset_on_close(client)
        reset_on_close(server)
        raise


def _wait_for_data(sources: list[socket.socket], idle_s: float) -> list[socket.socket]:
    """Those that can be read or have ended, at least one. With poll: select takes no descriptor above 1023."""
    poll = select.poll()
    for source in sources:
        poll.register(source, select.POLLIN)
    ready = {file for file, _ in poll.poll(idle_s * 1000)}
    if not ready:
        raise TimeoutError("nothing moved")
    return [source for source in sources if source.fileno() in ready]


def _pass_on(targets: dict[socket.socket, socket.socket], source: socket.socket, data: bytes) -> None:
    try:
        targets[source].sendall(data)
    except ConnectionError:  # it takes no more, but what it has said still counts
        del targets[source]


def _end_writing(target: socket.socket) -> None:
    try:
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return  # it is gone


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
                _set_option(connection, socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if has_slot:
                    self._handle(connection)
                else:
                    self._reject(connection)
            except OSError:
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
    """Tunnels TLS to allowed hosts. For any other host there is not even a DNS lookup."""

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
        self._rules, self._audit, self._resolve = rules, audit, resolve
        self._credentials = b64encode(b"ralph:" + token.encode()) if token else b""

    def _reject(self, client: socket.socket) -> None:
        send_refusal(client, ProxyRefusal(503, "too many connections at a time"))

    def _handle(self, client: socket.socket) -> None:
        received = read_head(client, self._limits.head_s)
        if received is None:
            return
        head, rest = received
        request = self._read(head)
        if isinstance(request, ProxyRefusal):
            send_refusal(client, request)
            return
        connected = self._connect(request)
        if isinstance(connected, ProxyRefusal):
            send_refusal(client, connected)
            return
        host, server = connected
        with server:
            if request.plain_head:
                relay(client, server, self._limits.idle_s, request.plain_head + rest)
            else:
                self._tunnel(client, rest, host, request.port, server)

    def _read(self, head: bytes) -> ProxyRequest | ProxyRefusal:
        """The request if it is well-formed and authorised."""
        try:
            request = parse_request(head)
        except ValueError as wrong:
            method, _, target = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
            self._audit.record(target, 0, method, False, str(wrong))
            return ProxyRefusal(400, str(wrong))
        if self._credentials and not compare_digest(request.credentials, self._credentials):
            fields = ('Proxy-Authenticate: Basic realm="ralph"',)
            return ProxyRefusal(407, "this proxy is for one sandbox alone", fields)
        return request

    def _connect(self, request: ProxyRequest) -> tuple[str, socket.socket] | ProxyRefusal:
        """The host and a connection to it if it is allowed, at an address that was checked, after one lookup."""
        allowed = self._rules.judge(request.host, request.port)
        plain = bool(request.plain_head)
        if isinstance(allowed, str):
            allowable = allowed in ALLOWABLE_REFUSALS
            entry = allow_list_entry_for(request.host, request.port, private=plain) if allowable else ""
            return self._refuse(request, allowed, entry)
        if plain and not allowed.private:
            return self._refuse_plain(request)
        try:
            places = resolve_addresses(allowed, request.port, resolve=self._resolve)
            server = connect_to_first(places, self._limits.connect_s)
        except PermissionError as why:
            entry = "" if allowed.private else allow_list_entry_for(request.host, request.port, private=True)
            return self._refuse(request, str(why), entry)
        except OSError as why:
            self._audit.record(allowed.host, request.port, request.how, True, f"could not be reached: {why}")
            return ProxyRefusal(502, f"{format_host_port(allowed.host, request.port)} could not be reached: {why}")
        self._audit.record(allowed.host, request.port, request.how, True)
        return allowed.host, server

    def _refuse_plain(self, request: ProxyRequest) -> ProxyRefusal:
        host = _normalise_or_keep(request.host)[:MAX_HOST_CHARS]
        self._audit.record(host, request.port, request.how, False, PLAIN_HTTP)
        return ProxyRefusal(405, f"{format_host_port(host, request.port)}: {PLAIN_HTTP}", ("Allow: CONNECT",))

    def _refuse(self, request: ProxyRequest, why: str, entry: str) -> ProxyRefusal:
        host = _normalise_or_keep(request.host)[:MAX_HOST_CHARS]
        self._audit.record(host, request.port, request.how, False, why)
        place = format_host_port(host, request.port)
        advice = f"; the user can allow it with --allow-host {entry}" if entry else ""
        return ProxyRefusal(403, f"{place} {why}{advice}", (f"X-Ralph-Blocked: {place}",))

    def _tunnel(self, client: socket.socket, rest: bytes, host: str, port: int, server: socket.socket) -> None:
        """Relay both ways if the client begins with a TLS hello for this host."""
        client.settimeout(self._limits.head_s)
        client.sendall(_CONNECTED)
        first, said = read_client_hello(client, rest, self._limits.head_s)
        match said:
            case ClientHello(name) if _normalise_or_keep(name) == host or (not name and is_ip_address(host)):
                relay(client, server, self._limits.idle_s, first)
            case ClientHello(""):
                self._audit.record(host, port, "SNI", False, "is not named in the TLS hello")
            case ClientHello(name):
                why = f"is named in the TLS hello, but CONNECT was for {host}"
                self._audit.record(_normalise_or_keep(name), port, "SNI", False, why)
            case why if why:
                self._audit.record(host, port, "SNI", False, f"what is sent {why}")


def _normalise_or_keep(host: str) -> str:
    """The normalised host, or the host as sent if it has no normal form."""
    try:
        return normalise_host(host)
    except ValueError:
        return host
