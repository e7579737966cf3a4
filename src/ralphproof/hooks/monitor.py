"""How full an agent's context is: its own figures where its transcript has them, else the size of that file."""

from __future__ import annotations

import json
import os
import stat

from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

WINDOW = 200_000  # tokens, where nobody says otherwise
DIVISOR = 4.0  # characters of a transcript that make a token, roughly
TAIL_BYTES = 512 << 10  # of a transcript are read: the last figures stand near its end

NOTICE = (
    "Be mindful of remaining space. Plan to finish your current task within this session. If you discover follow-up "
    "work, add new stories to tasks.json — the next iteration will pick them up."
)
WARNING = (
    "Finish your current task and commit soon. Do not start additional tasks. If work remains, create new stories in "
    "tasks.json for the next iteration and capture any implementation details or insights in progress.txt so the next "
    "iteration has full context."
)
CRITICAL = (
    "Wrap up immediately. Do NOT start new work. Instead: (1) create tasks in tasks.json for any remaining work, (2) "
    "write implementation details, insights, and handoff notes to progress.txt, (3) commit all changes, (4) stop. The "
    "next iteration will continue from where you left off."
)
ALERTS = {
    50: ("NOTICE", NOTICE),
    60: ("NOTICE", NOTICE),
    70: ("WARNING", WARNING),
    80: ("WARNING", WARNING),
    90: ("CRITICAL", CRITICAL),
}


@value
class Fill:
    """Tokens in the context, and how many go in, where the transcript says that."""

    tokens: float
    window: int | None = None


def alert(percent: int, threshold: int) -> str:
    severity, said = ALERTS[threshold]
    return f"[{severity}] Context usage: ~{percent}% (over {threshold}%). {said}"


def fill_of(path: str, divisor: float) -> Fill | None:
    """How full the context is; None where the transcript tells nothing."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        state = os.fstat(file)
        if not stat.S_ISREG(state.st_mode):
            return None
        start = max(0, state.st_size - TAIL_BYTES)
        return _told(os.pread(file, TAIL_BYTES, start)) or Fill(state.st_size / divisor)
    except OSError:
        return None
    finally:
        os.close(file)


def _told(tail: bytes) -> Fill | None:
    """The last figures of the transcript's own."""
    return next((fill for line in reversed(tail.split(b"\n")) if (fill := _of_line(line))), None)


def _of_line(line: bytes) -> Fill | None:
    if b"token" not in line:
        return None
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None  # the first line of the tail is cut, the last one may be half-written
    if not isinstance(entry, dict) or entry.get("isSidechain") is True:
        return None
    return _of_claude(entry) or _of_codex(entry)


def _of_claude(entry: dict[str, Any]) -> Fill | None:
    message = entry.get("message")
    usage = message.get("usage") if isinstance(message, dict) else None
    if not isinstance(usage, dict):
        return None
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
    tokens = sum(_whole(usage.get(name)) for name in names)
    return Fill(tokens) if tokens else None


def _of_codex(entry: dict[str, Any]) -> Fill | None:
    payload = entry.get("payload")
    info = payload.get("info") if isinstance(payload, dict) and payload.get("type") == "token_count" else None
    usage = info.get("last_token_usage") if isinstance(info, dict) else None
    if not isinstance(info, dict) or not isinstance(usage, dict):
        return None
    tokens = _whole(usage.get("total_tokens")) or sum(
        _whole(usage.get(one)) for one in ("input_tokens", "output_tokens")
    )
    return Fill(tokens, _whole(info.get("model_context_window")) or None) if tokens else None


def _whole(given: object) -> int:
    return given if isinstance(given, int) and not isinstance(given, bool) and given > 0 else 0


def window_of(fill: Fill, marker: dict[str, Any]) -> int:
    """How many tokens go in: the agent's own word, else the user's, else the usual."""
    said = fill.window or _whole(marker.get("contextWindow"))
    return said or _number(os.environ.get("CLAUDE_CONTEXT_WINDOW"), int) or WINDOW


def divisor() -> float:
    return _number(os.environ.get("RALPH_CHARS_PER_TOKEN"), float) or DIVISOR


def _number(given: str | None, kind: type) -> Any:
    try:
        found = kind(given or 0)
    except ValueError:
        return 0
    return found if 0 < found < float("inf") else 0


def crossed(percent: float) -> Iterator[int]:
    """The thresholds that this is over."""
    return (threshold for threshold in ALERTS if percent >= threshold)
