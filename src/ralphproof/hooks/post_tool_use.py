"""PostToolUse hook: context usage of a session from its transcript, and one warning for each threshold it crosses."""

from __future__ import annotations

import json
import os
import stat
import sys

from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.hooks import hook_input, marker, session_files

if TYPE_CHECKING:
    from typing import Any


# How full an agent's context is: its own figures where its transcript has them, else the size of that file.


DEFAULT_WINDOW = 200_000  # tokens, where nobody says otherwise
CHARS_PER_TOKEN = 4.0  # characters of a transcript that make a token, roughly
MIN_TOKENS, MAX_TOKENS = 1, 10**9  # tokens, or characters of one: a figure beyond that is none
# So much of a transcript's end is read, more where its last figures are not in that: a picture may stand behind them.
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
    """Tokens in the context, and how many go in, where the transcript says that."""

    tokens: float
    window: int | None = None


def format_alert(percent: int, threshold: int) -> str:
    severity, said = THRESHOLDS[threshold]
    return f"[{severity}] Context usage: ~{percent}% (over {threshold}%). {said}"


def read_context_usage(path: str, divisor: float) -> ContextUsage | None:
    """How full the context is; None where the transcript tells nothing."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        state = os.fstat(file)
        if not stat.S_ISREG(state.st_mode):
            return None
        tails = (os.pread(file, most, max(0, state.st_size - most)) for most in TAIL_SIZES)
        return next((fill for tail in tails if (fill := _last_usage(tail))), None) or ContextUsage(
            state.st_size / divisor
        )
    except OSError:
        return None
    finally:
        os.close(file)


def _last_usage(tail: bytes) -> ContextUsage | None:
    """The last figures of the transcript's own."""
    lines = tail.split(b"\n")[::-1]
    fill = next((fill for line in lines if (fill := _parse_usage_line(line))), None)
    if fill is None or WINDOW_KEY not in tail:
        return fill
    return replace(fill, window=next(filter(None, map(_parse_window, lines)), None))


def _parse_usage_line(line: bytes) -> ContextUsage | None:
    entry = _parse_entry(line) if b"_tokens" in line else {}
    return None if entry.get("isSidechain") is True else _claude_usage(entry) or _codex_usage(entry)


def _parse_window(line: bytes) -> int:
    payload = _parse_entry(line).get("payload") if WINDOW_KEY in line else None
    info = payload.get("info", payload) if isinstance(payload, dict) else None
    return _token_count(info.get("model_context_window")) if isinstance(info, dict) else 0


def _parse_entry(line: bytes) -> dict[str, Any]:
    """What a line says; nothing where it is cut, as the first one may be, or half-written, as the last one may be."""
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
    """A call's own record comes before its tools run, the count of all calls after that (0.166)."""
    payload = entry.get("payload")
    if not isinstance(payload, dict):
        return None
    info = payload.get("info") if payload.get("type") == "token_count" else None
    usage = payload.get("usage") if entry.get("type") == "token_usage_record" else None
    usage = info.get("last_token_usage") if isinstance(info, dict) else usage
    tokens = _token_count(usage.get("total_tokens")) if isinstance(usage, dict) else 0
    return ContextUsage(tokens) if tokens else None


def _token_count(given: object) -> int:
    return given if isinstance(given, int) and not isinstance(given, bool) and MIN_TOKENS <= given <= MAX_TOKENS else 0


def context_window(fill: ContextUsage, marker: dict[str, Any]) -> int:
    """How many tokens go in: the agent's own word, else the user's, else the usual."""
    said = fill.window or _token_count(marker.get("contextWindow"))
    return said or int(_read_number("CLAUDE_CONTEXT_WINDOW")) or DEFAULT_WINDOW


def chars_per_token() -> float:
    """Characters of a transcript that make a token, as the user says or as usual."""
    return _read_number("RALPH_CHARS_PER_TOKEN") or CHARS_PER_TOKEN


def _read_number(name: str) -> float:
    """A number from the environment; 0 where it is none, or none that makes sense."""
    try:
        found = float(os.environ.get(name, ""))
    except ValueError:
        return 0
    return found if MIN_TOKENS <= found <= MAX_TOKENS else 0


def crossed_thresholds(percent: float) -> list[int]:
    """The thresholds that this is over."""
    return [threshold for threshold in THRESHOLDS if percent >= threshold]


# After every tool call, failed ones too: say when the context is getting full, once for each threshold.


def main() -> int:
    """Tell, or be silent. Whatever goes wrong here must not disturb the agent."""
    try:
        event = hook_input.read_event()
        said = usage_warning(event)
        if said:
            name = hook_input.text_field(event, "hook_event_name") or "PostToolUse"
            answer = {"hookSpecificOutput": {"hookEventName": name, "additionalContext": said}}
            print(json.dumps(answer), flush=True)
    except Exception as error:  # noqa: BLE001
        hook_input.log_line(f"the context monitor failed: {error!r}")
    return 0


def usage_warning(event: dict[str, Any]) -> str:
    """What the agent is told now; empty for nothing."""
    path, session = hook_input.text_field(event, "transcript_path"), hook_input.text_field(event, "session_id")
    fill = read_context_usage(path, chars_per_token()) if path and session else None
    if fill is None:
        return ""
    percent = 100 * fill.tokens / context_window(fill, _session_marker(event))
    over = crossed_thresholds(percent)
    if not over:
        return ""
    new: list[int] = []

    def note(before: str) -> str:
        words = before.split()
        new.extend(one for one in over if str(one) not in words)
        return "".join(f"{one}\n" for one in THRESHOLDS if one in over or str(one) in words)

    # What cannot be noted is not told: it would be told again and again.
    noted = session_files.update_session_file(
        session_files.session_file_path(session_files.ALERTS_PREFIX, session), note
    )
    return format_alert(int(percent), max(new)) if noted and new else ""


def _session_marker(event: dict[str, Any]) -> dict[str, Any]:
    project = marker.find_project(event)
    try:
        found = marker.read_marker(project) if project else {}
    except marker.MalformedMarker:
        return {}
    return found if marker.is_for_this_session(found) else {}


if __name__ == "__main__":
    sys.exit(main())
