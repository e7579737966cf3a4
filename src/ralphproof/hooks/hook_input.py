"""The event that a hook reads from standard input, and its log line on standard error."""

from __future__ import annotations

import json
import os
import sys

from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

MAX_EVENT_BYTES = 32 << 20  # of an event; a tool's whole output may stand in it
MAX_DRAINED_BYTES = 1 << 30
CHUNK_BYTES = 1 << 20


def read_event() -> dict[str, Any]:
    """The event; empty where there is none that can be understood."""
    found = read_event_or_none()
    if found is None:
        log_line("no event on standard input that can be understood; nothing is done")
        return {}
    return found


def read_event_or_none() -> dict[str, Any] | None:
    """The event; None where there is none that can be understood."""
    try:
        data = _read_stdin()
        found = json.loads(data) if len(data) <= MAX_EVENT_BYTES else None
    except (ValueError, RecursionError, MemoryError, OSError):
        return None
    return found if isinstance(found, dict) else None


def _read_stdin() -> bytes:
    """All of standard input. What is too much is taken too: a program that writes to nobody would fail."""
    if os.isatty(0):
        return b""
    kept, total = [], 0
    while total < MAX_DRAINED_BYTES and (data := os.read(0, CHUNK_BYTES)):
        total += len(data)
        if total <= MAX_EVENT_BYTES + CHUNK_BYTES:
            kept.append(data)
    return b"".join(kept)


def text_field(given: dict[str, Any], name: str) -> str:
    """A field of the event that is text of which a file's name could be made; empty where it is none."""
    found = given.get(name)
    if not isinstance(found, str) or "\0" in found:
        return ""
    try:
        found.encode()
    except UnicodeEncodeError:
        return ""
    return found


def log_line(line: str) -> None:
    """A line for the log of the agent's program."""
    try:
        print(f"ralph hook: {to_single_line(line)}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass  # nobody listens


def to_single_line(line: str) -> str:
    """The same in one line, with nothing in it that a terminal would obey: names of files are anybody's."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in line)
