"""Runs that cannot be steered: why, and the way on."""

from __future__ import annotations

from ralphproof.cli.standing import ENDED, ORPHANED, RUNNING
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphproof.cli.project import Project
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.state import State


def take_up(run: str) -> str:
    """What can be done with a run that lost its harness."""
    return f"take it up: ralph run --resume {run}; close it: ralph cancel {run}"


def lost(project: Project, row: RunRow, state: State, where: str) -> Refused:
    """That nobody is there who could hear: its harness died."""
    from ralphproof.cli.found import left

    still = ", and what it started is still at work" if where == ORPHANED else ""
    return Refused(f"run {row.id} lost its harness{still}: {left(project, row.id, state)}; {take_up(row.id)}")


def refuse_unheard(project: Project, row: RunRow, state: State, where: str) -> None:
    """Raise Refused where no harness is there, with the way on."""
    if where == RUNNING:
        return
    if where != ENDED:
        raise lost(project, row, state, where)
    from ralphproof.cli.resume_run import refuse_final

    refuse_final(state, row.id)
    raise Refused(f"run {row.id} has ended; go on: ralph run --resume {row.id}")
