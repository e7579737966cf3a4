"""The clock of a run with the signals and requests that reach it, and SignalRouter for several runs in one process."""

from __future__ import annotations

import os
import select
import time
from _thread import allocate_lock

from ralphproof.engine.environment import Ledger
from ralphproof.engine.limits import CANCELLED, INTERRUPTED
from ralphproof.engine.sandbox import CONTINUE, KILL, STOP
from ralphproof.process.interrupts import take_over_signals

POLL_S = 0.5  # how often the ledger is polled for requests


class RunClock:
    """Real time, signals, and requests from other terminals.

    The first signal gives the running command `grace_s` to finish; the second ends it at once.
    """

    def __init__(self, grace_s: float = 10.0) -> None:
        self.wake_fd, self._wake_write_fd = (
            os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
        )
        self._grace_s = grace_s
        self._signals = 0
        self._killed = False
        self._deadline = float("inf")
        self._request = ""
        self._followed: tuple[Ledger, str] | None = None
        self._next_poll = 0.0

    def listen(self) -> None:
        """Take over the signals that end a run."""
        take_over_signals(self.on_signals)

    def listen_without_exit(self) -> None:
        """The same, but the second signal ends only the running command, not the process."""
        take_over_signals(self.on_signals, owns_process=False)

    def close(self) -> None:
        """Close the wake-up pipe; signals are not noticed any more."""
        ends, self.wake_fd, self._wake_write_fd = (
            (self.wake_fd, self._wake_write_fd),
            -1,
            -1,
        )  # a signal may come in between
        for end in ends:
            os.close(end)

    def follow(self, ledger: Ledger, run: str) -> None:
        """From now on poll the ledger for requests from other terminals."""
        self._followed = ledger, run

    def end_command(self, now: bool = False) -> None:
        """End the running command, after its grace period or at once; the run itself goes on."""
        self._killed = self._killed or now
        self._deadline = min(self._deadline, time.monotonic() + (0.0 if now else self._grace_s))
        self._wake()

    def monotonic(self) -> float:
        return time.monotonic()

    def epoch(self) -> float:
        return time.time()

    def stop_reason(self) -> str:
        self._poll()
        return INTERRUPTED if self._signals else CANCELLED if self._request == "cancel" else ""

    def paused(self) -> bool:
        self._next_poll = 0.0  # asked once before a turn: a request that is on record counts for this one
        self._poll()
        return self._request == "pause"

    def stop_level(self) -> int:
        self._poll()
        if self._signals > 1 or self._killed:
            return KILL
        return STOP if self._request == "cancel" or time.monotonic() >= self._deadline else CONTINUE

    def sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self.stop_reason() and (left := until - time.monotonic()) > 0:
            select.select([self.wake_fd], [], [], min(left, POLL_S))

    def interrupt(self) -> None:
        """As one more Ctrl-C."""
        self.on_signals(self._signals + 1)

    def on_signals(self, count: int) -> None:
        """Ctrl-C was pressed so many times in all; a repeated number changes nothing."""
        if not self._signals:
            self._deadline = time.monotonic() + self._grace_s
        self._signals = max(self._signals, count)
        self._wake()

    def cancel(self) -> None:
        """End the run as `ralph cancel` does. Any thread may call this."""
        self._request = "cancel"
        self._wake()

    def _wake(self) -> None:
        try:
            os.write(self._wake_write_fd, b"!")
        except BlockingIOError:
            pass  # it is rung already
        except OSError:
            if self._wake_write_fd >= 0:
                raise

    def _poll(self) -> None:
        if self._followed and self._request != "cancel" and (now := time.monotonic()) >= self._next_poll:
            self._next_poll = now + POLL_S
            ledger, run = self._followed
            self._request = ledger.requested_control(run)


def ignore_signals(_: RunClock) -> None:
    """Take over no signals: another part of the process handles them."""


class SignalRouter:
    """Passes Ctrl-C on to every run in this process, also to one that begins later. Only the main thread may call
    `listen`.
    """

    def __init__(self) -> None:
        self.signals = 0
        self._lock = allocate_lock()
        self._clocks: dict[str, RunClock] = {}
        self._cancelled: set[str] = set()

    def listen(self) -> None:
        """Take over the signals that end a run."""
        take_over_signals(self._on_signals)

    def register(self, name: str, clock: RunClock) -> None:
        """Pass signals on to the run of this name from now on."""
        with self._lock:
            self._clocks[name] = clock
            cancelled = name in self._cancelled
        seen = 0
        while seen != self.signals:  # a signal that comes meanwhile is passed on by its handler too, and counts once
            seen = self.signals
            clock.on_signals(seen)
        if cancelled:
            clock.cancel()

    def unregister(self, name: str) -> None:
        """That run is over."""
        with self._lock:
            self._clocks.pop(name, None)

    def cancel(self, name: str) -> None:
        """Cancel one run, also before it has begun."""
        with self._lock:
            self._cancelled.add(name)
            clock = self._clocks.get(name)
        if clock is not None:
            clock.cancel()

    def end_all(self) -> None:
        """End all runs as Ctrl-C does, also those that have not begun."""
        self._on_signals(self.signals + 1)

    def _on_signals(self, count: int) -> None:
        self.signals = max(self.signals, count)
        for clock in list(self._clocks.values()):  # no lock: the thread that holds it may be this one
            clock.on_signals(self.signals)
