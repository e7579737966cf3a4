"""A run from its order to its end, with what the user prefers where the loop itself breaks."""

from __future__ import annotations

import os

from ralphproof.cli.begin import Begun
from ralphproof.errors import HarnessFailed, from_system
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.cli.equipment import Watching
    from ralphproof.cli.order import Order
    from ralphproof.cli.project import Project
    from ralphproof.keeper.client import Keeper
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.verdict import Outcome

    Telling = Callable[[Begun, Outcome], object]

ONCE = "single-pass"


@value
class Which:
    """Which run it is: a new one, one that was ordered under this id, or the one of this row that is taken up."""

    run: str = ""
    row: RunRow | None = None


ANEW = Which()


def _begun(order: Order, keeper: Keeper, watching: Watching, signals: bool, which: Which) -> Begun:
    if which.row is None:
        return Begun(order, keeper, watching, signals, which.run, parent_of(order.project))
    from ralphproof.cli.resume_run import Retaken

    return Retaken(order, keeper, watching, which.row, signals)


def parent_of(project: Project) -> str:
    """The run whose agent we are part of, as far as this repository knows it; empty for most."""
    name = os.environ.get("RALPH_RUN_ID", "")
    if not name:
        return ""
    ledger = project.ledger()
    try:
        return next((row.id for row in ledger.runs() if row.id == name and not row.ended), "")
    finally:
        ledger.close()


def to_the_end(
    order: Order, keeper: Keeper, watching: Watching, tell: Telling, signals: bool = True, which: Which = ANEW
) -> Outcome:
    """Run the loop. Where it fails before any agent was asked, the user may prefer a single pass to nothing.

    `tell` is called once with how it ended, while the run still holds its directory.
    """
    once, begun = order.loaded.settings.on_internal_error == ONCE and which.row is None, None
    try:
        with _begun(order, keeper, watching, signals, which) as begun:
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

    with SinglePass(single(order), keeper, watching, broken, signals) as begun:
        outcome = begun.go()
        tell(begun, outcome)
        return outcome
