"""Marker files that an earlier run has already seen."""

from __future__ import annotations

import time

from ralphproof.ledgers.markers import Markers
from ralphproof.record import RunBegan, Saved
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphproof.ledgers.sqlite import Sqlite

RECENT = 50  # runs that are looked at


def put_away(ledger: Sqlite, task_folder: str, ours: str) -> list[str]:
    """Rename the markers in a task folder that a run before this one has judged; what there is to say of it."""
    markers = Markers(task_folder)
    if markers.look() is None:
        return []
    known: set[str] = set()
    for row in ledger.runs(RECENT):
        if row.id != ours:
            known |= _stamps(ledger, row.id, task_folder)
    names = markers.put_away(frozenset(known), time.strftime("%Y%m%d-%H%M%S", time.gmtime()))
    return [f"a marker of an earlier run was put away as {name}" for name in names]


def _stamps(ledger: Sqlite, run: str, task_folder: str) -> set[str]:
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
