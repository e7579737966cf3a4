"""Runs that cannot be steered: why, and the way on."""

from __future__ import annotations

from ralphproof.errors import Refused
from ralphproof.limit import CANCELLED, TRIPWIRES
from ralphproof.phase import Over
from ralphproof.value import TYPE_CHECKING
from ralphproof.verdict import Aborted, Completed, Failed
from ralphproof.views.standing import ENDED, ORPHANED, RUNNING

if TYPE_CHECKING:
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.state import State
    from ralphproof.views.project import Project

FINAL = (CANCELLED, *TRIPWIRES)


def take_up(run: str) -> str:
    """What can be done with a run that lost its harness."""
    return f"take it up: ralph run --resume {run}; close it: ralph cancel {run}"


def next_step(run: str) -> str:
    """How a run goes on that was stopped after one iteration."""
    return f"ralph run --resume {run} --step; to the end: ralph run --resume {run}"


def lost(project: Project, row: RunRow, state: State, where: str) -> Refused:
    """That nobody is there who could hear: its harness died."""
    from ralphproof.views.found import left

    still = ", and what it started is still at work" if where == ORPHANED else ""
    return Refused(f"run {row.id} lost its harness{still}: {left(project, row.id, state)}; {take_up(row.id)}")


def refuse_unheard(project: Project, row: RunRow, state: State, where: str) -> None:
    """Raise Refused where no harness is there, with the way on."""
    if where == RUNNING:
        return
    if where != ENDED:
        raise lost(project, row, state, where)
    refuse_final(state, row.id, "there is nothing to pause")
    raise Refused(f"run {row.id} has ended; go on: ralph run --resume {row.id}")


def refuse_final(state: State, run: str, so: str = "there is nothing to resume") -> None:
    """Raise Refused for a run that is over for good. `so` is what it means for who asks that of a completed one."""
    if not isinstance(state.phase, Over):
        return
    outcome = state.phase.outcome
    if isinstance(outcome, Completed):
        raise Refused(f"run {run} is completed; {so}")
    if isinstance(outcome, Failed) and outcome.check:
        raise Refused(f"run {run} was refused before its first turn: {outcome.error}; begin a new run")
    if isinstance(outcome, Aborted) and outcome.reason in FINAL:
        raise Refused(f"run {run} ended for good ({outcome.reason}); begin a new run")
