"""The rules as a whole: each has a name of its own, and is in the documents."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ralphproof.guard.rules import CATEGORIES, RULES
from ralphproof.guard.verdict import Rule
from tests.guard.samples import dangerous, harmless, judged, known_misses
from tests.guard.wrappings import WAYS, fits

DOCUMENT = (Path(__file__).parents[2] / "docs" / "guard.md").read_text("utf-8")
ALL = tuple(RULES.values())


def test_there_are_eighteen_categories_and_each_has_rules() -> None:
    assert len(CATEGORIES) == 18
    assert {rule.category for rule in ALL} == set(CATEGORIES)


def test_a_rule_has_a_name_of_its_own_that_is_no_category() -> None:
    names = [rule.id for rule in ALL]
    assert sorted(names) == sorted(set(names))
    assert not set(names) & set(CATEGORIES)


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.id)
def test_a_rule_says_why_and_what_to_do_instead(rule: Rule) -> None:
    assert re.fullmatch("[a-z]+(-[a-z]+)*", rule.id)
    for text in (rule.reason, rule.instead):
        assert text
        assert text[0].islower()
        assert not text.endswith(".")


def test_every_rule_stands_in_the_document_with_its_category() -> None:
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| .* \| (.*) \|$", DOCUMENT, re.MULTILINE))
    told = {category: set(re.findall("`([a-z-]+)`", cell)) for category, cell in rows.items()}
    assert told == {name: {rule.id for rule in ALL if rule.category == name} for name in CATEGORIES}


def test_every_known_miss_stands_in_the_document() -> None:
    assert [line for line in known_misses() if line.replace("|", "\\|") not in DOCUMENT] == []


def test_the_figures_in_the_document_are_of_these_lines() -> None:
    """That nothing else is missed, other tests hold."""
    bad, good = [line for _, line in dangerous()], harmless()
    caught = [line for line in bad if line not in known_misses()]
    alarms = [line for line in good if judged(line)]
    wrapped = sum(fits(way, line) for way in WAYS for line in caught)
    assert f"| dangerous | {len(bad)} | {len(caught)} (" in DOCUMENT
    assert f"| {len(good)} | {len(alarms)} (" in DOCUMENT
    assert f"in {len(WAYS)} wrappings" in DOCUMENT
    assert f"| {wrapped:,} | {wrapped:,} |" in DOCUMENT
