"""When a turn must end, and how it is ended. Pure: every method is told what time it is."""

from __future__ import annotations

from ralphproof.keeper.tree import PATIENCE_S
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

SLICE_S = 1.0  # the longest sleep: a longer absence than this was not our choice
SLIP_S = 1.0  # a wake-up later than this means that we were suspended
SWEEP_S = 0.005
NEVER = float("inf")


class Clock:
    """The deadlines of a turn that runs. A suspension moves all of them."""

    def __init__(self, now: float, timeout_s: float, idle_s: float | None, linger_s: float) -> None:
        self.paused_s = 0.0
        self._idle_s = NEVER if idle_s is None else idle_s
        self._linger_s = linger_s
        self._timeout = now + timeout_s
        self._idle = now + self._idle_s
        self._linger = NEVER

    def heard(self, now: float) -> None:
        """It said or did something."""
        self._idle = now + self._idle_s
        if self._linger != NEVER:
            self._linger = now + self._linger_s

    def said_result(self, now: float) -> None:
        """It said its result: from now on it should leave. Who tells it again gives it no more time."""
        if self._linger == NEVER:
            self._linger = now + self._linger_s

    def slip(self, by: float) -> None:
        """We were suspended for that long."""
        self.paused_s += by
        self._timeout += by
        self._idle += by
        self._linger += by

    @property
    def due(self) -> float:
        """When to look again at the latest."""
        return min(self._timeout, self._idle, self._linger)

    def over(self, now: float) -> str:
        """Why the turn must end, or nothing."""
        if now >= self._linger:
            return "lingered"
        if now >= self._timeout:
            return "timeout"
        return "idle" if now >= self._idle else ""


class Ending:
    """TERM at once, KILL after the grace, and KILL again until nothing is left or `PATIENCE_S` is over."""

    def __init__(self, now: float, grace_s: float) -> None:
        self.due = now
        self._kill = now + grace_s
        self._give_up = self._kill + PATIENCE_S

    def hurry(self, now: float, grace_s: float) -> None:
        """Wait no longer than this before KILL."""
        self._kill = min(self._kill, now + grace_s)
        self._give_up = self._kill + PATIENCE_S
        self.due = min(self.due, self._kill)

    def slip(self, by: float) -> None:
        """We were suspended for that long."""
        self.due += by
        self._kill += by
        self._give_up += by

    def next(self, now: float) -> int:
        """The signal to send now, 0 for none."""
        if now < self.due:
            return 0
        if now >= self._kill:
            self.due = now + SWEEP_S
            return _signal.SIGKILL
        self.due = self._kill
        return _signal.SIGTERM

    def given_up(self, now: float) -> bool:
        """KILL has had its time."""
        return now >= self._give_up
