"""How full an agent's context is: its own figures where its transcript has them, else the size of that file."""

from __future__ import annotations

import json
import os
import stat

from ralphproof.value import TYPE_CHECKING, replace, value

if TYPE_CHECKING:
    from typing import Any

WINDOW = 200_000  # tokens, where nobody says otherwise
DIVISOR = 4.0  # characters of a transcript that make a token, roughly
LEAST, MOST = 1, 10**9  # tokens, or characters of one: a figure beyond that is none
# So much of a transcript's end is read, more where its last figures are not in that: a picture may stand behind them.
TAILS_BYTES = (256 << 10, 16 << 20)
SAYS_WINDOW = b'"model_context_window"'

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
        tails = (os.pread(file, most, max(0, state.st_size - most)) for most in TAILS_BYTES)
        return next((fill for tail in tails if (fill := _told(tail))), None) or Fill(state.st_size / divisor)
    except OSError:
        return None
    finally:
        os.close(file)


def _told(tail: bytes) -> Fill | None:
    """The last figures of the transcript's own."""
    lines = tail.split(b"\n")[::-1]
    fill = next((fill for line in lines if (fill := _of_line(line))), None)
    if fill is None or SAYS_WINDOW not in tail:
        return fill
    return replace(fill, window=next(filter(None, map(_window, lines)), None))


def _of_line(line: bytes) -> Fill | None:
    entry = _entry(line) if b"_tokens" in line else {}
    return None if entry.get("isSidechain") is True else _of_claude(entry) or _of_codex(entry)


def _window(line: bytes) -> int:
    payload = _entry(line).get("payload") if SAYS_WINDOW in line else None
    info = payload.get("info", payload) if isinstance(payload, dict) else None
    return _whole(info.get("model_context_window")) if isinstance(info, dict) else 0


def _entry(line: bytes) -> dict[str, Any]:
    """What a line says; nothing where it is cut, as the first one may be, or half-written, as the last one may be."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}


def _of_claude(entry: dict[str, Any]) -> Fill | None:
    message = entry.get("message")
    usage = message.get("usage") if isinstance(message, dict) else None
    if not isinstance(usage, dict):
        return None
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
    tokens = sum(_whole(usage.get(name)) for name in names)
    return Fill(tokens) if tokens else None


def _of_codex(entry: dict[str, Any]) -> Fill | None:
    """A call's own record comes before its tools run, the count of all calls after that (0.166)."""
    payload = entry.get("payload")
    if not isinstance(payload, dict):
        return None
    info = payload.get("info") if payload.get("type") == "token_count" else None
    usage = payload.get("usage") if entry.get("type") == "token_usage_record" else None
    usage = info.get("last_token_usage") if isinstance(info, dict) else usage
    tokens = _whole(usage.get("total_tokens")) if isinstance(usage, dict) else 0
    return Fill(tokens) if tokens else None


def _whole(given: object) -> int:
    return given if isinstance(given, int) and not isinstance(given, bool) and LEAST <= given <= MOST else 0


def window_of(fill: Fill, marker: dict[str, Any]) -> int:
    """How many tokens go in: the agent's own word, else the user's, else the usual."""
    said = fill.window or _whole(marker.get("contextWindow"))
    return said or int(_number("CLAUDE_CONTEXT_WINDOW")) or WINDOW


def divisor() -> float:
    """Characters of a transcript that make a token, as the user says or as usual."""
    return _number("RALPH_CHARS_PER_TOKEN") or DIVISOR


def _number(name: str) -> float:
    """A number from the environment; 0 where it is none, or none that makes sense."""
    try:
        found = float(os.environ.get(name, ""))
    except ValueError:
        return 0
    return found if LEAST <= found <= MOST else 0


def crossed(percent: float) -> list[int]:
    """The thresholds that this is over."""
    return [threshold for threshold in ALERTS if percent >= threshold]
