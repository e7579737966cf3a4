"""Colours and symbols of the dashboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.value import value
from ralphproof.display.phrases import format_duration

# Colours and symbols. Every colour has a symbol or word beside it.


# Styles of rich. Without colour Textual takes the colours out; bold, dim and reverse stay.
GOOD, BAD, WARN, LIVE = "#8fce7a", "bold #f2777a", "#f0c674", "bold #6cb6ff"
DIM, STRONG, PLAIN, TOOL, HEAD = "#8a93a3", "bold", "", "#c3a6ff", "bold #9fb3c8"
SELECTED, SELECTED_PLAIN = "on #2a3f5a", "reverse"  # the row of the cursor, with colours and without


@value
class Symbols:
    """One cell each. `levels` are bar heights, `full` and `empty` the cells of a gauge."""

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
    """Badge of a run: its proof, or its state."""
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
            return _proof_badge(str(run.get("proof") or "claimed"), bool(run.get("concernCount")), symbols)
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
    """Symbol of a check's result."""
    known = {"passed": symbols.good, "failed": symbols.bad, "errored": symbols.bad, "running": symbols.running}
    return known.get(state, symbols.lost)


TASK_STYLES = {"todo": PLAIN, "working": LIVE, "waiting": WARN, "done": GOOD, "failed": BAD, "cancelled": DIM}
STORY_STYLES = {"open": PLAIN, "passes": PLAIN, "needs_review": LIVE, "changes_requested": WARN, "approved": GOOD}


def status_symbol(status: str, symbols: Symbols) -> str:
    """Symbol of a task's or story's status."""
    known = {
        "working": symbols.running, "waiting": symbols.waits, "done": symbols.good, "failed": symbols.bad,
        "cancelled": symbols.ended, "approved": symbols.good, "changes_requested": symbols.lost,
        "needs_review": symbols.waits,
    }  # fmt: skip
    return known.get(status, symbols.todo)


# Foreign text is sanitised here, and never parsed as markup.


TAB_CELLS = 4
MAX_LINE_CHARS = 4000  # of one line that are shown; the log has the rest


def plain_line(text: object, style: str = "") -> Text:
    """Any text in one sanitised line."""
    return Text(
        collapse_lines(sanitize(str(text)[: 2 * MAX_LINE_CHARS])).expandtabs(TAB_CELLS).strip()[:MAX_LINE_CHARS],
        style,
        end="",
    )


def plain_lines(text: str, style: str = "", indent: str = "") -> list[Text]:
    """All lines of a text, sanitised; long ones are cut."""
    return [
        Text(indent + collapse_lines(line[:MAX_LINE_CHARS]).expandtabs(TAB_CELLS).rstrip(), style, end="")
        for line in sanitize(text).split("\n")
    ]


def join_parts(*parts: tuple[object, str] | str | Text) -> Text:
    """One line of several parts. A pair is foreign text and its style; a plain string is ours."""
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
    """A copy of at most this width, with a symbol where it is cut."""
    made = text.copy()
    if made.cell_len > width:
        made.truncate(max(0, width - 1))
        made.append(symbols.cut if width > 0 else "")
    return made


def format_spend(spend: Mapping[str, Any] | None, symbols: Symbols) -> str:
    """The cost. Unknown is not zero; what a subscription covers has a tilde."""
    if spend is None:
        return symbols.dash
    about = "~" if spend.get("notional") else ""
    if spend.get("usd") is None:
        return "unknown"
    return f"{symbols.least if spend.get('atLeast') else ''}{about}${spend['usd']:.2f}"


def format_spend_with_unit(spend: Mapping[str, Any] | None, symbols: Symbols) -> str:
    """The same where no heading says that it is a cost."""
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
    """Age in one unit."""
    if epoch_s is None:
        return ""
    seconds = max(0.0, now_s - epoch_s)
    for size, letter in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size:.0f} {letter}"
    return f"{seconds:.0f} s"


def duration_text(seconds: float | None, symbols: Symbols) -> str:
    return symbols.dash if seconds is None else format_duration(seconds)


# Gauges and sparklines.


WARNING_SHARE = 0.8  # of a limit
GAUGE_CELLS, NAME_CELLS, BAR_CELLS = 38, 11, 8  # cells: of a gauge at least, of its name, of its bar


def draw_bar(part: float, cells: int, symbols: Symbols) -> Text:
    """A bar; near its limit it changes colour."""
    part = min(1.0, max(0.0, part))
    full = round(part * cells)
    full = 1 if part > 0 and not full else full
    style = BAD if part >= 1 else WARN if part >= WARNING_SHARE else GOOD
    return Text.assemble((symbols.full * full, style), (symbols.empty * (cells - full), DIM), end="")


def format_amount(number: float | None, unit: str) -> str:
    """A number with its unit. Unknown is not zero."""
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


LIMIT_NAMES = {"dailyCost": "day's cost"}


def draw_gauge(limit: Mapping[str, Any], symbols: Symbols) -> Text:
    """One limit: name, bar and numbers."""
    used, most, unit = limit["used"], limit["max"], str(limit["unit"])
    text = Text.assemble(
        (f"{plain_line(LIMIT_NAMES.get(limit['name'], limit['name'])).plain:<{NAME_CELLS}}", DIM), end=""
    )
    if used is None:
        text.append(symbols.empty * BAR_CELLS, DIM)
    else:
        text.append_text(draw_bar(used / most, BAR_CELLS, symbols))
    least = symbols.least if limit.get("atLeast") and used is not None else ""
    return text.append(f" {least}{format_amount(used, unit)}").append(f" of {format_amount(most, unit)}", DIM)


def draw_gauges(limits: Sequence[Mapping[str, Any]], width: int, symbols: Symbols) -> list[Text]:
    """All limits, as many in a line as fit."""
    text = [draw_gauge(limit, symbols) for limit in limits if limit["max"]]
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


def draw_sparkline(counts: Sequence[int | None], width: int, symbols: Symbols) -> Text | None:
    """Failing tests before and after each iteration, as bars; None if they were never counted."""
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
    """Passed checks of all."""
    if not checks:
        return Text(symbols.dash, DIM, end="")
    passed, failed = int(checks["passedCount"]), int(checks["failedCount"])
    return Text(
        f"{symbols.bad if failed else symbols.good} {passed}/{passed + failed}", BAD if failed else GOOD, end=""
    )
