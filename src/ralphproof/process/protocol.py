"""Protocol between harness and keeper: frames with descriptors, the start message, orders and reports."""

from __future__ import annotations

import _socket
import marshal
import os
import sys

from ralphproof.base.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Sequence
    from typing import Any
else:
    import _signal


_MAX_DESCRIPTORS = 8
_CLOSE_ON_EXEC = getattr(_socket, "MSG_CMSG_CLOEXEC", 0)  # not on macOS
NO_SIGNAL = getattr(_socket, "MSG_NOSIGNAL", 0)


def send_frame(sock: _socket.socket, thing: Any, descriptors: Sequence[int] = ()) -> None:
    """Send a marshalled value with open descriptors, which stay open in flight even if the sender dies."""
    body = marshal.dumps(thing)
    data = len(body).to_bytes(4, "little") + body
    packed = b"".join(number.to_bytes(4, sys.byteorder) for number in descriptors)
    sent = sock.sendmsg([data], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)] if packed else [], NO_SIGNAL)
    sock.sendall(data[sent:], NO_SIGNAL)


def receive_frame(sock: _socket.socket) -> tuple[Any, list[int]]:
    """The next value and its descriptors, none of them inheritable; (None, []) when the sender is gone."""
    try:
        head, ancillary, _, _ = sock.recvmsg(4, _socket.CMSG_SPACE(4 * _MAX_DESCRIPTORS), _CLOSE_ON_EXEC)
        descriptors = _parse_descriptors(ancillary)
        body = (
            _receive_exactly(sock, int.from_bytes(head + _receive_exactly(sock, 4 - len(head)), "little"))
            if head
            else b""
        )
    except ConnectionError:
        return None, []
    if not body:
        for number in descriptors:
            os.close(number)
        return None, []
    return marshal.loads(body), descriptors  # noqa: S302 (from our own other half, over a private socket)


def _parse_descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    found = []
    for level, kind, data in ancillary:
        if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
            found += [int.from_bytes(data[at : at + 4], sys.byteorder) for at in range(0, len(data) // 4 * 4, 4)]
    for number in found:
        os.set_inheritable(number, False)
    return found


def _receive_exactly(sock: _socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = sock.recv(count - len(data))
        if not piece:
            return b""
        data += piece
    return bytes(data)


@value
class StartMessage:
    """The start of one turn. Texts are bytes, since the two processes may not agree on an encoding; paths are absolute.

    `err` None joins stderr to stdout. `stand_in` is started once if the harness dies before the program.
    """

    argv: tuple[bytes, ...]
    env: dict[bytes, bytes]
    cwd: bytes
    stdin: bytes
    out: bytes
    err: bytes | None
    timeout_s: float
    idle_s: float | None
    linger_s: float
    grace_s: float
    secrets: tuple[bytes, ...]
    sizes: tuple[int, int, int]
    stand_in: tuple[bytes, ...]
    stand_in_env: dict[bytes, bytes]


# Messages of a turn's link. To the harness: `d` there is more in the log, `X` the turn is refused, `R` and the result.
# From the harness: `S` stop, `K` kill, `T` the agent is active, `E` it said its result, `Z` suspend, `C` continue, `A`
# and an offset: the log was read up to there.


REPORT_TIMEOUT_S = 10.0
STOP, KILL, ACTIVE, SAID, SUSPEND, CONTINUE, READ = b"SKTEZCA"


class HarnessLink:
    """The keeper's end of a turn's link. It never waits for the harness, except to report the result."""

    def __init__(self, sock: _socket.socket) -> None:
        sock.setblocking(False)
        self.acked = 0
        self.alive = True
        self._sock = sock
        self._unread = b""

    def fileno(self) -> int:
        """For poll."""
        return self._sock.fileno()

    def notify_output(self) -> None:
        """There is more to read. If the socket is full, it has been told already."""
        if self.alive:
            self._send(b"d")

    def refuse(self) -> None:
        """This turn began before."""
        self._send(b"X")

    def report(self, line: bytes) -> None:
        """Report the result; a harness that does not receive it finds it in the turn file."""
        if self.alive:
            self._sock.settimeout(REPORT_TIMEOUT_S)
            try:
                self._sock.sendall(b"R" + line, NO_SIGNAL)
            except OSError:
                self.alive = False

    def orders(self) -> list[int]:
        """The orders of the harness, in order."""
        self._unread += self._receive()
        found = []
        while self._unread:
            if self._unread[0] != READ:
                found.append(self._unread[0])
                self._unread = self._unread[1:]
            elif len(self._unread) >= 9:
                self.acked = int.from_bytes(self._unread[1:9], "little")
                self._unread = self._unread[9:]
            else:
                break
        return found

    def close(self) -> None:
        """Hang up."""
        self._sock.close()

    def _receive(self) -> bytes:
        try:
            data = self._sock.recv(4096)
        except BlockingIOError:
            return b""
        except OSError:
            data = b""
        self.alive = self.alive and bool(data)
        return data

    def _send(self, data: bytes) -> None:
        try:
            self._sock.send(data, NO_SIGNAL)
        except BlockingIOError:
            return
        except OSError:
            self.alive = False


# Orders from processes without a link to the keeper. The same order twice is one order.
_SIGNAL_ORDERS: dict[int, int] = {
    _signal.SIGTERM: STOP,
    _signal.SIGQUIT: KILL,
    _signal.SIGUSR1: SAID,
    _signal.SIGUSR2: ACTIVE,
}


class SignalPipe:
    """Turns signals to the keeper into orders. Readable after a child ended or an order came."""

    def __init__(self) -> None:
        self._given: list[int] = []
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(writer, False)
        _signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        _signal.signal(_signal.SIGCHLD, self._child)
        for number in _SIGNAL_ORDERS:
            _signal.signal(number, self._order)
        for number in (_signal.SIGINT, _signal.SIGHUP):
            _signal.signal(number, _signal.SIG_IGN)

    def fileno(self) -> int:
        """For poll."""
        return self._reader

    def drain(self) -> None:
        """Make it unreadable until the next signal."""
        try:
            os.read(self._reader, 4096)
        except BlockingIOError:
            return

    def orders(self) -> list[int]:
        """The orders since the last call, as of a `HarnessLink`."""
        given, self._given = self._given, []
        return given

    def _child(self, *_: object) -> None:
        """Only the byte on the pipe counts."""

    def _order(self, number: int, *_: object) -> None:
        self._given.append(_SIGNAL_ORDERS[number])
