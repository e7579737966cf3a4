"""Colours and symbols of the dashboard."""

from __future__ import annotations

from rich.text import Text

from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.display.phrases import format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


# How the board looks: colours, and the signs that stand beside every word, so that colour is never all there is.


# Styles of rich. Without colour Textual takes the colours out; bold, dim and reverse stay.
GOOD, BAD, WARN, LIVE = "#8fce7a", "bold #f2777a", "#f0c674", "bold #6cb6ff"
DIM, STRONG, PLAIN, TOOL, HEAD = "#8a93a3", "bold", "", "#c3a6ff", "bold #9fb3c8"
SELECTED, SELECTED_PLAIN = "on #2a3f5a", "reverse"  # the row of the cursor, with colours and without


@value
class Symbols:
    """One cell each. `levels` are the heights of a line of bars, `full` and `empty` the halves of a gauge."""

    running: str = "●"
    paused: str = "‖"
    waits: str = "?"
    lost: str = "!"
    good: str = "✓"
    word: str = "≈"  # somebody's word for it: a judge's, or the agent's own
    bad: str = "✗"
    ended: str = "■"
    todo: str = "○"
    levels: str = "▁▂▃▄▅▆▇█"
    full: str = "█"
    empty: str = "░"
    cut: str = "…"
    dash: str = "–"
    dot: str = "·"
    at: str = "›"
    call: str = "▸"
    into: str = "→"
    least: str = "≥"
    rule: str = "─"


UNICODE = Symbols()
ASCII = Symbols(
    running="*", paused="=", waits="?", lost="!", good="+", word="~", bad="x", ended="#", todo=".", levels="_.-:=+*#",
    full="#", empty=".", cut="~", dash="-", dot="-", at=">", call=">", into="->", least=">=", rule="-",
)  # fmt: skip

Badge = tuple[str, str, str]  # sign, word, style


def run_badge(run: Mapping[str, Any], symbols: Symbols) -> Badge:
    """How a run stands: what was proved of it, or what it is at."""
    match run["state"], run.get("status"):
        case "running", _:
            return symbols.running, "running", LIVE
        case "paused", _:
            return symbols.paused, "rests", WARN
        case "stopped", _:
            return symbols.waits, "waits", WARN
        case ("orphaned" | "crashed") as state, _:
            return symbols.lost, state, BAD
        case _, "COMPLETED":
            return _proof_badge(str(run.get("proof") or "claimed"), bool(run.get("concerns")), symbols)
        case _, "ABORTED":
            return symbols.ended, str(run.get("reason") or "ABORTED"), WARN
        case _, "ERROR":
            return symbols.bad, "ERROR", BAD
        case state, _:
            return symbols.ended, str(state), DIM


def _proof_badge(proof: str, concerns: bool, symbols: Symbols) -> Badge:
    if concerns:
        return symbols.lost, proof, WARN
    return (symbols.good, proof, GOOD) if proof == "verified" else (symbols.word, proof, WARN)


CHECK_STYLES = {"passed": GOOD, "failed": BAD, "errored": BAD, "advisory": WARN, "stopped": WARN, "running": LIVE}


def check_symbol(state: str, symbols: Symbols) -> str:
    """The sign of a check's answer."""
    known = {"passed": symbols.good, "failed": symbols.bad, "errored": symbols.bad, "running": symbols.running}
    return known.get(state, symbols.lost)


TASK_STYLES = {"todo": PLAIN, "working": LIVE, "waiting": WARN, "done": GOOD, "failed": BAD, "cancelled": DIM}
STORY_STYLES = {"open": PLAIN, "passes": PLAIN, "needs_review": LIVE, "changes_requested": WARN, "approved": GOOD}


def status_symbol(status: str, symbols: Symbols) -> str:
    """The sign of a task's status, or of a story's."""
    known = {
        "working": symbols.running, "waiting": symbols.waits, "done": symbols.good, "failed": symbols.bad,
        "cancelled": symbols.ended, "approved": symbols.good, "changes_requested": symbols.lost,
        "needs_review": symbols.waits,
    }  # fmt: skip
    return known.get(status, symbols.todo)


# Text for the board. What strangers wrote is made harmless here, and is never read as markup.


TAB_CELLS = 4
MAX_LINE_CHARS = 4000  # of one line that are shown; the log has the rest


def plain_line(text: object, style: str = "") -> Text:
    """Anything in one harmless line."""
    return Text(
        collapse_lines(sanitize(str(text)[: 2 * MAX_LINE_CHARS])).expandtabs(TAB_CELLS).strip()[:MAX_LINE_CHARS],
        style,
        end="",
    )


def plain_lines(text: str, style: str = "", indent: str = "") -> list[Text]:
    """Every line of a text, each harmless; long ones are cut."""
    return [
        Text(indent + collapse_lines(line[:MAX_LINE_CHARS]).expandtabs(TAB_CELLS).rstrip(), style, end="")
        for line in sanitize(text).split("\n")
    ]


def join_parts(*parts: tuple[object, str] | str | Text) -> Text:
    """One line of several parts. A pair is anybody's text and its style; a string alone is ours."""
    made = Text(end="")
    for part in parts:
        match part:
            case Text():
                made.append_text(part)
            case str():
                made.append(part)
            case text, style:
                made.append(collapse_lines(sanitize(str(text)[:MAX_LINE_CHARS])).expandtabs(TAB_CELLS), style)
    return made


def fit_width(text: Text, width: int, symbols: Symbols) -> Text:
    """A copy that takes so many cells at most, with a sign where something is cut."""
    made = text.copy()
    if made.cell_len > width:
        made.truncate(max(0, width - 1))
        made.append(symbols.cut if width > 0 else "")
    return made


def format_spend(spend: Mapping[str, Any] | None, symbols: Symbols) -> str:
    """What was spent. Unknown is no zero; what a subscription pays for has a tilde before it."""
    if spend is None:
        return symbols.dash
    about = "~" if spend.get("notional") else ""
    if spend.get("usd") is not None:
        return f"{about}${spend['usd']:.2f}"
    least = spend.get("atLeastUsd") or 0.0
    return f"{symbols.least}{about}${least:.2f}" if least else "unknown"


def format_spend_with_unit(spend: Mapping[str, Any] | None, symbols: Symbols) -> str:
    """The same where no heading says that it is money."""
    data = format_spend(spend, symbols)
    return f"cost {data}" if data == "unknown" else data


def format_thousands(number: float) -> str:
    """`940`, `12.4k`, `3.1M`."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:.1f}{letter}"
    return f"{number:.0f}"


def format_bytes(count: int) -> str:
    """`940 B`, `12.4 kB`, `5.0 GB`."""
    for size, letter in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= size:
            return f"{count / size:.1f} {letter}"
    return f"{count} B"


def format_age(epoch_s: float | None, now_s: float) -> str:
    """How long ago that was, in one unit."""
    if epoch_s is None:
        return ""
    seconds = max(0.0, now_s - epoch_s)
    for size, letter in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size:.0f} {letter}"
    return f"{seconds:.0f} s"


def duration_text(seconds: float | None, symbols: Symbols) -> str:
    return symbols.dash if seconds is None else format_duration(seconds)


# Figures as plain characters: bars that fill up to a limit, and a line of how many tests failed.


WARNING_SHARE = 0.8  # of a limit
GAUGE_CELLS, NAME_CELLS, BAR_CELLS = 38, 11, 8  # cells: of a gauge at least, of its name, of its bar


def draw_bar(part: float, cells: int, symbols: Symbols) -> Text:
    """So much of a bar is full; what is near its end is seen by colour too."""
    part = min(1.0, max(0.0, part))
    full = round(part * cells)
    full = 1 if part > 0 and not full else full
    style = BAD if part >= 1 else WARN if part >= WARNING_SHARE else GOOD
    return Text.assemble((symbols.full * full, style), (symbols.empty * (cells - full), DIM), end="")


def format_amount(number: float | None, unit: str) -> str:
    """A figure with its unit. Unknown is no zero."""
    if number is None:
        return "unknown"
    match unit:
        case "usd":
            return f"${number:.2f}"
        case "seconds":
            return format_duration(number)
        case "tokens":
            return format_thousands(number)
        case _:
            return f"{number:.0f}"


def draw_gauge(limit: Mapping[str, Any], symbols: Symbols) -> Text:
    """One limit: its name, how full it is, and the figures."""
    used, most, unit = limit["used"], limit["most"], str(limit["unit"])
    text = Text.assemble((f"{plain_line(limit['name']).plain:<{NAME_CELLS}}", DIM), end="")
    if used is None:
        text.append(symbols.empty * BAR_CELLS, DIM)
    else:
        text.append_text(draw_bar(used / most, BAR_CELLS, symbols))
    least = symbols.least if limit.get("atLeast") and used is not None else ""
    return text.append(f" {least}{format_amount(used, unit)}").append(f" of {format_amount(most, unit)}", DIM)


def draw_gauges(limits: Sequence[Mapping[str, Any]], width: int, symbols: Symbols) -> list[Text]:
    """All that there is a limit for, as many in a line as there is room for."""
    text = [draw_gauge(limit, symbols) for limit in limits if limit["most"]]
    columns = max(1, width // GAUGE_CELLS)
    cells = width // columns
    lines = []
    for start in range(0, len(text), columns):
        line = Text(end="")
        for cell in text[start : start + columns]:
            shown = fit_width(cell, cells - 1, symbols)
            line.append_text(shown).append(" " * (cells - shown.cell_len))
        line.rstrip()
        lines.append(line)
    return lines


def draw_sparkline(failing: Sequence[Mapping[str, Any]], width: int, symbols: Symbols) -> Text | None:
    """How many tests failed before and after each iteration, as bars; nothing where they were never counted."""
    counts: list[int | None] = [point["failing"] for point in failing]
    known = [count for count in counts if count is not None]
    if not known:
        return None
    tail = f"  {known[0]} {symbols.into} {known[-1]}" if len(known) > 1 else f"  {known[0]}"
    room = max(1, width - NAME_CELLS - len(tail))
    text = Text.assemble((f"{'failing':<{NAME_CELLS}}", DIM), end="")
    top = max(known) or 1
    for count in counts[-room:]:
        if count is None:
            text.append(symbols.dash, DIM)
        else:
            text.append(_bar_height(count, top, symbols), BAD if count else GOOD)
    return text.append(tail, BAD if known[-1] else GOOD)


def _bar_height(count: int, top: int, symbols: Symbols) -> str:
    steps = len(symbols.levels) - 1
    return symbols.levels[0 if not count else max(1, round(count / top * steps))]


def check_count_text(checks: Mapping[str, Any] | None, symbols: Symbols) -> Text:
    """How many checks passed, of how many."""
    if not checks:
        return Text(symbols.dash, DIM, end="")
    passed, failed = int(checks["passed"]), int(checks["failed"])
    return Text(
        f"{symbols.bad if failed else symbols.good} {passed}/{passed + failed}", BAD if failed else GOOD, end=""
    )
