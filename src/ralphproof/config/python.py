"""The checks of a Python project, by its own files."""

from __future__ import annotations

import os
import re

from ralphproof.config.top import Proposal, Top
from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.gitcall import find_program

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

ENVIRONMENTS = (".venv", "venv")
PROJECT = "pyproject.toml"
MOST_TESTS = 20  # files are read to learn how they are written
_TEST_FILE = r"test_.*\.py|.*_test\.py"
_PYTEST = re.compile(r"\s*pytest(?![a-z0-9])", re.IGNORECASE)  # pytest-cov and its like bring it along
_ONLY_PYTEST = re.compile(r"^(?:(?:async )?def test_|import pytest\b|from pytest\b)", re.MULTILINE)


def python_checks(top: Top, environ: Mapping[str, str]) -> Iterator[tuple[str, Proposal]]:
    """What each check aims at, and the check."""
    project = top.toml(PROJECT)
    tools = _table(project, "tool")
    if source := top.has("ruff.toml", ".ruff.toml") or ("ruff" in tools and PROJECT):
        yield "lint", Proposal(f"{_tool(top, 'ruff')} check .", source)
    if source := top.has("mypy.ini", ".mypy.ini") or ("mypy" in tools and PROJECT):
        where = "" if {"files", "packages"} & set(_table(tools, "mypy")) else " ."
        yield "typecheck", Proposal(f"{_tool(top, 'mypy')}{where}", source)
    if source := _pytest_source(top, project, tools):
        yield "test", _pytest(top, environ, source)
    elif source := top.has("tox.ini") or ("tox" in tools and PROJECT):
        yield "test", Proposal(_tool(top, "tox"), source)
    elif source := top.has("noxfile.py"):
        yield "test", Proposal(_tool(top, "nox"), source)
    else:
        yield from (("test", proposal) for proposal in _by_test_files(top, environ))


def _table(data: dict[str, Any], name: str) -> dict[str, Any]:
    inner = data.get(name)
    return inner if isinstance(inner, dict) else {}


def _tool(top: Top, name: str) -> str:
    """A program of the project's own environment, else by its name alone."""
    if top.has("uv.lock"):
        return f"uv run {name}"
    return top.runs(*(f"{folder}/bin/{name}" for folder in ENVIRONMENTS)) or name


def _interpreter(top: Top, environ: Mapping[str, str]) -> str:
    """The project's own Python, else `python3`; many machines have no `python`, or an old one by that name."""
    if own := top.runs(*(f"{folder}/bin/python" for folder in ENVIRONMENTS)):
        return own
    path = environ.get("PATH", os.defpath)
    return "python" if not find_program("python3", path) and find_program("python", path) else "python3"


def _pytest(top: Top, environ: Mapping[str, str], source: str) -> Proposal:
    runner = "uv run pytest" if top.has("uv.lock") else f"{_interpreter(top, environ)} -m pytest -q"
    return Proposal(runner, source)


def _pytest_source(top: Top, project: dict[str, Any], tools: dict[str, Any]) -> str:
    """The file that says that pytest runs here; empty where none does."""
    if "pytest" in tools or any(map(_PYTEST.match, _requirements(project, tools))):
        return PROJECT
    if source := top.has("pytest.ini", ".pytest.ini", "conftest.py", "tests/conftest.py", "test/conftest.py"):
        return source
    setup = top.sections("setup.cfg")
    if "tool:pytest" in setup or (setup and top.has("tests")) or _named_in(top.text("setup.cfg")):
        return "setup.cfg"
    if "pytest" in top.sections("tox.ini"):
        return "tox.ini"
    return next((name for name in top.names("", r"requirements.*\.txt") if _named_in(top.text(name))), "")


def _named_in(text: str) -> bool:
    return any(map(_PYTEST.match, text.splitlines()))


def _requirements(project: dict[str, Any], tools: dict[str, Any]) -> Iterator[str]:
    """Everything that a project file says must be installed."""
    about, poetry = _table(project, "project"), _table(tools, "poetry")
    lists = [about.get("dependencies"), *_table(about, "optional-dependencies").values()]
    for holder, name in ((project, "dependency-groups"), (_table(tools, "pdm"), "dev-dependencies")):
        lists += _table(holder, name).values()
    for listed in lists:
        yield from (entry for entry in listed if isinstance(entry, str)) if isinstance(listed, list) else ()
    groups: Iterable[Any] = _table(poetry, "group").values()
    for holder in (poetry, *(group for group in groups if isinstance(group, dict))):
        yield from (*_table(holder, "dependencies"), *_table(holder, "dev-dependencies"))


def _by_test_files(top: Top, environ: Mapping[str, str]) -> Iterator[Proposal]:
    """Tests without a word on who runs them: the standard library does, unless they are written for pytest."""
    folders = {folder: names for folder in ("", "tests", "test") if (names := top.names(folder, _TEST_FILE))}
    every = [name for names in folders.values() for name in names]
    if source := next((name for name in every[:MOST_TESTS] if _ONLY_PYTEST.search(top.text(name))), ""):
        yield _pytest(top, environ, source)
        return
    run = ("uv run python" if top.has("uv.lock") else _interpreter(top, environ)) + " -m unittest discover"
    seen_from_top = [names[0] for folder, names in folders.items() if not folder or top.has(f"{folder}/__init__.py")]
    if seen_from_top:
        yield Proposal(run, seen_from_top[0])
    for folder, names in folders.items():
        if names[0] not in seen_from_top:
            yield Proposal(f"{run} -s {folder}", names[0])
