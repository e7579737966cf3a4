"""Agent signals of a run: marker files in its task folder, bus messages, and stale markers of earlier runs."""

from __future__ import annotations

import os
import time

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.claim import Claim
from ralphproof.engine.records import RunBegan, Saved
from ralphproof.store.message_bus import TASK_BUS_FILE, find_wait_reason, open_project_bus, open_task_bus
from ralphproof.store.signal_files import DONE_FILE, WAIT_FILE, SignalFiles

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.store.sqlite_ledger import SqliteLedger


# What an agent says beside its words: marker files in its task folder, and messages on the bus.


def signal_files(task_folder: str) -> tuple[str, ...]:
    """The files of a task folder by which an agent and we talk to each other."""
    from ralphproof.store.message_bus import SPOOL_FILE, TAKEN_SPOOL_FILE

    return tuple(
        os.path.join(task_folder, name) for name in (DONE_FILE, WAIT_FILE, TASK_BUS_FILE, SPOOL_FILE, TAKEN_SPOOL_FILE)
    )


class AgentSignals:
    """The task folder of one run. Called with an iteration: what it claims; with 0, what files alone claim."""

    def __init__(self, run: str, task_folder: str, root: str, mask: Callable[[str], str]) -> None:
        self._run, self._folder, self._markers = run, task_folder, SignalFiles(task_folder)
        self.task_bus, self.project_bus = open_task_bus(task_folder, mask), open_project_bus(root, mask)

    def __call__(self, iteration: int) -> Claim | None:
        claim = self._markers.look()
        if not iteration or (claim is not None and claim.waiting):
            return claim
        why = find_wait_reason(self.task_bus, self._run, iteration)
        return claim if why is None else Claim(why, waiting=True, source="bus")

    def refuse(self, stamp: str) -> tuple[str, ...]:
        """Put the marker with this stamp away: its claim was refused. Its new name, if it was there still."""
        now = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        return self._markers.put_away(frozenset((stamp,)), now, "refused")

    def remarks(self) -> tuple[str, ...]:
        """What is worth telling after a turn. What it left for the project's bus is passed on."""
        from ralphproof.store.message_bus import drain_spool

        trouble = drain_spool(self._folder, self.project_bus, self._run).problem
        return (*self._markers.remarks(), *([trouble] if trouble else []))


# Marker files that an earlier run has already seen.


RECENT_RUNS = 50  # runs that are looked at


def put_away_stale_markers(ledger: SqliteLedger, task_folder: str, ours: str) -> list[str]:
    """Rename the markers in a task folder that a run before this one has judged; what there is to say of it."""
    markers = SignalFiles(task_folder)
    if markers.look() is None:
        return []
    known: set[str] = set()
    for row in ledger.runs(RECENT_RUNS):
        if row.id != ours:
            known |= _judged_stamps(ledger, row.id, task_folder)
    names = markers.put_away(frozenset(known), time.strftime("%Y%m%d-%H%M%S", time.gmtime()))
    return [f"a marker of an earlier run was put away as {name}" for name in names]


def _judged_stamps(ledger: SqliteLedger, run: str, task_folder: str) -> set[str]:
    """The stamps of all markers that a run in this folder has judged."""
    stamps: set[str] = set()
    for record in ledger.records(run):
        match record:
            case RunBegan(facts=facts) if facts.get("taskFolder") != task_folder:
                return set()
            case Saved(heard=heard) if heard.claim is not None and heard.claim.stamp:
                stamps.add(heard.claim.stamp)
            case _:
                pass
    return stamps
