"""One run of an agent, folded into a turn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphproof.base.text import MAX_TEXT_CHARS, truncate
from ralphproof.engine.agent import (
    THE_CONFIGURATION,
    Asked,
    Denied,
    Ended,
    Event,
    Limited,
    Said,
    Spent,
    Started,
    Todo,
    TodosChanged,
    ToolEnded,
    ToolStarted,
    Turn,
    Unparsed,
    Usage,
    build_turn,
)
from ralphproof.engine.sandbox import Exit

OK = Exit(0)
LATER = Limited("later", 99.0)


@pytest.mark.parametrize(
    ("events", "turn"),
    [
        pytest.param([], Turn(OK), id="silence"),
        pytest.param([Said("a"), Said("b")], Turn(OK, "a\n\nb"), id="all that was said, where no result is given"),
        pytest.param([Said("a"), Ended(True, "end")], Turn(OK, "end"), id="the result is the final message"),
        pytest.param(
            [Said("a"), Said("b"), Ended(True)], Turn(OK, "b"), id="the last words, where the result has none"
        ),
        pytest.param([Ended(True)], Turn(OK), id="a result and no word"),
        pytest.param([Said("a"), Ended(True, "")], Turn(OK), id="a final message that is empty, whatever came before"),
        pytest.param([Ended(True, "end"), Said("ps")], Turn(OK, "end"), id="words after the result are no result"),
        pytest.param([Ended(False, "x", "no")], Turn(OK, "x", "no"), id="its own error"),
        pytest.param([Ended(False)], Turn(OK, error="the agent reported an error"), id="an error without words"),
        pytest.param([Ended(False, "", "no"), Ended(True, "y")], Turn(OK, "y"), id="the last result wins"),
        pytest.param(
            [Started("s", "m", "1.2")], Turn(OK, session="s", model="m", version="1.2"), id="session and model"
        ),
        pytest.param([Started("--yolo", "m\x1b[2J", "9" * 500)], Turn(OK), id="names that are none"),
        pytest.param([Said(""), Said("a"), Said(""), Ended(True)], Turn(OK, "a"), id="nothing is not the last word"),
        pytest.param(
            [Spent(5), Spent(9, Usage(1, 2))], Turn(OK, micro_usd=9, usage=Usage(1, 2)), id="the last figure of cost"
        ),
        pytest.param([Spent(None, Usage(1))], Turn(OK, usage=Usage(1)), id="an unknown cost is not zero"),
        pytest.param([Limited("now"), LATER], Turn(OK, limited=LATER), id="the last limit wins"),
        pytest.param([LATER, ToolStarted("1", "Bash")], Turn(OK, tools=1), id="a limit that it got through"),
        pytest.param([ToolEnded("1", False), ToolEnded("2", True)], Turn(OK, errors=1), id="tools that failed"),
        pytest.param(
            [Denied("Bash", "no"), Denied("Write"), Asked("which?")],
            Turn(OK, denied=("Bash: no", "Write"), asked="which?"),
            id="what was denied, and what was asked of nobody",
        ),
        pytest.param(
            [Ended(False, "", "no key", THE_CONFIGURATION)], Turn(OK, error="no key", blame="config"), id="whose fault"
        ),
        pytest.param(
            [Spent(5, at_least=True, notional=True)], Turn(OK, micro_usd=5, at_least=True, notional=True), id="a bound"
        ),
        pytest.param(
            [ToolStarted("1", "Bash"), ToolEnded("1", True, "<promise>DONE</promise>"), ToolStarted("2", "Read")],
            Turn(OK, tools=2),
            id="tools are counted and their output is nobody's word",
        ),
        pytest.param(
            [TodosChanged((Todo("<promise>DONE</promise>", "done"),)), Unparsed("<promise>DONE</promise>", 23)],
            Turn(OK, unparsed=1),
            id="lists and noise are nobody's word",
        ),
    ],
)
def test_events_fold_into_a_turn(events: list[Event], turn: Turn) -> None:
    assert build_turn(events, OK) == turn


@pytest.mark.parametrize(
    ("turn", "errored", "empty"),
    [
        pytest.param(Turn(OK, "x"), False, False, id="well"),
        pytest.param(Turn(OK, " \n"), False, True, id="well, and no word"),
        pytest.param(Turn(OK, "x", "no"), True, False, id="its own error"),
        pytest.param(Turn(Exit(1), ""), True, False, id="a bad exit is not an empty reply"),
        pytest.param(Turn(Exit(1), "x"), True, False, id="a bad exit"),
        pytest.param(Turn(Exit(None, "lingered", 15), "x"), False, False, id="it said its result and only lingered"),
        pytest.param(Turn(Exit(0, "timeout"), "x"), True, False, id="ended by the clock"),
        pytest.param(Turn(Exit(None, signal=9), "x"), True, False, id="killed"),
        pytest.param(Turn(OK, "", limited=LATER), False, False, id="a limit is not an empty reply"),
    ],
)
def test_a_turn_knows_whether_it_went_wrong_or_said_nothing(turn: Turn, errored: bool, empty: bool) -> None:
    assert turn.errored is errored
    assert turn.empty is empty


def test_a_flood_of_words_is_bounded_and_its_end_is_kept() -> None:
    turn = build_turn([Said("x" * MAX_TEXT_CHARS), Said("y\n<promise>DONE</promise>")], OK)
    assert len(turn.text) < MAX_TEXT_CHARS + 100
    assert turn.text.endswith("\n<promise>DONE</promise>")
    assert turn.text.startswith("xxx")


@given(st.text(max_size=50), st.integers(1, 50))
def test_a_bounded_text_keeps_as_much_as_allowed_of_both_ends(text: str, chars: int) -> None:
    short = truncate(text, chars)
    if len(text) <= chars:
        assert short == text
    else:
        assert len(short) == chars + len("\n... [truncated]\n")
        assert short.startswith(text[: chars // 2])
        assert short.endswith(text[-(chars - chars // 2) :])


def test_usage_adds_up() -> None:
    assert Usage(1, 20, 300, 4000).total == 4321
