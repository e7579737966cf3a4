"""`python -O` removes asserts, `-OO` docstrings: nothing at run time may need them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.house.source import SOURCE, files, tree_of

PURE = ("isinstance", "callable", "len")


def missed(file: str) -> Iterator[str]:
    """What a file would lack."""
    text = (SOURCE / file).read_text("utf-8")
    if "__doc__" in text:
        yield f"{file}: __doc__"
    if "assert " not in text:
        return
    for node in ast.walk(tree_of(file)):
        for part in ast.walk(node.test) if isinstance(node, ast.Assert) else ():
            does = isinstance(part, ast.NamedExpr | ast.Await) or (
                isinstance(part, ast.Call) and ast.unparse(part.func) not in PURE
            )
            if does:
                yield f"{file}: assert {ast.unparse(part)}"


def test_nothing_depends_on_docstrings_or_on_what_an_assert_does() -> None:
    assert [fault for file in files() for fault in missed(file)] == []
