"""How a turn ended, in one line, and what it took."""

from __future__ import annotations

import pytest

from ralphproof.display.agent_output import (
    denials_line,
    format_price,
    format_short_duration,
    format_short_number,
    format_tokens,
    turn_line,
)
from ralphproof.display.terminal import EMOJI, TEXT
from ralphproof.engine.agent import MAX_DENIALS_KEPT, Spent, Turn, Usage
from ralphproof.engine.sandbox import Exit

WORKED = Turn(
    Exit(0, seconds=367.0), usage=Usage(350_000, 45_000, 850_000), micro_usd=5_760_000, tools=58, errors=4
)  # fmt: skip
LONG = Exit(0, seconds=367.0)
OVER = Exit(None, "timeout", 15, seconds=3600.0)


@pytest.mark.parametrize(
    ("reply", "line"),
    [
        pytest.param(
            WORKED,
            "✅ Complete (cost: $5.76, tokens: 1.2M in (850K cached) / 45K out, tools: 58, errors: 4, time: 6m7s)",
            id="with everything",
        ),
        pytest.param(Turn(LONG), "✅ Complete (cost: unknown, time: 6m7s)", id="a plain command"),
        pytest.param(
            Turn(LONG, micro_usd=0, tools=1),
            "✅ Complete (cost: $0.00, tools: 1, errors: 0, time: 6m7s)", id="no tokens",
        ),
        pytest.param(
            Turn(LONG, micro_usd=10_000, at_least=True, notional=True),
            "✅ Complete (cost: at least $0.01 (notional), time: 6m7s)", id="a lower bound",
        ),
        pytest.param(
            Turn(LONG, unparsed=2), "✅ Complete (cost: unknown, lines not understood: 2, time: 6m7s)", id="a dialect"
        ),
        pytest.param(
            Turn(Exit(0, seconds=70.0, paused_s=60.0)),
            "✅ Complete (cost: unknown, time: 1m10s, 1m0s of it suspended)", id="suspended",
        ),
        pytest.param(
            Turn(Exit(0, "lingered", seconds=2.0)), "✅ Complete (cost: unknown, time: 2.0s)", id="it lingered"
        ),
        pytest.param(
            Turn(LONG, error="overloaded"), "❌ Failed (cost: unknown, time: 6m7s): overloaded", id="its own word"
        ),
        pytest.param(
            Turn(Exit(3, seconds=1.0)), "❌ Failed (cost: unknown, time: 1.0s): the agent exited with code 3", id="code"
        ),
        pytest.param(
            Turn(OVER),
            "❌ Failed (cost: unknown, time: 1h0m): the agent was ended: its time was up (agent.timeoutSeconds)",
            id="time is up",
        ),
        pytest.param(
            Turn(Exit(None, "stopped", 15, 2.0), micro_usd=20_000),
            "❌ Stopped (cost: $0.02, time: 2.0s): the agent was ended on request", id="on request",
        ),
        pytest.param(
            Turn(Exit(None, "unstartable", error="no such file")),
            "❌ Failed: the agent could not be started: no such file", id="never ran",
        ),
    ],
)  # fmt: skip
def test_a_turn_ends_with_one_line(reply: Turn, line: str) -> None:
    assert turn_line(reply, EMOJI)[0] == line
    plain = line.replace("✅", "[OK]").replace("❌", "[ERR]")
    assert turn_line(reply, TEXT)[0] == plain


@pytest.mark.parametrize(
    ("spent", "words"),
    [
        (Spent(None), "unknown"), (Spent(None, notional=True), "unknown"), (Spent(0), "$0.00"), (Spent(500), "$0.0005"),
        (Spent(1_000_000, None, True), "at least $1.00"), (Spent(1_000_000, notional=True), "$1.00 (notional)"),
    ],
)  # fmt: skip
def test_a_price_says_how_far_it_is_known(spent: Spent, words: str) -> None:
    assert format_price(spent) == words


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        (Usage(), "0 in / 0 out"), (Usage(999, 1), "999 in / 1 out"),
        (Usage(100, 5, 900), "1K in (900 cached) / 5 out"),
        (Usage(100, 5, 0, 900), "1K in / 5 out"), (Usage(1, 2, 3, 4), "8 in (3 cached) / 2 out"),
    ],
)  # fmt: skip
def test_input_is_all_that_went_in(usage: Usage, words: str) -> None:
    assert format_tokens(usage) == words


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "0"), (999, "999"), (1000, "1K"), (1234, "1.2K"), (9949, "9.9K"), (9950, "10K"), (45_000, "45K"),
     (850_000, "850K"), (999_499, "999K"), (999_500, "1M"), (1_200_000, "1.2M"), (1_000_000_000, "1B")],
)  # fmt: skip
def test_a_count_is_short(number: int, words: str) -> None:
    assert format_short_number(number) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0, "0.0s"), (0.44, "0.4s"), (9.94, "9.9s"), (9.96, "10s"), (59.4, "59s"), (59.6, "1m0s"), (367.0, "6m7s"),
     (3599.6, "1h0m"), (7380.0, "2h3m")],
)  # fmt: skip
def test_a_time_is_short(seconds: float, words: str) -> None:
    assert format_short_duration(seconds) == words


WAY_ON = "--sandbox lets it do anything inside one; or allow the tool in the agent's own settings, or --no-sandbox"


@pytest.mark.parametrize(
    ("denied", "words"),
    [
        (("Bash: rm x",), "1 tool call was denied (Bash: rm x)"),
        (("Bash: a", "Bash: a", "Write"), "3 tool calls were denied (Bash: a; Write)"),
        (("a", "b", "c", "d"), "4 tool calls were denied (a; b; c; …)"),
        (("a",) * MAX_DENIALS_KEPT, f"{MAX_DENIALS_KEPT} or more tool calls were denied (a)"),
        (("x" * 500,), f"1 tool call was denied ({'x' * 99}…)"),
    ],
)
def test_what_was_denied_comes_with_the_way_on(denied: tuple[str, ...], words: str) -> None:
    assert denials_line(Turn(Exit(0), denied=denied), EMOJI)[0] == f"🚫 {words}: {WAY_ON}"
