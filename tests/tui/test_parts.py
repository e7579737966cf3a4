"""The parts of the board that need no screen: figures, signs, words, and what is left out where there is no room."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
from functools import cache
from importlib import import_module
from typing import Any

import pytest
from rich.text import Text
from textual.app import App
from textual.message_pump import MessagePump

from ralphproof import tui
from ralphproof.tui.log_pages import WINDOW_BYTES, LogWindow
from ralphproof.tui.page import KEY_HELP
from ralphproof.tui.style import (
    ASCII,
    UNICODE,
    check_count_text,
    draw_bar,
    draw_gauge,
    draw_gauges,
    draw_sparkline,
    fit_width,
    format_age,
    format_bytes,
    format_spend,
    format_thousands,
    plain_line,
    plain_lines,
    run_badge,
)
from ralphproof.tui.widgets import Column, event_lines, fit_columns, todo_lines
from tests.house.source import ROOT


def plain(lines: list[Text]) -> list[str]:
    return [line.plain for line in lines]


@pytest.mark.parametrize(
    ("run", "sign", "word"),
    [
        ({"state": "running", "status": None}, "●", "running"),
        ({"state": "paused", "status": None}, "‖", "rests"),
        ({"state": "stopped", "status": "ABORTED", "reason": "WAITING"}, "?", "waits"),
        ({"state": "orphaned", "status": None}, "!", "orphaned"),
        ({"state": "crashed", "status": None}, "!", "crashed"),
        ({"state": "ended", "status": "COMPLETED", "proof": "verified", "concernCount": 0}, "✓", "verified"),
        ({"state": "ended", "status": "COMPLETED", "proof": "verified", "concernCount": 2}, "!", "verified"),
        ({"state": "ended", "status": "COMPLETED", "proof": "judged", "concernCount": 0}, "≈", "judged"),
        ({"state": "ended", "status": "COMPLETED", "proof": "claimed", "concernCount": 0}, "≈", "claimed"),
        ({"state": "ended", "status": "ABORTED", "reason": "STALL"}, "■", "STALL"),
        ({"state": "ended", "status": "ERROR", "reason": ""}, "✗", "ERROR"),
    ],
)
def test_how_a_run_stands_is_a_sign_and_a_word(run: dict[str, Any], sign: str, word: str) -> None:
    assert run_badge(run, UNICODE)[:2] == (sign, word)
    assert run_badge(run, ASCII)[0].isascii()


@pytest.mark.parametrize(
    ("spend", "data"),
    [
        ({"usd": 1.204, "atLeast": False, "notional": False}, "$1.20"),
        ({"usd": 0.0, "atLeast": False, "notional": False}, "$0.00"),
        ({"usd": 3.0, "atLeast": False, "notional": True}, "~$3.00"),
        ({"usd": 0.4, "atLeast": True, "notional": False}, "≥$0.40"),
        ({"usd": None, "atLeast": True, "notional": False}, "unknown"),
        (None, "–"),
    ],
)
def test_unknown_money_is_no_zero(spend: dict[str, Any] | None, data: str) -> None:
    assert format_spend(spend, UNICODE) == data


@pytest.mark.parametrize(
    ("part", "drawn"), [(0, "...."), (0.01, "#..."), (0.5, "##.."), (1, "####"), (7, "####"), (-1, "....")]
)
def test_a_bar_fills_up_to_its_limit(part: float, drawn: str) -> None:
    assert draw_bar(part, 4, ASCII).plain == drawn


def test_a_gauge_tells_its_figures_and_what_is_not_known() -> None:
    cost = {"name": "cost", "used": None, "max": 10.0, "unit": "usd", "atLeast": True}
    assert draw_gauge(cost, ASCII).plain == "cost       ........ unknown of $10.00"
    assert draw_gauge(cost | {"used": 5.0}, ASCII).plain == "cost       ####.... >=$5.00 of $10.00"
    assert draw_gauges([cost, cost | {"max": None}], 78, ASCII)[0].plain == draw_gauge(cost, ASCII).plain
    time = {"name": "time", "used": 3700.0, "max": 7200.0, "unit": "seconds"}
    tokens = {"name": "tokens", "used": 12_400, "max": 1_000_000, "unit": "tokens"}
    lines = draw_gauges([time, tokens, cost], 78, ASCII)
    assert lines[0].plain.split()[-3:] == ["12.4k", "of", "1.0M"]
    assert len(lines) == 2
    assert all(line.cell_len <= 78 for line in lines)


def test_failing_tests_are_a_line_of_bars() -> None:
    points = [8, 4, None, 1, 0]
    line = draw_sparkline(points, 60, ASCII)
    assert line is not None
    assert line.plain == "failing    #=-._  8 -> 0"
    assert draw_sparkline([None], 60, ASCII) is None
    long = draw_sparkline([*range(500)], 60, UNICODE)
    assert long is not None
    assert long.cell_len <= 60


def test_checks_are_counted() -> None:
    assert check_count_text({"passedCount": 3, "failedCount": 1}, ASCII).plain == "x 3/4"
    assert check_count_text({"passedCount": 3, "failedCount": 0}, ASCII).plain == "+ 3/3"
    assert check_count_text(None, ASCII).plain == "-"


COLUMNS = (Column("a", 5), Column("b", 10, priority=1), Column("title", 0), Column("c", 8, priority=2))


@pytest.mark.parametrize(
    ("width", "hidden", "kept"),
    [
        (60, (), [(0, 5), (1, 10), (2, 31), (3, 8)]),
        (40, (), [(0, 5), (2, 23), (3, 8)]),
        (25, (), [(0, 5), (2, 18)]),
        (3, (), [(0, 5), (2, 0)]),
        (60, ("b",), [(0, 5), (2, 43), (3, 8)]),
    ],
)
def test_what_is_needed_least_is_left_out_first(
    width: int, hidden: tuple[str, ...], kept: list[tuple[int, int]]
) -> None:
    assert fit_columns(COLUMNS, width, hidden) == kept


def test_text_of_strangers_is_harmless_and_bounded() -> None:
    assert plain_line("a\x1b[31mb\n c\td\u202e[red]x[/]").plain == "ab c    d[red]x[/]"
    assert plain(plain_lines("one\r\n\ttwo\x1b]0;t\x07\n")) == ["one", "    two", ""]
    assert len(plain_line("x" * 100_000)) <= 4000
    assert fit_width(plain_line("a long line"), 6, UNICODE).plain == "a lon…"
    assert fit_width(plain_line("日本語です"), 5, UNICODE).cell_len <= 5
    assert fit_width(plain_line("abc"), 0, UNICODE).plain == ""


@pytest.mark.parametrize(
    ("event", "lines"),
    [
        ({"kind": "said", "text": "one\ntwo"}, ["one", "two"]),
        ({"kind": "toolStarted", "toolCall": "1", "tool": "Bash", "summary": "ls"}, ["> Bash ls"]),
        ({"kind": "toolEnded", "id": "1", "ok": True, "output": "a\nb"}, ["  | a", "  | b"]),
        ({"kind": "toolEnded", "id": "1", "ok": False, "output": "a"}, ["  x failed", "  | a"]),
        ({"kind": "toolEnded", "id": "1", "ok": True, "output": "a\n" * 99}, ["  | a"] * 3 + ["  | ~"] + ["  | a"] * 3),
        ({"kind": "denied", "tool": "Bash", "reason": "no"}, ["! denied: Bash (no)"]),
        ({"kind": "asked", "question": "which?"}, ["? asked, and nobody is there to answer: which?"]),
        ({"kind": "limited", "message": "slow"}, ["? the service refuses for now: slow"]),
        ({"kind": "progress", "text": "x"}, ["- x"]),
        ({"kind": "started", "session": "s", "model": "m", "version": None}, ["- model m, session s"]),
        ({"kind": "ended", "ok": True, "text": ""}, ["+ ended"]),
        ({"kind": "ended", "ok": False, "text": "", "error": "e"}, ["x ended with an error: e"]),
        ({"kind": "unparsed", "raw": "\x1b[2J{", "size": 9}, ["{"]),
        ({"kind": "spent", "microUsd": 1, "usage": {}}, []),
        ({"kind": "todosChanged", "items": []}, []),
        ({"kind": "of another version"}, []),
    ],
)
def test_an_event_is_lines(event: dict[str, Any], lines: list[str]) -> None:
    assert plain(event_lines(event, ASCII)) == lines


def test_a_long_list_of_things_to_do_is_shown_around_what_is_next() -> None:
    items = [
        {"text": f"t{at}", "state": "done" if at < 20 else "active" if at == 20 else "pending"} for at in range(40)
    ]
    assert plain(todo_lines(items, 3, ASCII)) == ["to do: 20 of 40 done", " + t19", " * t20", " . t21"]
    assert plain(todo_lines(items, 1, ASCII)) == ["to do: 20 of 40 done, now: t20"]
    assert plain(todo_lines(items[:2], 1, ASCII)) == ["to do: 2 of 2 done, now: all done"]


def test_sizes_and_ages() -> None:
    assert [format_thousands(number) for number in (0, 940, 12_400, 3_100_000)] == ["0", "940", "12.4k", "3.1M"]
    assert [format_bytes(count) for count in (0, 65_536, 5 << 30)] == ["0 B", "65.5 kB", "5.4 GB"]
    assert [format_age(at, 100_000) for at in (99_999, 99_000, 90_000, 1, None)] == ["1 s", "16 m", "2 h", "1 d", ""]


def test_a_window_of_a_log_never_grows_and_knows_its_place_whatever_its_texts_became() -> None:
    quarter = WINDOW_BYTES // 4

    def part(number: int, letter: str) -> dict[str, Any]:
        """A piece of the log whose secrets were masked: its text is shorter than its bytes."""
        text = letter * quarter
        return {"offset": number * 100_000, "nextOffset": (number + 1) * 100_000, "bytes": 2_000_000, "text": text}

    window = LogWindow()
    for number, letter in enumerate("abcd"):
        window = window.append(part(number, letter))
    assert (window.start, window.end, len(window.text)) == (0, 400_000, WINDOW_BYTES)
    later = window.append(part(4, "e"))
    assert (later.start, later.end, len(later.text)) == (100_000, 500_000, WINDOW_BYTES)
    assert later.append(part(5, "")) == later
    earlier = later.prepend(part(0, "a"))
    assert (earlier.start, earlier.end, earlier.text) == (0, 400_000, window.text)
    large = LogWindow().append({**part(0, "x"), "text": "x" * 2 * WINDOW_BYTES})
    assert (large.start, large.end) == (0, 100_000)


def test_the_page_about_it_names_every_key() -> None:
    page = (ROOT / "docs/watch.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(.+)` \| (.+) \|$", page, re.MULTILINE)
    assert rows == [(key, what) for _, keys in KEY_HELP for key, what in keys]


def test_no_name_of_ours_hides_one_of_textual() -> None:
    """A page that has `_size` breaks in the midst of a layout: Textual's names are everybody's."""
    meant = {"BINDINGS", "CSS_PATH", "DEFAULT_MODE", "ENABLE_COMMAND_PALETTE", "TITLE", "HORIZONTAL_BREAKPOINTS"}
    meant |= {"VERTICAL_BREAKPOINTS", "animation_level", "border_title", "compose", "on_mount", "render_line", "theme"}
    meant |= {"virtual_size", "_print_error_renderables"}
    hidden = {}
    for module in pkgutil.iter_modules(tui.__path__):
        found = import_module(f"ralphproof.tui.{module.name}")
        for node in ast.parse(inspect.getsource(found)).body:
            cls = getattr(found, node.name) if isinstance(node, ast.ClassDef) else None
            if isinstance(node, ast.ClassDef) and inspect.isclass(cls) and issubclass(cls, MessagePump | App):
                hidden[f"{module.name}.{cls.__name__}"] = _own(node) & _textuals(cls) - meant
    assert {name: names for name, names in hidden.items() if names} == {}


def _own(node: ast.ClassDef) -> set[str]:
    methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)}
    stored = [part for part in ast.walk(node) if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)]
    mine = {part.attr for part in stored if isinstance(part.value, ast.Name) and part.value.id == "self"}
    return {name for name in methods | mine if not name.startswith("__")}


def _textuals(cls: type) -> set[str]:
    bases = [base for base in cls.__mro__ if base.__module__.startswith("textual")]
    return {name for base in bases for name in _names(base)}


@cache
def _names(base: type) -> set[str]:
    return {*vars(base), *re.findall(r"self\.(\w+)\s*(?::[^=\n]+)?=", inspect.getsource(base))}
