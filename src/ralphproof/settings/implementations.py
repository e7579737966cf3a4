"""Registry of implementations by name: built-in, entry points, `package.module:Name`."""

from __future__ import annotations

import os
import sys

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints
    from typing import Any


BUILTIN: dict[str, dict[str, str]] = {
    # Adapters by the base name of the agent's program, in the order in which an agent is looked for.
    "agents": {
        "claude": "ralphproof.agents.claude:Claude",
        "codex": "ralphproof.agents.codex:Codex",
        "gemini": "ralphproof.agents.gemini:Gemini",
        "qwen": "ralphproof.agents.qwen:Qwen",
        "opencode": "ralphproof.agents.opencode:OpenCode",
        "copilot": "ralphproof.agents.copilot:Copilot",
        "amp": "ralphproof.agents.amp:Amp",
        "pi": "ralphproof.agents.pi:Pi",
    },
    # Further kinds of checks by the name of their method: `factory(name, config, context)` returns the check.
    "checks": {},
    "sandboxes": {},  # the table of the built-in ones is sandbox/selection.py
}


def resolve_implementation(group: str, name: str) -> Any:
    """The implementation of a name in a group; raises Refused with the names that exist."""
    if target := BUILTIN[group].get(name):
        return _import_target(group, name, target)
    points = _entry_points(group)
    if name in points.names:
        return _import_target(group, name, points[name].value)
    if ":" in name:
        return _import_target(group, name, name)
    known = ", ".join(sorted({*BUILTIN[group], *points.names})) or "none"
    raise Refused(f"{group} has no {name!r}; there are: {known}; others are named as package.module:Name")


def is_registered(group: str, name: str) -> bool:
    """Whether a name is built in, or an entry point of an installed distribution."""
    return name in BUILTIN[group] or (_may_be_declared(group) and name in _entry_points(group).names)


def plugin_names(group: str) -> tuple[str, ...]:
    """The names that installed distributions add to a group."""
    return tuple(sorted(_entry_points(group).names - BUILTIN[group].keys())) if _may_be_declared(group) else ()


def _may_be_declared(group: str) -> bool:
    """Whether a distribution may have entry points of this group: to know for sure takes 45 ms (CPython 3.11)."""
    header = f"[ralphproof.{group}]".encode()
    for folder in sys.path:
        try:
            infos = [name for name in os.listdir(folder or ".") if name.endswith((".dist-info", ".egg-info"))]
        except OSError:
            continue
        if any(header in _read_text(os.path.join(folder, info, "entry_points.txt")) for info in infos):
            return True
    return False


def _read_text(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _entry_points(group: str) -> EntryPoints:
    from importlib.metadata import entry_points

    return entry_points(group=f"ralphproof.{group}")


def _import_target(group: str, name: str, target: str) -> Any:
    try:
        return load_object(target)
    except (ImportError, AttributeError, ValueError, SyntaxError) as error:
        missing = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
        ours = name in BUILTIN[group] and not missing.startswith("ralphproof")
        why = f"{missing} is not installed (pip install ralphproof)" if missing and ours else str(error)
        raise Refused(f"{group} {name!r} cannot be loaded: {why}") from error


def load_object(target: str) -> Any:
    """The object that `package.module:Name` names."""
    from importlib import import_module

    module, _, attribute = target.partition(":")
    found: Any = import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found
