"""What goes on beside a step: logs are copied as they grow, and the remote is asked whether somebody else has it."""

from __future__ import annotations

import os
import sys
import time
from threading import Event, Thread

from ralphproof.errors import RalphError
from ralphproof.fleet.artifacts import Artifacts, growing_in, logs_in
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from ralphproof.fleet.baton import Baton
    from ralphproof.fleet.order import LoopOrder

COPY_S, ASK_S, TICK_S = 10.0, 15.0, 0.5
LAST_S = 60.0  # so long the last copies are waited for


class Beside:
    """A thread of its own, so that neither a slow store nor a slow remote holds anything up."""

    def __init__(self, order: LoopOrder, baton: Baton, store: str, root: str, moved: Callable[[], None]) -> None:
        self._order, self._baton, self._moved = order, baton, moved
        self._kept = os.path.join(store, "runs", order.loop)
        self._shown = os.path.join(root, ".ralph", "runs", order.loop)
        self._over = Event()
        self._thread = Thread(target=self._go, daemon=True)
        self._told = ""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """The step is over; the last copies are made now."""
        self._over.set()

    def finish(self) -> None:
        """Wait for them, not for long."""
        self._thread.join(LAST_S)
        if self._thread.is_alive():
            self._tell(f"the artifacts are not all copied after {LAST_S:g} seconds; the loop goes on without them")

    def _go(self) -> None:
        artifacts = self._opened()
        copied_s = asked_s = time.monotonic()
        while not self._over.wait(TICK_S):
            now_s = time.monotonic()
            if artifacts and now_s - copied_s >= COPY_S:
                copied_s = now_s
                self._tell(artifacts.keep(growing_in(self._kept)))
            if now_s - asked_s >= ASK_S:
                asked_s = now_s
                if self._baton.moved() and not self._over.is_set():
                    self._moved()
        if artifacts:
            self._tell(artifacts.keep(logs_in(self._kept, self._shown)))

    def _opened(self) -> Artifacts | None:
        if not self._order.artifacts:
            return None
        try:
            return Artifacts(self._order.artifacts, self._order.loop)
        except RalphError as error:
            self._tell(str(error))
            return None

    def _tell(self, trouble: str) -> None:
        """Once each: a store that does not answer now does not in ten seconds either."""
        if trouble and trouble != self._told:
            self._told = trouble
            print(f"artifacts: {trouble}", file=sys.stderr, flush=True)
