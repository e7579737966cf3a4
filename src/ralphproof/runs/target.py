"""Which run to execute (RunTarget), and the run that this process is part of."""

from __future__ import annotations

import os

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.engine.limits import RESUMABLE_REASONS
from ralphproof.engine.outcome import Aborted
from ralphproof.engine.records import RunEnded
from ralphproof.runs.request import load_requesting_run
from ralphproof.store.run_folder import RunFolder

if TYPE_CHECKING:
    from ralphproof.store.project import Project
    from ralphproof.store.runs import RunRow

RUN_ID_VARIABLE = "RALPH_RUN_ID"


@value
class RunTarget:
    """A new run, a new run whose id is fixed already (`run`), or the run to resume (`row`)."""

    run: str = ""
    row: RunRow | None = None


FRESH_RUN = RunTarget()


def find_parent_run(project: Project, target: RunTarget) -> str:
    """The run that this one is part of; empty for most. Raises Refused where the parent is over."""
    if target.row:
        return target.row.parent
    return _find_requesting_run(project, target.run) or find_enclosing_run(project)


def find_enclosing_run(project: Project) -> str:
    """The run whose agent started this process, if this repository's ledger has it and it has not ended; else empty."""
    name = os.environ.get(RUN_ID_VARIABLE, "")
    if not name:
        return ""
    ledger = project.ledger()
    try:
        row = ledger.row(name)
        return row.id if row and not row.ended else ""
    finally:
        ledger.close()


def _find_requesting_run(project: Project, run: str) -> str:
    """The run whose agent asked for this one; raises Refused where that is over, unless it only waits."""
    parent = load_requesting_run(RunFolder(project.root, run, project.store)) if run else ""
    if not parent:
        return ""
    ledger = project.ledger()
    try:
        row, end = ledger.row(parent), ledger.run_end(parent)
    finally:
        ledger.close()
    waits = isinstance(end, RunEnded) and isinstance(end.outcome, Aborted) and end.outcome.reason in RESUMABLE_REASONS
    if row is None or (end is not None and not waits):
        raise Refused(f"run {parent} asked for this one, and is {'over' if row else 'not on record'}; begin it anew")
    return parent
