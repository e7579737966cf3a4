"""A connection whose patience ends: with a request that does not come, and with a reader that does not read."""

from __future__ import annotations

import socket

from uvicorn.protocols.http.h11_impl import H11Protocol

from ralphproof.value import TYPE_CHECKING, value
from ralphproof.web.answers import JSON, encoded
from ralphproof.web.guard import HEADERS

if TYPE_CHECKING:
    import asyncio

SENT_BYTES = 256 * 1024  # on their way to one client


@value
class Endurance:
    """How many may be connected, how many of them look on, and how long each is waited for."""

    clients: int = 128
    onlookers: int = 64
    request_s: float = 10.0
    reading_s: float = 10.0


class Connection(H11Protocol):
    """One client. uvicorn 0.54 waits without end for a first request, and for a reader that stands still."""

    endurance = Endurance()
    _request_due: asyncio.TimerHandle | None = None
    _reading_due: asyncio.TimerHandle | None = None
    _surplus = False
    _since_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since_s = self.loop.time()
        if sock := transport.get_extra_info("socket"):  # else the kernel keeps megabytes for one who does not read
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENT_BYTES)
        if not transport.get_extra_info("sslcontext"):  # TLS of Python 3.11 sends nothing any more with such a limit
            transport.set_write_buffer_limits(high=0)  # what waits to be read is waited for, however little it is
        self._surplus = not self._finds_room()
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
    def _unknown(self) -> bool:
        """It has asked nothing yet. Who asks and has no token is closed with the answer, so the others are known."""
        return self.cycle is None

    def _finds_room(self) -> bool:
        """Whether it may stay: where all places are taken, the stranger who has waited longest makes room."""
        others = [one for one in self.connections if isinstance(one, Connection) and one is not self]
        there = [one for one in others if not one.transport.is_closing()]
        if len(there) < self.endurance.clients:
            return True
        longest = min((one for one in there if one._unknown), key=lambda one: one._since_s, default=None)
        if longest is None:
            return False
        longest.transport.abort()
        return True

    def _expect_request(self) -> None:
        if self._request_due is None:
            self._request_due = self.loop.call_later(self.endurance.request_s, self.transport.abort)

    def _expect_reading(self, left: int) -> None:
        self._reading_due = self.loop.call_later(self.endurance.reading_s, self._look_at_reading, left)

    def _look_at_reading(self, before: int) -> None:
        """A slow reader is waited for as long as it reads; one that does not is let go, and may come again."""
        left = self.transport.get_write_buffer_size()
        if left < before:
            self._expect_reading(left)
        else:
            self.transport.abort()

    def _answer_at_once(self, status: int, words: str, more: str = "") -> None:
        if self.transport.is_closing():
            return
        body = encoded({"error": words})
        always = "".join(f"{name}: {text}\r\n" for name, text in HEADERS.items())
        head = f"HTTP/1.1 {status} \r\nContent-Type: {JSON}\r\nContent-Length: {len(body)}\r\n{more}{always}"
        self.transport.write(f"{head}Cache-Control: no-store\r\nConnection: close\r\n\r\n".encode() + body)
        self.transport.close()
