"""Output of commands: JSON objects, sanitized lines, and questions at the terminal."""

from __future__ import annotations

import os
import sys

from ralphproof.base.errors import Refused
from ralphproof.base.escaping import collapse_lines, sanitize, truncate_to_columns
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.process.interrupts import RaiseOnSignal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ralphproof.base.value import Json


def print_json(kind: str, data: Mapping[str, Json]) -> None:
    """Print the result as one JSON object in one line."""
    import json

    print(json.dumps({"v": 1, "type": kind, **data}))


def print_lines(*lines: str) -> None:
    """Print sanitized lines; a line break inside one is replaced."""
    for line in lines:
        print(collapse_lines(sanitize(line)))


def print_result(as_json: bool, kind: str, data: Mapping[str, Json], *lines: str) -> None:
    """Print the result of a command: one JSON object, or lines for people."""
    if as_json:
        print_json(kind, data)
    else:
        print_lines(*lines)


MAX_LISTED = 20  # items of a long list


def indented_list(items: Sequence[str]) -> list[str]:
    """The first items of a list, one a line, and how many more there are."""
    more = [f"  ... and {len(items) - MAX_LISTED} more"] if len(items) > MAX_LISTED else []
    return [*(f"  {item}" for item in items[:MAX_LISTED]), *more]


def require_confirmation(given: bool, for_programs: bool, why: str) -> None:
    """Raise Refused where a confirmation is needed, `--yes` was not given, and there is no terminal to ask at."""
    if not given and (for_programs or sys.stdin is None or not sys.stdin.isatty()):
        raise Refused(f"{why}, and there is no terminal to ask at; say --yes")
    if not given:
        sys.stdin.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]  # input may be invalid UTF-8


def ask_user(question: str) -> str:
    """The answer that the user types at the terminal. Ctrl-C and end of input raise KeyboardInterrupt."""
    import select
    import signal

    print(f"{question}: ", end="", flush=True)
    # `input` loses a Ctrl-C that comes between its prompt and its read. A wake-up pipe does not.
    wakeup_read, wakeup_write = os.pipe()
    os.set_blocking(wakeup_write, False)
    before = signal.set_wakeup_fd(wakeup_write)
    try:
        with RaiseOnSignal():
            select.select([sys.stdin, wakeup_read], [], [])
            answer = sys.stdin.readline()
    finally:
        signal.set_wakeup_fd(before)
        os.close(wakeup_read)
        os.close(wakeup_write)
    if not answer:
        raise KeyboardInterrupt
    return answer.strip()


def confirm(question: str) -> bool:
    """Ask at the terminal; anything but yes is no."""
    return ask_user(f"{question} (y/N)").lower() in ("y", "yes")


MAX_CELL_CHARS = 200  # of a title; ralph task show has all of it


def align_columns(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows as lines with aligned columns; cells are sanitized and truncated."""
    cells = [
        [truncate_to_columns(collapse_lines(sanitize(cell)).strip(), MAX_CELL_CHARS) for cell in row] for row in rows
    ]
    widths = [max(map(_display_width, column)) for column in zip(*cells, strict=True)]
    padded = (
        (cell + " " * (width - _display_width(cell)) for cell, width in zip(row, widths, strict=True)) for row in cells
    )
    return ["  ".join(row).rstrip() for row in padded]


def _display_width(text: str) -> int:
    """The number of terminal columns of a text."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text)
