"""The agent, once, where the loop around it broke before it began, and the user prefers that to nothing."""

from __future__ import annotations

import os
import sys

from ralphproof.cli.begin import Begun
from ralphproof.cli.leftover import live_turn
from ralphproof.cli.signals import Present
from ralphproof.display.clean import clean, flat
from ralphproof.errors import Refused
from ralphproof.ledgers.memory import Memory
from ralphproof.limit import SERVICE_UNAVAILABLE, Breach
from ralphproof.value import TYPE_CHECKING, replace

if TYPE_CHECKING:
    from ralphproof.action import Rules
    from ralphproof.cli.equipment import Hearing, Watching
    from ralphproof.cli.order import Order
    from ralphproof.keeper.client import Keeper
    from ralphproof.state import State

FALLING_BACK = "[Ralph] Falling back to normal execution..."


class SinglePass(Begun):
    """One turn with all limits and checks, in the same sandbox. Files are left for people, and no record.

    The order is one that `single` made.
    """

    recorded = False

    def __init__(
        self, order: Order, keeper: Keeper, watching: Watching, error: str, hear: Hearing = Present.listen
    ) -> None:
        failed = f"[Ralph] Wrapper failed: {flat(clean(order.project.mask(error)))}"
        _say(failed)
        _say(FALLING_BACK)
        self._project = order.project
        told = replace(order, remarks=(failed, FALLING_BACK, *order.remarks))  # programs read no standard error
        super().__init__(told, keeper, watching, hear)

    def _open(self, keeper: Keeper) -> None:
        """What is usually kept beside the ledger may be what broke, so none of it is used."""
        import tempfile

        aside = tempfile.TemporaryDirectory(prefix="ralph-single-pass-")
        self._held.append(aside.cleanup)
        self._order = replace(self._order, project=replace(self._project, store=aside.name))
        super()._open(keeper)

    def _record(self) -> Memory:
        return Memory(self._project.mask)

    def _left_behind(self) -> list[str]:
        """Refuse to begin beside an agent whose harness died. Without the ledger, only their folders tell of runs."""
        folder = os.path.join(self._project.root, ".ralph", "runs")
        for run in os.listdir(folder) if os.path.isdir(folder) else ():
            if live_turn(self._project, run):
                raise Refused(f"run {run} lost its harness, and its agent is still at work here; wait for it to end")
        return []

    def _rules(self) -> Rules:
        rules = super()._rules()
        return replace(rules, baseline=False, own=(*rules.own, _asked_again))


def single(order: Order) -> Order:
    """The same order for one iteration, of which nothing is kept but its files."""
    settings = order.loaded.settings
    own = replace(settings.agent, retries=0)
    once = replace(settings, maximum_iterations=1, scm=None, metrics=False, agent=own)
    return replace(order, loaded=replace(order.loaded, settings=once))


def _asked_again(state: State) -> Breach | None:
    """What an iteration may do that waits for a service, a single pass may not."""
    if state.turn == 1:
        return None
    return Breach(SERVICE_UNAVAILABLE, "the agent's service did not answer, and a single pass asks it only once")


def _say(line: str) -> None:
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        pass  # nobody listens; the work goes on
