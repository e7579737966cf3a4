"""A run from its order to its end, with what the user prefers where the loop itself breaks."""

from __future__ import annotations

from ralphproof.cli.begin import Begun
from ralphproof.errors import HarnessFailed, from_system
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.cli.begin import Watching
    from ralphproof.cli.order import Order
    from ralphproof.keeper.client import Keeper
    from ralphproof.verdict import Outcome

    Telling = Callable[[Begun, Outcome], object]

ONCE = "single-pass"


def to_the_end(order: Order, keeper: Keeper, watching: Watching, tell: Telling, signals: bool = True) -> Outcome:
    """Run the loop. Where it fails before any agent was asked, the user may prefer a single pass to nothing.

    `tell` is called once with how it ended, while the run still holds its directory.
    """
    once, begun = order.loaded.settings.on_internal_error == ONCE, None
    try:
        with Begun(order, keeper, watching, signals) as begun:
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
