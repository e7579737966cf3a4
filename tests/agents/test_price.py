"""Tokens become money: exact figures, the right model's price, and unknown where nobody knows."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphproof.agents.cost import MAX_CACHED_NAMES, MILLION, PriceList, TokenRates
from ralphproof.engine.agent import Usage

K = 1_000


def on(year: int, month: int, day: int, hour: int = 12) -> PriceList:
    """The list as it is on a day, so that a price which changes later changes no test."""
    return PriceList(clock=lambda: datetime(year, month, day, hour, tzinfo=UTC).timestamp())


# model, (input, output, cache read, cache write) in thousands, micro-dollars
BY_HAND = [
    # 140k × 5 + 50k × 25 + 850k × 0.50 + 10k × 6.25 = 0.70 + 1.25 + 0.425 + 0.0625
    ("claude-opus-4-5", (140, 50, 850, 10), 2_437_500),
    ("claude-opus-4-5-20251101", (140, 50, 850, 10), 2_437_500),
    ("claude-opus-4-5[1m]", (140, 50, 850, 10), 2_437_500),
    # The lowest tier, although the turn read more than 200k: 1000k × 3 + 100k × 15 + 2000k × 0.30 + 400k × 3.75
    # = 3.00 + 1.50 + 0.60 + 1.50
    ("claude-sonnet-4-5-20250929", (1000, 100, 2000, 400), 6_600_000),
    ("openrouter/anthropic/claude-sonnet-4.5", (1000, 100, 2000, 400), 6_600_000),
    # Bedrock's regions cost a tenth more: 3.30 + 1.65 + 0.66 + 1.65
    ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", (1000, 100, 2000, 400), 7_260_000),
    ("amazon-bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0", (1000, 100, 2000, 400), 7_260_000),
    # A write costs what input costs where it has no price: 200k × 1.25 + 30k × 10 + 800k × 0.125 + 40k × 1.25
    # = 0.25 + 0.30 + 0.10 + 0.05
    ("gpt-5-codex", (200, 30, 800, 40), 700_000),
    ("openai/gpt-5-codex", (200, 30, 800, 40), 700_000),
    # 300k × 1.25 + 20k × 10 + 1000k × 0.125 + 8k × 1.25 = 0.375 + 0.20 + 0.125 + 0.01
    ("gemini-2.5-pro", (300, 20, 1000, 8), 710_000),
    # There a write's price (0.375) is for keeping it, beside the input's: 8k × (1.25 + 0.375) = 0.013, not 0.003
    ("openrouter/google/gemini-2.5-pro", (300, 20, 1000, 8), 713_000),
    # Neither kind of cache has a price: (100k + 50k + 25k) × 2 + 10k × 6 = 0.35 + 0.06
    ("mistral-large-latest", (100, 10, 50, 25), 410_000),
]


@pytest.mark.parametrize(("model", "thousands", "micro_usd"), BY_HAND)
def test_a_turn_costs_what_a_hand_sum_says(model: str, thousands: tuple[int, ...], micro_usd: int) -> None:
    assert on(2026, 11, 15).cost(model, Usage(*(count * K for count in thousands))) == micro_usd


@pytest.mark.parametrize(
    ("model", "micro_usd"),
    [
        ("claude-sonnet-4-5", 3_000_000),
        ("openrouter/anthropic/claude-sonnet-4.5", 3_000_000),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", 3_300_000),
        ("a-proxy-of-mine/claude-sonnet-4-5", None),
        ("anthropic/gpt-5", None),
    ],
)
def test_the_provider_decides_whose_price_it_is(model: str, micro_usd: int | None) -> None:
    assert on(2026, 11, 15).cost(model, Usage(input=MILLION)) == micro_usd


@pytest.mark.parametrize(
    "model",
    [
        "claude-opus-5-5", "claude-sonnet-5-5", "gpt-5.5-codex", "gemini-2.5-pro", "us.anthropic.claude-opus-5-5-v1:0",
        "openrouter/anthropic/claude-opus-5.5", "claude-opus-4-5@20251101", "claude-sonnet-4-20250514",
        "claude-3-7-sonnet-latest", "gemini-2.5-pro-preview-05-06",
        "gemini-2.5-pro-preview-06-2025", "gemini-2.0-flash-001", "gpt-5-nano-2025-08-07",
        "Claude-3-7-Sonnet-Latest", "openai.gpt-oss-120b-1:0", "anthropic/claude-opus-5-5", "azure/gpt-5.5",
        "vertex_ai/claude-opus-4-5@20251101",
    ],
)  # fmt: skip
def test_a_model_is_found_by_the_name_that_its_agent_prints(model: str) -> None:
    rates = on(2026, 11, 15).rates(model)
    assert rates is not None
    assert all((rates.input, rates.output, rates.cache_read, rates.cache_write))


# The library alone prices some of these as the model whose name they begin with or contain.
LOOKALIKES = [
    "claude-opus-4-8-fast", "claude-opus-4-10", "claude-sonnet-4-5-mini", "claude-sonnet-4-5.1", "gpt-5-nano-plus",
    "gemini-2.5-pro-clone", "gemini-3.6-flash-lite", "deepseek-chat-v4", "kimi-k2.5-thinking",
    "google/not-claude-opus-4-5", "google/claude-opus-4-5-of-mine", "my-claude-opus-4-5", "gpt-5.5-codex-of-mine",
]  # fmt: skip
STRANGERS = [
    "fake-model", "<synthetic>", "claude", "opus", "claude-opus-99", "gpt-99", "auto", "default", "", " ", "/", "a/",
    "/gpt-5", "openrouter/", "nobody/claude-opus-4-5", ".", "..", "-", "[1m]", "us.anthropic.", "qwen-of-mine",
]  # fmt: skip


@pytest.mark.parametrize("model", LOOKALIKES + STRANGERS)
def test_a_model_that_nobody_lists_has_no_price(model: str) -> None:
    assert on(2026, 11, 15).cost(model, Usage(input=1)) is None


ABSURD: list[Any] = [
    None, 7, 1.5, True, b"gpt-5", ["gpt-5"], {"gpt-5": 1}, object(), "gpt-5" * 2 * MILLION, "a/" * 5 * MILLION,
    "gpt-5\0", "gpt-5\n", "\x1b[31mgpt-5\x1b[0m", "\ud800", "\u202egpt-5", "-" * 200, "-0000" * 40, "." * 200,
    "gemini-2.5-pro" + "-0000-00-00" * 16 + "x",
]  # fmt: skip


@pytest.mark.parametrize("name", ABSURD, ids=lambda name: repr(name)[:20])
def test_an_absurd_name_of_a_model_is_unknown(name: Any) -> None:
    prices = PriceList({"mine": TokenRates.usd(1, 2)})
    assert prices.cost(name, Usage(input=1)) is None


def test_a_model_without_a_listed_price_is_not_free() -> None:
    prices = on(2026, 11, 15)
    assert prices.cost("openai/text-embedding-3-small", Usage(input=MILLION)) == 20_000
    assert prices.cost("openai/text-embedding-3-small", Usage(input=MILLION, output=1)) is None
    assert prices.cost("openai/whisper-1", Usage(input=1)) is None


def test_a_price_is_that_of_the_day() -> None:
    usage = Usage(input=MILLION, output=MILLION)
    assert on(2025, 6, 9).cost("o3", usage) == 50_000_000
    assert on(2025, 6, 11).cost("o3", usage) == 10_000_000


def test_a_list_in_use_sees_a_price_change() -> None:
    days = iter([datetime(2025, 6, 9, tzinfo=UTC), datetime(2025, 6, 11, tzinfo=UTC)])
    prices = PriceList(clock=lambda: next(days).timestamp())
    assert [prices.cost("o3", Usage(input=MILLION)) for _ in range(2)] == [10_000_000, 2_000_000]


OWN = {"gpt-5": TokenRates.usd(1, 2), "gpt-5.5-codex": TokenRates.usd(3, 4), "local/": TokenRates.usd(0, 0, 0, 0)}


@pytest.mark.parametrize(
    ("model", "micro_usd"),
    [
        ("gpt-5", 1_000_000),  # listed as well: the user's price wins
        ("gpt-5.5-codex", 3_000_000),  # exact
        ("gpt-5.5", 1_000_000),  # by how it begins
        ("gpt-5.5-codex-max", 3_000_000),  # by the longest beginning
        ("local/llama", 0),
        ("o3", 2_000_000),  # not the user's: as listed
        ("gpt", None),  # shorter than any of the user's names
    ],
)
def test_the_users_prices_win(model: str, micro_usd: int | None) -> None:
    assert PriceList(OWN).cost(model, Usage(input=MILLION)) == micro_usd


def test_a_kind_of_tokens_without_a_price_makes_the_cost_unknown_only_if_it_was_used() -> None:
    prices = PriceList(OWN)
    assert prices.cost("gpt-5", Usage(10, 20)) == 50
    assert prices.cost("gpt-5", Usage(10, 20, cache_read=1)) is None
    assert prices.cost("gpt-5", Usage(10, 20, cache_write=1)) is None
    assert TokenRates().cost(Usage(output=1)) is None
    assert TokenRates().cost(Usage()) == 0


@pytest.mark.parametrize("usage", [Usage(-1), Usage(0, -1), Usage(9, 9, -1), Usage(9, 9, 9, -1)])
def test_a_negative_count_is_unknown_and_lowers_no_bill(usage: Usage) -> None:
    assert TokenRates(1, 1, 1, 1).cost(usage) is None


@pytest.mark.parametrize(
    ("rates", "usage", "micro_usd"),
    [
        (TokenRates.usd(0.1), Usage(5), 1),  # 0.5 rounds up
        (TokenRates.usd(0.1), Usage(4), 0),  # 0.4 rounds down
        (
            TokenRates.usd(0.1, 0.3, 0.1, 0.2),
            Usage(2, 1, 1, 1),
            1,
        ),  # 0.2 + 0.3 + 0.1 + 0.2 = 0.8: one rounding, not four
        (TokenRates.usd(0.1, 0.1, 0.1, 0.1), Usage(1, 1, 1, 1), 0),  # 0.4
        (TokenRates.usd(0.07), Usage(100_000_000), 7_000_000),  # 0.07 is no binary fraction
        (
            TokenRates.usd(2.01),
            Usage(100_000_000),
            201_000_000,
        ),  # nor is 2.01, and a million of it is 2009999.9999999998
        (TokenRates.usd(3), Usage(10**30 + 1), 3 * 10**30 + 3),
        (TokenRates.usd(1.25, 10), Usage(2**70, 2**70), 2**70 + 2**68 + 10 * 2**70),
    ],
)
def test_the_arithmetic_is_exact_and_rounds_once(rates: TokenRates, usage: Usage, micro_usd: int) -> None:
    assert rates.cost(usage) == micro_usd


counts = st.integers(0, 10**15)
usages = st.builds(Usage, counts, counts, counts, counts)
prices_per_million = st.integers(0, 10**9)
all_rates = st.builds(TokenRates, prices_per_million, prices_per_million, prices_per_million, prices_per_million)


def known(rates: TokenRates, usage: Usage) -> int:
    cost = rates.cost(usage)
    assert cost is not None
    return cost


@given(all_rates, usages, usages)
def test_costs_add_up_but_for_one_rounding_and_more_tokens_never_cost_less(
    rates: TokenRates, one: Usage, other: Usage
) -> None:
    both, apart = known(rates, one.plus(other)), known(rates, one) + known(rates, other)
    assert abs(both - apart) <= 1
    assert both >= max(known(rates, one), known(rates, other))


@given(all_rates, usages)
def test_a_million_times_the_tokens_costs_exactly_the_rates(rates: TokenRates, usage: Usage) -> None:
    times = Usage(*(MILLION * count for count in (usage.input, usage.output, usage.cache_read, usage.cache_write)))
    pairs = [
        (usage.input, rates.input), (usage.output, rates.output),
        (usage.cache_read, rates.cache_read), (usage.cache_write, rates.cache_write),
    ]  # fmt: skip
    assert rates.cost(times) == sum(count * (rate or 0) for count, rate in pairs)


@given(st.text(max_size=40))
def test_no_name_makes_it_raise(model: str) -> None:
    cost = PriceList().cost(model, Usage(1, 1, 1, 1))
    assert cost is None or cost >= 0


def test_names_without_end_are_not_all_remembered() -> None:
    prices = PriceList()
    assert prices.cost("o3", Usage(input=1)) == 2
    assert [prices.cost(f"gpt-{n}-x", Usage(input=1)) for n in range(MAX_CACHED_NAMES)] == [None] * MAX_CACHED_NAMES
    assert prices.cost("gpt-5", Usage(input=1)) is None
    assert prices.cost("o3", Usage(input=1)) == 2


def ran(code: str) -> str:
    """What a fresh interpreter prints."""
    head = "import sys\nfrom ralphproof.agents.cost import *\nfrom ralphproof.engine.agent import Usage\n"
    done = subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_list_is_loaded_only_once_a_price_is_asked_for_that_the_user_does_not_give() -> None:
    asked = "print(PriceList({'mine': TokenRates.usd(2)}).cost('mine', Usage(5)), 'genai_prices' in sys.modules)"
    assert ran(asked) == "10 False"
    assert ran("PriceList().cost('x', Usage(1)); print('genai_prices' in sys.modules)") == "True"


def test_a_name_that_no_model_can_have_loads_nothing() -> None:
    tried = "[PriceList().cost(name, Usage(1)) for name in ('gpt-5\\n', 'gpt-5' * 2_000_000, None, 7)]"
    assert ran(f"print({tried}, 'genai_prices' in sys.modules)") == "[None, None, None, None] False"


def test_without_the_package_a_price_is_unknown() -> None:
    gone = "sys.modules['genai_prices'] = None\n"
    assert ran(gone + "print(PriceList({'mine': TokenRates.usd(2)}).cost('mine', Usage(5)))") == "10"
    assert ran(gone + "print(PriceList().cost('gpt-5', Usage(5)))") == "None"


def test_nothing_is_fetched() -> None:
    watch = """
import threading
seen = []
sys.addaudithook(lambda name, args: seen.append(name) if name.startswith(("socket.", "urllib.", "http.")) else None)
costs = [PriceList().cost(name, Usage(1_000_000)) for name in ("gpt-5", "unknown", "openrouter/x")]
print(costs, [name for name in seen if name != "socket.__new__"], threading.active_count())
"""
    assert ran(watch) == "[1250000, None, None] [] 1"
