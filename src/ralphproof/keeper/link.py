"""The keeper's line to the harness of a turn. The turn goes on when it is cut.

To the harness: `d` there is more in the log, `X` refused, `R` and the result. From it: `S` stop, `K` kill, `T` it is
active, `E` it said its result, `Z` suspend it, `C` continue it, `A` and an offset: the log was read up to there.
"""

from __future__ import annotations

import _socket

from ralphproof.keeper.frame import QUIET

REPORT_S = 10.0
STOP, KILL, ACTIVE, SAID, SUSPEND, CONTINUE, READ = b"SKTEZCA"


class Link:
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
            self._sock.settimeout(REPORT_S)
            try:
                self._sock.sendall(b"R" + line, QUIET)
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
            self._sock.send(data, QUIET)
        except BlockingIOError:
            return
        except OSError:
            self.alive = False
