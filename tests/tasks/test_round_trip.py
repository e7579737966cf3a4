"""What was read and written out again is the same, whatever stands in it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ralphproof.base.errors import Refused
from ralphproof.tasks.draft import TaskDraft, validate_draft
from ralphproof.tasks.files import ParsedTask, parse_tasks, write_yaml
from tests.tasks.samples import block, completion, draft, drafted, file

SHAPES = ("task", "list")


def again(drafts: tuple[TaskDraft, ...], shape: str) -> tuple[TaskDraft | None, ...]:
    found = parse_tasks(write_yaml(drafts, shape).encode(), "written.yaml")
    assert [line for one in found for line in one.problems] == []
    return tuple(one.draft for one in found)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["complete.yaml", "list.yaml"])
def test_the_complete_examples_come_back_the_same(name: str, shape: str) -> None:
    (found,) = parse_tasks(file(name), name)
    assert found.draft is not None
    assert again((found.draft,), shape) == (found.draft,)


def test_a_task_is_written_in_the_order_in_which_people_write_it() -> None:
    coder = {"max_iterations": 3, "verification_config": {"timeout": 5, "command": "a\n\n  b\n"}, "promise": "DONE-1",
             "verification_method": "external", "description": "it's \"done\""}  # fmt: skip
    task = draft(
        spec_id="s", dependencies=("T-0",), priority=2, description="two\nlines", metadata={"an owner": "Zoë 🎉"},
        completion={"coder": coder, "acceptance_criteria": ["yes", "401: none"], "outcome": "Every one"},
    )  # fmt: skip
    assert write_yaml((task,), "task") == (
        'task:\n  id: T-1\n  spec_id: s\n  title: Tokens\n  description: |-\n    two\n    lines\n  priority: 2\n'
        '  dependencies:\n  - T-0\n  metadata:\n    "an owner": "Zoë 🎉"\n  completion:\n    outcome: "Every one"\n'
        '    acceptance_criteria:\n    - "yes"\n    - "401: none"\n    coder:\n      promise: DONE-1\n'
        '      description: "it\'s \\"done\\""\n      verification_method: external\n      verification_config:\n'
        '        command: |\n          a\n\n            b\n        timeout: 5\n      max_iterations: 3\n'
    )  # fmt: skip
    assert again((task,), "task") == (task,)


def test_no_tasks_are_an_empty_list() -> None:
    assert write_yaml((), "list") == "[]\n"
    assert again((), "list") == ()


@pytest.mark.parametrize(
    "text",
    [
        "null", "true", "No", "0x10", "1e3", "2024-01-01", "~", "", " ", "-", "- a", "a: b", "a #b", "*a", "&a", "!a",
        "{{title}}", "'", '"', "\\", "a\n", "\na", "a\n\n", "a\n \nb", " a\nb", "a\n\tb", "\ta\nb", "a\r\nb",
        "a\u2028b\nc",
        "a\x85b", "\ufeff", "|", ">\n", "%a", "@a", "---\na", "...\na\n", "# a\nb", "a\n# b", "a\n---\nb",
        "😀\né\n\n\n",
        "a b\n  c\n d", "x" * 2000, "\x7f", "a\n" + " " * 5 + "b", "<<", "=", "? a", "a\n\n\n b \n", "日本\u3000語\n二",
    ],
)  # fmt: skip
@pytest.mark.parametrize("shape", SHAPES)
def test_every_text_comes_back_the_same(text: str, shape: str) -> None:
    task = draft(description=text, metadata={"a": text, "list": [text, [text, {"b": text}]], text: 1})
    long = draft(description=text, metadata={"a": text, "list": [text, [text, {"b": text}]]})
    task = task if len(text) <= 120 else long
    assert again((task, draft(id="T-2")), shape) == (task, draft(id="T-2"))


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
LINES = st.lists(TEXT, max_size=4).map("\n".join)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | LINES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=8,
)  # fmt: skip
LINE = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=30)
WORD = LINE.map(str.strip).filter(bool)
SENTENCE = LINES.filter(lambda text: bool(text.strip())).map(lambda text: "".join(
    letter for letter in text if letter in "\n\t" or not ("\x7f" <= letter <= "\x9f" or letter < " " or
    letter in "\u2028\u2029"))).filter(lambda text: bool(text.strip()))  # fmt: skip
COMMAND = LINES.filter(lambda text: bool(text.strip()))
EXTERNAL = st.fixed_dictionaries(
    {"command": COMMAND}, optional={"timeout": st.floats(0.1, 86400), "success_exit_code": st.integers(0, 255),
    "output_contains": LINES},
)  # fmt: skip
PROMISE = st.text("ABC_-é ", min_size=1).map(str.strip).filter(bool)
BLOCK = st.builds(lambda promise, config: block("external", config, promise=promise), PROMISE, EXTERNAL)
DRAFTS = st.builds(
    TaskDraft, id=WORD, title=WORD, spec_id=WORD | st.just(""), description=LINES, priority=st.integers(-9, 9),
    dependencies=st.lists(WORD, max_size=3).map(tuple), status=st.sampled_from(["todo", "done", "failed"]),
    metadata=st.dictionaries(TEXT, JSON, max_size=3),
    completion=st.fixed_dictionaries(
        {"outcome": SENTENCE, "acceptance_criteria": st.lists(SENTENCE, min_size=1, max_size=3)},
        optional={"coder": BLOCK, "qa": BLOCK, "reviewer": st.none()},
    ),
)  # fmt: skip


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(DRAFTS, min_size=1, max_size=2), st.sampled_from(SHAPES))
def test_every_valid_task_comes_back_the_same(drafts: list[TaskDraft], shape: str) -> None:
    assert [line for one in drafts for line in validate_draft(one)] == []
    assert again(tuple(drafts), shape) == tuple(drafts)


PIECES = st.lists(
    st.sampled_from(
        ["- ", ": ", "? ", "&a ", "*a", "!x ", "|\n", ">-\n", "{", "}", "[", "]", ",", "'", '"', "#", "%", "\n", "\t",
         " ", "a", "id: x\n", "task:", "---\n", "<<: ", "\\", "0", ".", "\r", "\x01", "é", "\ufeff"]
    ),
    max_size=30,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(PIECES.map("".join), st.sampled_from(["t.yaml", "t.json", "-"]))
def test_every_text_is_read_or_refused_in_one_line(text: str, name: str) -> None:
    refusal = ""
    found: tuple[ParsedTask, ...] = ()
    try:
        found = parse_tasks(text.encode(), name)
    except Refused as refused:
        refusal = str(refused)
    assert "\n" not in refusal
    assert all((one.draft is None) is bool(one.problems) for one in found)


def test_what_a_template_stands_for_is_not_written_in_its_stead() -> None:
    coder: dict[str, Any] = {"promise": "X", "verification_template": "pytest", "with": {"path": "t"}}
    text = write_yaml((draft(completion=completion(coder=coder)),), "list")
    assert drafted(text).completion == completion(coder=coder)
