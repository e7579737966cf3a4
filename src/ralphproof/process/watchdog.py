"""The harness's timeout for a keeper that does not answer."""

from __future__ import annotations

import os
from time import monotonic

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.sandbox import CONTINUE, KILL, STOP
from ralphproof.process.tree import is_alive, is_stopped, signal_each, with_descendants

if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

if TYPE_CHECKING:
    from ralphproof.engine.sandbox import Command

ANSWER_TIMEOUT_S = 10.0  # for a keeper to tell the end of a turn that is due
STOPPED_TIMEOUT_S = 5.0  # a keeper that is stopped for so long is continued, though nothing is wanted of it
_CHECK_INTERVAL_S = 0.05
_MAX_INTERVAL_S = (
    2.0  # between two looks: more of it means that we were suspended ourselves, and that is nobody's delay
)


class KeeperWatchdog:
    """Counts the time of one turn. When the keeper has had its own time and more, it is ended with all below it.

    An agent can stop its keeper, and again whenever it is continued: then no clock of the keeper's moves.
    """

    def __init__(self, command: Command) -> None:
        self.lost = ""  # why the keeper was ended, once it was
        self._whole_s, self._grace_s = command.timeout_s, command.grace_s
        self.begin()

    def begin(self) -> None:
        """A keeper is given the turn, or is found with it: its time begins."""
        self._left_s = self._whole_s + self._grace_s + ANSWER_TIMEOUT_S
        self._urged = CONTINUE
        self._stopped_s = 0.0
        self._looked = monotonic()

    @property
    def why(self) -> str:
        """How a turn ended that has no result: a keeper that we ended on somebody's wish took the program with it."""
        return "killed" if self.lost and self._urged > CONTINUE else "interrupted"

    def urge(self, wanted: int) -> None:
        """The keeper is told to end the turn: from now on it has less time."""
        if wanted > self._urged:
            self._urged, self._stopped_s = wanted, 0.0
            self._left_s = min(self._left_s, ANSWER_TIMEOUT_S + (self._grace_s if wanted == STOP else 0.0))

    def look(self, keeper: tuple[int, int]) -> None:
        """Continue a keeper that is stopped where it must act; end one whose time is over."""
        now = monotonic()
        passed_s = now - self._looked
        if passed_s < _CHECK_INTERVAL_S or not is_alive(*keeper):
            return
        self._looked = now
        self._left_s -= min(passed_s, _MAX_INTERVAL_S)
        self._continue(keeper[0], min(passed_s, _MAX_INTERVAL_S))
        if self._left_s <= 0.0:
            self._end(keeper[0], "did not answer")

    def _continue(self, pid: int, passed_s: float) -> None:
        if not is_stopped(pid):
            return
        if self._urged == KILL and self._stopped_s:  # it was continued before, and somebody stopped it again
            self._end(pid, "was stopped again and again")
            return
        self._stopped_s += passed_s
        if self._urged > CONTINUE or self._stopped_s >= STOPPED_TIMEOUT_S:
            signal_each([pid], _signal.SIGCONT)

    def _end(self, pid: int, why: str) -> None:
        """KILL, for it and all below it: what it leaves is cleaned up as after any keeper that died."""
        self.lost = f"its keeper {why} and was ended with all that it ran"
        signal_each([other for other in reversed(with_descendants([pid])) if other != os.getpid()], _signal.SIGKILL)
