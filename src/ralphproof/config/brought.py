"""Parts of a run that its caller brings along, beside those that settings name."""

from __future__ import annotations

from ralphproof.purse import NoKitty
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.agent import Agent
    from ralphproof.check import Check
    from ralphproof.ledger import Observer
    from ralphproof.limit import Breach
    from ralphproof.purse import Kitty
    from ralphproof.state import State


@value
class Brought:
    """An agent in place of the settings' own; checks, limits and observers beside theirs.

    `kitty` is a budget that it shares with other runs.
    """

    agent: Agent | None = None
    checks: tuple[Check, ...] = ()
    limits: tuple[Callable[[State], Breach | None], ...] = ()
    observers: tuple[Observer, ...] = ()
    kitty: Kitty = NoKitty()


NOTHING_BROUGHT = Brought()
