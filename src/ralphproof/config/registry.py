"""Names of implementations: ours by a literal table, then entry points, then `package.module:Name`."""

from __future__ import annotations

from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints
    from typing import Any

TABLE: dict[str, dict[str, str]] = {
    "agents": {"command": "ralphproof.agents.command:CommandAgent", "scripted": "ralphproof.agents.scripted:Scripted"},
    "checks": {"command": "ralphproof.checks.command:CommandCheck"},
    "limits": {},
    "observers": {},
    "plans": {"inline": "ralphproof.plans.inline:Inline"},
    "sandboxes": {"direct": "ralphproof.sandboxes.direct:Direct"},
    "workspaces": {"git": "ralphproof.workspaces.git:Git", "plain": "ralphproof.workspaces.plain:Plain"},
}


def resolve(group: str, name: str) -> Any:
    """What a name stands for in a group; raises Refused with the names that exist."""
    if target := TABLE[group].get(name):
        return _imported(group, name, target)
    points = _entry_points(group)
    if name in points.names:
        return _imported(group, name, points[name].value)
    if ":" in name:
        return _imported(group, name, name)
    known = ", ".join(sorted({*TABLE[group], *points.names})) or "none"
    raise Refused(f"{group} has no {name!r}; there are: {known}; others are named as package.module:Name")


def _entry_points(group: str) -> EntryPoints:
    from importlib.metadata import entry_points

    return entry_points(group=f"ralphproof.{group}")


def _imported(group: str, name: str, target: str) -> Any:
    from importlib import import_module

    module, _, attribute = target.partition(":")
    try:
        found: Any = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise Refused(f"{group} {name!r} cannot be loaded: {error}") from error
    return found
