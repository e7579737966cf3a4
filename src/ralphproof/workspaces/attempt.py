"""What a turn did to watched files: the list of it, the patch that keeps it, and the plan that undoes it."""

from __future__ import annotations

from ralphproof.value import TYPE_CHECKING, replace
from ralphproof.workspace import Touched
from ralphproof.workspaces.mending import in_the_way
from ralphproof.workspaces.patch import patch
from ralphproof.workspaces.trees import LINK, decode
from ralphproof.workspaces.watched import NO_ACCESS
from ralphproof.workspaces.wire import Guard

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.workspaces.vault import Plan
    from ralphproof.workspaces.watched import Place, Seen
    from ralphproof.workspaces.wire import Wire


class Attempt:
    """Collects what was touched, place by place. `read` gives the content that a digest had before the turn."""

    def __init__(self, read: Callable[[str], bytes], project: Place) -> None:
        self._read, self._project, self.guard = read, project, Guard(project)
        self._touched: list[Touched] = []
        self.plan: Plan = {}
        self.patch = b""

    def add(self, name: str, place: Place, path: bytes, old: Seen | None, new: Seen | None) -> None:
        """A file is not as it was: it must become that again."""
        self.tell(place, path, place.wire_of(path))
        self.undo(name, place, path, old, new, old)

    def tell(self, place: Place, path: bytes, wire: Wire) -> None:
        """A path was touched, against the rule of this wire."""
        self._touched.append(Touched(place.prefix + decode(path), wire.rule, wire.stops))

    def held(self, path: str, by: str, way_out: str) -> None:
        """A commit holds a change of a protected path, whatever the file is now; how to take it out of there."""
        named = path.encode("utf-8", "surrogateescape")
        here = next((place for place, one in enumerate(self._touched) if one.path == path and one.stops), None)
        if here is None:
            self.tell(self._project, named, self._project.wire_of(named))
            here = -1
        known = self._touched[here]
        if way_out in known.way_out.split("; "):
            way_out = ""
        held_by, ways = (known.held_by, by), (known.way_out, way_out)
        self._touched[here] = replace(known, held_by=_joined(held_by), way_out=_joined(ways))

    @property
    def stopping(self) -> list[str]:
        """The protected paths that were touched."""
        return [one.path for one in self._touched if one.stops]

    @property
    def listed(self) -> tuple[Touched, ...]:
        """What was touched, protected paths first."""
        return tuple(sorted(self._touched, key=lambda one: (not one.stops, one.path)))

    def undo(
        self, name: str, place: Place, path: bytes, old: Seen | None, new: Seen | None, wanted: Seen | None
    ) -> None:
        """Keep the difference, and plan what the path must become."""
        self.patch += self._piece(place, path, old, new)
        self.plan.setdefault(name, {})[path] = wanted

    def clear_the_way(self, name: str, place: Place) -> None:
        """Plan the removal of files and links that stand where folders must be again."""
        planned = self.plan.get(name, {})
        needed = sorted(path for path, wanted in planned.items() if wanted is not None)
        for path in sorted(in_the_way(place.folder, needed) - planned.keys()):
            below = next(one for one in needed if one.startswith(path + b"/"))
            self.tell(place, path, place.wire_of(below))
            self.undo(name, place, path, None, place.at(path), None)

    def _piece(self, place: Place, path: bytes, old: Seen | None, new: Seen | None) -> bytes:
        shown = place.prefix.encode() + path
        contents: dict[str, bytes] = {}
        try:
            if old is not None and old[0] != NO_ACCESS:
                contents[old[1]] = self._read(old[1])
            if new is not None and new[0] != NO_ACCESS:
                contents[new[1]] = place.content(path, new)
            return _patch(shown, old and old[:2], new and new[:2], contents)
        except (OSError, KeyError):  # it cannot be read, or is too large: named all the same
            return b"diff --git a/%s b/%s\nBinary files a/%s and b/%s differ\n" % ((shown,) * 4)


def _joined(parts: tuple[str, str]) -> str:
    return "; ".join(filter(None, parts))


def _patch(
    path: bytes, old: tuple[bytes, str] | None, new: tuple[bytes, str] | None, contents: dict[str, bytes]
) -> bytes:
    """A link that became a file, or the reverse, is shown as git does: one went, another came."""
    if old and new and (old[0] == LINK) != (new[0] == LINK):
        return patch(path, old, None, contents.__getitem__) + patch(path, None, new, contents.__getitem__)
    return patch(path, old, new, contents.__getitem__)
