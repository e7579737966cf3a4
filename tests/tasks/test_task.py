"""From the task that somebody wrote to the one that is worked on; fields that no shell ever parses."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from ralphproof.base.value import pack, unpack
from ralphproof.checks.templates import substitute_in_command, task_environment
from ralphproof.engine.plan import (
    CompletionCriteria,
    CustomVerification,
    ExternalVerification,
    MultiStageVerification,
    SemanticVerification,
    StringMatchVerification,
    Task,
    Verification,
    VerificationPart,
)
from ralphproof.tasks.draft import task_from_draft, task_without_completion, validate_draft
from ralphproof.tasks.files import parse_tasks
from tests.tasks.samples import block, completion, draft, file, part, with_way


def how(method: str, config: Any = None) -> Verification | None:
    task = with_way(method, config)
    assert validate_draft(task, lambda name: name == "plugged") == ()
    criteria = task_from_draft(task).criteria_for("coder")
    assert criteria is not None
    return criteria.how


def test_a_task_has_the_fields_of_its_draft() -> None:
    made = draft(
        spec_id="auth", description="Do it\n", priority=4, dependencies=("A",), status="done",
        completion=completion(qa=block(max_iterations=5, description=" all of it\n", promise=" QA ")),
    )  # fmt: skip
    assert task_from_draft(made) == Task(
        "T-1", "Do it\n", "Tokens", 4, ("A",), True, None, "Every request needs a token", ("401 without one",),
        (("qa", CompletionCriteria("QA", "all of it", None, 5)),), "auth",
    )  # fmt: skip


def test_the_title_is_the_prompt_where_there_is_no_description() -> None:
    assert task_from_draft(draft(description=" \n")).prompt == "Tokens"


@pytest.mark.parametrize("status", ["todo", "working", "failed", "cancelled", "waiting"])
def test_only_what_is_done_is_done(status: str) -> None:
    assert not task_from_draft(draft(status=status)).done


def test_stages_come_in_the_order_of_the_pipeline() -> None:
    made = completion(**{stage: block() for stage in ("qa", "coder", "tester", "reviewer")})
    assert [stage for stage, _ in task_from_draft(draft(completion=made)).criteria] == [
        "coder",
        "reviewer",
        "tester",
        "qa",
    ]


@pytest.mark.parametrize(
    ("method", "config", "made"),
    [
        ("string_match", None, StringMatchVerification()),
        ("external", {"command": "make"}, ExternalVerification("make")),
        ("external", {"command": "make", "timeout": None, "working_dir": None}, ExternalVerification("make")),
        ("external", {"command": "a", "success_exit_code": 3, "output_contains": "b", "output_not_contains": "c",
                      "timeout": 5, "working_dir": "./d/"}, ExternalVerification("a", 3, "b", "c", 5.0, "d")),
        ("semantic", {"check_for": "one"}, SemanticVerification(("one",))),
        ("semantic", {"check_for": ["one", " two "], "negative_patterns": ["TODO"], "model": "haiku", "agent": "codex",
                      "max_cost_usd": 0.25, "timeout": 9},
         SemanticVerification(("one", "two"), ("TODO",), "haiku", "codex", 250_000, 9.0)),
        ("semantic", {"check_for": "one", "max_cost_usd": 1e-9}, SemanticVerification(("one",), most_micro_usd=1)),
        ("plugged", {"any": [1]}, CustomVerification("plugged", {"any": [1]})),
        ("plugged", None, CustomVerification("plugged", {})),
        ("multi_stage", {"stages": [part("a"), part("b", required=False, depends_on=["a"]), part("c", required=None)],
                         "require_all": False, "parallel": False},
         MultiStageVerification((
             VerificationPart("a", ExternalVerification("true")),
             VerificationPart("b", ExternalVerification("true"), False, ("a",)),
             VerificationPart("c", ExternalVerification("true")),
         ), False, False)),
        ("multi_stage", {"stages": [part("a", method="multi_stage", config={"stages": [part("b")]}),
                                    part("p", method="string_match", config=None)]},
         MultiStageVerification((
             VerificationPart("a", MultiStageVerification((VerificationPart("b", ExternalVerification("true")),))),
             VerificationPart("p", StringMatchVerification()),
         ))),
    ],
)  # fmt: skip
def test_each_method_becomes_its_way(method: str, config: Any, made: Verification) -> None:
    assert how(method, config) == made


def test_a_task_survives_a_record() -> None:
    (found,) = parse_tasks(file("complete.yaml"), "t.yaml")
    assert found.draft is not None
    task = task_from_draft(found.draft)
    assert unpack(pack(task)) == task
    assert [stage for stage, _ in task.criteria] == ["coder", "reviewer", "tester", "qa"]
    assert isinstance(dict(task.criteria)["qa"].how, MultiStageVerification)


@pytest.mark.parametrize("given", ["{{acceptance_criteria}}", "{{ acceptance_criteria }}", ["{{acceptance_criteria}}"]])
def test_a_place_of_the_acceptance_criteria_alone_is_each_of_them(given: Any) -> None:
    made = completion(acceptance_criteria=["a {{title}}", "b"], qa=block("semantic", {"check_for": given}))
    task = draft(completion=made)
    (criteria,) = dict(task_from_draft(task).criteria).values()
    assert criteria.how == SemanticVerification(("a {{title}}", "b"))


def test_other_fields_are_put_into_questions_once_and_never_taken_for_places() -> None:
    asked = ["{{title}} by {{ id }}: {{outcome}}", "all: {{acceptance_criteria}}", "{{spec_id}}{{description}}"]
    config = {"check_for": asked}
    made = completion(outcome="out {{id}}", acceptance_criteria=["a", "b\nc"], coder=block("semantic", config))
    task = draft(title="{{outcome}}", spec_id="s", description="d", completion=made)
    assert validate_draft(task) == ()
    criteria = task_from_draft(task).criteria_for("coder")
    assert criteria is not None
    assert criteria.how == SemanticVerification(("{{outcome}} by T-1: out {{id}}", "all: a\nb c", "sd"))


@pytest.mark.parametrize(
    ("command", "made"),
    [
        ("echo {{title}}", 'echo "${RALPH_TASK_TITLE}"'),
        ("{{ id }} {{spec_id}}", '"${RALPH_TASK_ID}" "${RALPH_TASK_SPEC}"'),
        ("{{description}}{{outcome}}", '"${RALPH_TASK_DESCRIPTION}""${RALPH_TASK_OUTCOME}"'),
        ('x "{{acceptance_criteria}} y"', 'x "${RALPH_TASK_ACCEPTANCE} y"'),
        ("x '{{title}} y'", "x ''\"${RALPH_TASK_TITLE}\"' y'"),
        ("docker ps --format '{{.Names}} {{json .}} {{id2}}'", "docker ps --format '{{.Names}} {{json .}} {{id2}}'"),
        ("x {title} {{{title}}}", 'x {title} {"${RALPH_TASK_TITLE}"}'),
        ("true # don't\necho {{id}}", 'true # don\'t\necho "${RALPH_TASK_ID}"'),
        ('a "$(b "{{id}}" {{id}}) {{id}}"', 'a "$(b "${RALPH_TASK_ID}" "${RALPH_TASK_ID}") ${RALPH_TASK_ID}"'),
        ("sh -c 'grep \"$1\" x' _ {{title}}", 'sh -c \'grep "$1" x\' _ "${RALPH_TASK_TITLE}"'),
        ("x=$((1<<2)) y=${z:-a} `date` $'b' \\' {{id}}", "x=$((1<<2)) y=${z:-a} `date` $'b' \\' \"${RALPH_TASK_ID}\""),
        ("case {{id}} in a) echo {{id}};; esac", 'case "${RALPH_TASK_ID}" in a) echo "${RALPH_TASK_ID}";; esac'),
        ("cat <<'END'\nit's\nEND\necho {{id}}", "cat <<'END'\nit's\nEND\necho \"${RALPH_TASK_ID}\""),
        ('`echo "\'"` {{id}}', '`echo "\'"` "${RALPH_TASK_ID}"'),
        ('"${x%"\'"}" {{id}}', '"${x%"\'"}" "${RALPH_TASK_ID}"'),
        ('"$(case x in y) {{id}};; esac)"', '"$(case x in y) "${RALPH_TASK_ID}";; esac)"'),
    ],
)
def test_a_field_in_a_command_is_the_name_of_a_variable(command: str, made: str) -> None:
    assert substitute_in_command(command) == made
    found = how("external", {"command": command})
    assert isinstance(found, ExternalVerification)
    assert found.command == made


UNCLEAR = (
    'sh -c "{{title}}"', "sh -c 'printf %s \"{{title}}\"'", 'sh -c"{{title}}"',
    '/bin/bash -o pipefail -ec "x {{title}}"',
    'x | xargs sh -c "$(a b) {{title}}"', "cat <<END\n{{title}}\nEND", "{title} {{title}}",
    "echo $'a\\'{{title}}'", "`echo {{title}}`", 'echo "`echo {{title}}`"',
    'eval "{{title}}"',
    "if x; then ssh host {{title}}; fi", "echo $(({{title}}))", "echo ${x:-{{title}}}",
    "${{title}}", "\\{{title}}", '"\\{{title}}"', 'python3 -c "print({{title}})"', "echo 'a {{title}}",
)  # fmt: skip


@pytest.mark.parametrize("command", UNCLEAR)
def test_a_field_where_no_quotes_would_be_right_is_a_problem(command: str) -> None:
    (found,) = validate_draft(with_way("external", {"command": command}))
    assert found.endswith(
        "command has {{title}} where it cannot be quoted safely; write the variable $RALPH_TASK_TITLE there, quoted as "
        "any variable"
    )
    assert substitute_in_command(command) == command
    assert validate_draft(with_way("external", {"command": command.replace("{{title}}", "$RALPH_TASK_TITLE")})) == ()


HOSTILE = (
    "$(touch owned)", "`touch owned`", "'; touch owned; '", '"; touch owned; "', "a && touch owned", "*", "${HOME}",
    "é☃", "two  words", "-n -e x", "it's", '"', "\\", "a\\nb", "~", "[a-z]*", "{{id}}", "#x", "%s%d", "!x", "a=b",
)  # fmt: skip
# where a field may stand, and what surrounds it there
PLACES = (
    ("{{title}}", ""), ('"{{title}}"', ""), ("'{{title}}'", ""), ("x{{title}}x", "x"),
    ('"x{{ title }}x"', "x"), ("'x{{title}}x'", "x"), ('"$(printf %s {{title}})"', ""),
    ("\"$(printf %s '{{title}}')\"", ""), ("x'{{title}}'\"x\"", "x"),
)  # fmt: skip


@pytest.mark.parametrize("title", HOSTILE)
def test_a_field_is_a_part_of_one_word_wherever_it_stands_and_no_shell_parses_it(title: str, tmp_path: Path) -> None:
    command = "printf '%s\\n' " + " ".join(place for place, _ in PLACES) + "; x={{title}}; printf '%s\\n' \"$x\""
    task = task_from_draft(draft(title=title, completion=completion(coder=block("external", {"command": command}))))
    criteria = task.criteria_for("coder")
    assert criteria is not None
    assert isinstance(criteria.how, ExternalVerification)
    ran = subprocess.run(
        ["/bin/sh", "-c", criteria.how.command], cwd=tmp_path, env={"PATH": "/usr/bin:/bin", **task_environment(task)},
        capture_output=True, check=True,
    )  # fmt: skip
    assert ran.stdout.decode().splitlines() == [*(around + title + around for _, around in PLACES), title]
    assert list(tmp_path.iterdir()) == []


def test_a_long_command_is_read_in_reasonable_time() -> None:
    assert substitute_in_command("{{id}} " * 2000) == '"${RALPH_TASK_ID}" ' * 2000


def test_the_variables_of_a_task() -> None:
    task = task_from_draft(
        draft(spec_id="s", description="d\n", completion=completion(acceptance_criteria=["a", "b\nc "]))
    )
    assert task_environment(task) == {
        "RALPH_TASK_ID": "T-1", "RALPH_TASK_SPEC": "s", "RALPH_TASK_TITLE": "Tokens", "RALPH_TASK_DESCRIPTION": "d\n",
        "RALPH_TASK_OUTCOME": "Every request needs a token", "RALPH_TASK_ACCEPTANCE": "a\nb c",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "there"), [("é" * 51_200, True), ("é" * 51_201, False), ("a\0", False), ("\ud800", False)]
)
def test_a_text_that_no_program_can_be_started_with_is_left_out(text: str, there: bool) -> None:
    assert ("RALPH_TASK_DESCRIPTION" in task_environment(Task("T-1", text))) is there


def test_a_task_without_a_completion_has_no_criteria_and_a_warning() -> None:
    task, warning = task_without_completion(draft(completion=None, description="old"))
    assert task == Task("T-1", "old", "Tokens")
    assert warning.startswith("T-1: it has no completion, so the settings alone say how it is verified")
