"""Layers of settings merged into one object, the origin of each value, and the path of the user's file."""

from __future__ import annotations

import os

from ralphproof.base.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


DEFAULT_LAYER = "default"


@value
class SettingsLayer:
    """The settings from one place, and its name in messages. Only the user's own file may have caps and prices."""

    name: str
    data: dict[str, Any]
    users_own: bool = False


@value
class MergedSettings:
    """All layers merged into one object, and the name of the layer behind each path."""

    raw: dict[str, Any]
    origins: dict[str, str]

    def chosen(self, path: str) -> bool:
        """Whether the user or the project set this, rather than a default or the preset."""
        origin = self.origins.get(path, DEFAULT_LAYER)
        return origin != DEFAULT_LAYER and not origin.startswith("preset ")

    def at(self, path: str) -> Any:
        """The value at a path; None if there is none."""
        return value_at(self.raw, path)


def merge_layers(ground: tuple[SettingsLayer, ...], layers: list[SettingsLayer]) -> MergedSettings:
    """Later layers win: scalars override, lists replace, objects merge."""
    raw: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in (*ground, *layers):
        _merge_into(raw, layer.data, origins, layer.name)
    return MergedSettings(raw, origins)


def _merge_into(into: dict[str, Any], over: dict[str, Any], origins: dict[str, str], name: str, path: str = "") -> None:
    for key, inner in over.items():
        here, old = path + key, into.get(key)
        if isinstance(inner, dict) and (inner or isinstance(old, dict)):
            into[key] = old if isinstance(old, dict) else {}
            if inner:
                origins.pop(here, None)
            _merge_into(into[key], inner, origins, name, f"{here}.")
            continue
        for stale in [known for known in origins if known.startswith(f"{here}.")] if isinstance(old, dict) else ():
            del origins[stale]
        into[key], origins[here] = {} if isinstance(inner, dict) else inner, name


def value_at(data: Any, path: str) -> Any:
    """The value at a dotted path; None if there is none."""
    for name in path.split("."):
        data = data.get(name) if isinstance(data, dict) else None
    return data


def user_settings_path(environ: Mapping[str, str]) -> str:
    """The path of the user's own settings file, whether or not it exists."""
    if folder := environ.get("RALPH_CONFIG_DIR"):
        return os.path.join(os.path.abspath(folder), "settings.json")
    xdg = environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(xdg):  # the XDG rules say that a relative one is ignored
        xdg = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".config")
    return os.path.join(xdg, "ralphproof", "settings.json")
