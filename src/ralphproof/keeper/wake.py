"""Signals that reach the keeper, as bytes on a pipe that its poll can see."""

from __future__ import annotations

import os

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal


class Wake:
    """Readable after a child ended or somebody wants the turn to: one of `terms` stops it, two kill it.

    `said` is set when somebody heard the program say its result.
    """

    def __init__(self) -> None:
        self.terms = 0
        self.said = False
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(writer, False)
        _signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        _signal.signal(_signal.SIGCHLD, self._child)
        _signal.signal(_signal.SIGTERM, self._term)
        _signal.signal(_signal.SIGQUIT, self._quit)
        _signal.signal(_signal.SIGUSR1, self._usr1)
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

    def _child(self, *_: object) -> None:
        """Only the byte on the pipe counts."""

    def _term(self, *_: object) -> None:
        self.terms += 1

    def _quit(self, *_: object) -> None:
        self.terms += 2

    def _usr1(self, *_: object) -> None:
        self.said = True
