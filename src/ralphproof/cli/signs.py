"""What an agent says beside its words: marker files in its task folder, and messages on the bus."""

from __future__ import annotations

import os
import time

from ralphproof.claim import Claim
from ralphproof.ledgers.bus import TASK_BUS, project_bus, task_bus, waits
from ralphproof.ledgers.markers import DONE, WAIT, Markers
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def files_in(task_folder: str) -> tuple[str, ...]:
    """The files of a task folder by which an agent and we talk to each other."""
    from ralphproof.ledgers.spool import SPOOL, TAKEN

    return tuple(os.path.join(task_folder, name) for name in (DONE, WAIT, TASK_BUS, SPOOL, TAKEN))


class Signs:
    """The task folder of one run. Called with an iteration: what it claims; with 0, what files alone claim."""

    def __init__(self, run: str, task_folder: str, root: str, mask: Callable[[str], str]) -> None:
        self._run, self._folder, self._markers = run, task_folder, Markers(task_folder)
        self.task_bus, self.project_bus = task_bus(task_folder, mask), project_bus(root, mask)

    def __call__(self, iteration: int) -> Claim | None:
        claim = self._markers.look()
        if not iteration or (claim is not None and claim.waiting):
            return claim
        why = waits(self.task_bus, self._run, iteration)
        return claim if why is None else Claim(why, waiting=True, source="bus")

    def refuse(self, stamp: str) -> tuple[str, ...]:
        """Put the marker with this stamp away: its claim was refused. Its new name, if it was there still."""
        now = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        return self._markers.put_away(frozenset((stamp,)), now, "refused")

    def remarks(self) -> tuple[str, ...]:
        """What is worth telling after a turn. What it left for the project's bus is passed on."""
        from ralphproof.ledgers.spool import drain_spool

        trouble = drain_spool(self._folder, self.project_bus, self._run).problem
        return (*self._markers.remarks(), *([trouble] if trouble else []))
