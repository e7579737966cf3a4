"""What runs left behind that did not end: found by their records and marks, never by a program's name."""

from __future__ import annotations

import os

from ralphproof.cli.project import Project
from ralphproof.cli.standing import turn_files
from ralphproof.errors import Refused
from ralphproof.keeper import aftermath, journal
from ralphproof.ledger import state_of
from ralphproof.ledgers.sqlite import Sqlite
from ralphproof.record import RunEnded
from ralphproof.verdict import Failed

RECENT = 200  # a run that did not end is closed by the next one in its directory, so it is among the last


def close_dead_runs(ledger: Sqlite, project: Project, ours: str) -> list[str]:
    """Close the runs of this directory whose harness died, end what is left of them, and say so.

    A turn that still runs under its keeper is nobody's leftover: then we may not begin.
    """
    told: list[str] = []
    for row in ledger.runs(RECENT):
        if row.ended or row.directory != project.root or row.id == ours:
            continue
        if live_turn(project, row.id):
            raise Refused(
                f"run {row.id} lost its harness, and its agent is still at work here; "
                f"wait for it to end, or end it: ralph cancel {row.id}"
            )
        ended = end_leftovers(row.id)
        state = state_of(ledger.records(row.id))
        crashed = Failed("the harness died in mid-run (crashed)", len(state.history.iterations))
        ledger.append(row.id, (RunEnded(crashed),))
        told.append(f"run {row.id} crashed and is closed" + (f"; {ended} processes of it were ended" if ended else ""))
    return told


def live_turn(project: Project, run: str) -> journal.Past | None:
    """The turn of a run that a keeper still owns."""
    for path in turn_files(project, run):
        lock = journal.take(path)
        if lock is None:
            return journal.read(path)
        os.close(lock)
    return None


def end_leftovers(run: str) -> int:
    """End every process that carries the mark of this run; how many there were."""
    left = aftermath.leftovers(f"{run}/")
    aftermath.end(left)
    return len(left)
