"""What a hook is handed on standard input, and how it speaks to whoever reads its standard error."""

from __future__ import annotations

import json
import os
import sys

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

MOST_BYTES = 32 << 20  # of an event; a tool's whole output may stand in it
MOST_TAKEN = 1 << 30
CHUNK = 1 << 20


def event() -> dict[str, Any]:
    """The event; empty where there is none that can be understood."""
    found = understood()
    if found is None:
        say("no event on standard input that can be understood; nothing is done")
        return {}
    return found


def understood() -> dict[str, Any] | None:
    """The event; None where there is none that can be understood."""
    try:
        data = _taken()
        found = json.loads(data) if len(data) <= MOST_BYTES else None
    except (ValueError, RecursionError, MemoryError, OSError):
        return None
    return found if isinstance(found, dict) else None


def _taken() -> bytes:
    """All of standard input. What is too much is taken too: a program that writes to nobody would fail."""
    if os.isatty(0):
        return b""
    kept, total = [], 0
    while total < MOST_TAKEN and (data := os.read(0, CHUNK)):
        total += len(data)
        if total <= MOST_BYTES + CHUNK:
            kept.append(data)
    return b"".join(kept)


def text(given: dict[str, Any], name: str) -> str:
    """A field of the event that is text of which a file's name could be made; empty where it is none."""
    found = given.get(name)
    if not isinstance(found, str) or "\0" in found:
        return ""
    try:
        found.encode()
    except UnicodeEncodeError:
        return ""
    return found


def say(line: str) -> None:
    """A line for the log of the agent's program."""
    try:
        print(f"ralph hook: {clean(line)}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass  # nobody listens


def clean(line: str) -> str:
    """The same in one line, with nothing in it that a terminal would obey: names of files are anybody's."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in line)
