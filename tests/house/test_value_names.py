"""The name of a value class is its kind in JSON: no two share one, whichever of them are loaded together."""

from __future__ import annotations

import ast
from collections import defaultdict

from .source import SOURCE


def test_no_two_value_classes_share_a_name() -> None:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and any(ast.unparse(one) == "value" for one in node.decorator_list):
                found[node.name].add(str(path.relative_to(SOURCE)))
    assert found
    assert {name: sorted(places) for name, places in found.items() if len(places) > 1} == {}
