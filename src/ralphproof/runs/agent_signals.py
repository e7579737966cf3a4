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


def signal_files(task_folder: str) -> tuple[str, ...]:
    """The files of a task folder that agent and harness exchange."""
    from ralphproof.store.message_bus import SPOOL_FILE, TAKEN_SPOOL_FILE

    return tuple(
        os.path.join(task_folder, name) for name in (DONE_FILE, WAIT_FILE, TASK_BUS_FILE, SPOOL_FILE, TAKEN_SPOOL_FILE)
    )


class AgentSignals:
    """The signals in the task folder of one run. Called with an iteration: its claim; with 0: that of files alone."""

    def __init__(self, run: str, task_folder: str, root: str, mask: Callable[[str], str]) -> None:
        self._run, self._folder, self._markers = run, task_folder, SignalFiles(task_folder)
        self.task_bus, self.project_bus = open_task_bus(task_folder, mask), open_project_bus(root, mask)

    def __call__(self, iteration: int) -> Claim | None:
        claim = self._markers.look()
        if not iteration or (claim is not None and claim.waiting):
            return claim
        reason = find_wait_reason(self.task_bus, self._run, iteration)
        return claim if reason is None else Claim(reason, waiting=True, source="bus")

    def refuse(self, stamp: str) -> tuple[str, ...]:
        """Rename the marker with this stamp, because its claim was refused; its new name, if it was still there."""
        now = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        return self._markers.put_away(frozenset((stamp,)), now, "refused")

    def remarks(self) -> tuple[str, ...]:
        """Remarks after a turn. Messages that it left for the project's bus are passed on."""
        from ralphproof.store.message_bus import drain_spool

        problem = drain_spool(self._folder, self.project_bus, self._run).problem
        return (*self._markers.remarks(), *([problem] if problem else []))


RECENT_RUNS = 50  # searched for judged markers


def put_away_stale_markers(ledger: SqliteLedger, task_folder: str, own_run: str) -> list[str]:
    """Rename the markers in a task folder that an earlier run has judged; remarks about them."""
    markers = SignalFiles(task_folder)
    if markers.look() is None:
        return []
    judged: set[str] = set()
    for row in ledger.runs(RECENT_RUNS):
        if row.id != own_run:
            judged |= _judged_stamps(ledger, row.id, task_folder)
    names = markers.put_away(frozenset(judged), time.strftime("%Y%m%d-%H%M%S", time.gmtime()))
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
