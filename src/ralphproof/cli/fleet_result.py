"""What comes of a loop that was completed, as a commit, and where on the remote it goes."""

from __future__ import annotations

import os

from ralphproof.cli.branch import work_of
from ralphproof.cli.withheld import why_secret
from ralphproof.phase import Over
from ralphproof.state import state_of
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.verdict import Completed
from ralphproof.views.kept import snapshots_of
from ralphproof.workspaces.landable import Landable

if TYPE_CHECKING:
    from ralphproof.fleet.order import LoopOrder
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.record import Record
    from ralphproof.views.project import Project


@value
class LoopResult:
    """The commit of a completed loop, and the files that it leaves out, in words."""

    commit: str
    left_out: tuple[str, ...] = ()


def result_of(project: Project, row: RunRow, records: tuple[Record, ...]) -> LoopResult | None:
    """The result; None where the run is not over, or was not completed."""
    state = state_of(records)
    if not (isinstance(state.phase, Over) and isinstance(state.phase.outcome, Completed)):
        return None
    if state.committed.commit and not state.unkept:
        return LoopResult(state.committed.commit)
    work = work_of(project, row, records, max(snapshots_of(records)))
    with Landable(project.root, os.environ) as landable:
        landing = landable.landing(work.snapshot, why_secret)
        commit = landing.parent if landing.empty else None
        commit = commit or landable.users.commit(landing.tree, landing.parent, work.message)
    return LoopResult(commit, tuple(f"{one.path}: {one.why}" for one in landing.withheld))


def land(order: LoopOrder, result: LoopResult) -> tuple[tuple[str, str], ...]:
    """Where the result goes: commits and refs of the remote, which are pushed in one piece with the last record.

    That is the loop's own branch: whatever becomes of it after that, the work is there.
    """
    return ((result.commit, f"refs/heads/ralph/{order.loop}"),)
