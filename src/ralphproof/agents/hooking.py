"""Hooks for one turn alone: what an agent's program is told to call at its own events, in each program's form."""

from __future__ import annotations

import os

import msgspec

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ralphproof.agents.dialect import Call

SETTINGS = ".settings.json"
TIMEOUT_S = 20
GUARD = "PreToolUse"
# A call whose guard is waited for in vain is made all the same: then it must be the turn that ends, by its own limits.
GUARD_TIMEOUT_S = 24 * 3600
FOR_EVERY_TOOL = (GUARD, "PostToolUse", "PostToolUseFailure")
# Codex tells of a tool that failed as of any other.
CODEX_NAMES = {GUARD: "pre_tool_use", "Stop": "stop", "PostToolUse": "post_tool_use", "SessionStart": "session_start"}
CODEX_PLACE = "/<session-flags>/config.toml:{}:{}:0"  # how it names a hook of its command line: event, and group


def table(call: Call) -> dict[str, Any]:
    """The events and what is called at each, in the form that Claude Code gave to the world."""
    return {
        event: [{**({"matcher": ".*"} if event in FOR_EVERY_TOOL else {}), "hooks": [_handler(event, command)]}]
        for event, command in call.brief.hooks
    }


def _handler(event: str, command: str) -> dict[str, Any]:
    return {"type": "command", "command": command, "timeout": GUARD_TIMEOUT_S if event == GUARD else TIMEOUT_S}


def _is_watched(call: Call) -> bool:
    """Whether a guard looks at every call: then no other setting may keep hooks from being called."""
    return any(event == GUARD for event, _ in call.brief.hooks)


def settings_with(call: Call, own: str | None) -> str:
    """Claude Code's settings for this turn: the user's own, as their flags give them, hooks, and what it may run.

    Empty where it would not start with the user's own: it shall say so itself.
    """
    settings = _own(own, call.brief.cwd)
    if settings is None:
        return ""
    hooks = _table_in(settings, "hooks")
    for event, groups in table(call).items():
        hooks = hooks | {event: [*_list_in(hooks, event), *groups]}
    rules = _table_in(settings, "permissions")
    if call.guarded and call.brief.may_run:
        allowed = [_rule(command) for command in call.brief.may_run]
        rules = rules | {"allow": [*_list_in(rules, "allow"), *allowed]}
    made = settings | {"hooks": hooks} | ({"permissions": rules} if rules else {})
    made |= {"disableAllHooks": False} if _is_watched(call) else {}
    return msgspec.json.encode(made).decode()


def _rule(command: str) -> str:
    """What permits this command. A star would stand for anything, but not before `:*`, which stands for more words."""
    text = command.strip().replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
    return f"Bash({text}:*)" if "*" in text.removesuffix(":*") else f"Bash({text})"


def _table_in(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = settings.get(name)
    return found if isinstance(found, dict) else {}


def _list_in(settings: Mapping[str, Any], name: str) -> list[Any]:
    found = settings.get(name)
    return found if isinstance(found, list) else []


def _own(given: str | None, cwd: str) -> dict[str, Any] | None:
    """What a user's `--settings` say, in a file or by themselves; None where Claude Code refuses to start with them.

    A file that holds something else it passes over (2.1.325).
    """
    text = (given or "{}").strip()
    named = not (text.startswith("{") and text.endswith("}"))
    try:
        found = msgspec.json.decode(_contents(os.path.join(cwd, text)) if named else text)
    except OSError:
        return None
    except ValueError:
        return {} if named else None
    return found if isinstance(found, dict) else {}


def _contents(path: str) -> str:
    with open(path, encoding="utf-8-sig") as file:
        return file.read()


# Codex


def overrides(call: Call, own: Mapping[str, Any]) -> tuple[str, ...]:
    """The same for Codex, as settings on its command line, beside the user's `own` there and those of its files.

    It runs hooks that somebody has trusted, by their digests: ours are trusted here, and nobody else's.
    """
    made: dict[str, Any] = {}
    trusted = _table_in(own, "hooks.state")
    for event, groups in table(call).items():
        if name := CODEX_NAMES.get(event):
            before = _list_in(own, f"hooks.{event}")
            made[f"hooks.{event}"] = [*before, *groups]
            trusted = trusted | {CODEX_PLACE.format(name, len(before)): {"trusted_hash": _digest(name, groups[0])}}
    made |= {"hooks.state": trusted} | ({"features.hooks": True} if _is_watched(call) else {})
    return tuple(f"{key}={_toml(item)}" for key, item in made.items())


def _digest(event: str, group: dict[str, Any]) -> str:
    """What Codex knows a hook by (0.166)."""
    import hashlib

    handlers = [handler | {"async": False} for handler in group["hooks"]]
    known = msgspec.json.encode(group | {"event_name": event, "hooks": handlers}, order="sorted")
    return f"sha256:{hashlib.sha256(known).hexdigest()}"


def _toml(thing: Any) -> str:
    """Inline TOML of tables, lists, texts, numbers and truths."""
    if isinstance(thing, dict):
        return "{" + ",".join(f"{_toml(name)}={_toml(item)}" for name, item in thing.items()) + "}"
    if isinstance(thing, list):
        return "[" + ",".join(map(_toml, thing)) + "]"
    return msgspec.json.encode(thing).decode()
