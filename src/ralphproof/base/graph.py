"""Cycles in a dependency graph."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


MAX_CYCLES = 20  # circles, and names of one


def find_cycles(edges: Mapping[str, tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The first 20 cycles, such as ("A", "B", "A"); empty where there is none."""
    found: list[tuple[str, ...]] = []
    left: set[str] = set()
    for start in edges:
        names, ways, places = [start], [iter(edges[start])], {start: 0}
        while ways and start not in left and len(found) < MAX_CYCLES:  # no recursion: a chain may be long
            goal = next(ways[-1], None)
            if goal is None:
                ways.pop()
                left.add(names[-1])
                del places[names.pop()]
            elif goal in places:
                found.append((*names[places[goal] :], goal))
            elif goal in edges and goal not in left:
                places[goal] = len(names)
                names.append(goal)
                ways.append(iter(edges[goal]))
    return found
