"""The way out of a sandbox: an HTTP proxy that calls the hosts of an allow-list and no others."""

from __future__ import annotations

import socket
import threading

from ralphproof.sandboxes.egress_audit import MOST_CHARS
from ralphproof.sandboxes.egress_body import Answer, body_of
from ralphproof.sandboxes.egress_hello import Hello
from ralphproof.sandboxes.egress_join import join
from ralphproof.sandboxes.egress_names import is_address, joined, normalised
from ralphproof.sandboxes.egress_request import Errand, errand, passed_on
from ralphproof.sandboxes.egress_rules import MENDABLE, addresses, entry_for
from ralphproof.sandboxes.egress_talk import Refusal, break_off, called, head_of, hello_of, hurry, part, refuse
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from ralphproof.sandboxes.egress_audit import Audit
    from ralphproof.sandboxes.egress_rules import Resolve, Rules, Sockaddr

_CONNECTED = b"HTTP/1.1 200 Connection established\r\n\r\n"


@value
class CallBounds:
    """How long is waited for a head or a TLS hello, for one address, for any byte; how many may come at a time."""

    head_s: float = 15.0
    connect_s: float = 10.0
    idle_s: float = 600.0
    connections: int = 256


USUAL = CallBounds()


@value
class _Call:
    """A request, the host that it may be put to, and the connection to that."""

    asked: Errand
    host: str
    server: socket.socket


class _Door:
    """Serves connections, each in its caller's thread and to its end."""

    def __init__(self, bounds: CallBounds) -> None:
        self._bounds = bounds
        self._seats = threading.Semaphore(bounds.connections)

    def serve(self, connection: socket.socket) -> None:
        """Serve one connection and close it. Never raises."""
        seated = self._seats.acquire(blocking=False)
        with connection:
            try:
                hurry(connection)
                if seated:
                    self._answer(connection)
                else:
                    self._turn_away(connection)
            except (OSError, ValueError):
                break_off(connection)
            finally:
                if seated:
                    self._seats.release()

    def _answer(self, client: socket.socket) -> None:
        raise NotImplementedError

    def _turn_away(self, client: socket.socket) -> None:
        break_off(client)


class Forward(_Door):
    """A port of this machine that may be used from inside."""

    def __init__(self, port: int, audit: Audit, *, bounds: CallBounds = USUAL) -> None:
        super().__init__(bounds)
        self._port, self._audit = port, audit

    def _answer(self, client: socket.socket) -> None:
        """Join it with 127.0.0.1, else with ::1."""
        places: list[tuple[int, Sockaddr]] = [
            (socket.AF_INET, ("127.0.0.1", self._port)),
            (socket.AF_INET6, ("::1", self._port, 0, 0)),
        ]
        try:
            server = called(places, self._bounds.connect_s)
        except OSError as why:
            self._audit.tell("localhost", self._port, "LOCAL", True, f"could not be reached: {why}")
            raise
        self._audit.tell("localhost", self._port, "LOCAL", True)
        with server:
            join(client, server, self._bounds.idle_s)


class Proxy(_Door):
    """Calls allowed hosts for its clients. Neither a lookup nor a byte goes out for any other."""

    def __init__(
        self, rules: Rules, audit: Audit, token: str = "", *, resolve: Resolve | None = None, bounds: CallBounds = USUAL
    ) -> None:
        """With a token, a request must bring it as the password of the user `ralph`."""
        super().__init__(bounds)
        self._rules, self._audit, self._resolve, self._key = rules, audit, resolve, _key(token)

    def _turn_away(self, client: socket.socket) -> None:
        refuse(client, Refusal(503, "too many connections at a time"))

    def _answer(self, client: socket.socket) -> None:
        came = head_of(client, self._bounds.head_s)
        if came is None:
            return
        head, rest = came
        call = self._call(head)
        if isinstance(call, Refusal):
            refuse(client, call, bodiless=head.startswith(b"HEAD "))
            return
        with call.server:
            if call.asked.method == "CONNECT":
                self._tunnel(client, rest, call)
            else:
                self._pass_on(client, rest, call)

    def _call(self, head: bytes) -> _Call | Refusal:
        """A connection to the host, if it is allowed, at an address that was judged, after one lookup."""
        asked = self._read(head)
        if isinstance(asked, Refusal):
            return asked
        allowed = self._rules.judge(asked.host, asked.port)
        if isinstance(allowed, str):
            return self._blocked(asked, allowed, entry_for(asked.host, asked.port) if allowed in MENDABLE else "")
        try:
            server = called(addresses(allowed, asked.port, resolve=self._resolve), self._bounds.connect_s)
        except PermissionError as why:
            return self._blocked(asked, str(why), "" if allowed.private else entry_for(asked.host, asked.port, True))
        except OSError as why:
            self._audit.tell(allowed.host, asked.port, asked.method, True, f"could not be reached: {why}")
            return Refusal(502, f"{joined(allowed.host, asked.port)} could not be reached: {why}")
        self._audit.tell(allowed.host, asked.port, asked.method, True)
        return _Call(asked, allowed.host, server)

    def _read(self, head: bytes) -> Errand | Refusal:
        asked = errand(head)
        if isinstance(asked, str):
            method, _, target = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
            self._audit.tell(target, 0, method, False, asked)
            return Refusal(400, asked)
        if self._key and not _bears(asked.all_of(b"proxy-authorization"), self._key):
            return Refusal(407, "this proxy is for one sandbox alone", ('Proxy-Authenticate: Basic realm="ralph"',))
        return asked

    def _blocked(self, asked: Errand, why: str, entry: str) -> Refusal:
        host = _spelt(asked.host)[:MOST_CHARS]
        self._audit.tell(host, asked.port, asked.method, False, why)
        place = joined(host, asked.port)
        advice = f"; the user can allow it with --allow-host {entry}" if entry else ""
        return Refusal(403, f"{place} {why}{advice}", (f"X-Ralph-Blocked: {place}",))

    def _tunnel(self, client: socket.socket, rest: bytes, call: _Call) -> None:
        """Join both, if what the client begins with is a TLS hello for this host."""
        client.settimeout(self._bounds.head_s)
        client.sendall(_CONNECTED)
        first, said = hello_of(client, rest, self._bounds.head_s)
        match said:
            case Hello(name) if _spelt(name) == call.host or (not name and is_address(call.host)):
                join(client, call.server, self._bounds.idle_s, first=first)
            case Hello(""):
                self._audit.tell(call.host, call.asked.port, "SNI", False, "is not named in the TLS hello")
            case Hello(name):
                why = f"is named in the TLS hello, but CONNECT was for {call.host}"
                self._audit.tell(_spelt(name), call.asked.port, "SNI", False, why)
            case why if why:
                self._audit.tell(call.host, call.asked.port, "SNI", False, f"what is sent {why}")

    def _pass_on(self, client: socket.socket, rest: bytes, call: _Call) -> None:
        """Give the server this one request, and the client its answer."""
        body = body_of(call.asked.length)
        first = passed_on(call.asked, call.host) + body.take(rest)
        join(client, call.server, self._bounds.idle_s, first=first, out=body.take, back=Answer().take)
        part(client)


def _spelt(host: str) -> str:
    """A host as it is judged, or as it was sent where that has no other spelling."""
    try:
        return normalised(host)
    except ValueError:
        return host


def _key(token: str) -> bytes:
    """What follows `Basic` in a request that brings the token; empty where none is needed."""
    from binascii import b2a_base64

    return b2a_base64(b"ralph:" + token.encode(), newline=False) if token else b""


def _bears(given: list[bytes], key: bytes) -> bool:
    from hmac import compare_digest

    scheme, _, found = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
    return scheme.lower() == b"basic" and compare_digest(found.strip(), key)
