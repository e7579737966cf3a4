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

# The present as a run knows it: the clock, signals, and what other terminals want.


POLL_S = 0.5  # how often the ledger is asked for a wish


class RunClock:
    """Real time. The first signal gives what runs `grace_s` to finish; the second ends it at once."""

    def __init__(self, grace_s: float = 10.0) -> None:
        self.wake_fd, self._ring_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
        self._grace_s = grace_s
        self._signals = 0
        self._killed = False
        self._deadline = float("inf")
        self._wanted = ""
        self._asked: tuple[Ledger, str] | None = None
        self._look_at = 0.0

    def listen(self) -> None:
        """Take over the signals that end a run."""
        take_over_signals(self.heard)

    def listen_in_a_library(self) -> None:
        """The same, but the second signal ends only what runs, not the program."""
        take_over_signals(self.heard, to_the_end=False)

    def close(self) -> None:
        """Let go of what signals wake it with; it hears nothing from then on."""
        ends, self.wake_fd, self._ring_fd = (self.wake_fd, self._ring_fd), -1, -1  # a signal may come in between
        for end in ends:
            os.close(end)

    def follow(self, ledger: Ledger, run: str) -> None:
        """From now on hear what other terminals want of this run."""
        self._asked = ledger, run

    def halt(self, now: bool = False) -> None:
        """What runs is to end, with its grace or at once; the run itself is not."""
        self._killed = self._killed or now
        self._deadline = min(self._deadline, time.monotonic() + (0.0 if now else self._grace_s))
        self._wake()

    def monotonic(self) -> float:
        return time.monotonic()

    def epoch(self) -> float:
        return time.time()

    def stop_reason(self) -> str:
        self._look()
        return INTERRUPTED if self._signals else CANCELLED if self._wanted == "cancel" else ""

    def paused(self) -> bool:
        self._look_at = 0.0  # asked once before a turn: a wish that is on record holds for this one
        self._look()
        return self._wanted == "pause"

    def stop_level(self) -> int:
        self._look()
        if self._signals > 1 or self._killed:
            return KILL
        return STOP if self._wanted == "cancel" or time.monotonic() >= self._deadline else CONTINUE

    def sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self.stop_reason() and (left := until - time.monotonic()) > 0:
            select.select([self.wake_fd], [], [], min(left, POLL_S))

    def ring(self) -> None:
        """Somebody pressed Ctrl-C, once more."""
        self.heard(self._signals + 1)

    def heard(self, times: int) -> None:
        """Somebody pressed Ctrl-C so many times in all; who hears of it twice knows no more."""
        if not self._signals:
            self._deadline = time.monotonic() + self._grace_s
        self._signals = max(self._signals, times)
        self._wake()

    def cancel(self) -> None:
        """End the run, as `ralph cancel` would; any thread may say so, and the record tells it."""
        self._wanted = "cancel"
        self._wake()

    def _wake(self) -> None:
        try:
            os.write(self._ring_fd, b"!")
        except BlockingIOError:
            pass  # it is rung already
        except OSError:
            if self._ring_fd >= 0:
                raise

    def _look(self) -> None:
        if self._asked and self._wanted != "cancel" and (now := time.monotonic()) >= self._look_at:
            self._look_at = now + POLL_S
            ledger, run = self._asked
            self._wanted = ledger.requested_control(run)


def ignore_signals(_: RunClock) -> None:
    """Hear no signal: they are somebody else's."""


# The signals of a process for all runs in it: each hears what the user wants of all.


class SignalRouter:
    """Passes Ctrl-C on to every run. One that begins after it hears of it at once. Only the main thread may listen."""

    def __init__(self) -> None:
        self.signals = 0
        self._lock = allocate_lock()
        self._presents: dict[str, RunClock] = {}
        self._cancelled: set[str] = set()

    def listen(self) -> None:
        """Take over the signals that end a run."""
        take_over_signals(self._heard)

    def attend(self, name: str, present: RunClock) -> None:
        """Let the run of this name hear what is wanted."""
        with self._lock:
            self._presents[name] = present
            cancelled = name in self._cancelled
        heard = 0
        while heard != self.signals:  # one that comes meanwhile is told by its handler too, and counts once
            heard = self.signals
            present.heard(heard)
        if cancelled:
            present.cancel()

    def leave(self, name: str) -> None:
        """That run is over."""
        with self._lock:
            self._presents.pop(name, None)

    def cancel(self, name: str) -> None:
        """End one run, also where it only comes to be: it is told, and recorded, as cancelled."""
        with self._lock:
            self._cancelled.add(name)
            present = self._presents.get(name)
        if present is not None:
            present.cancel()

    def end_all(self) -> None:
        """End all runs as Ctrl-C does, also those that only come to be."""
        self._heard(self.signals + 1)

    def _heard(self, times: int) -> None:
        self.signals = max(self.signals, times)
        for present in list(self._presents.values()):  # no lock: the thread that holds it may be this one
            present.heard(self.signals)
