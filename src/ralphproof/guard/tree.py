"""The syntax tree of shell text (tree-sitter, loaded when first needed)."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

DEEPEST = 150  # levels of nesting; a chain of commands with redirections takes two for each
_PARSERS: list[Any] = []


class Node(Protocol):
    """What we use of a node of tree-sitter."""

    @property
    def type(self) -> str: ...
    @property
    def children(self) -> Sequence[Node]: ...
    @property
    def start_byte(self) -> int: ...
    @property
    def end_byte(self) -> int: ...
    @property
    def has_error(self) -> bool: ...


def parsed(source: bytes) -> Node:
    """The root of a text's tree."""
    if not _PARSERS:
        import tree_sitter_bash
        from tree_sitter import Language, Parser

        _PARSERS.append(Parser(Language(tree_sitter_bash.language())))
    root: Node = _PARSERS[0].parse(source).root_node
    return root


def too_deep(root: Node) -> bool:
    """Whether a tree is nested so deeply that it cannot be walked; chains of `&&` do not count."""
    layer, depth = [root], 0
    while layer:
        depth += 1
        if depth > DEEPEST:
            return True
        layer = [below for node in layer for child in node.children for below in _flat(child) if below.children]
    return False


def _flat(node: Node) -> list[Node]:
    return steps(node) if node.type == "list" else [node]


def steps(node: Node) -> list[Node]:
    """The parts of `a && b || c` in order; the tree nests them to the left."""
    found: list[Node] = []
    while node.type == "list" and node.children:
        found.extend(reversed(node.children[1:]))
        node = node.children[0]
    return [node, *reversed(found)]
