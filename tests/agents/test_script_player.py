"""The player of scripts reads and writes JSON by itself: as `json` does, without its imports."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ralphproof.agents.script_player import dump_json, parse_json

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters())
ANYTHING = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(ANYTHING, st.sampled_from([None, 2]), st.booleans())
def test_json_is_read_and_written_as_json_does(what: object, indent: int | None, ascii_only: bool) -> None:
    assert dump_json(what) == json.dumps(what)
    text = f" \n{json.dumps(what, indent=indent, ensure_ascii=ascii_only)}\t\n"
    assert parse_json(text) == json.loads(text)


@pytest.mark.parametrize("text", ["", " ", "{", "[1,]", "{} x", "nul", '"a', '{"a": 1,}', "\ufeff{}", '{"a": "\n"}'])
def test_what_is_no_json_is_refused_in_the_same_words(text: str) -> None:
    assert words(parse_json, text) == words(json.loads, text)


def words(read: Callable[[str], object], text: str) -> str:
    with pytest.raises(ValueError) as refused:
        read(text)
    return str(refused.value)
