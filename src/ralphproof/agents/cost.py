"""Token prices, and savings by cheaper models."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.engine.agent import Usage
from ralphproof.engine.plan import History
from ralphproof.settings.declarations import PriceSettings, Settings

if TYPE_CHECKING:
    from decimal import Decimal

    from genai_prices.types import ModelInfo, TieredPrices

    from ralphproof.agents.selection import SelectedAgent


MILLION = 1_000_000
MAX_NAME_CHARS = 200  # a longer name is not looked up
PRICE_CACHE_S = 60.0  # prices may change by the hour; a stream asks a thousand times a second
MAX_CACHED_NAMES = 256  # of one list: an agent may print any number of names

# Suffixes of a model's name that do not make it another model: a date, a revision, Bedrock's version.
EDITION_SUFFIX = r"(?:[-@](?:latest|preview|\d{8}|\d{3,4}|\d\d-\d\d|\d\d-\d{4}|v\d:\d)|:\d)+"


@value
class TokenRates:
    """Micro-dollars per million tokens of each kind. None is an unknown price."""

    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None

    @classmethod
    def usd(
        cls,
        input: float | None = None,
        output: float | None = None,
        cache_read: float | None = None,
        cache_write: float | None = None,
    ) -> TokenRates:
        """Rates from dollars per million tokens."""
        return cls(_to_micro_usd(input), _to_micro_usd(output), _to_micro_usd(cache_read), _to_micro_usd(cache_write))

    def cost(self, usage: Usage) -> int | None:
        """Micro-dollars, exact and rounded half up once. None where tokens of an unknown price were used."""
        total = 0
        for tokens, rate in (
            (usage.input, self.input),
            (usage.output, self.output),
            (usage.cache_read, self.cache_read),
            (usage.cache_write, self.cache_write),
        ):
            if tokens < 0 or (tokens and rate is None):
                return None
            total += tokens * (rate or 0)
        return (total + MILLION // 2) // MILLION


class PriceList:
    """Prices by the user's own list, else by the one that came with `genai-prices`. Nothing is ever fetched.

    The figures are estimates. Long prompts have dearer tiers, which apply to each request; a turn reports only totals,
    so the lowest tier is used. A cache write is assumed to last five minutes. Fees for searches are left out.
    """

    def __init__(self, own: Mapping[str, TokenRates] | None = None, clock: Callable[[], float] = time.time) -> None:
        self._own = dict(own or {})
        self._clock = clock
        self._models: dict[str, ModelInfo | None] = {}
        self._recent_rates: dict[str, tuple[float, TokenRates | None]] = {}  # with the time of the lookup

    def cost(self, model: str | None, usage: Usage) -> int | None:
        """Micro-dollars for a turn's tokens at today's prices. None where the model's prices are unknown."""
        rates = self.rates(model)
        return None if rates is None else rates.cost(usage)

    def rates(self, model: str | None) -> TokenRates | None:
        """The user's rates by the longest matching name prefix, else the provider's."""
        if not isinstance(model, str) or not _is_model_name(model):
            return None
        now = self._clock()
        looked_up_at, rates = self._recent_rates.get(model, (float("-inf"), None))
        if 0 <= now - looked_up_at < PRICE_CACHE_S:
            return rates
        rates = self._rates(model, now)
        if len(self._recent_rates) < MAX_CACHED_NAMES or model in self._recent_rates:
            self._recent_rates[model] = now, rates
        return rates

    def _rates(self, model: str, now: float) -> TokenRates | None:
        prefix = max((name for name in self._own if model.startswith(name)), key=len, default=None)
        if prefix is not None:
            return self._own[prefix]
        found = self._find(model)
        return None if found is None else _current_rates(found, now)

    def _find(self, model: str) -> ModelInfo | None:
        if model not in self._models:
            if len(self._models) >= MAX_CACHED_NAMES:
                return None
            self._models[model] = _find_model(model)
        return self._models[model]


def _is_model_name(name: object) -> bool:
    return isinstance(name, str) and len(name) <= MAX_NAME_CHARS and name.isprintable()


def _to_micro_usd(usd: float | Decimal | None) -> int | None:
    return None if usd is None else round(usd * MILLION)


def _find_model(model: str) -> ModelInfo | None:
    """The model with exactly this name; None where it is unknown or genai-prices is not installed."""
    try:
        from genai_prices.data_snapshot import get_snapshot  # takes 0.3 s and 30 MB
    except ImportError:
        return None
    provider_name, name = _split_provider(model.lower())
    try:
        _, found = get_snapshot().find_provider_model(name, None, provider_name, None)
    except LookupError:
        return None
    return found if any(_is_exact_match(shorter, found) for shorter in _without_edition(name)) else None


def _split_provider(name: str) -> tuple[str | None, str]:
    """The provider of a model and the model's name there, from a name such as `openrouter/anthropic/claude-…`.

    Names of Bedrock have a region and a dot in front.
    """
    name = re.sub(r"\[\w+\]$", "", name)  # Claude Code 2.1 adds [1m] where it may use the long context
    prefix, slash, rest = name.partition("/")
    if slash:
        return prefix, rest
    region, dot, _ = name.partition(".")
    return ("aws" if dot and region.replace("-", "").isalpha() else None), name


def _without_edition(name: str) -> Iterator[str]:
    yield name
    for mark in re.finditer("[-@:]", name):
        if re.fullmatch(EDITION_SUFFIX, name[mark.start() :]):
            yield name[: mark.start()]


def _is_exact_match(name: str, model: ModelInfo) -> bool:
    """Whether the whole name matches the model.

    genai-prices 0.2 matches many models by a prefix or a part of the name: `claude-opus-4-8-fast` would get the price
    of the model that costs half. A name that still matches without its first or last letter is such a partial match.
    """
    return model.is_match(name) and not model.is_match(name[1:]) and not model.is_match(name[:-1])


def _current_rates(model: ModelInfo, at: float) -> TokenRates:
    """The lowest tier's rates at a time (epoch seconds)."""
    prices = model.get_prices(datetime.fromtimestamp(at, UTC))
    read, write = _lowest_tier(prices.cache_read_mtok), _lowest_tier(prices.cache_write_mtok)
    uncached = _lowest_tier(prices.input_mtok)
    if write is None or uncached is None:
        write = uncached  # a cache write without a price of its own costs as much as other input
    elif write < uncached:
        write += uncached  # for Gemini at OpenRouter, the price of storage for five minutes is added to that of input
    return TokenRates(uncached, _lowest_tier(prices.output_mtok), uncached if read is None else read, write)


def _lowest_tier(price: Decimal | TieredPrices | None) -> int | None:
    from decimal import Decimal

    return _to_micro_usd(price if price is None or isinstance(price, Decimal) else price.base)


def _token_rates(price: PriceSettings) -> TokenRates:
    """Rates from the settings. Cached tokens without a price of their own cost as much as other input."""
    read = price.input if price.cache_read is None else price.cache_read
    write = price.input if price.cache_write is None else price.cache_write
    return TokenRates.usd(price.input, price.output, read, write)


def build_price_list(prices: tuple[tuple[str, PriceSettings], ...]) -> PriceList:
    """The user's own prices, then the known ones."""
    return PriceList({name: _token_rates(price) for name, price in prices})


# Savings by cheaper models: a run's tokens at the price of the dearest model of its settings.


def savings_calculator(settings: Settings, agents: tuple[SelectedAgent, ...]) -> Callable[[History], int | None]:
    """A function from a run's history to the micro-dollars that cheaper models saved; None where that is unknown.

    A ladder is compared with its last model, a rotation with the dearest of its models.
    """
    regular_agents = agents[: len(agents) - len(settings.agent.fallbacks)]
    models = {agent.model for agent in regular_agents if agent.model}
    compared = set(settings.agent.ladder[-1:]) or (models if settings.agent.rotate else set())
    return lambda history: _estimate_savings(history, compared, settings)


def _estimate_savings(history: History, models: set[str], settings: Settings) -> int | None:
    if not models or not history.iterations:
        return None
    prices = build_price_list(settings.prices)
    savings = [_savings_against_model(history, model, prices.cost) for model in models]
    return max((saved for saved in savings if saved is not None), default=None)


def _savings_against_model(history: History, model: str, cost: Callable[..., int | None]) -> int | None:
    """How much more all turns would have cost with this model, at least 0; None where a turn's cost is unknown."""
    saved = 0
    for iteration in history.iterations:
        turn = iteration.turn
        if turn.usage is None or turn.micro_usd is None:
            return None
        cost_with_model = cost(model, turn.usage)
        if cost_with_model is None:
            return None
        saved += cost_with_model - turn.micro_usd if turn.model != model else 0
    return max(0, saved)
