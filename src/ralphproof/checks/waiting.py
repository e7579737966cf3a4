"""Time that a judge's service is given to come back."""

from __future__ import annotations

import time

from ralphproof.fault import ServiceFault
from ralphproof.sandbox import STOP
from ralphproof.service import again_at
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphproof.agent import TurnWatch

TRIES = 6  # calls in a row that a service may fail
MOST_WAIT_S = 3600.0  # in all
TICK_S = 0.5


class Waiting:
    """The time of day, and how to let it pass."""

    def now(self) -> float:
        """Epoch seconds."""
        return time.time()

    def rest(self, until_s: float, watch: TurnWatch) -> bool:
        """Wait until then; False at once where the watcher wants an end."""
        end_s = time.monotonic() + until_s - self.now()
        while watch.tick() < STOP:
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return True
            time.sleep(min(left_s, TICK_S))
        return False


class Patience:
    """How long a service that fails is waited for. `notes` tells every wait."""

    def __init__(self, waiting: Waiting, seed: str) -> None:
        self.notes: list[str] = []
        self._waiting, self._seed = waiting, seed
        self._failures, self._waited_s = 0, 0.0

    def answered(self) -> None:
        """It works again."""
        self._failures = 0

    def outlasts(self, fault: ServiceFault, watch: TurnWatch, waited: bool) -> bool:
        """Wait as long as it takes, unless this was `waited` for before; False where it is not worth it any more."""
        self._failures += 1
        if self._failures >= TRIES:
            self.notes.append(f"the judge's service was asked {TRIES} times in a row: {fault.message}")
            return False
        now_s = self._waiting.now()
        until_s = again_at(self._failures, fault.resets_at, now_s, f"{self._seed} {len(self.notes)}")
        left_s = MOST_WAIT_S - self._waited_s
        if not waited and until_s - now_s > left_s:
            self.notes.append(f"the judge's service was not waited for any longer ({until_s - now_s:.0f} s)")
            return False
        if waited or self._waiting.rest(until_s, watch):
            self._waited_s += 0.0 if waited else until_s - now_s
            told = "asked again" if waited else f"waited {until_s - now_s:.0f} s"
            self.notes.append(f"{told}, since the judge's service failed: {fault.message}")
            return True
        return False
