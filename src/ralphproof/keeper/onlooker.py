"""How a turn is followed that somebody else runs: by its files, and by signals to its keeper."""

from __future__ import annotations

import os
import select
from time import monotonic

from ralphproof.keeper.aftermath import urge
from ralphproof.keeper.view import TICK_S
from ralphproof.sandbox import ACTIVE, GO_ON, SAID
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable

    from ralphproof.keeper.journal import Past
    from ralphproof.keeper.view import View

LOOK_S = 0.02


class Onlooker:
    """One look after the other at a turn. Its watcher cannot tell it from a turn that we started.

    An onlooker cannot hold the program up as its own harness can: where the watcher is so slow that parts of the log
    go before they are read, it is told how much is missing. `wanted` is the most urgent that the watcher wanted so far.
    """

    def __init__(self, read: Callable[[], Past], view: View, *, steering: bool) -> None:
        self.wanted = GO_ON
        self.ticked = False
        self.behind = False
        self._read, self._view, self._steering = read, view, steering
        self._due = 0.0
        self._urged = GO_ON

    def look(self, *, woken: bool) -> Past:
        """What the turn file tells now. Hands on what has come, ticks when it is time, and passes on what is wanted."""
        past = self._read()
        self.ticked = past.result is None and (self._grew(past) or woken or monotonic() >= self._due)
        if self.ticked:
            self._due = monotonic() + TICK_S
            self._heed(self._view.tick(), past)
        return past

    def _grew(self, past: Past) -> bool:
        before = self._view.offset
        self.behind = past.began and self._view.pull()  # until it began a log of that name is an older one
        return self._view.offset > before

    def _heed(self, wanted: int, past: Past) -> None:
        self.wanted = max(self.wanted, wanted)
        if not (self._steering and past.began):
            return
        if wanted in (SAID, ACTIVE):
            urge(past, wanted)
        if self.wanted > self._urged:  # it may have been wanted before there was a keeper to tell
            urge(past, self.wanted)
            self._urged = self.wanted


def pause(seconds: float, wake_fd: int | None, line: _socket.socket | None = None) -> bool:
    """Sleep until something is heard; whether it was a byte on `wake_fd`, which is read."""
    poll = select.poll()
    if line is not None:
        poll.register(line, select.POLLIN)
    if wake_fd is not None:
        poll.register(wake_fd, select.POLLIN)
    woken = wake_fd in [fd for fd, _ in poll.poll(seconds * 1000)]
    if wake_fd is not None and woken:
        os.read(wake_fd, 4096)
    return woken
