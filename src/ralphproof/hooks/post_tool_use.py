"""PostToolUse hook: context usage of a session from its transcript, and one warning for each threshold it crosses."""

from __future__ import annotations

import json
import os
import stat
import sys

from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.hooks.session import (
    ALERTS_PREFIX,
    MalformedMarker,
    find_project,
    is_for_this_session,
    log_line,
    read_event,
    read_marker,
    session_file_path,
    text_field,
    update_session_file,
)

if TYPE_CHECKING:
    from typing import Any

DEFAULT_WINDOW = 200_000  # tokens, unless transcript, marker or environment say otherwise
CHARS_PER_TOKEN = 4.0  # of a transcript, roughly
MIN_TOKENS, MAX_TOKENS = 1, 10**9  # numbers outside of these bounds are ignored
# Bytes read from the transcript's end; the second size if the first holds no usage, e.g. because an image follows it.
TAIL_SIZES = (256 << 10, 16 << 20)
WINDOW_KEY = b'"model_context_window"'

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
THRESHOLDS = {
    50: ("NOTICE", NOTICE),
    60: ("NOTICE", NOTICE),
    70: ("WARNING", WARNING),
    80: ("WARNING", WARNING),
    90: ("CRITICAL", CRITICAL),
}


@value
class ContextUsage:
    """Tokens in the context, and the size of the context window if the transcript has it."""

    tokens: float
    window: int | None = None


def format_alert(percent: int, threshold: int) -> str:
    severity, advice = THRESHOLDS[threshold]
    return f"[{severity}] Context usage: ~{percent}% (over {threshold}%). {advice}"


def read_context_usage(path: str, divisor: float) -> ContextUsage | None:
    """Context usage as the transcript records it, else estimated from its size; None if it is unreadable."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            return None
        tails = (os.pread(file, size, max(0, status.st_size - size)) for size in TAIL_SIZES)
        return next((usage for tail in tails if (usage := _last_usage(tail))), None) or ContextUsage(
            status.st_size / divisor
        )
    except OSError:
        return None
    finally:
        os.close(file)


def _last_usage(tail: bytes) -> ContextUsage | None:
    """The last usage that the transcript records."""
    lines = tail.split(b"\n")[::-1]
    usage = next((usage for line in lines if (usage := _parse_usage_line(line))), None)
    if usage is None or WINDOW_KEY not in tail:
        return usage
    return replace(usage, window=next(filter(None, map(_parse_window, lines)), None))


def _parse_usage_line(line: bytes) -> ContextUsage | None:
    entry = _parse_entry(line) if b"_tokens" in line else {}
    return None if entry.get("isSidechain") is True else _claude_usage(entry) or _codex_usage(entry)


def _parse_window(line: bytes) -> int:
    payload = _parse_entry(line).get("payload") if WINDOW_KEY in line else None
    info = payload.get("info", payload) if isinstance(payload, dict) else None
    return _token_count(info.get("model_context_window")) if isinstance(info, dict) else 0


def _parse_entry(line: bytes) -> dict[str, Any]:
    """A line's JSON object; empty for the cut first line and a half-written last one."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}


def _claude_usage(entry: dict[str, Any]) -> ContextUsage | None:
    message = entry.get("message")
    usage = message.get("usage") if isinstance(message, dict) else None
    if not isinstance(usage, dict):
        return None
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
    tokens = sum(_token_count(usage.get(name)) for name in names)
    return ContextUsage(tokens) if tokens else None


def _codex_usage(entry: dict[str, Any]) -> ContextUsage | None:
    """Codex 0.166 writes a call's own record before its tools run, and the count of all calls afterwards."""
    payload = entry.get("payload")
    if not isinstance(payload, dict):
        return None
    info = payload.get("info") if payload.get("type") == "token_count" else None
    usage = payload.get("usage") if entry.get("type") == "token_usage_record" else None
    usage = info.get("last_token_usage") if isinstance(info, dict) else usage
    tokens = _token_count(usage.get("total_tokens")) if isinstance(usage, dict) else 0
    return ContextUsage(tokens) if tokens else None


def _token_count(count: object) -> int:
    return count if isinstance(count, int) and not isinstance(count, bool) and MIN_TOKENS <= count <= MAX_TOKENS else 0


def context_window(usage: ContextUsage, marker: dict[str, Any]) -> int:
    """Size of the context window in tokens: from the transcript, the marker, the environment, or the default."""
    return (
        usage.window
        or _token_count(marker.get("contextWindow"))
        or int(_read_number("CLAUDE_CONTEXT_WINDOW"))
        or DEFAULT_WINDOW
    )


def chars_per_token() -> float:
    """Characters of a transcript for each token, from the environment or the default."""
    return _read_number("RALPH_CHARS_PER_TOKEN") or CHARS_PER_TOKEN


def _read_number(name: str) -> float:
    """A number from the environment; 0 where it is missing, invalid or out of bounds."""
    try:
        number = float(os.environ.get(name, ""))
    except ValueError:
        return 0
    return number if MIN_TOKENS <= number <= MAX_TOKENS else 0


def crossed_thresholds(percent: float) -> list[int]:
    return [threshold for threshold in THRESHOLDS if percent >= threshold]


def main() -> int:
    """Print a warning or nothing; called after failed tool calls too. A failure here must not disturb the agent."""
    try:
        event = read_event()
        warning = usage_warning(event)
        if warning:
            name = text_field(event, "hook_event_name") or "PostToolUse"
            answer = {"hookSpecificOutput": {"hookEventName": name, "additionalContext": warning}}
            print(json.dumps(answer), flush=True)
    except Exception as error:  # noqa: BLE001
        log_line(f"the context monitor failed: {error!r}")
    return 0


def usage_warning(event: dict[str, Any]) -> str:
    """The warning that is due now; empty for none."""
    path, session = text_field(event, "transcript_path"), text_field(event, "session_id")
    usage = read_context_usage(path, chars_per_token()) if path and session else None
    if usage is None:
        return ""
    percent = 100 * usage.tokens / context_window(usage, _session_marker(event))
    crossed = crossed_thresholds(percent)
    if not crossed:
        return ""
    new: list[int] = []

    def add_crossed(content: str) -> str:
        known = content.split()
        new.extend(threshold for threshold in crossed if str(threshold) not in known)
        return "".join(f"{one}\n" for one in THRESHOLDS if one in crossed or str(one) in known)

    # Without a record of the warning there is none: it would be repeated after every call.
    recorded = update_session_file(session_file_path(ALERTS_PREFIX, session), add_crossed)
    return format_alert(int(percent), max(new)) if recorded and new else ""


def _session_marker(event: dict[str, Any]) -> dict[str, Any]:
    project = find_project(event)
    try:
        content = read_marker(project) if project else {}
    except MalformedMarker:
        return {}
    return content if is_for_this_session(content) else {}


if __name__ == "__main__":
    sys.exit(main())
