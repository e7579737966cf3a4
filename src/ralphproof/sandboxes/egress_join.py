"""Two connections as one: bytes pass both ways in the caller's thread, with little memory, until both have ended."""

from __future__ import annotations

import select
from _socket import SHUT_WR

from ralphproof.sandboxes.egress_talk import PIECE_BYTES, break_off
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable


def _same(data: bytes) -> bytes:
    return data


class _Flow:
    """One direction. Nothing is read while something waits to be written."""

    def __init__(self, source: socket.socket, target: socket.socket, through: Callable[[bytes], bytes]) -> None:
        self._source, self._target, self._through = source, target, through
        self._reads = True
        self.held = memoryview(b"")
        self.over = False

    def waits_for(self) -> tuple[int, int]:
        """The descriptor that must be ready, and for what."""
        return (self._target.fileno(), select.POLLOUT) if self.held else (self._source.fileno(), select.POLLIN)

    def go_on(self) -> None:
        """Move what can be moved now. Raises OSError where the source broke off, ValueError for what may not pass."""
        if not self.held and self._reads:
            self._read()
        if self.held:
            self._write()
        if not self.held and not self._reads and not self.over:
            self._end()

    def _read(self) -> None:
        try:
            data = self._source.recv(PIECE_BYTES)
        except BlockingIOError:
            return
        self._reads = bool(data)
        self.held = memoryview(self._through(data))

    def _write(self) -> None:
        try:
            self.held = self.held[self._target.send(self.held) :]
        except BlockingIOError:
            return
        except ConnectionError:  # it takes no more, but what it has said still counts
            self.over = True

    def _end(self) -> None:
        self.over = True
        try:
            self._target.shutdown(SHUT_WR)
        except OSError:
            return


def join(
    client: socket.socket, server: socket.socket, idle_s: float, *, first: bytes = b"",
    out: Callable[[bytes], bytes] = _same, back: Callable[[bytes], bytes] | None = None,
) -> None:  # fmt: skip
    """Pass `first` and then everything on, until both sides have ended, or the server alone where `back` is given.

    `out` and `back` say what of each piece passes. A side that ends can still be told things by the other.
    Raises OSError where one breaks off, or nothing moved for `idle_s`; ValueError where something may not pass.
    """
    to_server, to_client = _Flow(client, server, out), _Flow(server, client, back or _same)
    to_server.held = memoryview(first)
    client.setblocking(False)
    server.setblocking(False)
    try:
        while not to_client.over or (back is None and not to_server.over):
            _move([flow for flow in (to_server, to_client) if not flow.over], idle_s)
    except (OSError, ValueError):
        break_off(client)
        break_off(server)
        raise


def _move(flows: list[_Flow], idle_s: float) -> None:
    """Wait until something can be moved, and move it."""
    ready = _ready(flows, idle_s)
    for flow in flows:
        if flow.waits_for()[0] in ready:
            flow.go_on()


def _ready(flows: list[_Flow], idle_s: float) -> set[int]:
    """The descriptors at which something can be done, at least one."""
    wanted: dict[int, int] = {}
    for file, event in (flow.waits_for() for flow in flows):
        wanted[file] = wanted.get(file, 0) | event
    poll = select.poll()
    for file, events in wanted.items():
        poll.register(file, events)
    ready = {file for file, _ in poll.poll(idle_s * 1000)}
    if not ready:
        raise TimeoutError("nothing moved")
    return ready
