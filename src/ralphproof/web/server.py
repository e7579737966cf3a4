"""The HTTP server: socket, connection limits, shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.engine.outcome import published
from ralphproof.runs.control import RunControl
from ralphproof.views.read_model import ReadModel
from ralphproof.web.access import SECURITY_HEADERS, AccessToken, ServerAddress
from ralphproof.web.api import ReaderPool
from ralphproof.web.app import WebApp
from ralphproof.web.event_stream import ChangeWatcher
from ralphproof.web.http import JSON_TYPE, encode_json

if TYPE_CHECKING:
    from ralphproof.web.event_stream import Overhear


# Connections with timeouts for requests and for readers.


MAX_UNSENT_BYTES = 256 * 1024  # on their way to one client


@value
class ConnectionLimits:
    """Numbers of connections and of event streams, and timeouts."""

    clients: int = 128
    onlookers: int = 64
    request_s: float = 10.0
    reading_s: float = 10.0


class TimedConnection(H11Protocol):
    """One client connection with timeouts: uvicorn 0.54 waits forever for a first request and for a stalled reader."""

    limits = ConnectionLimits()
    _request_due: asyncio.TimerHandle | None = None
    _reading_due: asyncio.TimerHandle | None = None
    _surplus = False
    _since_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since_s = self.loop.time()
        if sock := transport.get_extra_info("socket"):  # else the kernel keeps megabytes for one who does not read
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_UNSENT_BYTES)
        if not transport.get_extra_info("sslcontext"):  # TLS of Python 3.11 sends nothing any more with such a limit
            transport.set_write_buffer_limits(high=0)  # what waits to be read is waited for, however little it is
        self._surplus = not self._make_room()
        self._expect_request()

    def data_received(self, data: bytes) -> None:
        if self._surplus:
            self._answer_at_once(503, "too many are connected; come again", "Retry-After: 2\r\n")
            return
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._expect_request()
        elif self._request_due:
            self._request_due.cancel()
            self._request_due = None

    def send_400_response(self, msg: str) -> None:
        self._answer_at_once(400, msg)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reading(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._reading_due:
            self._reading_due.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for due in (self._request_due, self._reading_due, self.timeout_keep_alive_task):
            if due:
                due.cancel()

    @property
    def _has_not_asked(self) -> bool:
        """Whether it has sent no request yet. A request without a token closes the connection, so the others are
        authenticated.
        """
        return self.cycle is None

    def _make_room(self) -> bool:
        """Whether the connection may stay: if all places are taken, the idle one that waited longest is closed."""
        others = [one for one in self.connections if isinstance(one, TimedConnection) and one is not self]
        there = [one for one in others if not one.transport.is_closing()]
        if len(there) < self.limits.clients:
            return True
        longest = min((one for one in there if one._has_not_asked), key=lambda one: one._since_s, default=None)
        if longest is None:
            return False
        longest.transport.abort()
        return True

    def _expect_request(self) -> None:
        if self._request_due is None:
            self._request_due = self.loop.call_later(self.limits.request_s, self.transport.abort)

    def _expect_reading(self, left: int) -> None:
        self._reading_due = self.loop.call_later(self.limits.reading_s, self._check_reading, left)

    def _check_reading(self, before: int) -> None:
        """A slow reader is kept as long as it reads; a stalled one is closed and may reconnect."""
        left = self.transport.get_write_buffer_size()
        if left < before:
            self._expect_reading(left)
        else:
            self.transport.abort()

    def _answer_at_once(self, status: int, words: str, more: str = "") -> None:
        if self.transport.is_closing():
            return
        body = encode_json(published("error", {"error": words}))
        always = "".join(f"{name}: {text}\r\n" for name, text in SECURITY_HEADERS.items())
        head = f"HTTP/1.1 {status} \r\nContent-Type: {JSON_TYPE}\r\nContent-Length: {len(body)}\r\n{more}{always}"
        self.transport.write(f"{head}Cache-Control: no-store\r\nConnection: close\r\n\r\n".encode() + body)
        self.transport.close()


LISTEN_BACKLOG = 128


def open_listening_socket(host: str, port: int | None, usual: int) -> tuple[socket.socket, bool]:
    """A listening socket, and whether the default port was taken. Another port is used only if none was given."""
    family, at = _resolve_host(host)
    try:
        return _bind_socket(family, at, usual if port is None else port), False
    except OSError as error:
        if error.errno != errno.EADDRINUSE or port is not None:
            raise _bind_error(error, host, usual if port is None else port) from None
    return _bind_socket(family, at, 0), True


def _resolve_host(host: str) -> tuple[int, str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise Refused(f"there is no address {host} here to listen on ({why})") from None
    family, _, _, _, place = sorted(found, key=lambda one: one[0] != socket.AF_INET)[0]
    return family, str(place[0])


def _bind_socket(family: int, host: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # a server that ended a moment ago does not hold its port
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(LISTEN_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def _bind_error(error: OSError, host: str, port: int) -> Refused:
    if error.errno == errno.EADDRINUSE:
        return Refused(f"port {port} of {host} is taken; give another --port, or 0 for a free one")
    return Refused(f"cannot listen on port {port} of {host} ({error.strerror})")


EXIT_SIGNALS = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))
SHUTDOWN_TIMEOUT_S = 2  # for answers that are on their way
MAX_HEADER_BYTES = 64 * 1024  # cookies of everything else on this machine come along


def serve(
    sock: socket.socket, address: ServerAddress, token: AccessToken, read_model: ReadModel,
    run_control: RunControl | None, listen_to: Overhear,
    note: Callable[[str], None], ready: Callable[[], None], with_metrics: bool, tls: tuple[str, str] | None,
    limits: ConnectionLimits,
) -> None:  # fmt: skip
    """Serve on a listening socket until a signal; `ready` is called when requests and signals are handled.

    Requests are not logged: a query may contain the token.
    """
    readers = ReaderPool()
    app = WebApp(read_model, run_control, listen_to, readers, limits.onlookers, note, with_metrics)
    config = uvicorn.Config(
        app.guarded(address, token), http=TimedConnection, ws="none", loop="asyncio", lifespan="off",
        log_config=None, log_level=logging.CRITICAL, access_log=False, proxy_headers=False, server_header=False,
        timeout_keep_alive=15, timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        ssl_certfile=tls[0] if tls else None, ssl_keyfile=tls[1] if tls else None,
    )  # fmt: skip
    try:
        WebServer(config, app.watcher, limits, ready).run([sock])
    finally:
        readers.close()


class WebServer(uvicorn.Server):
    """uvicorn's server, which shuts down at the first signal and closes streams; the second signal does not wait.

    It does not re-raise the signal (as uvicorn 0.54 does): a requested shutdown is a success. Unfinished TLS handshakes
    count as connections and have the timeout of a request.
    """

    def __init__(
        self, config: uvicorn.Config, watcher: ChangeWatcher, limits: ConnectionLimits, ready: Callable[[], None]
    ) -> None:  # fmt: skip
        super().__init__(config)
        self._watcher, self._limits, self._ready = watcher, limits, ready
        self._handshaking: dict[TimedConnection, float] = {}

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop, tls = asyncio.get_running_loop(), self.config.ssl
        patience_s = self._limits.request_s if tls else None
        self.servers = [
            await loop.create_server(self._connection, sock=sock, ssl=tls, ssl_handshake_timeout=patience_s)
            for sock in sockets or ()
        ]
        self.started = True
        self._ready()

    def _connection(self) -> TimedConnection:
        """A new connection. Beyond twice the limit it raises, and asyncio closes it."""
        state, now_s = self.server_state, asyncio.get_running_loop().time()
        least_s = now_s - self._limits.request_s
        self._handshaking = {one: at for one, at in self._handshaking.items() if at > least_s and one.transport is None}
        if len(state.connections) + len(self._handshaking) >= 2 * self._limits.clients:
            raise ConnectionRefusedError("too many are connected")
        made = TimedConnection(self.config, state, {})
        made.limits = self._limits
        self._handshaking[made] = now_s
        return made

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {number: signal.getsignal(number) for number in EXIT_SIGNALS}
        for number, known in before.items():
            if known is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        try:
            yield
        finally:
            for number, known in before.items():
                signal.signal(number, known)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._watcher.end()
        await super().shutdown(sockets)

    def _on_signal(self, *_: object) -> None:
        self.force_exit, self.should_exit = self.should_exit, True
