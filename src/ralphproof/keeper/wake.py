"""Signals that reach the keeper, as orders, and as bytes on a pipe that its poll can see."""

from __future__ import annotations

import os

from ralphproof.keeper.link import ACTIVE, KILL, SAID, STOP
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

# What somebody without a line to the keeper may want of its turn. The same order twice is one order.
_ORDERS: dict[int, int] = {
    _signal.SIGTERM: STOP,
    _signal.SIGQUIT: KILL,
    _signal.SIGUSR1: SAID,
    _signal.SIGUSR2: ACTIVE,
}


class Wake:
    """Readable after a child ended or somebody gave an order."""

    def __init__(self) -> None:
        self._given: list[int] = []
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(writer, False)
        _signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        _signal.signal(_signal.SIGCHLD, self._child)
        for number in _ORDERS:
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
        self._given.append(_ORDERS[number])
