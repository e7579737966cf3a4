"""A run from its order to its end, with what the user prefers where the loop itself breaks."""

from __future__ import annotations

import os

from ralphproof.cli.begin import Begun
from ralphproof.cli.boxing import BOXED
from ralphproof.cli.signals import Present
from ralphproof.errors import HarnessFailed, ReadTooEarly, Refused, from_system
from ralphproof.ledgers.folder import RunFolder
from ralphproof.limit import GOES_ON
from ralphproof.record import RunEnded
from ralphproof.value import TYPE_CHECKING, replace, value
from ralphproof.verdict import Aborted

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.cli.equipment import Hearing, Watching
    from ralphproof.cli.order import Order
    from ralphproof.keeper.client import Keeper
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.verdict import Outcome
    from ralphproof.views.project import Project

    Telling = Callable[[Begun, Outcome], object]

ONCE = "single-pass"
INSIDE = "RALPH_RUN_ID"


@value
class Which:
    """Which run it is: a new one, one that was ordered under this id, or the one of this row that is taken up."""

    run: str = ""
    row: RunRow | None = None


ANEW = Which()


def _begun(order: Order, keeper: Keeper, watching: Watching, hear: Hearing, which: Which) -> Begun:
    """The run, held as the one is that it is part of."""
    parent = which.row.parent if which.row else _asked_by(order.project, which.run) or parent_of(order.project)
    if parent:
        from ralphproof.cli.held import held

        order = held(order, parent)
    if which.row is None:
        return Begun(order, keeper, watching, hear, which.run, parent)
    from ralphproof.cli.resume_run import Retaken

    return Retaken(order, keeper, watching, which.row, hear)


def parent_of(project: Project) -> str:
    """The run whose agent we are part of, as far as this repository knows it; empty for most."""
    name = os.environ.get(INSIDE, "")
    if not name:
        return ""
    ledger = project.ledger()
    try:
        row = ledger.row(name)
        return row.id if row and not row.ended else ""
    finally:
        ledger.close()


def _asked_by(project: Project, run: str) -> str:
    """The run whose agent asked for this one; raises Refused where that is over, unless it only waits."""
    from ralphproof.cli.notes import kept_parent

    parent = kept_parent(RunFolder(project.root, run, project.store)) if run else ""
    if not parent:
        return ""
    ledger = project.ledger()
    try:
        row, end = ledger.row(parent), ledger.end_of(parent)
    finally:
        ledger.close()
    waits = isinstance(end, RunEnded) and isinstance(end.outcome, Aborted) and end.outcome.reason in GOES_ON
    if row is None or (end is not None and not waits):
        raise Refused(f"run {parent} asked for this one, and is {'over' if row else 'not on record'}; begin it anew")
    return parent


def to_the_end(
    order: Order, keeper: Keeper, watching: Watching, tell: Telling, hear: Hearing = Present.listen, which: Which = ANEW
) -> Outcome:
    """Run the loop. Where it fails before any agent was asked, the user may prefer a single pass to nothing.

    `tell` is called once with how it ended, while the run still holds its directory.
    """
    if kind := os.environ.get(BOXED):
        raise Refused(f"this is inside sandbox {kind}; --detach asks the harness outside for a run of your own")
    alone = which.row is None and not os.environ.get(INSIDE)  # a part of another run is held by what is on record
    try:
        return _ended(order, keeper, watching, tell, hear, which, alone)
    except ReadTooEarly as early:
        from ralphproof.cli.order import prepare

        anew = prepare(order.asked)
        anew = replace(anew, remarks=(str(early), *anew.remarks))
        return _ended(anew, keeper, watching, tell, hear, which, alone)


def _ended(
    order: Order, keeper: Keeper, watching: Watching, tell: Telling, hear: Hearing, which: Which, alone: bool
) -> Outcome:
    once, begun = order.loaded.settings.on_internal_error == ONCE and alone, None
    try:
        with _begun(order, keeper, watching, hear, which) as begun:
            outcome, broken = begun.go(), begun.broken
            if not (broken and once):
                tell(begun, outcome)
                return outcome
    except (HarnessFailed, OSError) as error:
        fault = from_system(error) if isinstance(error, OSError) else error
        if not once or fault.exit_code != HarnessFailed.exit_code or (begun is not None and begun.asked):
            raise
        broken = str(fault)
    from ralphproof.cli.single_pass import SinglePass, single

    with SinglePass(single(order), keeper, watching, broken, hear) as begun:
        outcome = begun.go()
        tell(begun, outcome)
        return outcome
