"""Who waits for whom: doubled names, unknown ones, and circles."""

from __future__ import annotations

from ralphproof.plans.rules import nearest
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ralphproof.plans.draft import Draft

MOST_NAMED = 20  # circles, and names of one


def tangles(drafts: tuple[Draft, ...], known: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """What is wrong between tasks, each in one line. `known` are the tasks there already, and what each depends on.

    A draft stands for the known task of its name.
    """
    from collections import Counter

    ids = Counter(draft.id for draft in drafts)
    edges = {**known, **{draft.id: draft.dependencies for draft in drafts}}
    doubled = (f"{name}: the id is given {times} times" for name, times in ids.items() if times > 1)
    return (
        *doubled,
        *(line for draft in drafts for line in _unknown(draft, edges)),
        *(f"{circle[0]}: dependencies go in a circle: {_named(circle)}" for circle in circles(edges)),
    )


def _unknown(draft: Draft, edges: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    for name in dict.fromkeys(draft.dependencies):
        if name not in edges:
            yield f"{draft.id}: dependencies name {name}, which is no task{nearest(name, edges)}"


def _named(circle: tuple[str, ...]) -> str:
    if len(circle) > MOST_NAMED:
        return " -> ".join([*circle[:MOST_NAMED], f"... ({len(circle) - MOST_NAMED - 1} more)", circle[-1]])
    return " -> ".join(circle)


def circles(edges: Mapping[str, tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Ways that lead back to where they begin, such as ("A", "B", "A"): none where there is none, else the first 20."""
    found: list[tuple[str, ...]] = []
    left: set[str] = set()
    for start in edges:
        names, ways, places = [start], [iter(edges[start])], {start: 0}
        while ways and start not in left and len(found) < MOST_NAMED:  # no recursion: a chain may be long
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
