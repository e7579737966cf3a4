"""Settings from several places laid over each other, and the memory of where each value came from."""

from __future__ import annotations

from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from typing import Any

DEFAULT = "default"


@value
class Layer:
    """What one place says, and how messages name that place. Only the user's own file may hold caps and prices."""

    name: str
    data: dict[str, Any]
    users_own: bool = False


@value
class Merged:
    """All layers as one object, and the name of the layer behind each path in it."""

    raw: dict[str, Any]
    origins: dict[str, str]

    def chosen(self, path: str) -> bool:
        """Whether somebody set this, rather than the table or the preset."""
        origin = self.origins.get(path, DEFAULT)
        return origin != DEFAULT and not origin.startswith("preset ")

    def at(self, path: str) -> Any:
        """The value at a path; None where there is none."""
        return at(self.raw, path)


def merged(ground: tuple[Layer, ...], layers: list[Layer]) -> Merged:
    """Later layers win: scalars override, lists replace, objects merge."""
    raw: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in (*ground, *layers):
        _lay(raw, layer.data, origins, layer.name)
    return Merged(raw, origins)


def _lay(into: dict[str, Any], over: dict[str, Any], origins: dict[str, str], name: str, path: str = "") -> None:
    for key, inner in over.items():
        here, old = path + key, into.get(key)
        if isinstance(inner, dict) and (inner or isinstance(old, dict)):
            into[key] = old if isinstance(old, dict) else {}
            if inner:
                origins.pop(here, None)
            _lay(into[key], inner, origins, name, f"{here}.")
            continue
        for stale in [known for known in origins if known.startswith(f"{here}.")] if isinstance(old, dict) else ():
            del origins[stale]
        into[key], origins[here] = {} if isinstance(inner, dict) else inner, name


def at(data: Any, path: str) -> Any:
    """The value at a dotted path; None where there is none."""
    for name in path.split("."):
        data = data.get(name) if isinstance(data, dict) else None
    return data
