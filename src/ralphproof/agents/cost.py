"""The cost of a turn: token prices, the running total of a stream, and savings by cheaper models."""

from __future__ import annotations

import time

from ralphproof.agents.adapter import ReaderContext
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.engine.events import Spent, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from decimal import Decimal

    from genai_prices.types import ModelInfo, TieredPrices

    from ralphproof.agents.selection import SelectedAgent
    from ralphproof.engine.iteration import History
    from ralphproof.settings.keys import PriceSettings, Settings


# Savings by cheaper models: a run's tokens at the price of the dearest model of its settings.


# Messages whose usage may still grow, and as many before them; older ones are counted and forgotten.
MAX_OPEN_MESSAGES = 500
MAX_MODELS = 100  # that one turn uses; the cost of more is unknown


class UsageTally:
    """The running sum of a stream's usage; emits `Spent` when it has grown and all output so far was read.

    The agent's own account at the end replaces it. If the price of one model is unknown, the whole cost is unknown.
    """

    def __init__(self, context: ReaderContext) -> None:
        self.notional = False
        self._context = context
        self._by_model: dict[str | None, list[int]] = {}
        self._messages: dict[str, tuple[int, ...]] = {}
        self._older: dict[str, tuple[int, ...]] = {}
        self._grown = False
        self._account = Spent(0, Usage())  # the agent's own, of all that it had used when it gave it
        context.on_idle(self.flush)

    def message(self, name: str, model: str | None, counts: tuple[int, int, int, int]) -> None:
        """The usage of one message as it now stands: it is reported in several lines and counted once.

        `counts` are those of `Usage`, in its order: a stream may hold a million of them.
        """
        before = self._messages.get(name) or self._older.get(name)
        if before is None:  # as a rule
            if len(self._messages) >= MAX_OPEN_MESSAGES:
                self._older, self._messages = self._messages, {}
            self._messages[name] = counts
            self._add(model, counts)
        elif before != counts and (now := tuple(map(max, before, counts))) != before:
            self._messages[name] = now
            self._add(model, tuple(new - old for new, old in zip(now, before, strict=True)))

    def add(self, model: str | None, usage: Usage) -> None:
        """Add usage that is reported once."""
        self._add(model, _usage_counts(usage))

    def _add(self, model: str | None, counts: tuple[int, ...]) -> None:
        sums = self._by_model.get(model)
        if sums is None and len(self._by_model) >= MAX_MODELS:
            model, sums = None, self._by_model.get(None)
        if sums is None:
            self._by_model[model] = list(counts)
        else:
            for place in range(4):
                sums[place] += counts[place]
        self._grown = True

    def flush(self) -> None:
        """Emit the sum if it has grown."""
        if self._grown:
            self._grown = False
            self._context.emit(self.spent(at_least=True))

    def spent(self, at_least: bool) -> Spent:
        """The agent's last account, if it gave one, plus what was counted since."""
        total, costs = self._account.usage or Usage(), [self._account.micro_usd]
        for model, counts in self._by_model.items():
            usage = Usage(*counts)
            total = total.plus(usage)
            costs.append(self._context.cost(model, usage))
        known = [cost for cost in costs if cost is not None]
        return Spent(sum(known) if len(known) == len(costs) else None, total, at_least, self.notional)

    def close(self, usage: Usage | None = None, at_least: bool = False) -> None:
        """Finish without an account of money from the agent: price its tokens, all in one model or as they were
        counted.
        """
        self._grown = False
        if usage is None:
            counted = self._by_model or self._account.usage != Usage()
            self._context.emit(self.spent(at_least) if counted else Spent(None, notional=self.notional))
            return
        models = list(self._by_model) or [self._context.model]
        own = self._own(usage)
        cost = self._context.cost(models[0], own) if len(models) == 1 else self.spent(at_least=False).micro_usd
        self._context.emit(Spent(cost, own, at_least, self.notional))

    def settle(self, micro_usd: int | None, usage: Usage | None) -> None:
        """Take the agent's own account of its session, which includes earlier turns where it resumed one."""
        self._grown = False
        seen = self.spent(at_least=True).micro_usd or 0
        billed = self._context.billed.micro_usd or 0
        if micro_usd is not None and micro_usd - billed >= seen / 2:  # else it does not hold what was billed before
            micro_usd -= billed
        self._account = Spent(micro_usd, None if usage is None else self._own(usage), notional=self.notional)
        self._by_model.clear()
        self._context.emit(self._account)

    def _own(self, usage: Usage) -> Usage:
        """This turn's part of a session's usage. A sum smaller than what was billed before does not include it."""
        billed = self._context.billed.usage or Usage()
        own = usage.less(billed)
        return own if min(_usage_counts(own)) >= 0 else usage


def _usage_counts(usage: Usage) -> tuple[int, int, int, int]:
    return usage.input, usage.output, usage.cache_read, usage.cache_write


MILLION = 1_000_000
MAX_NAME_CHARS = 200  # a longer name is no model's
PRICE_CACHE_S = 60.0  # prices may change with the hour; a stream asks a thousand times a second
MAX_CACHED_NAMES = 256  # looked up by one list; what an agent prints is not trusted to end

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
        self._found: dict[tuple[str, str | None], ModelInfo | None] = {}
        self._fresh: dict[tuple[str, str], tuple[float, TokenRates | None]] = {}

    def cost(self, model: str | None, usage: Usage, provider: str | None = None) -> int | None:
        """Micro-dollars for a turn's tokens at today's prices. None where the model's prices are unknown."""
        rates = self.rates(model, provider)
        return None if rates is None else rates.cost(usage)

    def rates(self, model: str | None, provider: str | None = None) -> TokenRates | None:
        """The user's rates by the longest matching name prefix, else the provider's."""
        if not isinstance(model, str) or not _is_model_name(model):
            return None
        asked, now = (model, str(provider)), self._clock()
        known_at, known = self._fresh.get(asked, (float("-inf"), None))
        if 0 <= now - known_at < PRICE_CACHE_S:
            return known
        rates = self._rates(model, provider, now)
        if len(self._fresh) < MAX_CACHED_NAMES or asked in self._fresh:
            self._fresh[asked] = now, rates
        return rates

    def _rates(self, model: str, provider: str | None, now: float) -> TokenRates | None:
        mine = max((name for name in self._own if model.startswith(name)), key=len, default=None)
        if mine is not None:
            return self._own[mine]
        found = self._find(model, provider)
        return None if found is None else _current_rates(found, now)

    def _find(self, model: str, provider: str | None) -> ModelInfo | None:
        if not _is_model_name(model) or not (provider is None or _is_model_name(provider)):
            return None
        asked = (model, provider)
        if asked not in self._found:
            if len(self._found) >= MAX_CACHED_NAMES:
                return None
            self._found[asked] = _find_model(model, provider)
        return self._found[asked]


def _is_model_name(name: object) -> bool:
    return isinstance(name, str) and len(name) <= MAX_NAME_CHARS and name.isprintable()


def _to_micro_usd(usd: float | Decimal | None) -> int | None:
    return None if usd is None else round(usd * MILLION)


def _find_model(model: str, provider: str | None) -> ModelInfo | None:
    """The model with exactly this name. None without the package, too."""
    try:
        from genai_prices.data_snapshot import get_snapshot  # 0.3 s and 30 MB: only once a price is asked for
    except ImportError:
        return None
    seller, name = _split_provider(model.lower(), provider)
    try:
        _, found = get_snapshot().find_provider_model(name, None, seller, None)
    except LookupError:
        return None
    return found if any(_is_exact_match(shorter, found) for shorter in _without_edition(name)) else None


def _split_provider(name: str, provider: str | None) -> tuple[str | None, str]:
    """The provider of a model, and the model's name there. `openrouter/anthropic/claude-…` names it; Bedrock's names
    have dots.
    """
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
    from datetime import UTC, datetime

    prices = model.get_prices(datetime.fromtimestamp(at, UTC))
    read, write = _lowest_tier(prices.cache_read_mtok), _lowest_tier(prices.cache_write_mtok)
    fresh = _lowest_tier(prices.input_mtok)
    if write is None or fresh is None:
        write = fresh  # no price of its own: written as any input
    elif write < fresh:
        write += fresh  # OpenRouter's Gemini: the price of keeping it for five minutes, beside that of the input
    return TokenRates(fresh, _lowest_tier(prices.output_mtok), fresh if read is None else read, write)


def _lowest_tier(price: Decimal | TieredPrices | None) -> int | None:
    from decimal import Decimal

    return _to_micro_usd(price if price is None or isinstance(price, Decimal) else price.base)


def _token_rates(price: PriceSettings) -> TokenRates:
    """What the cache has no price of its own for costs as much as any input."""
    read, write = (price.input if one is None else one for one in (price.cache_read, price.cache_write))
    return TokenRates.usd(price.input, price.output, read, write)


def build_price_list(prices: tuple[tuple[str, PriceSettings], ...]) -> PriceList:
    """The user's own prices, then the known ones."""

    return PriceList({name: _token_rates(one) for name, one in prices})


def savings_calculator(settings: Settings, agents: tuple[SelectedAgent, ...]) -> Callable[[History], int | None]:
    """Micro-dollars that cheaper models saved in a run, from its history; None where that cannot be known.

    A ladder is compared with its last model. Where models rotate, the saving is against the dearest of them.
    """
    places = len(agents) - len(settings.agent.fallbacks)
    models = {one.model for one in agents[:places] if one.model}
    dearest = set(settings.agent.ladder[-1:]) or (models if settings.agent.rotate else set())
    return lambda history: _estimate_savings(history, dearest, settings)


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
        dear = cost(model, turn.usage)
        if dear is None:
            return None
        saved += dear - turn.micro_usd if turn.model != model else 0
    return max(0, saved)
