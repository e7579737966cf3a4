"""The table that says which misbehaviour is tested where can be believed."""

from __future__ import annotations

import ast
import json
import re
from functools import cache

import pytest

from tests.house.source import ROOT

FOLDER = ROOT / "tests" / "misbehaviour"
ROW = re.compile(r"^\| ([A-Z]{2}-\d\d) \| .+? \|(.*)\|$", re.MULTILINE)
NAMED = re.compile(r"`([\w/.]+\.py)::(\w+)`")
MOST_LEFT = 0.1

IDS: dict[str, str] = json.loads((FOLDER / "ids.json").read_text("utf-8"))


def rows(text: str) -> list[tuple[str, str]]:
    """(id, covered by) of every row."""
    return [(id, cell.strip()) for id, cell in ROW.findall(text)]


TABLE = rows((FOLDER / "COVERAGE.md").read_text("utf-8"))


@cache
def sources_of(path: str) -> dict[str, str]:
    """The source of every test function of a file, decorators and all."""
    text = (ROOT / path).read_text("utf-8")
    lines = text.splitlines()
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    first = {node.name: min([node.lineno, *(part.lineno for part in node.decorator_list)]) for node in functions}
    return {
        node.name: "\n".join(lines[first[node.name] - 1 : node.end_lineno])
        for node in functions
        if node.name.startswith("test_")
    }


def wrong(id: str, cell: str) -> str:
    """Why this row cannot be believed; empty where it can."""
    if re.match(r"(later|left): \S", cell):
        return ""
    named = NAMED.findall(cell)
    if not named:
        return "names no test, and is neither `later: ...` nor `left: ...`"
    for path, name in named:
        if not (ROOT / path).is_file() or name not in sources_of(path):
            return f"names {path}::{name}, which does not exist"
        if id not in sources_of(path)[name]:
            return f"names {path}::{name}, which does not name {id}"
    return ""


def test_every_id_has_one_row() -> None:
    assert [id for id, _ in TABLE] == list(IDS)


@pytest.mark.parametrize("family", sorted({id[:2] for id in IDS}))
def test_every_row_can_be_believed(family: str) -> None:
    found = {id: wrong(id, cell) for id, cell in TABLE if id.startswith(family)}
    assert {id: why for id, why in found.items() if why} == {}


def test_few_cases_are_left() -> None:
    due = [cell for _, cell in TABLE if not cell.startswith("later: ")]
    left = [cell for cell in due if cell.startswith("left: ")]
    assert len(left) <= MOST_LEFT * len(due), left


@pytest.mark.parametrize(
    ("id", "cell", "believed"),
    [
        ("FC-01", "later: stories", True),
        ("FC-01", "left: no such machine", True),
        ("FC-01", "", False),
        ("FC-01", "soon", False),
        ("FC-01", "left:", False),
        ("FC-01", "`tests/misbehaviour/test_nowhere.py::test_it`", False),
        ("FC-01", "`tests/misbehaviour/test_false_completion.py::test_nothing`", False),
        ("FC-10", "`tests/misbehaviour/test_false_completion.py::test_of_two_tags_the_first_counts`", True),
        ("FC-11", "`tests/misbehaviour/test_false_completion.py::test_of_two_tags_the_first_counts`", False),
    ],
)
def test_a_row_is_believed_only_if_it_is_true(id: str, cell: str, believed: bool) -> None:
    assert (wrong(id, cell) == "") is believed
