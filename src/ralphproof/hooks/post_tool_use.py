"""After every tool call, failed ones too: say when the context is getting full, once for each threshold."""

from __future__ import annotations

import json
import sys

from ralphproof.hooks import given, monitor, once
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

ALERTS = "claude-context-alerts"


def main() -> int:
    """Tell, or be silent. Whatever goes wrong here must not disturb the agent."""
    try:
        event = given.event()
        said = message(event)
        if said:
            name = given.text(event, "hook_event_name") or "PostToolUse"
            print(json.dumps({"hookSpecificOutput": {"hookEventName": name, "additionalContext": said}}))
    except Exception as error:  # noqa: BLE001
        print(f"ralph hook: the context monitor failed: {error!r}", file=sys.stderr)
    return 0


def message(event: dict[str, Any]) -> str:
    """What the agent is told now; empty for nothing."""
    path, session = given.text(event, "transcript_path"), given.text(event, "session_id")
    fill = monitor.fill_of(path, monitor.divisor()) if path and session else None
    if fill is None:
        return ""
    percent = 100 * fill.tokens / monitor.window_of(fill, _marker(event))
    over = list(monitor.crossed(percent))
    if not over:
        return ""
    new: list[int] = []

    def note(before: str) -> str:
        told = set(before.split())
        new.extend(one for one in over if str(one) not in told)
        return "".join(f"{one}\n" for one in sorted({*told, *map(str, over)}))

    once.change(once.path_of(ALERTS, session), note)
    return monitor.alert(int(percent), max(new)) if new else ""


def _marker(event: dict[str, Any]) -> dict[str, Any]:
    project = given.project_of(event)
    try:
        marker = given.marker_in(project) if project else {}
    except given.Malformed:
        return {}
    return marker if given.is_ours(marker) else {}


if __name__ == "__main__":
    sys.exit(main())
