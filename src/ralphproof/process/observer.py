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

TICK_S = 0.5
OBSERVE_POLL_S = 0.02
_ACK_BYTES = 1 << 20


class TurnOutput:
    """Hands each byte of a turn's log to the watcher once, in order, whichever keeper wrote it."""

    def __init__(self, command: Command, watch: CommandWatcher, sizes: tuple[int, int, int]) -> None:
        self._watch = watch
        self._reader = LogReader(command.out, sizes)
        self._max_bytes = sizes[1]
        self._ack_bytes = min(_ACK_BYTES, sizes[1])
        self._acknowledged = 0

    @property
    def offset(self) -> int:
        """How far the log has been read."""
        return self._reader.offset

    def pull(self) -> bool:
        """Hand on new output, at most a segment of it: a flood must not keep the watcher from ticking.

        Whether there may be more at once.
        """
        goal = self.offset + self._max_bytes
        for data in self._reader.read_new():
            self._watch.output(data)
            if self.offset >= goal:
                return True
        return False

    def should_acknowledge(self) -> bool:
        """Whether enough was read since the last acknowledgement to tell the keeper how far."""
        if self.offset < self._acknowledged + self._ack_bytes:
            return False
        self._acknowledged = self.offset
        return True

    def tick(self) -> int:
        """The watcher's request."""
        return self._watch.tick()

    def finish(self, result: Mapping[str, Any]) -> Exit:
        """Hand on the rest of the log; the exit that a turn's result describes."""
        lost = int(result.get("lost_bytes", 0))
        stored = int(result.get("out_bytes", 0)) - lost
        for data in self._reader.read_rest(stored, int(result.get("dropped_bytes", 0)) - lost):
            self._watch.output(data)
        known = {name: result[name] for name in Exit.__match_args__ if name in result}
        return Exit(**known | {"survivors": tuple(result.get("survivors", ()))})


class TurnObserver:
    """Follows a turn by its files, and steers it by signals to its keeper. The watcher sees no difference to its own.

    An observer cannot slow the program down as its own harness can: a watcher that is so slow that parts of the log
    are deleted before they are read gets a notice of how much is missing. `request` is the watcher's most urgent
    request so far.
    """

    def __init__(self, read: Callable[[], TurnHistory], output: TurnOutput, *, steering: bool) -> None:
        self.request = CONTINUE
        self.ticked = False
        self.more_output = False
        self._read, self._output, self._steering = read, output, steering
        self._next_tick = 0.0
        self._signalled = CONTINUE

    def poll(self, *, woken: bool) -> TurnHistory:
        """Read the turn file, hand on new output, tick when it is time, and pass the watcher's request on."""
        history = self._read()
        self.ticked = history.result is None and (self._pull(history) or woken or monotonic() >= self._next_tick)
        if self.ticked:
            self._next_tick = monotonic() + TICK_S
            self._pass_on(self._output.tick(), history)
        return history

    def _pull(self, history: TurnHistory) -> bool:
        """Whether there was new output."""
        before = self._output.offset
        self.more_output = history.began and self._output.pull()  # before that, a log of this name is an older one
        return self._output.offset > before

    def _pass_on(self, request: int, history: TurnHistory) -> None:
        self.request = max(self.request, request)
        if not (self._steering and history.began):
            return
        if request in (RESULT_SAID, ACTIVE):
            signal_keeper(history, request)
        if self.request > self._signalled:  # it may have been made before there was a keeper to signal
            signal_keeper(history, self.request)
            self._signalled = self.request


def wait_for_wakeup(seconds: float, wake_fd: int | None, link: _socket.socket | None = None) -> bool:
    """Sleep until `link` is readable or a byte comes on `wake_fd`, which is read; whether it was the latter."""
    poll = select.poll()
    if link is not None:
        poll.register(link, select.POLLIN)
    if wake_fd is not None:
        poll.register(wake_fd, select.POLLIN)
    woken = wake_fd in [fd for fd, _ in poll.poll(seconds * 1000)]
    if wake_fd is not None and woken:
        os.read(wake_fd, 4096)
    return woken


class TurnFollower:
    """A command runner that runs nothing: it hands a turn's output to a watcher while another keeper runs it.

    It takes no lock, not even for a moment: whoever resumes the turn must not find it locked. Of the command only
    `turn_file` and `out` matter.
    """

    name = "following"
    strength = "none"

    def __init__(
        self,
        may_begin: Callable[[], bool],
        *,
        steering: bool = False,
        wake_fd: int | None = None,
        sizes: tuple[int, int, int] = LOG_SIZES,
        on_caught_up: Callable[[], None] = lambda: None,
    ) -> None:
        """A turn that has not begun is waited for while `may_begin` returns True.

        `on_caught_up` is called whenever all output that is there has been handed on.

        With `steering` the watcher's requests are sent to the keeper. This is for a turn whose harness is dead: a
        living one may be at its next turn when the signal reaches the keeper.
        """
        self._may_begin, self._steering, self._wake_fd, self._sizes = may_begin, steering, wake_fd, sizes
        self._on_caught_up = on_caught_up

    def run(self, command: Command, watch: CommandWatcher) -> Exit:
        """Follow to the end. Without `steering` a watcher that requests an end stops following at once: `stopped`."""
        output = TurnOutput(command, watch, self._sizes)
        observer = TurnObserver(lambda: turn_journal.read_turn_file(command.turn_file), output, steering=self._steering)
        watchdog = KeeperWatchdog(replace(command, timeout_s=float("inf")))  # the keeper knows the turn's timeout
        woken = False
        while True:
            history = observer.poll(woken=woken)
            if self._steering and history.began:
                watchdog.expect_end(observer.request)
                watchdog.check(history.keeper)
            if history.result is not None:
                return output.finish(history.result)
            if not observer.more_output:
                self._on_caught_up()
            if observer.request >= STOP and not self._steering:
                return Exit(None, why="stopped")
            if observer.ticked and not self._goes_on(history):
                now = turn_journal.read_turn_file(command.turn_file)  # it may have ended, or begun, just before
                if now.result is None and now.began == history.began:
                    return _abandoned_exit(history, output)
            woken = wait_for_wakeup(0.0 if observer.more_output else OBSERVE_POLL_S, self._wake_fd)

    def _goes_on(self, history: TurnHistory) -> bool:
        return is_alive(*history.keeper) if history.began else self._may_begin()


def _abandoned_exit(history: TurnHistory, output: TurnOutput) -> Exit:
    if not history.began:
        return Exit(None, why="unstartable", error="it never began")
    while output.pull():
        pass
    return Exit(None, why="interrupted")
