"""The event that a hook reads from standard input, and its log line on standard error."""

from __future__ import annotations

import json
import os
import sys

from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

MAX_EVENT_BYTES = 32 << 20  # an event may contain the whole output of a tool
MAX_DRAINED_BYTES = 1 << 30
CHUNK_BYTES = 1 << 20


def read_event() -> dict[str, Any]:
    """The event on standard input; empty, with a log line, where it cannot be understood."""
    event = read_event_or_none()
    if event is None:
        log_line("no event on standard input that can be understood; nothing is done")
        return {}
    return event


def read_event_or_none() -> dict[str, Any] | None:
    """The event on standard input; None where it cannot be understood."""
    try:
        data = _read_stdin()
        event = json.loads(data) if len(data) <= MAX_EVENT_BYTES else None
    except (ValueError, RecursionError, MemoryError, OSError):
        return None
    return event if isinstance(event, dict) else None


def _read_stdin() -> bytes:
    """Standard input to its end. Data over the limit is drained and dropped: closing early would fail the writer."""
    if os.isatty(0):
        return b""
    chunks, total = [], 0
    while total < MAX_DRAINED_BYTES and (data := os.read(0, CHUNK_BYTES)):
        total += len(data)
        if total <= MAX_EVENT_BYTES + CHUNK_BYTES:
            chunks.append(data)
    return b"".join(chunks)


def text_field(event: dict[str, Any], name: str) -> str:
    """A text field of the event; empty where it is no text, or text that no file name could hold."""
    text = event.get(name)
    if not isinstance(text, str) or "\0" in text:
        return ""
    try:
        text.encode()
    except UnicodeEncodeError:
        return ""
    return text


def log_line(line: str) -> None:
    """Print a line on standard error, which agents write to their log."""
    try:
        print(f"ralph hook: {to_single_line(line)}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass  # the reader is gone


def to_single_line(line: str) -> str:
    """The text with line breaks and control characters escaped: file names in it are not trusted."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in line)
