"""Savings by cheaper models: a run's tokens at the price of the dearest model of its settings."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.iteration import History

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ralphproof.agents.selection import SelectedAgent
    from ralphproof.settings.model import Settings


def savings_calculator(settings: Settings, crew: tuple[SelectedAgent, ...]) -> Callable[[History], int | None]:
    """Micro-dollars that a run of this crew saved, from its history; None where that cannot be known.

    A ladder is held against its last model alone. Where models take turns, the dearest of them is what was saved on.
    """
    places = len(crew) - len(settings.agent.fallbacks)
    models = {one.model for one in crew[:places] if one.model}
    dearest = set(settings.agent.ladder[-1:]) or (models if settings.agent.rotate else set())
    return lambda history: _estimate_savings(history, dearest, settings)


def _estimate_savings(history: History, models: set[str], settings: Settings) -> int | None:
    if not models or not history.iterations:
        return None
    from ralphproof.agents.cost import PriceList, TokenRates

    own: Mapping[str, TokenRates] = {
        name: TokenRates.usd(one.input, one.output, one.cache_read, one.cache_write) for name, one in settings.prices
    }
    prices = PriceList(own)
    found = [_savings_against_model(history, model, prices.cost) for model in models]
    return max((saved for saved in found if saved is not None), default=None)


def _savings_against_model(history: History, model: str, cost: Callable[..., int | None]) -> int | None:
    """How much more all turns would have cost with this model, at least nothing; None where one is not known."""
    saved = 0
    for iteration in history.iterations:
        turn = iteration.turn
        if turn.usage is None or turn.micro_usd is None:
            return None
        dear = cost(model, turn.usage)
        if dear is None:
            return None
        saved += dear - turn.micro_usd if turn.model != model else 0
    return max(0, saved)
