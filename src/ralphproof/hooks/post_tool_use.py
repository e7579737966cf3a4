"""After every tool call, failed ones too: say when the context is getting full, once for each threshold."""

from __future__ import annotations

import json
import sys

from ralphproof.hooks import given, marker, monitor, once
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any


def main() -> int:
    """Tell, or be silent. Whatever goes wrong here must not disturb the agent."""
    try:
        event = given.event()
        said = message(event)
        if said:
            name = given.text(event, "hook_event_name") or "PostToolUse"
            answer = {"hookSpecificOutput": {"hookEventName": name, "additionalContext": said}}
            print(json.dumps(answer), flush=True)
    except Exception as error:  # noqa: BLE001
        given.say(f"the context monitor failed: {error!r}")
    return 0


def message(event: dict[str, Any]) -> str:
    """What the agent is told now; empty for nothing."""
    path, session = given.text(event, "transcript_path"), given.text(event, "session_id")
    fill = monitor.fill_of(path, monitor.divisor()) if path and session else None
    if fill is None:
        return ""
    percent = 100 * fill.tokens / monitor.window_of(fill, _marker(event))
    over = monitor.crossed(percent)
    if not over:
        return ""
    new: list[int] = []

    def note(before: str) -> str:
        words = before.split()
        new.extend(one for one in over if str(one) not in words)
        return "".join(f"{one}\n" for one in monitor.ALERTS if one in over or str(one) in words)

    # What cannot be noted is not told: it would be told again and again.
    noted = once.change(once.path_of(once.ALERTS, session), note)
    return monitor.alert(int(percent), max(new)) if noted and new else ""


def _marker(event: dict[str, Any]) -> dict[str, Any]:
    project = marker.project_of(event)
    try:
        found = marker.marker_in(project) if project else {}
    except marker.Malformed:
        return {}
    return found if marker.is_ours(found) else {}


if __name__ == "__main__":
    sys.exit(main())
