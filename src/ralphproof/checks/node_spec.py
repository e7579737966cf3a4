"""Who failed, from what Node's spec reporter prints: the tree of all tests, and after the totals a list of failures.

The tree knows where a test belongs, the list in which file it is; both tell of a failure in the same words.
"""

from __future__ import annotations

import re

from ralphproof.value import value

_NODE = r"((?:  )*)([▶✔✖﹣⚠]) (.*)"
_LIST = "✖ failing tests:"
_TITLE = r" \(\d+(?:\.\d+)?ms\)( # .*)?$"  # after the sign: TODO, SKIP, or in what words it was excused


@value
class SpecNode:
    """A line of the tree that says how a test or a suite ended; an outer one ends what it began."""

    title: str
    path: tuple[str, ...]
    outer: bool
    red: bool


def failing(
    before: list[str], after: list[str], red: int, suites: int, last: bool
) -> tuple[list[str], list[str]] | None:
    """The names of tests and suites that failed, and those of all; None where tree, list and counts do not agree."""
    every, listed = _tree(before), _listed(after, last)
    tree = [node for node in every or () if node.red]
    if every is None or listed is None or not len(tree) - suites <= red <= len(tree):
        return None
    names: list[str] = []
    file, at = "", 0
    for node in tree:
        if at < len(listed) and listed[at][1] == node.title:
            file, at = listed[at][0], at + 1
        elif not node.outer:
            return None
        # An outer one that is not listed is in the file of its parts, the last of which came before it.
        names.append(_name(file, node.path))
    return (names, [" > ".join(node.path) for node in every]) if at == len(listed) else None


def _tree(lines: list[str]) -> list[SpecNode] | None:
    """All that the tree tells; None where a part or a whole is missing. A list of an earlier run may precede."""
    begin = max((at + 2 for at, line in enumerate(lines) if line.startswith("test at ")), default=0)
    found: list[SpecNode] = []
    path: list[str] = []
    for line in lines[begin:]:
        node = re.fullmatch(_NODE, line) if line.lstrip(" ")[:1] in ("▶", "✔", "✖", "﹣", "⚠") else None
        if node is None:
            continue
        depth, (name, told) = len(node[1]) // 2, _titled(node[3])
        outer = path[depth:] == [name] and node[2] != "▶"
        if len(path) != depth + outer:
            return None
        path[depth:] = [name] if node[2] == "▶" else []
        if node[2] != "▶":
            found.append(SpecNode(node[3], (*path[:depth], name), outer, node[2] == "✖" and not told))
    return None if path else found


def _listed(lines: list[str], last: bool) -> list[tuple[str, str]] | None:
    """(file, title) of all in the list of failures; None where a line of it is missing. A tree of a run may follow."""
    places = [at for at, line in enumerate(lines) if line.startswith("test at ")]
    end = len(lines) if last else max(places, default=-2) + 2
    titles = [at for at, line in enumerate(lines[:end]) if line.startswith(("✖ ", "⚠ ")) and line != _LIST]
    if [at + 1 for at in places] != titles:
        return None
    red = [at for at in places if lines[at + 1][0] == "✖" and not _titled(lines[at + 1][2:])[1]]
    return [(lines[at][8:].rsplit(":", 2)[0], lines[at + 1][2:]) for at in red]


def _titled(title: str) -> tuple[str, bool]:
    """A test's name, and whether it was not expected to pass."""
    end = re.search(_TITLE, title)
    return (title[: end.start()], end[1] is not None) if end else (title, False)


def _name(file: str, path: tuple[str, ...]) -> str:
    """The whole name. A file that could not be loaded is a test of its own name."""
    own = " > ".join(path)
    return file if f"/{own}".endswith(f"/{file}") else f"{file} > {own}"
