"""Which variables come inside a box whose entering program must be given their names."""

from __future__ import annotations

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralphproof.sandboxes.box import Box

MARK = "RALPH_TURN"  # by which whoever owns a command finds its processes


def names_told(box: Box, present: Iterable[str]) -> tuple[str, ...]:
    """Those `present` that the box keeps, those that it sets, and the mark."""
    names = {name for name in box.keeps if not name.endswith("*")}
    beginnings = tuple(name[:-1] for name in box.keeps if name.endswith("*"))
    kept = [name for name in sorted(present) if name in names or (beginnings and name.startswith(beginnings))]
    return tuple(dict.fromkeys((*kept, *(name for name, _ in box.sets), MARK)))
