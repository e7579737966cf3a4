"""Sizes and names that tell when the house begins to rot."""

from __future__ import annotations

import re
from statistics import median

import pytest

from .source import SOURCE, files, outline_of, project_files

ALARM_LINES = 300
FUNCTION_LINES = 50
AIM_LINES = 30
EMPTY_WORDS = {"Manager", "Helper", "Helpers", "Util", "Utils", "Handler", "Base", "Impl"}


def lines_of(file: str) -> int:
    return len((SOURCE / file).read_text("utf-8").splitlines())


def functions_of(file: str) -> list[tuple[int, str]]:
    """(lines, place) of every function, the longest first."""
    found = [(lines, f"{file}:{line} {name}") for lines, line, name in outline_of(file).functions]
    return sorted(found, reverse=True)


def test_no_file_reaches_the_alarm() -> None:
    assert {file: lines_of(file) for file in files() if lines_of(file) >= ALARM_LINES} == {}


def test_the_loop_stays_under_200_lines() -> None:
    assert lines_of("loop.py") < 200


def test_the_median_file_is_under_150_lines() -> None:
    assert median(lines_of(file) for file in files()) < 150


def test_functions_are_short() -> None:
    every = sorted((length for file in files() for length in functions_of(file)), reverse=True)
    aim = "\n".join(f"{length} {place}" for length, place in every if length >= AIM_LINES)
    assert [place for length, place in every if length >= FUNCTION_LINES] == [], f"the aim is under 30:\n{aim}"


def test_the_root_of_the_repository_has_at_most_16_entries() -> None:
    entries = {name.partition("/")[0] for name in project_files()}
    assert len(entries) <= 16, sorted(entries)


# Nothing that only looks on may stop the loop; and at the very top a fault of our own is told in one line.
# Those around observers and what callers bring along, and the one that turns our own faults into a line. A hook that
# fails must neither disturb an agent nor let one pass.
SPARED = (
    "world.py",
    "cli/dispatch.py",
    "agents/callable.py",
    "checks/callable.py",
    "api.py",
    "cli/fleet_turn.py",  # as the dispatcher does, it tells of every fault
    "fleet/artifacts.py",  # every kind of store has exceptions of its own
    "hooks/post_tool_use.py",
    "hooks/pre_tool_use.py",
    "hooks/session_start.py",
    "hooks/stop.py",
    "views/overhear.py",
    "web/guard.py",
    "web/pulse.py",
)


@pytest.mark.parametrize("file", files())
def test_class_names_are_domain_words(file: str) -> None:
    names = [name for name, _ in outline_of(file).classes]
    assert [name for name in names if EMPTY_WORDS & set(re.findall("[A-Z][a-z]*", name))] == []


@pytest.mark.parametrize("file", [file for file in files() if file not in SPARED])
def test_only_what_looks_on_is_spared_every_exception(file: str) -> None:
    caught = outline_of(file).handlers
    assert [line for line, names in caught if names is None or "Exception" in names] == []
