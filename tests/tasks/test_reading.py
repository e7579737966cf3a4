"""Files of tasks: every shape that is understood, and every text that is refused in one line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ralphproof.base.errors import Refused
from ralphproof.tasks.draft import validate_draft
from ralphproof.tasks.files import parse_tasks
from tests.tasks.samples import completion, drafted, file, one

SMALL = """id: T-1
title: Tokens
completion:
  outcome: Every request needs a token
  acceptance_criteria: [401 without one]
"""


def under(key: str, text: str = SMALL) -> str:
    return f"{key}:\n" + "".join(f"  {line}\n" for line in text.splitlines())


def item(text: str = SMALL) -> str:
    return "- " + "\n  ".join(text.splitlines()) + "\n"


@pytest.mark.parametrize(
    ("name", "spec", "criteria"), [("complete.yaml", "auth-feature", 7), ("list.yaml", "", 4)]
)  # fmt: skip
def test_the_complete_examples_are_read_and_valid(name: str, spec: str, criteria: int) -> None:
    (found,) = parse_tasks(file(name), name)
    assert (found.name, found.problems) == ("TASK-001", ())
    assert found.draft is not None
    assert validate_draft(found.draft) == ()
    assert (found.draft.spec_id, found.draft.priority, found.draft.dependencies) == (spec, 1, ())
    assert found.draft.completion is not None
    assert len(found.draft.completion["acceptance_criteria"]) == criteria  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        SMALL, under("task"), item(), "tasks:\n" + item(), f"---\n{SMALL}...\n", SMALL.replace("\n", "\r\n"),
        f"\ufeff{SMALL}", f"# said before\n\n{SMALL}", json.dumps({"task": {"id": "T-1", "title": "Tokens",
        "completion": completion()}}), json.dumps([{"id": "T-1", "title": "Tokens", "completion_spec": completion()}]),
        "{id: T-1, title: Tokens, completion: {outcome: Every request needs a token, "
        "acceptance_criteria: [401 without one]}}",
    ],
)  # fmt: skip
def test_a_task_is_read_from_every_shape(text: str) -> None:
    assert drafted(text) == drafted(SMALL)
    assert drafted(SMALL).completion == completion()


def test_several_documents_and_lists_are_read_in_their_order() -> None:
    text = "---\n".join([SMALL, item(SMALL.replace("T-1", "T-2")), "", under("task", SMALL.replace("T-1", "T-3"))])
    assert [found.name for found in parse_tasks(text.encode(), "t.yaml")] == ["T-1", "T-2", "T-3"]


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n---\n", "[]", "tasks: []\n", "tasks:\n"])
def test_a_file_without_tasks_has_none(text: str) -> None:
    assert parse_tasks(text.encode(), "t.yaml") == ()


def test_every_field_has_its_place() -> None:
    text = SMALL + (
        "spec: auth\ndepends_on: [A, B]\nstatus: done\nassignee: somebody\npriority: 0x10\n"
        "description: |\n  two\n  lines\nmetadata: {a: [1, null, 2.5, yes]}\ncreated_at: '2024-01-01'\niteration: 3\n"
    )
    found = drafted(text)
    assert (found.spec_id, found.dependencies, found.status) == ("auth", ("A", "B"), "done")
    assert (found.assignee, found.priority, found.description) == ("somebody", 16, "two\nlines\n")
    assert found.metadata == {"created_at": "2024-01-01", "iteration": 3, "a": [1, None, 2.5, "yes"]}


def test_a_key_without_a_value_counts_as_left_out() -> None:
    keys = ("spec_id", "description", "priority", "dependencies", "status", "assignee", "metadata", "completion_spec")
    assert drafted(SMALL + "".join(f"{key}:\n" for key in keys)) == drafted(SMALL)


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ("completion_spec: {outcome: other}\n", "T-1: completion and completion_spec differ; give one"),
        ("spec: a\nspec_id: b\n", "T-1: spec_id and spec differ; give one"),
        ("depends_on: [a]\ndependencies: []\n", "T-1: dependencies and depends_on differ; give one"),
        ("prioritiy: 3\n", "T-1: unknown key prioritiy; did you mean priority?"),
        ("priority: high\n", 'T-1: priority must be a whole number from -2147483648 to 2147483647, not "high"'),
        ("priority: 2.5\n", "T-1: priority must be a whole number from -2147483648 to 2147483647, not 2.5"),
        ("dependencies: A\n", 'T-1: dependencies must be a list, not "A"'),
        ("dependencies: [7]\n", "T-1: dependencies[0] must be text, not 7; put it in quotes"),
        ("description: 5\n", "T-1: description must be text, not 5; put it in quotes"),
        ("metadata: [a]\n", 'T-1: metadata must be a mapping, not ["a"]'),
        ("created_at: now\nmetadata: [a]\n", 'T-1: metadata must be a mapping, not ["a"]'),
        ('metadata: {x: "a\\0"}\n', "T-1: metadata.x holds a NUL character"),
        ('metadata: {x: "\\ud800"}\n', "T-1: metadata.x holds characters that are not Unicode"),
        ('metadata: {"a\\0": 1}\n', 'T-1: metadata has a key that holds a NUL character: "a\\u0000"'),
    ],
)  # fmt: skip
def test_a_field_that_no_draft_can_hold_is_a_problem_with_its_path(more: str, wrong: str) -> None:
    found = one(SMALL + more)
    assert found.problems == (wrong,)
    assert (found.draft, found.name) == (None, "T-1")


def test_the_same_completion_under_both_names_is_no_problem() -> None:
    assert drafted(json.dumps({"id": "T-1", "title": "Tokens", "completion": completion(),
                               "completion_spec": completion()})) == drafted(SMALL)  # fmt: skip


def test_an_id_that_is_a_number_is_asked_for_in_quotes_and_its_task_known_by_its_place() -> None:
    text = item() + item(SMALL.replace("T-1", "17"))
    first, second = parse_tasks(text.encode(), "t.yaml")
    assert (first.name, second.name) == ("T-1", "task 2")
    assert second.problems == ("task 2: id must be text, not 17; put it in quotes",)


def test_a_task_whose_fields_are_wrong_says_what_is_wrong_with_its_completion_too() -> None:
    found = one(SMALL.replace("Every request needs a token", "''").replace("title: Tokens\n", ""))
    assert found.problems == ("T-1: title is missing", "T-1: completion.outcome is blank")


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("hello\n", 'task 1: must be a mapping with id, title and completion, not "hello"'),
        ("- \n", "task 1: must be a mapping with id, title and completion, not null"),
        ("- [a]\n", 'task 1: must be a mapping with id, title and completion, not ["a"]'),
        ("tasks: {a: 1}\n", 'tasks.yaml: tasks must be a list, not {"a": 1}'),
        ("42", "task 1: must be a mapping with id, title and completion, not 42"),
        ("{}", "task 1: id is missing"),
    ],
)
def test_what_is_no_task_is_a_problem(text: str, wrong: str) -> None:
    assert one(text).problems[0] == wrong


def test_what_stands_beside_the_tasks_is_a_problem() -> None:
    beside, task = parse_tasks((under("task") + "taks: 1\n").encode(), "t.yaml")
    assert beside.problems == ("t.yaml: unknown key taks beside task; did you mean task?",)
    assert task.name == "T-1"


REFUSED: list[tuple[str, bytes, str, str]] = [
    ("a doubled key", b"id: a\nid: b\n", "t.yaml", "t.yaml:2: the key id is given twice"),
    ("a doubled key deep down", b"a:\n  b: {c: 1, c: 2}\n", "t.yaml", "t.yaml:2: the key c is given twice"),
    ("a doubled key in JSON", b'{"a": 1, "a": 1}', "t.json", "t.json: the key a is given twice"),
    ("a tab", b"id: a\ncompletion:\n\toutcome: x\n", "t.yaml", "t.yaml:3: a tab cannot indent in YAML; use blanks"),
    ("two values", b"a: b: c\n", "t.yaml", "t.yaml:1: is not YAML: mapping values are not allowed here"),
    ("an open quote", b'id: "abc\n', "t.yaml", "t.yaml:2: is not YAML: found unexpected end of stream"),
    ("an open list", b"- [a, b\n", "t.yaml", "t.yaml:2: is not YAML: "),
    ("a NUL", b"id: a\nb: \0\n", "t.yaml", "t.yaml:2: holds the character U+0000; remove it"),
    ("an escape code", b"id: a\n\nb: \x1b[0m\n", "t.yaml", "t.yaml:3: holds the character U+001B; remove it"),
    ("no UTF-8", b"id: a\nb: caf\xe9\n", "t.yaml", "t.yaml:2:7: is not UTF-8"),
    ("UTF-16", "id: a".encode("utf-16"), "t.yaml", "t.yaml:1:1: is UTF-16 or UTF-32; save it as UTF-8"),
    ("a Python tag", b"a: !!python/object/apply:os.system [id]\n", "t.yaml", "t.yaml:1: the tag "),
    ("a tag on text", b"- x\n- !!str 5\n", "t.yaml", "t.yaml:2: the tag "),
    ("a tag of one's own", b"!task\nid: 5\n", "t.yaml", "t.yaml:1: the tag "),
    ("a bare tag", b"a: ! b\n", "t.yaml", "t.yaml:1: the tag "),
    ("an alias", b"a: &x 1\nb: *x\n", "t.yaml", "t.yaml:2: the alias *x is not followed; write the value out"),
    ("a list as a key", b"? [a]\n: b\n", "t.yaml", "t.yaml:1: a key must be text"),
    ("a character beyond Unicode", b'a: "\\UFFFFFFFF"\n', "t.yaml", "t.yaml:1: is not YAML: "),
    ("broken JSON", b'{"a": 1,\n "b" 2}', "t.json", "t.json:2:6: is not JSON: expecting ':' delimiter"),
    ("YAML in a JSON file", b"id: a\n", "T.JSON", "T.JSON:1:1: is not JSON: expecting value"),
    ("NaN", b'{"metadata": {"a": NaN}}', "t.json", "t.json: holds a number that cannot be read: NaN is not JSON"),
    ("a number too large", b'{"a": 1e999}', "t.json", "t.json: holds a number that cannot be read: 1e999 is not JSON"),
    ("digits without end", b'{"a": ' + b"1" * 5000 + b"}", "t.json", "t.json: holds a number that cannot be read: "),
    ("deep JSON", b"[" * 100_000, "t.json", "t.json: is nested too deeply"),
    ("deep JSON that ends", b"[" * 70 + b"]" * 70, "t.json", "t.json: is nested too deeply"),
    ("deep YAML", b"[" * 100_000, "t.yaml", "t.yaml:1: is nested more than 64 deep"),
    ("deep blocks", b"- " * 100_000, "t.yaml", "t.yaml:1: is nested more than 64 deep"),
    ("deep flow", b"a: " + b"{b: " * 5000, "t.yaml", "t.yaml:1: is nested more than 64 deep"),
    ("too large", b"#" * (10 * 1024 * 1024 + 1), "t.yaml", "t.yaml is larger than 10 MiB"),
]


@pytest.mark.parametrize(("data", "name", "wrong"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_text_that_cannot_be_parsed_is_refused_with_its_line(data: bytes, name: str, wrong: str) -> None:
    with pytest.raises(Refused) as caught:
        parse_tasks(data, name)
    assert str(caught.value).startswith(wrong)
    assert "\n" not in str(caught.value)


def test_ten_megabytes_are_not_too_many() -> None:
    assert parse_tasks(b"[]" + b" " * (10 * 1024 * 1024 - 2), "t.json") == ()


def test_a_megabyte_of_text_is_read_whole() -> None:
    lines = f"{'words ' * 20}\n" * 8000
    text = SMALL + "description: |\n" + "".join(f"  {line}\n" for line in lines.splitlines())
    assert drafted(text).description == lines


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("yes", "yes"), ("on", "on"), ("~", None), ("true", True), ("False", False), ("012", 12), ("0o17", 15),
        ("1_000", "1_000"), ("12:30:45", "12:30:45"), ("1.", 1.0), (".5", 0.5), ("1e3", 1000.0), ("+7", 7),
        ("'7'", "7"),
        ("1.2.3", "1.2.3"), ("2024-01-01", "2024-01-01"),
        (".inf", ".inf"), ("1e999", "1e999"), ("0x1f", 31),
        ("NULL", None), ("-", None), ('"a\\tb"', "a\tb"), (">-\n    a\n    b", "a b"),
    ],
)  # fmt: skip
def test_plain_words_mean_what_the_core_schema_of_yaml_says(text: str, made: Any) -> None:
    wanted = [None] if text == "-" else made
    assert drafted(f"{SMALL}metadata:\n  x:\n    {text}\n").metadata == {"x": wanted}
