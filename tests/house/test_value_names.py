"""The name of a value class is its kind in JSON: no two share one, whichever of them are loaded together."""

from __future__ import annotations

from collections import defaultdict

from .source import files, outline_of


def test_no_two_value_classes_share_a_name() -> None:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for file in files():
        for name, decorators in outline_of(file).classes:
            if "value" in decorators:
                found[name].add(file)
    assert found
    assert {name: sorted(places) for name, places in found.items() if len(places) > 1} == {}
