"""What an agent does, as lines."""

from __future__ import annotations

import re
import time

import pytest

from ralphproof.display.agent_output import MAX_RUNNING_CALLS, MAX_TODOS, EventFormatter
from ralphproof.display.terminal import Style
from ralphproof.engine.agent import (
    Asked,
    Denied,
    Ended,
    Event,
    Limited,
    Progress,
    Spent,
    Started,
    Todo,
    TodosChanged,
    ToolEnded,
    ToolStarted,
    Unparsed,
)
from tests.display.watched_console import zone

EMOJI = Style(emoji=True)
ORDERS = "\x1b]52;c;cHduZWQ=\x07\x1b[2J\x1b]0;title\x1b\\\x9b2J\r\n\u202e"


def shown(*events: Event, style: Style = EMOJI) -> list[str]:
    """The lines of these events, without their colours."""
    formatter = EventFormatter(style, lambda: 0.0)
    return [text for event in events for text, _ in formatter.lines(event)]


READ, GREP = ToolStarted("1", "Read", "/a.py"), ToolStarted("2", "Grep", "x")


@pytest.mark.parametrize(
    ("events", "lines"),
    [
        pytest.param(
            (READ, ToolEnded("1", True, "x\ny", 2, 3)),
            ["⏺ Read(/a.py)", "✅ Result ← Read (2 lines, 3 chars)", "  ⎿  x", "     y"], id="one after the other",
        ),
        pytest.param(
            (READ, GREP, ToolEnded("1", True, "x", 1, 1), ToolEnded("2", False, "y", 1, 1)),
            ["⏺ Read(/a.py)", "⏺ Grep(x)", "✅ Result ← Read(/a.py) (1 line, 1 char)", "  ⎿  x",
             "❌ Error ← Grep(x) (1 line, 1 char)", "  ⎿  y"], id="both at once, in order",
        ),
        pytest.param(
            (READ, GREP, ToolEnded("2", True), ToolEnded("1", True)),
            ["⏺ Read(/a.py)", "⏺ Grep(x)", "✅ Result ← Grep (no output)", "✅ Result ← Read(/a.py) (no output)"],
            id="both at once, the other way round",
        ),
        pytest.param(
            (READ, Spent(1), Ended(True), Unparsed("", 0), ToolEnded("1", True)),
            ["⏺ Read(/a.py)", "✅ Result ← Read (no output)"], id="what is not shown does not come between",
        ),
        pytest.param(
            (READ, Progress("still at it"), ToolEnded("1", True)),
            ["⏺ Read(/a.py)", "· still at it", "✅ Result ← Read(/a.py) (no output)"], id="what is shown does",
        ),
        pytest.param((ToolEnded("9", True, "x"),), ["✅ Result (1 line, 1 char)", "  ⎿  x"], id="of an unknown call"),
        pytest.param(
            (READ, ToolEnded("1", True), ToolEnded("1", True)),
            ["⏺ Read(/a.py)", "✅ Result ← Read (no output)", "✅ Result (no output)"], id="ended twice",
        ),
        pytest.param(
            (READ, ToolStarted("1", "Write", "/b"), ToolEnded("1", True)),
            ["⏺ Read(/a.py)", "⏺ Write(/b)", "✅ Result ← Write (no output)"], id="an id that is used again",
        ),
        pytest.param((ToolStarted("1", "List"),), ["⏺ List"], id="no argument"),
    ],
)  # fmt: skip
def test_a_result_names_the_call_that_it_belongs_to(events: tuple[Event, ...], lines: list[str]) -> None:
    assert shown(*events) == lines


OUTPUT = "\n".join(f"line {number}" for number in range(1, 46))


@pytest.mark.parametrize(
    ("lines", "chars", "expected"),
    [
        pytest.param(1, 1000, ["  ⎿  line 1"], id="one line: the head says how many there are"),
        pytest.param(2, 1000, ["  ⎿  line 1", "     … 43 more lines", "     line 45"], id="two lines"),
        pytest.param(3, 1000, ["  ⎿  line 1", "     line 2", "     … 42 more lines", "     line 45"], id="three lines"),
        pytest.param(44, 1000, 45, id="one line too many"),
        pytest.param(45, 1000, 45, id="all lines"),
        pytest.param(45, len(OUTPUT), 45, id="all characters"),
        pytest.param(10, 10, ["  ⎿  line …", "     … 43 more lines", "     …ne 45"], id="ten characters"),
        pytest.param(1, 3, ["  ⎿  lin…"], id="three characters"),
    ],
)
def test_output_is_shown_up_to_its_limits_with_a_sign_of_what_is_cut(
    lines: int, chars: int, expected: list[str] | int
) -> None:
    style = Style(emoji=True, output_lines=lines, output_chars=chars)
    head, *rest = shown(ToolEnded("1", True, OUTPUT, 45, len(OUTPUT)), style=style)
    assert head == f"✅ Result (45 lines, {len(OUTPUT)} chars)"
    if isinstance(expected, int):
        assert len(rest) == expected
    else:
        assert rest == expected


@pytest.mark.parametrize(
    ("event", "lines"),
    [
        pytest.param(ToolEnded("1", True, "a\n", 2, 2), ["✅ Result (2 lines, 2 chars)", "  ⎿  a"], id="a blank line"),
        pytest.param(
            ToolEnded("1", True, "a", 9, 90), ["✅ Result (9 lines, 90 chars)", "  ⎿  a", "     … 8 more lines"],
            id="cut before it came",
        ),
        pytest.param(ToolEnded("1", True, " \n\t"), ["✅ Result (2 lines, 3 chars)"], id="nothing to see"),
        pytest.param(
            ToolEnded("1", False, "a\nb"), ["❌ Error (2 lines, 3 chars)", "  ⎿  a", "     b"], id="counted here"
        ),
    ],
)  # fmt: skip
def test_no_sign_stands_where_nothing_is_cut(event: ToolEnded, lines: list[str]) -> None:
    assert shown(event) == lines


A, B, C = Todo("Read", "done"), Todo("Edit", "active"), Todo("Test", "pending")


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        pytest.param(
            [(A, B, C)],
            ["", "📋 Todo List", "  ✅ Read", "  🔄 Edit ← ACTIVE", "  ⏸️ Test", "  📊 Progress: 1/3 (33%)", ""],
            id="three",
        ),
        pytest.param(
            [(A,), (A,)], ["", "📋 Todo List", "  ✅ Read", "  📊 Progress: 1/1 (100%)", ""], id="the same again"
        ),
        pytest.param(
            [(A,), (A, C)],
            ["", "📋 Todo List", "  ✅ Read", "  📊 Progress: 1/1 (100%)", "",
             "", "📋 Todo List", "  ✅ Read", "  ⏸️ Test", "  📊 Progress: 1/2 (50%)", ""], id="one more",
        ),
        pytest.param([()], [], id="nothing"),
        pytest.param(
            [(C,), ()],
            ["", "📋 Todo List", "  ⏸️ Test", "  📊 Progress: 0/1 (0%)", "", "", "📋 Todo List (empty)", ""],
            id="emptied",
        ),
        pytest.param(
            [(Todo("x", "odd"),)], ["", "📋 Todo List", "  ⏸️ x", "  📊 Progress: 0/1 (0%)", ""], id="an unknown state"
        ),
        pytest.param(
            [(Todo("a\nb" + ORDERS, "done"),)],
            ["", "📋 Todo List", "  ✅ a b", "  📊 Progress: 1/1 (100%)", ""], id="hostile",
        ),
    ],
)  # fmt: skip
def test_the_list_of_things_to_do_is_shown_when_it_changes(changes: list[tuple[Todo, ...]], lines: list[str]) -> None:
    assert shown(*map(TodosChanged, changes)) == lines


def test_a_list_without_end_is_shown_in_part_and_never_called_finished_too_early() -> None:
    items = (*(Todo("x", "done") for _ in range(9_999)), Todo("last", "active"))
    lines = shown(TodosChanged(items))
    assert len(lines) == MAX_TODOS + 5
    assert lines[-3:-1] == [f"  … {10_000 - MAX_TODOS} more", "  📊 Progress: 9999/10000 (99%)"]


@pytest.mark.parametrize(
    ("event", "emoji", "plain"),
    [
        (Denied("Bash", "rm x"), "🚫 Denied: Bash (rm x)", "[!] Denied: Bash (rm x)"),
        (Denied("Bash"), "🚫 Denied: Bash", "[!] Denied: Bash"),
        (Asked("Which?"), "❓ Asked, and nobody is there to answer: Which?",
         "[?] Asked, and nobody is there to answer: Which?"),
        (Progress("retry 2 of 10"), "· retry 2 of 10", "- retry 2 of 10"),
        (Limited("slow down"), "⏳ The service refuses for now: slow down",
         "[!] The service refuses for now: slow down"),
        (Limited("slow down", 7200.0), "⏳ The service refuses for now: slow down (until 03:00 CET)",
         "[!] The service refuses for now: slow down (until 03:00 CET)"),
        (Started("s1", "opus", "2.1"), "· model opus, version 2.1, session s1",
         "- model opus, version 2.1, session s1"),
        (Started(model="opus"), "· model opus", "- model opus"),
    ],
)  # fmt: skip
def test_what_holds_an_agent_up_is_one_short_line(event: Event, emoji: str, plain: str) -> None:
    with zone("CET-1"):
        assert shown(event) == [emoji]
        assert shown(event, style=Style()) == [plain]


@pytest.mark.parametrize("event", [Started(), Progress(""), Progress(" \n"), Spent(5), Ended(True), Unparsed("x", 1)])
def test_what_says_nothing_shows_nothing(event: Event) -> None:
    assert shown(event) == []


def test_what_is_told_again_and_again_is_one_line_until_something_else_happens() -> None:
    retry = Progress("retry")
    assert shown(retry, retry, READ, retry, retry) == ["· retry", "⏺ Read(/a.py)", "· retry"]


def test_another_turn_begins_afresh() -> None:
    formatter = EventFormatter(Style(emoji=True))
    for event in (READ, TodosChanged((A,))):
        formatter.lines(event)
    formatter.clear()
    assert formatter.running.longest() is None
    assert formatter.lines(ToolEnded("1", True)) == (("✅ Result (no output)", "\x1b[32m"),)
    assert len(formatter.lines(TodosChanged((A,)))) == 5


HOSTILE: list[Event] = [
    ToolStarted("1", f"Re\nad{ORDERS}", f"/a\n{ORDERS}b"),
    ToolStarted("1", "x" * 1_000_000, "y" * 1_000_000),
    ToolEnded("1", True, ORDERS + "x" * 10_000_000 + ORDERS),
    ToolEnded("1", False, "\n" * 1_000_000),
    ToolEnded("1", False, "\x1b]0;" * 1_000_000),
    Denied(f"a\n{ORDERS}", "x" * 1_000_000),
    Asked(f"a\n{ORDERS}" + "x" * 1_000_000),
    Progress(f"a\n{ORDERS}" + "x" * 1_000_000),
    Limited(f"a\n{ORDERS}" + "x" * 1_000_000, 1e10),
    Started(f"a\n{ORDERS}", f"b\n{ORDERS}", "x" * 1_000_000),
    TodosChanged((Todo(f"a\n{ORDERS}" + "x" * 1_000_000, "done"),)),
]


@pytest.mark.parametrize("event", HOSTILE, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("emoji", [True, False])
def test_only_text_in_lines_of_bounded_length_is_ever_shown(event: Event, emoji: bool) -> None:
    began = time.process_time()
    lines = shown(event, style=Style(emoji=emoji))
    assert time.process_time() - began < 1.0
    assert lines
    for line in lines:
        assert not re.search("[\x00-\x08\x0a-\x1f\x7f-\x9f\u202e]", line), repr(line)
    assert sum(map(len, lines)) < 4000


def test_calls_that_never_end_are_forgotten_the_oldest_first() -> None:
    formatter = EventFormatter(Style(emoji=True))
    for number in range(MAX_RUNNING_CALLS + 10):
        formatter.lines(ToolStarted(f"{number}" + "x" * 1000, "Read", f"/{number}"), float(number))
    assert len(formatter.running) == MAX_RUNNING_CALLS
    assert formatter.running.longest() == ("Read", "Read(/10)", 10.0)


def test_an_id_that_is_used_again_is_a_call_that_begins_anew() -> None:
    formatter = EventFormatter(EMOJI)
    for seconds, event in enumerate((READ, GREP, READ)):
        formatter.lines(event, float(seconds))
    assert formatter.running.longest() == ("Grep", "Grep(x)", 1.0)


def test_a_small_limit_for_output_leaves_other_lines_readable() -> None:
    style = Style(emoji=True, output_chars=1)
    assert shown(READ, Progress("still at it"), style=style) == ["⏺ Read(/a.py)", "· still at it"]


def test_a_long_call_is_named_in_short_where_it_is_named_again() -> None:
    lines = shown(ToolStarted("1", "Bash", "x" * 500), GREP, ToolEnded("1", True), style=Style())
    assert lines[0] == f"> Bash({'x' * 500})"
    assert lines[2] == f"[OK] Result <- Bash({'x' * 116}...) (no output)"
