"""What the guard says to a long list of lines. A line that it begins to catch leaves the list of known misses."""

from __future__ import annotations

import pytest

from ralphproof.guard.rules import CATEGORIES
from tests.guard.samples import dangerous, harmless, judged, known_misses

# What is decoded on its way into a shell may come from elsewhere or not: nobody can tell before it runs.
SAME = {("remote-code", "opaque-code")}
MOST_FALSE_ALARMS = 0.02


def test_there_are_enough_lines_of_every_kind() -> None:
    lines = [line for _, line in dangerous()]
    assert len(lines) == len(set(lines)) >= 300
    assert len(harmless()) == len(set(harmless())) >= 300
    assert not set(lines) & set(harmless())
    for category in CATEGORIES:
        assert len([one for one, _ in dangerous() if one == category]) >= 15, category


@pytest.mark.parametrize("category", CATEGORIES)
def test_dangerous_lines_are_objected_to_for_what_they_are(category: str) -> None:
    wrong = {}
    for expected, line in dangerous():
        if expected == category and line not in known_misses():
            found = judged(line)
            if found is None or (found.category != category and (category, found.category) not in SAME):
                wrong[line] = found
    assert wrong == {}


def test_what_is_missed_is_known_by_name() -> None:
    assert {line for _, line in dangerous() if judged(line) is None} == known_misses()


def test_to_harmless_lines_there_is_hardly_ever_an_objection() -> None:
    alarms = {line: found.rule for line in harmless() if (found := judged(line))}
    assert len(alarms) < MOST_FALSE_ALARMS * len(harmless()), alarms
