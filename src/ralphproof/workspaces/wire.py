"""Wires: the patterns that are watched, made ready to be looked for."""

from __future__ import annotations

from ralphproof.value import TYPE_CHECKING, value
from ralphproof.workspaces.protected import GIT, is_glob, leftover, matcher, passed_over, protects, reach
from ralphproof.workspaces.trees import decode

if TYPE_CHECKING:
    from re import Pattern

    from ralphproof.workspaces.watched import Place


@value
class Wire:
    """A pattern that is watched, and why. What it means `stops` a run when it changes, or is only put back."""

    pattern: str
    rule: str
    stops: bool = False


@value
class Glob:
    """Patterns of many names, made ready: all that they mean lies below `folder`, at most so `deep`."""

    folder: bytes
    deep: int | None
    means: Pattern[bytes]
    passed_over: frozenset[bytes]  # folders that are not looked into


class Guard:
    """Tells protected paths of a place from others, many at a time."""

    def __init__(self, place: Place) -> None:
        self._folders = tuple(root + b"/" for root, number in place.roots if place.wires[number].stops)
        self._globs = [wire.pattern for wire in place.wires if wire.stops and is_glob(wire.pattern)]

    def __bool__(self) -> bool:
        return bool(self._folders or self._globs)

    def __call__(self, path: bytes) -> bool:
        if (path + b"/").startswith(self._folders):
            return not leftover(path) and GIT not in path.split(b"/")
        return any(protects(pattern, decode(path)) for pattern in self._globs)


def globs_of(patterns: list[str]) -> tuple[Glob, ...]:
    """One search for all patterns that are looked for in the same folders."""
    alike: dict[tuple[tuple[bytes, int | None], frozenset[bytes]], list[str]] = {}
    for pattern in patterns:
        alike.setdefault((reach(pattern), passed_over(pattern)), []).append(pattern)
    return tuple(Glob(*where, matcher(*those), over) for (where, over), those in alike.items())
