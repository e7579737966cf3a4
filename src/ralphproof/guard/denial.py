"""The denial of a tool call in the form that agents' programs read."""

from __future__ import annotations

import json

MAX_REASON_CHARS = 2000


def format_denial(why: str) -> str:
    """A denial in the form that agents' programs read."""
    denial = {
        "hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": why[:MAX_REASON_CHARS],
    }  # fmt: skip
    return json.dumps({"hookSpecificOutput": denial})
