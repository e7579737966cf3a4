"""What is read of a file of stories, and what makes it well-formed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphproof.base.json_text import MAX_JSON_DEPTH
from ralphproof.stories.schema import (
    ID_CHARS,
    MAX_BYTES,
    MAX_NAMED,
    UnreadableStories,
    parse_stories,
    review_snapshot,
    serialize_stories,
    validate_stories,
)
from tests.stories.story_documents import A, B, C, approved, document, encoded, requested, story, submitted

GONE: Any = object()
HALF = "\ud800"


def nested(levels: int) -> bytes:
    """An object with this many objects and arrays in each other."""
    return b'{"x":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is not valid JSON: it is empty"),
        (b'{"project": "p", "user', "it is not valid JSON"),
        (b"{} {}", "it is not valid JSON"),
        (b"\xff\xfe{\x00}\x00", "it is not UTF-8 text"),
        (b"[]", "it is no JSON object"),
        (b"null", "it is no JSON object"),
        (b'{"a": 1, "a": 1}', "it is not valid JSON: the key a is given twice"),
        (b'{"a": [{"passes": false, "passes": true}]}', "the key passes is given twice"),
        (b'{"\\u0061": 1, "a": 2}', "the key a is given twice"),
        (b'{"a": NaN}', "it is not valid JSON: holds a number that cannot be read: NaN"),
        (b'{"a": Infinity}', "cannot be read: Infinity"),
        (b'{"a": -Infinity}', "cannot be read: -Infinity"),
        (b'{"a": 1e999}', "cannot be read: 1e999"),
        (b'{"a": ' + b"9" * 5000 + b"}", "it is not valid JSON"),
        (nested(MAX_JSON_DEPTH + 1), "it is nested too deeply"),
        (nested(100_000), "it is nested too deeply"),
        (b'{"x":"' + b"y" * MAX_BYTES + b'"}', "it is larger than 16 MiB"),
    ],
    ids=lambda given: given[:40] if isinstance(given, bytes) else None,
)
def test_what_somebody_else_might_read_in_another_way_is_not_read(data: bytes, why: str) -> None:
    found = parse_stories(data)
    assert isinstance(found, UnreadableStories)
    assert why in found.why


def test_a_byte_order_mark_does_no_harm_and_is_not_written() -> None:
    whole = document()
    assert parse_stories(b"\xef\xbb\xbf" + encoded(whole)) == whole
    assert serialize_stories(whole).startswith(b"{")


def test_as_deep_as_may_be_is_read_and_can_be_written_again() -> None:
    found = parse_stories(nested(MAX_JSON_DEPTH))
    assert isinstance(found, dict)
    assert parse_stories(serialize_stories(found)) == found


def test_a_well_formed_document_has_no_faults() -> None:
    stories = (approved(A), submitted(B, dependsOn=[A]), requested(C), story("US-004", priority=2.5))
    assert validate_stories(document(*stories)) == ()
    assert validate_stories(document(*stories, more={"of": "ours"})) == ()


@pytest.mark.parametrize("field", ["description", "notes", "dependsOn"])
def test_what_has_a_usual_value_may_be_missing(field: str) -> None:
    one = story()
    del one[field]
    assert validate_stories(document(one)) == ()


def test_verify_commands_may_be_missing() -> None:
    whole = document()
    del whole["verifyCommands"]
    assert validate_stories(whole) == ()


ONE_OF = 'null, "needs_review", "changes_requested" or "approved"'
CRITERIA = "a non-empty array of non-empty strings"


@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        ("title", GONE, "title is missing; it must be a string"),
        ("title", None, "title is null, and must be a string"),
        ("passes", GONE, "passes is missing; it must be true or false"),
        ("passes", "true", 'passes is "true", and must be true or false'),
        ("passes", 1, "passes is 1, and must be true or false"),
        ("passes", None, "passes is null, and must be true or false"),
        ("priority", GONE, "priority is missing; it must be a number"),
        ("priority", "1", 'priority is "1", and must be a number'),
        ("priority", True, "priority is true, and must be a number"),
        ("acceptanceCriteria", GONE, f"acceptanceCriteria is missing; it must be {CRITERIA}"),
        ("acceptanceCriteria", [], f"acceptanceCriteria is [], and must be {CRITERIA}"),
        ("acceptanceCriteria", [""], f'acceptanceCriteria is [""], and must be {CRITERIA}'),
        ("acceptanceCriteria", ["x", 1], f'acceptanceCriteria is ["x", 1], and must be {CRITERIA}'),
        ("acceptanceCriteria", "it works", f'acceptanceCriteria is "it works", and must be {CRITERIA}'),
        ("reviewStatus", GONE, f"reviewStatus is missing; it must be {ONE_OF}"),
        ("reviewStatus", "Approved ", f'reviewStatus is "Approved ", and must be {ONE_OF}'),
        ("reviewStatus", "approved ", f'reviewStatus is "approved ", and must be {ONE_OF}'),
        ("reviewStatus", "аpproved", f'reviewStatus is "\\u0430pproved", and must be {ONE_OF}'),
        ("reviewStatus", "", f'reviewStatus is "", and must be {ONE_OF}'),
        ("reviewStatus", False, f"reviewStatus is false, and must be {ONE_OF}"),
        ("reviewStatus", ["approved"], f'reviewStatus is ["approved"], and must be {ONE_OF}'),
        ("reviewCount", GONE, "reviewCount is missing; it must be a non-negative integer"),
        ("reviewCount", -1, "reviewCount is -1, and must be a non-negative integer"),
        ("reviewCount", 1.0, "reviewCount is 1.0, and must be a non-negative integer"),
        ("reviewCount", True, "reviewCount is true, and must be a non-negative integer"),
        ("reviewCount", "1", 'reviewCount is "1", and must be a non-negative integer'),
        ("reviewCount", None, "reviewCount is null, and must be a non-negative integer"),
        ("reviewFeedback", GONE, "reviewFeedback is missing; it must be a string"),
        ("reviewFeedback", None, "reviewFeedback is null, and must be a string"),
        ("notes", ["x"], "notes must be a string"),
        ("description", 3, "description must be a string"),
        ("dependsOn", "US-002", "dependsOn must be an array of ids"),
        ("dependsOn", [1], "dependsOn must be an array of ids"),
        ("dependsOn", ["US-009"], 'dependsOn names "US-009", which is no story'),
    ],
)
def test_a_malformed_field_is_named_with_its_story(field: str, value: Any, fault: str) -> None:
    one = {**story(), field: value}
    if value is GONE:
        del one[field]
    assert validate_stories(document(one)) == (f"Story {A}: {fault}",)


@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        ("project", GONE, "project is missing; it must be a string"),
        ("branchName", 1, "branchName is 1, and must be a string"),
        ("description", None, "description is null, and must be a string"),
        ("verifyCommands", None, "verifyCommands must be an array of non-empty strings"),
        ("verifyCommands", "make", "verifyCommands must be an array of non-empty strings"),
        ("verifyCommands", [" "], "verifyCommands must be an array of non-empty strings"),
        ("verifyCommands", ["x\0"], "verifyCommands holds a command with a character that no command can have"),
        ("verifyCommands", ["x", HALF], "verifyCommands holds a command with a character that no command can have"),
        ("userStories", GONE, "userStories is missing; it must be an array"),
        ("userStories", {A: story()}, "userStories is {"),
        ("userStories", ["US-001"], "userStories[0] must be an object"),
    ],
)
def test_a_malformed_field_of_the_whole_is_named(field: str, value: Any, fault: str) -> None:
    whole = {**document(), field: value}
    if value is GONE:
        del whole[field]
    assert [found.startswith(fault) for found in validate_stories(whole)] == [True]


@pytest.mark.parametrize(
    "name", [None, 1, "", "  ", "US-1\nUS-2", "\x1b[31mUS-1", f"US{HALF}", "x" * (ID_CHARS + 1), ["US-1"], {}]
)
def test_an_id_is_a_word_on_one_line_and_nothing_else_of_it_is_repeated(name: Any) -> None:
    (found,) = validate_stories(document(story(name, dependsOn=["nowhere"], passes="x")))
    assert found.startswith("userStories[0]: id is ")
    assert found.endswith(f"a non-empty string on one line, of {ID_CHARS} characters at most")
    assert found.isprintable()
    assert len(found) < 300


def test_an_id_that_is_used_twice_is_named() -> None:
    assert validate_stories(document(story(), story(B), story())) == (f'the id "{A}" is used by more than one story',)


def test_what_passes_is_documented() -> None:
    fault = f"Story {A}: passes is true but notes is empty; write down what was done"
    assert validate_stories(document(approved(notes=" \n"))) == (fault,)
    undone = approved()
    del undone["notes"]
    assert validate_stories(document(undone)) == (fault,)


def test_not_more_faults_are_told_than_anybody_reads() -> None:
    broken = [story(f"US-{number}", passes="x", priority="y") for number in range(100)]
    assert len(validate_stories(document(*broken))) == MAX_NAMED


def test_a_snapshot_has_what_a_review_decides_of_every_story() -> None:
    assert review_snapshot(document(approved(A, 3), story(B))) == {
        A: {"passes": True, "reviewStatus": "approved", "reviewCount": 3},
        B: {"passes": False, "reviewStatus": None, "reviewCount": 0},
    }


def test_a_file_is_written_for_people() -> None:
    text = serialize_stories(document(story(title="naïve → ✓"))).decode()
    assert '\n      "title": "naïve → ✓",\n' in text
    assert text.endswith("}\n")


def test_half_a_character_survives_as_its_escape_beside_whole_ones() -> None:
    whole = parse_stories(b'{"a": "\\ud800", "b": "\\ud83d\\ud83d\\ude00 \\udc00"}')
    assert whole == {"a": HALF, "b": "\ud83d\U0001f600 \udc00"}
    assert "\U0001f600" in serialize_stories(whole).decode()
    assert parse_stories(serialize_stories(whole)) == whole


@pytest.mark.parametrize("many", [400_000, 2_000_000])
def test_a_document_that_could_be_read_is_not_too_large_when_it_is_written_again(many: int) -> None:
    around = b"[" * (MAX_JSON_DEPTH - 2), b"]" * (MAX_JSON_DEPTH - 2)
    whole = parse_stories(b'{"x":' + around[0] + b",".join([b"0"] * many) + around[1] + b"}")
    assert isinstance(whole, dict)
    assert len(serialize_stories(whole)) <= MAX_BYTES


texts = st.text(st.characters(exclude_categories=[]), max_size=20).filter(
    # What JSON has for a pair of halves is the character itself.
    lambda text: json.loads(json.dumps(text)) == text
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(texts, values, max_size=5))
def test_whatever_is_read_is_read_again_from_its_own_file(whole: dict[str, Any]) -> None:
    assert parse_stories(serialize_stories(whole)) == whole
    assert parse_stories(encoded(whole)) == whole


@settings(max_examples=100, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(list(story())), values, max_size=11) | values, max_size=4), values)
def test_no_document_is_too_strange_to_be_judged(stories: list[Any], commands: Any) -> None:
    faults = validate_stories(document(verifyCommands=commands) | {"userStories": stories})
    assert all(fault.isprintable() for fault in faults)
    assert faults or all(isinstance(one, dict) for one in stories)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_bytes_are_too_strange_to_be_read(data: bytes) -> None:
    assert isinstance(parse_stories(data), dict | UnreadableStories)
