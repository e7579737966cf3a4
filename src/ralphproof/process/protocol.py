"""Protocol between harness and keeper: frames with descriptors, the start message, orders by socket or signal, reports."""

from __future__ import annotations

import _socket
import marshal
import os
import sys

from ralphproof.base.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


# Frames between harness and keeper: one marshalled value, and open descriptors that travel with it.


_MAX_DESCRIPTORS = 8
_CLOSE_ON_EXEC = getattr(_socket, "MSG_CMSG_CLOEXEC", 0)  # not on macOS
NO_SIGNAL = getattr(_socket, "MSG_NOSIGNAL", 0)


def send_frame(sock: _socket.socket, thing: Any, descriptors: Sequence[int] = ()) -> None:
    """Send a value; the descriptors stay open while they are in flight, whoever dies meanwhile."""
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


# What the harness tells the keeper to run. Texts are bytes: the two may not agree on an encoding.


@value
class StartMessage:
    """One turn. All paths are absolute; `err` None joins stderr to stdout.

    `stand_in` is started once if the harness dies before the program: it may look on in its place.
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


# The keeper's line to the harness of a turn. The turn goes on when it is cut.
#
# To the harness: `d` there is more in the log, `X` refused, `R` and the result. From it: `S` stop, `K` kill, `T` it is
# active, `E` it said its result, `Z` suspend it, `C` continue it, `A` and an offset: the log was read up to there.


REPORT_TIMEOUT_S = 10.0
STOP, KILL, ACTIVE, SAID, SUSPEND, CONTINUE, READ = b"SKTEZCA"


class HarnessLink:
    """Speaks without ever waiting for the harness, the result aside."""

    def __init__(self, sock: _socket.socket) -> None:
        sock.setblocking(False)
        self.acked = 0
        self.alive = True
        self._sock = sock
        self._unread = b""

    def fileno(self) -> int:
        """For poll."""
        return self._sock.fileno()

    def ring(self) -> None:
        """There is more to read. A full line means that it has been told already."""
        if self.alive:
            self._send(b"d")

    def refuse(self) -> None:
        """This turn began before."""
        self._send(b"X")

    def report(self, line: bytes) -> None:
        """Tell the result; a harness that does not listen finds it in the turn file."""
        if self.alive:
            self._sock.settimeout(REPORT_TIMEOUT_S)
            try:
                self._sock.sendall(b"R" + line, NO_SIGNAL)
            except OSError:
                self.alive = False

    def orders(self) -> list[int]:
        """What the harness wants, in order."""
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


# Signals that reach the keeper, as orders, and as bytes on a pipe that its poll can see.


if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

# What somebody without a line to the keeper may want of its turn. The same order twice is one order.
_SIGNAL_ORDERS: dict[int, int] = {
    _signal.SIGTERM: STOP,
    _signal.SIGQUIT: KILL,
    _signal.SIGUSR1: SAID,
    _signal.SIGUSR2: ACTIVE,
}


class SignalPipe:
    """Readable after a child ended or somebody gave an order."""

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
        """Forget what has been seen."""
        try:
            os.read(self._reader, 4096)
        except BlockingIOError:
            return

    def orders(self) -> list[int]:
        """What was ordered since, in the words of a `link`."""
        given, self._given = self._given, []
        return given

    def _child(self, *_: object) -> None:
        """Only the byte on the pipe counts."""

    def _order(self, number: int, *_: object) -> None:
        self._given.append(_SIGNAL_ORDERS[number])
