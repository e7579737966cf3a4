"""The harness's timeout for a keeper that does not answer."""

from __future__ import annotations

import os
from time import monotonic

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.sandbox import CONTINUE, KILL, STOP
from ralphproof.process.tree import is_alive, is_stopped, signal_each, with_descendants

if TYPE_CHECKING:
    import signal as _signal

    from ralphproof.engine.sandbox import Command
else:
    import _signal

ANSWER_TIMEOUT_S = 10.0  # for a keeper to report the end of a turn that is due
STOPPED_TIMEOUT_S = 5.0  # a keeper that is stopped for so long is continued, though nothing is requested of it
_CHECK_INTERVAL_S = 0.05
_MAX_INTERVAL_S = 2.0  # a longer time between two checks means that this process was suspended: it does not count


class KeeperWatchdog:
    """Kills a keeper, with all processes below it, that is long over the time of its turn.

    An agent can stop its keeper (SIGSTOP), and again whenever it is continued: then no timer of the keeper runs.
    """

    def __init__(self, command: Command) -> None:
        self.lost = ""  # why the keeper was killed
        self._timeout_s, self._grace_s = command.timeout_s, command.grace_s
        self.restart()

    def restart(self) -> None:
        """A keeper was given the turn, or was found with it: its time starts now."""
        self._left_s = self._timeout_s + self._grace_s + ANSWER_TIMEOUT_S
        self._urgency = CONTINUE
        self._stopped_s = 0.0
        self._checked = monotonic()

    @property
    def why(self) -> str:
        """How a turn without a result ended: `killed` if its keeper was killed after an end was requested."""
        return "killed" if self.lost and self._urgency > CONTINUE else "interrupted"

    def expect_end(self, request: int) -> None:
        """The keeper was told to end the turn: from now on it has less time."""
        if request > self._urgency:
            self._urgency, self._stopped_s = request, 0.0
            self._left_s = min(self._left_s, ANSWER_TIMEOUT_S + (self._grace_s if request == STOP else 0.0))

    def check(self, keeper: tuple[int, int]) -> None:
        """Continue a keeper that is stopped where it must act; kill one whose time is over."""
        now = monotonic()
        passed_s = now - self._checked
        if passed_s < _CHECK_INTERVAL_S or not is_alive(*keeper):
            return
        self._checked = now
        self._left_s -= min(passed_s, _MAX_INTERVAL_S)
        self._continue(keeper[0], min(passed_s, _MAX_INTERVAL_S))
        if self._left_s <= 0.0:
            self._kill(keeper[0], "did not answer")

    def _continue(self, pid: int, passed_s: float) -> None:
        if not is_stopped(pid):
            return
        if self._urgency == KILL and self._stopped_s:  # it was continued before, and stopped again
            self._kill(pid, "was stopped again and again")
            return
        self._stopped_s += passed_s
        if self._urgency > CONTINUE or self._stopped_s >= STOPPED_TIMEOUT_S:
            signal_each([pid], _signal.SIGCONT)

    def _kill(self, pid: int, why: str) -> None:
        """Kill it and all below it: what it leaves is cleaned up as after any keeper that died."""
        self.lost = f"its keeper {why} and was ended with all that it ran"
        signal_each([other for other in reversed(with_descendants([pid])) if other != os.getpid()], _signal.SIGKILL)
