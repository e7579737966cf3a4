"""What a turn cost, for agents that report tokens alone. None is unknown, never zero."""

from __future__ import annotations

import time

from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from decimal import Decimal

    from genai_prices.types import ModelInfo, TieredPrices

    from ralphproof.event import Usage

MILLION = 1_000_000
NAME_CHARS = 200  # a longer name is no model's
FRESH_S = 60.0  # prices may change with the hour; a stream asks a thousand times a second
MOST_NAMES = 256  # looked up by one list; what an agent prints is not trusted to end

# What may follow a model's name without making it another model: a date, a revision, Bedrock's version.
EDITION = r"(?:[-@](?:latest|preview|\d{8}|\d{3,4}|\d\d-\d\d|\d\d-\d{4}|v\d:\d)|:\d)+"


@value
class Rates:
    """Micro-dollars per million tokens of each kind. None is a price that is not known."""

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
    ) -> Rates:
        """The rates that these dollars per million tokens are."""
        return cls(_micro(input), _micro(output), _micro(cache_read), _micro(cache_write))

    def cost(self, usage: Usage) -> int | None:
        """Micro-dollars, exact and rounded half up once. None where tokens were used whose price is not known."""
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

    The figures are estimates. Long prompts have dearer tiers, which apply to each request; a turn tells its totals
    alone, so the lowest tier is taken. A cache write is taken to last five minutes. Fees for searches are left out.
    """

    def __init__(self, own: Mapping[str, Rates] | None = None, clock: Callable[[], float] = time.time) -> None:
        self._own = dict(own or {})
        self._clock = clock
        self._found: dict[tuple[str, str | None], ModelInfo | None] = {}
        self._fresh: dict[tuple[str, str], tuple[float, Rates | None]] = {}

    def cost(self, model: str | None, usage: Usage, provider: str | None = None) -> int | None:
        """Micro-dollars for a turn's tokens, at today's prices. None where the model's prices are not known."""
        rates = self.rates(model, provider)
        return None if rates is None else rates.cost(usage)

    def rates(self, model: str | None, provider: str | None = None) -> Rates | None:
        """The user's rates by the longest name that the model's begins with, else the provider's."""
        if not isinstance(model, str) or not _is_name(model):
            return None
        asked, now = (model, str(provider)), self._clock()
        known_at, known = self._fresh.get(asked, (float("-inf"), None))
        if 0 <= now - known_at < FRESH_S:
            return known
        rates = self._rates(model, provider, now)
        if len(self._fresh) < MOST_NAMES or asked in self._fresh:
            self._fresh[asked] = now, rates
        return rates

    def _rates(self, model: str, provider: str | None, now: float) -> Rates | None:
        mine = max((name for name in self._own if model.startswith(name)), key=len, default=None)
        if mine is not None:
            return self._own[mine]
        found = self._find(model, provider)
        return None if found is None else _rates(found, now)

    def _find(self, model: str, provider: str | None) -> ModelInfo | None:
        if not _is_name(model) or not (provider is None or _is_name(provider)):
            return None
        asked = (model, provider)
        if asked not in self._found:
            if len(self._found) >= MOST_NAMES:
                return None
            self._found[asked] = _find(model, provider)
        return self._found[asked]


def _is_name(name: object) -> bool:
    return isinstance(name, str) and len(name) <= NAME_CHARS and name.isprintable()


def _micro(usd: float | Decimal | None) -> int | None:
    return None if usd is None else round(usd * MILLION)


def _find(model: str, provider: str | None) -> ModelInfo | None:
    """The model that is meant by the whole of this name. None without the package, too."""
    try:
        from genai_prices.data_snapshot import get_snapshot  # 0.3 s and 30 MB: only once a price is asked for
    except ImportError:
        return None
    seller, name = _sold(model.lower(), provider)
    try:
        _, found = get_snapshot().find_provider_model(name, None, seller, None)
    except LookupError:
        return None
    return found if any(_means(shorter, found) for shorter in _without_edition(name)) else None


def _sold(name: str, provider: str | None) -> tuple[str | None, str]:
    """Who sells a model, and its name there. `openrouter/anthropic/claude-…` tells; Bedrock's names have dots."""
    import re

    name = re.sub(r"\[\w+\]$", "", name)  # Claude Code 2.1 adds [1m] where it may use the long context
    if provider is not None:
        return provider, name.removeprefix(f"{provider.lower()}/")
    seller, slash, rest = name.partition("/")
    if slash:
        return seller, rest
    region, dot, _ = name.partition(".")
    return ("aws" if dot and region.replace("-", "").isalpha() else None), name


def _without_edition(name: str) -> Iterator[str]:
    import re

    yield name
    for mark in re.finditer("[-@:]", name):
        if re.fullmatch(EDITION, name[mark.start() :]):
            yield name[: mark.start()]


def _means(name: str, model: ModelInfo) -> bool:
    """Whether nothing in the name was skipped to match the model.

    genai-prices 0.2 matches many models by how a name begins, or by a part of it: `claude-opus-4-8-fast` would get the
    price of the model that is half as dear. A name that still matches when it loses a letter at an end says more.
    """
    return model.is_match(name) and not model.is_match(name[1:]) and not model.is_match(name[:-1])


def _rates(model: ModelInfo, at: float) -> Rates:
    """The lowest tier's rates at a time (epoch seconds)."""
    from datetime import UTC, datetime

    prices = model.get_prices(datetime.fromtimestamp(at, UTC))
    read, write = _lowest(prices.cache_read_mtok), _lowest(prices.cache_write_mtok)
    fresh = _lowest(prices.input_mtok)
    if write is None or fresh is None:
        write = fresh  # no price of its own: written as any input
    elif write < fresh:
        write += fresh  # OpenRouter's Gemini: the price of keeping it for five minutes, beside that of the input
    return Rates(fresh, _lowest(prices.output_mtok), fresh if read is None else read, write)


def _lowest(price: Decimal | TieredPrices | None) -> int | None:
    from decimal import Decimal

    return _micro(price if price is None or isinstance(price, Decimal) else price.base)
