"""Everything that can be wrong with a task, and the line that says so."""

from __future__ import annotations

from typing import Any

import pytest

from ralphproof.checks.methods import ValidationScope, validate_method
from ralphproof.engine.plan import Task
from ralphproof.tasks.draft import draft_warnings, no_plugin_methods, task_without_criteria, validate_draft
from tests.tasks.samples import MISSING, block, completion, draft, part, with_way

ODD_TYPES: list[Any] = [3, True, 1.5, ["x"], {"x": 1}]


def told(task: Any, **more: Any) -> list[str]:
    """The problems without the task's name."""
    found = validate_draft(task, **more)
    assert all(line.startswith("T-1: ") for line in found)
    return [line.removeprefix("T-1: ") for line in found]


def test_nothing_is_wrong_with_an_outcome_and_one_criterion() -> None:
    assert told(draft()) == []


@pytest.mark.parametrize(
    ("id", "wrong"),
    [
        ("", "task: id is blank"),
        ("  ", "task: id is blank"),
        (" a", 'task: id has blanks around it: " a"'),
        ("a\nb", "task: id must be one line"),
        ("a\x1b[2J", "task: id holds the character U+001B"),
        ("a\0", "task: id holds a NUL character"),
        ("x" * 201, "task: id has 201 characters; at most 200 are allowed"),
        ("a\ud800", "task: id holds characters that are not Unicode"),
    ],
)
def test_an_id_is_short_and_printable(id: str, wrong: str) -> None:
    assert validate_draft(draft(id=id)) == (wrong,)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"title": ""}, "title is blank"),
        ({"title": "x" * 501}, "title has 501 characters; at most 500 are allowed"),
        ({"title": "a\nb"}, "title must be one line"),
        ({"title": "a\u2028b"}, "title holds the character U+2028"),
        ({"description": "a\0b"}, "description holds a NUL character"),
        ({"description": "é" * 600_000}, "description has 1200000 bytes; at most 1024 KiB are allowed"),
        ({"spec_id": "a\tb"}, "spec_id holds the character U+0009"),
        ({"assignee": "x" * 201}, "assignee has 201 characters; at most 200 are allowed"),
        ({"priority": True}, "priority must be a whole number from -2147483648 to 2147483647, not true"),
        ({"priority": 2**40}, f"priority must be a whole number from -2147483648 to 2147483647, not {2**40}"),
        ({"dependencies": ("", "b")}, "dependencies[0] is blank"),
        ({"dependencies": ("a",) * 1001}, "dependencies has 1001 entries; at most 1000 are allowed"),
        ({"status": "dne"}, 'status must be one of todo, working, done, failed, cancelled, waiting, not "dne"; did '
                            "you mean done?"),
        ({"metadata": {"a": "x" * 2**20}}, "metadata has more than 1024 KiB"),
        ({"metadata": {"a": ["b", "\0"]}}, "metadata.a[1] holds a NUL character"),
        ({"metadata": {"k" * 121: 1}},
         'metadata has a key that is longer than 120 characters: "' + "k" * 56 + "..."),
        ({"completion": None}, "completion is missing; give an outcome and at least one acceptance criterion"),
    ],
)  # fmt: skip
def test_fields_of_a_task_are_bounded(change: dict[str, Any], wrong: str) -> None:
    assert told(draft(**change)) == [wrong]


@pytest.mark.parametrize(
    "change",
    [
        {"id": "Robert'); DROP TABLE tasks;--"}, {"id": "x" * 200}, {"id": "$(rm -rf .)"}, {"id": "任務-1"},
        {"title": "{{title}} `$(rm)` \"'\\ 👨‍👩‍👧 a\u3000b"}, {"title": "x" * 500},
        {"description": "lines\r\nand\ttabs\n\x1b[0m " + "x" * 1_000_000}, {"priority": -3},
        {"metadata": {"any": [1, None, {"thing": 2.5}]}}, {"status": "cancelled"}, {"dependencies": ("b", "b")},
    ],
)  # fmt: skip
def test_hostile_but_printable_text_is_kept(change: dict[str, Any]) -> None:
    assert told(draft(**change)) == []


TO_COMPLETION: list[tuple[str, Any, str]] = [
    ("outcome", MISSING, "completion.outcome is missing"),
    ("outcome", None, "completion.outcome is missing"),
    ("outcome", " \n", "completion.outcome is blank"),
    ("outcome", 3, "completion.outcome must be text, not 3; put it in quotes"),
    ("outcome", "x" * 2001, "completion.outcome has 2001 characters; at most 2000 are allowed"),
    ("acceptance_criteria", MISSING, "completion.acceptance_criteria is missing"),
    ("acceptance_criteria", [], "completion.acceptance_criteria is empty"),
    ("acceptance_criteria", "one", 'completion.acceptance_criteria must be a list, not "one"'),
    ("acceptance_criteria", ["a", " "], "completion.acceptance_criteria[1] is blank"),
    ("acceptance_criteria", ["a", {"b": 1}], 'completion.acceptance_criteria[1] must be text, not {"b": 1}'),
    ("acceptance_criteria", ["a", None], "completion.acceptance_criteria[1] must be text, not null"),
    ("acceptance_criteria", ["a"] * 201, "completion.acceptance_criteria has 201 entries; at most 200 are allowed"),
    ("acceptance_criteria", ["a\x07"], "completion.acceptance_criteria[0] holds the character U+0007"),
    ("acceptence_criteria", ["a"], "unknown key completion.acceptence_criteria; did you mean acceptance_criteria?"),
    ("zzz", 1, "unknown key completion.zzz"),
    ("coder", "x", 'completion.coder must be a mapping, not "x"'),
    ("coder", [], "completion.coder must be a mapping, not []"),
]


@pytest.mark.parametrize(("key", "given", "wrong"), TO_COMPLETION)
def test_a_completion_has_an_outcome_and_criteria(key: str, given: Any, wrong: str) -> None:
    bent = completion(**{key: given})
    if given is MISSING:
        del bent[key]
    assert told(draft(completion=bent)) == [wrong]


@pytest.mark.parametrize("stage", ["coder", "reviewer", "tester", "qa"])
def test_a_stage_without_a_value_counts_as_left_out(stage: str) -> None:
    assert told(draft(completion=completion(**{stage: None}))) == []


TO_BLOCK: list[tuple[str, Any, str]] = [
    ("promise", MISSING, "promise is missing"),
    ("promise", "", "promise is blank"),
    ("promise", "a\nb", "promise must be one line"),
    ("promise", "<promise>X</promise>", "promise may not hold < or >; the tags are put around it, so write the word "
                                        'alone, not "<promise>X</promise>"'),
    ("promise", 1, "promise must be text, not 1; put it in quotes"),
    ("description", [], "description must be text, not []"),
    ("description", "x" * 2001, "description has 2001 characters; at most 2000 are allowed"),
    ("verification_method", "extrenal", "verification_method must be one of string_match, semantic, external, "
                                        'multi_stage, or installed; not "extrenal"; did you mean external?'),
    ("verification_method", 5, "verification_method must be one of string_match, semantic, external, multi_stage, "
                               "or installed; not 5"),
    ("max_iterations", 0, "max_iterations must be a whole number from 1 to 1000000, not 0"),
    ("max_iterations", -1, "max_iterations must be a whole number from 1 to 1000000, not -1"),
    ("max_iterations", True, "max_iterations must be a whole number from 1 to 1000000, not true"),
    ("max_iterations", "3", 'max_iterations must be a whole number from 1 to 1000000, not "3"'),
    ("max_iterations", 2.0, "max_iterations must be a whole number from 1 to 1000000, not 2.0"),
    ("verification_config", [], "verification_config must be a mapping, not []"),
    ("verification_config", {"command": "x"}, "verification_method is missing"),
    ("with", {"path": "x"}, "with belongs to a template; name it in completion.coder.verification_template"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "given", "wrong"), TO_BLOCK)
def test_a_stage_has_a_promise_and_a_known_way(key: str, given: Any, wrong: str) -> None:
    bent = block(**{key: given})
    if given is MISSING:
        del bent[key]
    assert told(draft(completion=completion(coder=bent))) == [f"completion.coder.{wrong}"]


def test_unknown_keys_of_a_stage_name_the_nearest() -> None:
    bent = block(verify_method="external", verification_conifg={})
    assert told(draft(completion=completion(qa=bent))) == [
        "unknown key completion.qa.verify_method; did you mean verification_method?",
        "unknown key completion.qa.verification_conifg; did you mean verification_config?",
    ]


@pytest.mark.parametrize("method", [None, "string_match"])
def test_a_promise_is_enough_for_a_stage(method: str | None) -> None:
    assert told(draft(completion=completion(coder=block(method, max_iterations=None)))) == []


def test_a_method_of_a_plug_in_is_known_by_its_name_and_told_whatever_it_is_told() -> None:
    task = with_way("mutation", {"anything": [1]})
    assert told(task, methods=lambda name: name == "mutation") == []
    assert len(told(task, methods=lambda name: name == "other")) == 1


TO_EXTERNAL: list[tuple[dict[str, Any], str]] = [
    ({"command": MISSING}, ".command is missing"),
    ({"command": "  "}, ".command is blank"),
    ({"command": ["ls"]}, '.command must be text, not ["ls"]'),
    ({"command": "a\0b"}, ".command holds a NUL character"),
    ({"command": "x" * (100 * 1024 + 1)}, ".command has 102401 bytes; at most 100 KiB are allowed"),
    ({"success_exit_code": -1}, ".success_exit_code must be a whole number from 0 to 255, not -1"),
    ({"success_exit_code": 256}, ".success_exit_code must be a whole number from 0 to 255, not 256"),
    ({"success_exit_code": False}, ".success_exit_code must be a whole number from 0 to 255, not false"),
    ({"success_exit_code": "0"}, '.success_exit_code must be a whole number from 0 to 255, not "0"'),
    ({"output_contains": 200}, ".output_contains must be text, not 200; put it in quotes"),
    ({"output_not_contains": True}, ".output_not_contains must be text, not true; put it in quotes"),
    ({"timeout": 0}, ".timeout must be a number above 0, at most 86400, not 0"),
    ({"timeout": 86401}, ".timeout must be a number above 0, at most 86400, not 86401"),
    ({"timeout": "5"}, '.timeout must be a number above 0, at most 86400, not "5"'),
    ({"timeout": True}, ".timeout must be a number above 0, at most 86400, not true"),
    ({"timeout": float("nan")}, ".timeout must be a number above 0, at most 86400, not NaN"),
    ({"timeout": float("inf")}, ".timeout must be a number above 0, at most 86400, not Infinity"),
    ({"timeout": 10**400}, ".timeout must be a number above 0, at most 86400, not " + "1" + "0" * 56 + "..."),
    ({"working_dir": "/etc"}, '.working_dir must be a folder inside the project, written from its root, not "/etc"'),
    ({"working_dir": "../x"}, '.working_dir must be a folder inside the project, written from its root, not "../x"'),
    ({"working_dir": "a/../../x"},
     '.working_dir must be a folder inside the project, written from its root, not "a/../../x"'),
    ({"working_dir": ".."}, '.working_dir must be a folder inside the project, written from its root, not ".."'),
    ({"working_dir": ""}, ".working_dir is blank"),
    ({"working_dir": 1}, ".working_dir must be text, not 1; put it in quotes"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "wrong"), TO_EXTERNAL)
def test_a_command_is_told_strictly(change: dict[str, Any], wrong: str) -> None:
    config = {key: given for key, given in {"command": "true", **change}.items() if given is not MISSING}
    assert told(with_way("external", config)) == [f"completion.coder.verification_config{wrong}"]


def test_a_way_alone_is_looked_at_as_strictly() -> None:
    scope = ValidationScope(task_without_criteria(draft()), no_plugin_methods, "X")
    assert list(validate_method("external", {"command": "a\0"}, "stages.coder", scope)) == [
        "stages.coder.verification_config.command holds a NUL character"
    ]
    names = ("method", "config", "template")
    assert list(validate_method("semantic", None, "qa", scope, names)) == [], "the acceptance criteria stand in"
    no_task = ValidationScope(Task("", ""), no_plugin_methods, "X")
    assert list(validate_method("semantic", None, "qa", no_task, names)) == [
        "qa.config needs check_for or negative_patterns"
    ]


@pytest.mark.parametrize(
    "config",
    [
        {"command": "x" * 100 * 1024, "success_exit_code": 255, "output_contains": "", "timeout": 0.5},
        {"command": "a\nb", "working_dir": "a/../b/..x", "timeout": 86400, "output_contains": None},
    ],
)
def test_a_command_may_go_to_its_bounds(config: dict[str, Any]) -> None:
    assert told(with_way("external", config)) == []


TO_SEMANTIC: list[tuple[dict[str, Any], str]] = [
    ({"check_for": " "}, ".check_for is blank"),
    ({"check_for": ["a", ""]}, ".check_for[1] is blank"),
    ({"check_for": 3}, ".check_for must be a list, not 3"),
    ({"check_for": "{{acceptance}}"}, ".check_for has no field {{acceptance}} to put in; did you mean "
                                      "acceptance_criteria?"),
    ({"check_for": ["a", "{{ Title }} is"]}, ".check_for[1] has no field {{Title}} to put in; did you mean title?"),
    ({"check_for": ["x" * 2001]}, ".check_for[0] has 2001 characters; at most 2000 are allowed"),
    ({"negative_patterns": "TODO"}, '.negative_patterns must be a list, not "TODO"'),
    ({"negative_patterns": ["TODO", " "]}, ".negative_patterns[1] is blank"),
    ({"check_for": "a", "model": ""}, ".model is blank"),
    ({"check_for": "a", "agent": 1}, ".agent must be text, not 1; put it in quotes"),
    ({"check_for": "a", "max_cost_usd": 0}, ".max_cost_usd must be a number above 0, at most 10000, not 0"),
    ({"check_for": "a", "max_cost_usd": 1e300}, ".max_cost_usd must be a number above 0, at most 10000, not 1e+300"),
    ({"check_for": "a", "timeout": -1}, ".timeout must be a number above 0, at most 86400, not -1"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "wrong"), TO_SEMANTIC)
def test_a_judge_is_told_strictly(config: dict[str, Any], wrong: str) -> None:
    assert told(with_way("semantic", config)) == [f"completion.coder.verification_config{wrong}"]


def test_a_judge_needs_only_one_of_two() -> None:
    assert told(with_way("semantic", {"negative_patterns": ["TODO"]})) == []
    assert told(with_way("semantic", {"check_for": "{{ acceptance_criteria }}", "max_cost_usd": 0.01})) == []


TO_STAGES: list[tuple[Any, str]] = [
    (MISSING, ".stages is missing"),
    ([], ".stages is empty"),
    ("x", '.stages must be a list, not "x"'),
    ([part(f"p{place}") for place in range(101)], ".stages has 101 entries; at most 100 are allowed"),
    (["x"], '.stages[0] must be a mapping, not "x"'),
    ([{"method": "external", "config": {"command": "x"}}], ".stages[0].name is missing"),
    ([part("a\nb")], ".stages[0].name must be one line"),
    ([part("a"), part("a")], '.stages[1].name: another stage is named "a"'),
    ([{"name": "a"}], ".stages[0].method is missing"),
    ([part("a", method="extern")], ".stages[0].method must be one of string_match, semantic, external, multi_stage, "
                                   'or installed; not "extern"; did you mean external?'),
    ([part("a"), part("b", config={})], ".stages[1].config.command is missing"),
    ([part("a", config=None)], ".stages[0].config.command is missing"),
    ([part("a", config=[])], ".stages[0].config must be a mapping, not []"),
    ([part("a", required="yes")], '.stages[0].required must be true or false, not "yes"'),
    ([part("a", required=False)], ".stages: no stage is required, so nothing would be verified"),
    ([part("a", depends_on="b"), part("b")], '.stages[0].depends_on must be a list, not "b"'),
    ([part("a", depends_on=["bb"]), part("b")], '.stages[0].depends_on[0]: no stage is named "bb"; did you mean b?'),
    ([part("a", depends_on=["a"])], ".stages: depends_on goes in a circle: a -> a"),
    ([part("a", depends_on=["b"]), part("b", depends_on=["a"])], ".stages: depends_on goes in a circle: a -> b -> a"),
    ([part("a", method="string_match", config={"promise": "OTHER"})],
     '.stages[0].config.promise is "OTHER", and the stage\'s promise "DONE_SO"; leave it out here'),
]  # fmt: skip


@pytest.mark.parametrize(("stages", "wrong"), TO_STAGES)
def test_stages_are_told_strictly(stages: Any, wrong: str) -> None:
    config = {} if stages is MISSING else {"stages": stages}
    assert told(with_way("multi_stage", config)) == [f"completion.coder.verification_config{wrong}"]


def test_a_hundred_stages_are_looked_at() -> None:
    (wrong,) = told(with_way("multi_stage", {"stages": [part(f"p{place}") for place in range(99)] + [{"name": "p"}]}))
    assert wrong.endswith("stages[99].method is missing")


@pytest.mark.parametrize(("key", "given"), [("require_all", "no"), ("parallel", 1)])
def test_switches_of_stages_are_true_or_false(key: str, given: Any) -> None:
    (wrong,) = told(with_way("multi_stage", {"stages": [part("a")], key: given}))
    assert wrong.startswith(f"completion.coder.verification_config.{key} must be true or false")


def test_unknown_keys_are_named_with_the_nearest_at_every_depth() -> None:
    stages = [part("a", requierd=True), part("b", config={"command": "x", "exit_code": 0})]
    found = told(with_way("multi_stage", {"stages": stages, "paralel": True}))
    assert found == [
        "unknown key completion.coder.verification_config.paralel; did you mean parallel?",
        "unknown key completion.coder.verification_config.stages[0].requierd; did you mean required?",
        "unknown key completion.coder.verification_config.stages[1].config.exit_code; did you mean success_exit_code?",
    ]


def test_a_promise_among_stages_may_repeat_that_of_the_stage_whatever_its_case() -> None:
    stages = [part("a", method="string_match", config={"promise": "done_so"}), part("b", depends_on=["a"])]
    assert told(with_way("multi_stage", {"stages": stages, "require_all": False, "parallel": False})) == []


def nested(levels: int) -> dict[str, Any]:
    config: dict[str, Any] = {"stages": [part("leaf")]}
    for _ in range(levels - 1):
        config = {"stages": [part("inner", method="multi_stage", config=config)]}
    return config


def test_stages_are_nested_five_deep_and_no_deeper() -> None:
    assert told(with_way("multi_stage", nested(5))) == []
    (wrong,) = told(with_way("multi_stage", nested(6)))
    assert wrong.endswith(".stages is nested more than 5 deep")
    assert wrong.count("config.stages[0]") == 5


def test_none_required_is_refused_in_stages_within_stages_too() -> None:
    inner = {"stages": [part("x", required=False)]}
    (wrong,) = told(with_way("multi_stage", {"stages": [part("a"), part("b", method="multi_stage", config=inner)]}))
    assert wrong.endswith("stages[1].config.stages: no stage is required, so nothing would be verified")


@pytest.mark.parametrize("given", ODD_TYPES)
@pytest.mark.parametrize("key", ["name", "method", "config", "required", "depends_on", "template"])
def test_a_wrong_type_in_a_stage_is_said(key: str, given: Any) -> None:
    found = told(with_way("multi_stage", {"stages": [part("a"), {**part("b"), key: given}]}))
    assert bool(found) is not (key == "required" and given is True)
    assert all(f"stages[1].{key}" in line for line in found if "template" not in line)


@pytest.mark.parametrize("method", ["external", "semantic", "multi_stage", "string_match"])
@pytest.mark.parametrize("config", ODD_TYPES)
def test_a_config_of_a_wrong_type_is_said(method: str, config: Any) -> None:
    assert told(with_way(method, config)) != []


def test_a_command_that_reads_a_text_too_long_for_a_variable_is_refused() -> None:
    config = {"command": "echo {{ description }}"}
    long = draft(description="x" * (100 * 1024 + 1), completion=completion(coder=block("external", config)))
    assert told(long) == [
        "completion.coder.verification_config.command uses {{description}}, which is too long for a variable (100 KiB)"
    ]
    by_name = block("external", {"command": 'echo "$RALPH_TASK_DESCRIPTION"'})
    assert len(told(draft(description="x" * (100 * 1024 + 1), completion=completion(coder=by_name)))) == 1
    assert told(draft(description="x" * 100 * 1024, completion=completion(coder=by_name))) == []


def test_all_that_is_wrong_is_said_at_once() -> None:
    bent = completion(outcome="", coder=block("external"), qa=block("multi_stage", {"stages": []}))
    assert told(draft(title="", priority="1", completion=bent)) == [
        "title is blank",
        'priority must be a whole number from -2147483648 to 2147483647, not "1"',
        "completion.outcome is blank",
        "completion.coder.verification_config.command is missing",
        "completion.qa.verification_config.stages is empty",
    ]


@pytest.mark.parametrize(
    ("outcome", "vague"),
    [
        ("it works well", True), ("Login works as expected", True), ("Improve the speed", True), ("Done", True),
        ("Faster start", True), ("Improve start-up to under 50 ms", False),
        ("All API endpoints require valid JWT tokens for access", False), ("The improved parser reads tabs", False),
    ],
)  # fmt: skip
def test_an_outcome_that_nothing_can_measure_is_remarked_on_and_allowed(outcome: str, vague: bool) -> None:
    task = draft(completion=completion(outcome=outcome))
    assert told(task) == []
    assert [line.startswith("T-1: completion.outcome is hard to measure") for line in draft_warnings(task)] == [
        True
    ] * vague


def test_a_promise_alone_is_remarked_on() -> None:
    task = draft(completion=completion(tester=block("string_match"), qa=block("external", {"command": "true"})))
    assert draft_warnings(task) == (
        "T-1: completion.tester is verified by its promise alone, which is the agent's own word",
    )  # fmt: skip


def test_a_judgement_may_not_have_more_criteria_than_can_be_asked() -> None:
    asked = {"check_for": [f"number {at}" for at in range(150)] + ["{{acceptance_criteria}}"]}
    made = {"acceptance_criteria": [f"accepted {at}" for at in range(51)], "coder": block("semantic", asked)}
    (found,) = validate_draft(draft(completion=completion(**made)))
    assert found.endswith("check_for asks for 201 criteria with those of the task; at most 200")
    del asked["check_for"][0]
    assert validate_draft(draft(completion=completion(**made))) == ()
