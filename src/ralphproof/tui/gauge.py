"""Figures as plain characters: bars that fill up to a limit, and a line of how many tests failed."""

from __future__ import annotations

from rich.text import Text

from ralphproof.display.words import duration
from ralphproof.tui.ink import BAD, DIM, GOOD, WARN
from ralphproof.tui.texts import fitted, one, thousands
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from ralphproof.tui.ink import Signs

NEAR = 0.8  # of a limit
GAUGE, NAME, BAR = 38, 11, 8  # cells: of a gauge at least, of its name, of its bar


def bar(part: float, cells: int, signs: Signs) -> Text:
    """So much of a bar is full; what is near its end is seen by colour too."""
    part = min(1.0, max(0.0, part))
    full = round(part * cells)
    full = 1 if part > 0 and not full else full
    style = BAD if part >= 1 else WARN if part >= NEAR else GOOD
    return Text.assemble((signs.full * full, style), (signs.empty * (cells - full), DIM), end="")


def amount(number: float | None, unit: str) -> str:
    """A figure with its unit. Unknown is no zero."""
    if number is None:
        return "unknown"
    match unit:
        case "usd":
            return f"${number:.2f}"
        case "seconds":
            return duration(number)
        case "tokens":
            return thousands(number)
        case _:
            return f"{number:.0f}"


def gauge(limit: Mapping[str, Any], signs: Signs) -> Text:
    """One limit: its name, how full it is, and the figures."""
    used, most, unit = limit["used"], limit["most"], str(limit["unit"])
    made = Text.assemble((f"{one(limit['name']).plain:<{NAME}}", DIM), end="")
    if used is None:
        made.append(signs.empty * BAR, DIM)
    else:
        made.append_text(bar(used / most, BAR, signs))
    least = signs.least if limit.get("atLeast") and used is not None else ""
    return made.append(f" {least}{amount(used, unit)}").append(f" of {amount(most, unit)}", DIM)


def gauges(limits: Sequence[Mapping[str, Any]], width: int, signs: Signs) -> list[Text]:
    """All that there is a limit for, as many in a line as there is room for."""
    made = [gauge(limit, signs) for limit in limits if limit["most"]]
    columns = max(1, width // GAUGE)
    cells = width // columns
    lines = []
    for start in range(0, len(made), columns):
        line = Text(end="")
        for cell in made[start : start + columns]:
            shown = fitted(cell, cells - 1, signs)
            line.append_text(shown).append(" " * (cells - shown.cell_len))
        line.rstrip()
        lines.append(line)
    return lines


def spark(failing: Sequence[Mapping[str, Any]], width: int, signs: Signs) -> Text | None:
    """How many tests failed before and after each iteration, as bars; nothing where they were never counted."""
    counts: list[int | None] = [point["failing"] for point in failing]
    known = [count for count in counts if count is not None]
    if not known:
        return None
    tail = f"  {known[0]} {signs.into} {known[-1]}" if len(known) > 1 else f"  {known[0]}"
    room = max(1, width - NAME - len(tail))
    made = Text.assemble((f"{'failing':<{NAME}}", DIM), end="")
    top = max(known) or 1
    for count in counts[-room:]:
        if count is None:
            made.append(signs.dash, DIM)
        else:
            made.append(_level(count, top, signs), BAD if count else GOOD)
    return made.append(tail, BAD if known[-1] else GOOD)


def _level(count: int, top: int, signs: Signs) -> str:
    steps = len(signs.levels) - 1
    return signs.levels[0 if not count else max(1, round(count / top * steps))]


def checks_of(checks: Mapping[str, Any] | None, signs: Signs) -> Text:
    """How many checks passed, of how many."""
    if not checks:
        return Text(signs.dash, DIM, end="")
    passed, failed = int(checks["passed"]), int(checks["failed"])
    return Text(f"{signs.bad if failed else signs.good} {passed}/{passed + failed}", BAD if failed else GOOD, end="")
