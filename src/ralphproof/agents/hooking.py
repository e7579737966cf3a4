"""Hooks for one turn alone: what an agent's program is told to call at its own events, in each program's form."""

from __future__ import annotations

import msgspec

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.agents.dialect import Call

SETTINGS = ".settings.json"
TIMEOUT_S = 20
FOR_EVERY_TOOL = ("PreToolUse", "PostToolUse", "PostToolUseFailure")


def table(call: Call) -> dict[str, Any]:
    """The events and what is called at each, in the form that Claude Code gave to the world."""
    return {
        event: [
            {
                **({"matcher": ".*"} if event in FOR_EVERY_TOOL else {}),
                "hooks": [{"type": "command", "command": command, "timeout": TIMEOUT_S}],
            }
        ]
        for event, command in call.brief.hooks
    }


def settings_with(call: Call, own: str | None) -> str:
    """Claude Code's settings for this turn: the user's own, as their flags give them, hooks, and what it may run."""
    settings = _own(own, call.brief.cwd)
    hooks = _table_in(settings, "hooks")
    for event, groups in table(call).items():
        hooks = hooks | {event: [*_list_in(hooks, event), *groups]}
    rules = _table_in(settings, "permissions")
    if call.guarded and call.brief.may_run:
        allowed = [f"Bash({command})" for command in call.brief.may_run]
        rules = rules | {"allow": [*_list_in(rules, "allow"), *allowed]}
    made = settings | {"hooks": hooks} | ({"permissions": rules} if rules else {})
    return msgspec.json.encode(made).decode()


def _table_in(settings: dict[str, Any], name: str) -> dict[str, Any]:
    found = settings.get(name)
    return found if isinstance(found, dict) else {}


def _list_in(settings: dict[str, Any], name: str) -> list[Any]:
    found = settings.get(name)
    return found if isinstance(found, list) else []


def _own(given: str | None, cwd: str) -> dict[str, Any]:
    import os

    text = (given or "").strip()
    if text and not text.startswith("{"):
        try:
            with open(os.path.join(cwd, text), encoding="utf-8") as file:
                text = file.read()
        except (OSError, ValueError):
            return {}
    try:
        found = msgspec.json.decode(text) if text else {}
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def overrides(call: Call) -> tuple[str, ...]:
    """The same for Codex, as settings on its command line: those of its files stay beside them."""
    return tuple(f"hooks.{event}={_toml(groups)}" for event, groups in table(call).items())


def _toml(thing: Any) -> str:
    """Inline TOML of tables, lists, texts and numbers."""
    if isinstance(thing, dict):
        return "{" + ",".join(f"{name}={_toml(item)}" for name, item in thing.items()) + "}"
    if isinstance(thing, list):
        return "[" + ",".join(map(_toml, thing)) + "]"
    return msgspec.json.encode(thing).decode()
