"""How often an end is refused. An agent that cannot do better must end, before its host loses patience with us."""

from __future__ import annotations

import os

from ralphproof.hooks import given, once
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

# Refusals in a row, after which Claude Code lets an agent stop and loses its last message (2.1.325). Codex has none.
HOST_CAP = 8
MOST_CAP = 100
SAME = 3  # times that one reason is worth telling


def worth_telling(event: dict[str, Any], reason: str) -> bool:
    """Whether to refuse this end, which counts as refused from now on."""
    session, again = given.text(event, "session_id"), event.get("stop_hook_active")
    turn, mark = _turn(event), once.digest(reason)
    told: list[str] = []

    def count(before: str) -> str:
        of, *marks = before.split("\n")
        told.extend(marks if of == turn and (turn or again is not False) else ())
        return "\n".join((turn, *told, mark))

    if not session or not once.change(once.path_of(once.BLOCKS, session), count):
        return again is not True
    in_a_row = next((at for at, one in enumerate(reversed(told)) if one != mark), len(told))
    return len(told) < _most() and in_a_row < SAME


def _turn(event: dict[str, Any]) -> str:
    """What all ends of one turn have in common, whatever its host says of earlier refusals; empty where unknown."""
    name = given.text(event, "prompt_id") or given.text(event, "turn_id")
    return once.digest(name) if name else ""


def _most() -> int:
    """One less than the host takes, and one at the least: other hooks may refuse too."""
    try:
        cap = int(os.environ.get("CLAUDE_CODE_STOP_HOOK_BLOCK_CAP", ""))
    except ValueError:
        cap = HOST_CAP
    return max(1, min(cap, MOST_CAP) - 1) if cap > 0 else HOST_CAP - 1
