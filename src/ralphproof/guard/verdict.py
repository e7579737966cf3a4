"""The guard's values: where it stands, what it objects to, exceptions, and the denial that agents read."""

from __future__ import annotations

import re

from ralphproof.base.shell import SOME, UNKNOWN
from ralphproof.base.value import replace, value

MAX_REASON_CHARS = 2000
MAX_SHOWN_CHARS = 120


@value
class Standpoint:
    """Where the guard stands: `protected` are paths from the root that nobody may change.

    `task_folder` is a folder outside the usual place in which the user lets the agent leave files; empty for none.
    """

    root: str
    cwd: str
    home: str
    protected: tuple[str, ...] = ()
    task_folder: str = ""


Ground = Standpoint  # callers' name for it; as a value's own name it is taken


@value
class Exceptions:
    """The project's own lists: `rules.py` says what an entry may be."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@value
class Objection:
    """Why a tool call should not happen, and what to do instead."""

    rule: str
    category: str
    reason: str
    instead: str
    what: str

    def because(self, why: str) -> Objection:
        """The same with a closer reason."""
        return replace(self, reason=f"{self.reason}: {why}") if why else self


@value
class Act:
    """One thing that a tool call would do: the ways to say it in words, and what speaks against it."""

    ways: tuple[tuple[str, ...], ...]
    objections: tuple[Objection, ...] = ()


@value
class Rule:
    """One thing the guard objects to: in commands that a pattern of `commands` describes, or by a check."""

    id: str
    category: str
    reason: str
    instead: str
    commands: tuple[str, ...] = ()

    def about(self, what: str) -> Objection:
        """The objection of this rule to one command or path."""
        return Objection(self.id, self.category, self.reason, self.instead, _shorten(what))


def _shorten(what: str) -> str:
    """At most 120 printable characters; what could not be resolved is shown as `…`."""
    named = re.sub(
        f"{UNKNOWN}([^{UNKNOWN}]*){UNKNOWN}",
        lambda found: "$" + found[1] if found[1].isidentifier() else "…",
        what,
    )
    seen = "".join(one if one.isprintable() else " " for one in named.replace(SOME, "…"))
    return seen if len(seen) <= MAX_SHOWN_CHARS else seen[: MAX_SHOWN_CHARS - 1] + "…"


def format_denial(why: str) -> str:
    """A denial in the form that agents' programs read."""
    import json

    denial = {
        "hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": why[:MAX_REASON_CHARS],
    }  # fmt: skip
    return json.dumps({"hookSpecificOutput": denial})
