"""If a preset seems to need an `if` in the loop, a noun is wrong."""

from __future__ import annotations

import ast
import re

import pytest

from tests.house.source import SOURCE, tree_of

PRESETS = {"wrapper", "harness", "pipeline", "supervise", "stories"}
# These are words of the domain too; as names in code they do not mean the preset.
NOUNS = {"pipeline", "harness"}


def docstrings(tree: ast.Module) -> set[int]:
    """The nodes that are documentation."""
    owners = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    firsts = [owner.body[0] for owner in owners if owner.body]
    return {id(first.value) for first in firsts if isinstance(first, ast.Expr)}


def texts_of(tree: ast.Module) -> list[str]:
    """Every text in the code that is no documentation."""
    documents = docstrings(tree)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in documents]
    return [node.value for node in nodes if isinstance(node.value, str)]


def test_the_presets_are_those_that_this_test_knows() -> None:
    assert {path.stem for path in (SOURCE / "presets").iterdir() if path.suffix == ".json"} == PRESETS


@pytest.mark.parametrize("file", ["engine/loop.py", "engine/next_action.py"])
def test_the_loop_names_no_preset(file: str) -> None:
    words = {word.lower() for word in re.findall(r"[A-Za-z]+", (SOURCE / file).read_text("utf-8"))}
    assert words & ((PRESETS - NOUNS) | {"preset", "presets"}) == set()
    assert set(texts_of(tree_of(file))) & PRESETS == set()


def test_a_preset_in_a_comparison_would_be_seen() -> None:
    tree = ast.parse('"""harness"""\nif rules.name == "harness":\n    pass')
    assert set(texts_of(tree)) & PRESETS == {"harness"}
