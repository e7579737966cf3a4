"""Observing a turn that another keeper runs: its output, ticks, requests and exit."""

from __future__ import annotations

import os
import select
from time import monotonic

from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.engine.sandbox import ACTIVE, CONTINUE, RESULT_SAID, STOP, Exit
from ralphproof.process import turn_journal
from ralphproof.process.cleanup import signal_keeper
from ralphproof.process.output import LOG_SIZES, LogReader
from ralphproof.process.tree import is_alive
from ralphproof.process.watchdog import KeeperWatchdog

if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable, Mapping
    from typing import Any

    from ralphproof.engine.sandbox import Command, CommandWatcher
    from ralphproof.process.turn_journal import TurnHistory


# What a watcher sees of a turn: its output from the log, a tick now and then, and at last its exit.


TICK_S = 0.5
_ACK_BYTES = 1 << 20


class TurnOutput:
    """Hands each byte of the log to the watcher once, in order, whichever keeper wrote it."""

    def __init__(self, command: Command, watch: CommandWatcher, sizes: tuple[int, int, int]) -> None:
        self._watch = watch
        self._tail = LogReader(command.out, sizes)
        self._most = sizes[1]
        self._step = min(_ACK_BYTES, sizes[1])
        self._acked = 0

    @property
    def offset(self) -> int:
        """How far the log has been read."""
        return self._tail.offset

    def pull(self) -> bool:
        """Hand on what has come, at most a segment of it: a flood must not keep the watcher from ticking.

        Whether there may be more at once.
        """
        goal = self.offset + self._most
        for data in self._tail.grown():
            self._watch.output(data)
            if self.offset >= goal:
                return True
        return False

    def read_more(self) -> bool:
        """Enough was read to be worth telling the keeper."""
        if self.offset < self._acked + self._step:
            return False
        self._acked = self.offset
        return True

    def tick(self) -> int:
        """What the watcher wants."""
        return self._watch.tick()

    def finish(self, result: Mapping[str, Any]) -> Exit:
        """Hand on the rest of the log, and say how it ended."""
        lost = int(result.get("lost_bytes", 0))
        stored = int(result.get("out_bytes", 0)) - lost
        for data in self._tail.rest(stored, int(result.get("dropped_bytes", 0)) - lost):
            self._watch.output(data)
        known = {name: result[name] for name in Exit.__match_args__ if name in result}
        return Exit(**known | {"survivors": tuple(result.get("survivors", ()))})


# How a turn is followed that somebody else runs: by its files, and by signals to its keeper.


OBSERVE_POLL_S = 0.02


class TurnObserver:
    """One look after the other at a turn. Its watcher cannot tell it from a turn that we started.

    An onlooker cannot hold the program up as its own harness can: where the watcher is so slow that parts of the log
    go before they are read, it is told how much is missing. `wanted` is the most urgent that the watcher wanted so far.
    """

    def __init__(self, read: Callable[[], TurnHistory], view: TurnOutput, *, steering: bool) -> None:
        self.wanted = CONTINUE
        self.ticked = False
        self.behind = False
        self._read, self._view, self._steering = read, view, steering
        self._due = 0.0
        self._urged = CONTINUE

    def look(self, *, woken: bool) -> TurnHistory:
        """What the turn file tells now. Hands on what has come, ticks when it is time, and passes on what is wanted."""
        past = self._read()
        self.ticked = past.result is None and (self._grew(past) or woken or monotonic() >= self._due)
        if self.ticked:
            self._due = monotonic() + TICK_S
            self._heed(self._view.tick(), past)
        return past

    def _grew(self, past: TurnHistory) -> bool:
        before = self._view.offset
        self.behind = past.began and self._view.pull()  # until it began a log of that name is an older one
        return self._view.offset > before

    def _heed(self, wanted: int, past: TurnHistory) -> None:
        self.wanted = max(self.wanted, wanted)
        if not (self._steering and past.began):
            return
        if wanted in (RESULT_SAID, ACTIVE):
            signal_keeper(past, wanted)
        if self.wanted > self._urged:  # it may have been wanted before there was a keeper to tell
            signal_keeper(past, self.wanted)
            self._urged = self.wanted


def wait_for_wakeup(seconds: float, wake_fd: int | None, line: _socket.socket | None = None) -> bool:
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


# Looking on at a turn that is not ours, as if it were a sandbox that runs it.


class TurnFollower:
    """Runs nothing: hands the output of a turn to a watcher while its keeper runs it, and tells how it ended.

    It takes no lock, not even for a moment: whoever comes to resume the turn must not think that somebody is
    responsible. Of the command only `turn_file` and `out` matter.
    """

    name = "following"
    strength = "none"

    def __init__(
        self,
        while_: Callable[[], bool],
        *,
        steering: bool = False,
        wake_fd: int | None = None,
        sizes: tuple[int, int, int] = LOG_SIZES,
    ) -> None:
        """A turn that has not begun is waited for while `while_` says so.

        With `steering` the keeper is told what the watcher wants; meant for a turn whose harness is dead, since a
        living one may be at its next turn when the keeper hears of it.
        """
        self._while, self._steering, self._wake_fd, self._sizes = while_, steering, wake_fd, sizes

    def run(self, command: Command, watch: CommandWatcher) -> Exit:
        """Follow to the end. A watcher that wants an end and may not steer is let go at once: `stopped`."""
        view = TurnOutput(command, watch, self._sizes)
        onlooker = TurnObserver(lambda: turn_journal.read_turn_file(command.turn_file), view, steering=self._steering)
        woken, patience = (
            False,
            KeeperWatchdog(replace(command, timeout_s=float("inf"))),
        )  # the keeper knows its own time
        while True:
            past = onlooker.look(woken=woken)
            if self._steering and past.began:
                patience.urge(onlooker.wanted)
                patience.look(past.keeper)
            if past.result is not None:
                return view.finish(past.result)
            if onlooker.wanted >= STOP and not self._steering:
                return Exit(None, why="stopped")
            if onlooker.ticked and not self._goes_on(past):
                now = turn_journal.read_turn_file(command.turn_file)  # it may have ended, or begun, just before
                if now.result is None and now.began == past.began:
                    return _abandoned_exit(past, view)
            woken = wait_for_wakeup(0.0 if onlooker.behind else OBSERVE_POLL_S, self._wake_fd)

    def _goes_on(self, past: TurnHistory) -> bool:
        return is_alive(*past.keeper) if past.began else self._while()


def _abandoned_exit(past: TurnHistory, view: TurnOutput) -> Exit:
    if not past.began:
        return Exit(None, why="unstartable", error="it never began")
    while view.pull():
        pass
    return Exit(None, why="interrupted")
