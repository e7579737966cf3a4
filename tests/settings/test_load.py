from __future__ import annotations

import json
from typing import Any

import pytest

from ralphproof.checks.methods import guardrail_verification
from ralphproof.engine.plan import ExternalVerification
from ralphproof.settings.declarations import SETTINGS_SCHEMA, GuardrailSettings, ScmSettings, parse_settings
from ralphproof.settings.loader import apply_caps
from ralphproof.settings.schema import default_values, normalize
from tests.settings.project import EXAMPLE, Project


def test_without_any_file_the_defaults_hold(project: Project) -> None:
    loaded = project.load()
    assert loaded.settings == parse_settings(normalize(default_values(SETTINGS_SCHEMA), SETTINGS_SCHEMA))  # type: ignore[arg-type]
    assert loaded.settings.cost_limit_micro_usd == loaded.settings.caps.cost_usd * 1_000_000
    assert loaded.warnings == ()


def test_the_defaults_are_those_of_the_specification(project: Project) -> None:
    settings = project.load().settings
    agent, limits, caps, supervise = settings.agent, settings.limits, settings.caps, settings.supervise
    assert (settings.maximum_iterations, settings.completion_response) == (10, "DONE")
    assert (agent.timeout_seconds, agent.idle_timeout_seconds) == (3600, 900)
    assert (limits.stall_iterations, limits.same_error_iterations, limits.pause_milliseconds) == (5, 5, 500)
    assert (caps.iterations, caps.cost_usd, caps.daily_cost_usd) == (50, 10, 50)
    assert (supervise.wait_timeout_seconds, supervise.wait_exit_code) == (300, 42)
    assert settings.shutdown_grace_seconds == 10


def test_the_example_of_the_documentation_loads(project: Project) -> None:
    project.write(project.shared, EXAMPLE)
    settings = project.load().settings
    assert settings.agent.command == "claude"
    assert settings.agent.flags == ("--model opus", "--no-auto-compact")
    assert settings.scm == ScmSettings("git", ("commit", "push"))
    assert settings.guardrails == (
        GuardrailSettings("make lint", "APPEND", "Fix lint errors only. Do not change behavior.", "make lint"),
        GuardrailSettings("make test", "APPEND", "", "make test"),
    )
    assert guardrail_verification(settings.guardrails[0]) == ExternalVerification("make lint", timeout_s=600.0)


def test_local_settings_override_scalars_replace_lists_and_merge_objects(project: Project) -> None:
    project.write(project.shared, {"maximumIterations": 5, "agent": {"command": "claude", "flags": ["--model opus"]}})
    project.write(project.local, {"maximumIterations": 7, "agent": {"flags": ["--verbose"]}})
    settings = project.load().settings
    assert settings.maximum_iterations == 7
    assert settings.agent.command == "claude"
    assert settings.agent.flags == ("--verbose",)


def test_each_layer_wins_over_the_one_before_and_is_named_as_the_origin(project: Project) -> None:
    name = "RALPH__MAXIMUM_ITERATIONS"
    loads = [project.load()]
    for number, path in enumerate((project.user, project.shared, project.local), 11):
        project.write(path, {"maximumIterations": number})
        loads.append(project.load())
    loads.append(project.load(environ={name: "14"}))
    loads.append(project.load({"maximumIterations": 15}, {name: "14"}))
    assert [(loaded.settings.maximum_iterations, loaded.origins["maximumIterations"]) for loaded in loads] == [
        (10, "default"),
        (11, str(project.user)),
        (12, ".ralph/settings.json"),
        (13, ".ralph/settings.local.json"),
        (14, name),
        (15, "command line"),
    ]


def test_origins_name_every_path_of_the_merged_settings(project: Project) -> None:
    project.write(project.shared, {"agent": {"env": {"A": "1"}}, "scm": {"command": "git"}})
    project.write(project.local, {"agent": {"env": {"B": "2"}}, "scm": {"tasks": ["commit"]}})
    loaded = project.load()
    assert loaded.origins["agent.env.A"] == ".ralph/settings.json"
    assert loaded.origins["agent.env.B"] == ".ralph/settings.local.json"
    assert loaded.origins["scm.command"] == ".ralph/settings.json"
    assert loaded.origins["scm.tasks"] == ".ralph/settings.local.json"
    assert loaded.origins["agent.timeoutSeconds"] == "default"
    assert set(loaded.origins) == set(_paths(loaded.raw))


def test_null_turns_scm_off_again_and_its_origin_is_the_null(project: Project) -> None:
    project.write(project.shared, EXAMPLE)
    project.write(project.local, {"scm": None})
    loaded = project.load()
    assert loaded.settings.scm is None
    assert loaded.origins["scm"] == ".ralph/settings.local.json"
    assert "scm.command" not in loaded.origins


@pytest.mark.parametrize("key", ["agent", "guardrails", "limits", "display"])
def test_null_never_drops_an_object_or_a_list(project: Project, key: str) -> None:
    project.write(project.shared, EXAMPLE)
    project.write(project.local, {key: None})
    (problem,) = project.problems()
    assert problem.startswith(f".ralph/settings.local.json: {key} may not be null")


def test_an_scm_that_no_layer_completes_is_refused(project: Project) -> None:
    project.write(project.local, {"scm": {"command": "git"}})
    assert project.problems() == [".ralph/settings.local.json: scm.tasks is missing"]


def test_the_problems_of_all_layers_are_told_at_once(project: Project) -> None:
    project.write(project.user, {"maximumIteration": 1})
    project.write(project.shared, {"outputTruncateChars": "many"})
    project.write(project.local, {"guardrails": [{"command": " "}], "sandbox": {"backend": "bubblewarp"}})
    environ = {"RALPH__AGENT__COMAND": "x", "RALPH__MAXIMUM_ITERATIONS": "ten"}
    problems = project.problems({"checksWhen": "never"}, environ)
    assert len(problems) == 7
    for start in (
        "RALPH__AGENT__COMAND: there is no such setting; did you mean RALPH__AGENT__COMMAND?",
        "RALPH__MAXIMUM_ITERATIONS: must be a whole number of 1 or more, as JSON",
        f"{project.user}: unknown key maximumIteration; did you mean maximumIterations?",
        ".ralph/settings.json: outputTruncateChars must be",
        ".ralph/settings.local.json: guardrails[0].command must be text that is not blank",
        ".ralph/settings.local.json: sandbox.backend: 'bubblewarp' is no kind of sandbox; there are: auto, bubblewrap",
        "command line: checksWhen must be one of always, claim",
    ):
        assert any(problem.startswith(start) for problem in problems), start


def test_the_preset_of_the_highest_layer_gives_the_defaults(project: Project) -> None:
    project.write(project.shared, {"preset": "wrapper"})
    loaded = project.load({"preset": "harness"})
    assert (loaded.settings.preset, loaded.settings.maximum_iterations) == ("harness", 10)
    assert loaded.raw["contextInjection"] is False


def test_a_doubled_key_does_not_hide_the_rules_that_others_break(project: Project) -> None:
    project.write(project.shared, '{"maximumIterations": 1, "maximumIterations": 2}')
    project.write(project.local, {"otel": "x", "guardrails": [{"command": "a", "name": "n"}] * 2})
    problems = project.problems({"limits": {"maxTokens": -1}})
    assert [problem for problem in problems if "maximumIterations is given twice" in problem]
    assert [problem for problem in problems if "otel is no http:// or https:// address" in problem]
    assert [problem for problem in problems if "guardrails[1].name is that of guardrails[0]" in problem]
    assert [problem for problem in problems if "maxTokens" in problem]
    assert len(problems) == 4


@pytest.mark.parametrize(("one", "other"), [("harness", "wrapper"), ("wrapper", "harness")])
def test_what_depends_on_a_doubled_key_is_not_guessed(project: Project, one: str, other: str) -> None:
    project.write(project.shared, f'{{"preset": "{one}", "preset": "{other}"}}')
    (problem,) = project.problems()
    assert "the key preset is given twice" in problem


def test_a_rule_that_is_broken_whichever_is_meant_is_told(project: Project) -> None:
    project.write(project.shared, '{"preset": "pipeline", "preset": "wrapper"}')
    problems = project.problems({"otel": "x"})
    assert [problem for problem in problems if "otel" in problem]
    assert not [problem for problem in problems if "explicit" in problem]


@pytest.mark.parametrize("place", ["shared", "local"])
@pytest.mark.parametrize("data", [{"caps": {"costUsd": 100}}, {"prices": {}}])
def test_caps_and_prices_in_a_project_are_refused_with_the_place_where_they_belong(
    project: Project, place: str, data: dict[str, Any]
) -> None:
    project.write(getattr(project, place), data)
    (problem,) = project.problems()
    assert f"{next(iter(data))} belongs in the user's own settings, {project.user}" in problem


def test_what_exceeds_the_caps_is_clamped_with_a_warning(project: Project) -> None:
    project.write(project.shared, {"maximumIterations": 80, "limits": {"maxCostUsd": 12.5}})
    loaded = project.load()
    assert loaded.settings.maximum_iterations == 50
    assert loaded.settings.cost_limit_micro_usd == 10_000_000
    assert loaded.raw["maximumIterations"] == 50
    assert loaded.warnings == (
        "maximumIterations is 80; caps.iterations allows 50, so 50 holds",
        "limits.maxCostUsd is 12.5; caps.costUsd allows 10, so 10 holds",
    )


def test_a_limit_below_the_cap_holds_as_it_is(project: Project) -> None:
    loaded = project.load({"limits": {"maxCostUsd": 2.5}})
    assert loaded.settings.cost_limit_micro_usd == 2_500_000
    assert loaded.warnings == ()


def test_the_user_may_set_the_caps(project: Project) -> None:
    project.write(project.user, {"caps": {"iterations": 100, "costUsd": 0.25}})
    project.write(project.shared, {"maximumIterations": 80})
    loaded = project.load()
    assert loaded.settings.maximum_iterations == 80
    assert loaded.settings.cost_limit_micro_usd == 250_000
    assert loaded.warnings == ()


@pytest.mark.parametrize(("preset", "iterations"), [("harness", 50), ("supervise", 100)])
def test_iterations_are_not_capped_in_supervise_and_daily_costs_always_are(preset: str, iterations: int) -> None:
    raw: dict[str, Any] = {
        "preset": preset,
        "maximumIterations": 100,
        "limits": {"maxCostUsd": None, "dailyCostUsd": 60},
        "caps": {"iterations": 50, "costUsd": 10, "dailyCostUsd": 50},
    }
    apply_caps(raw)
    assert raw["maximumIterations"] == iterations
    assert raw["limits"] == {"maxCostUsd": None, "dailyCostUsd": 50}


def test_what_holds_anyway_may_be_said(project: Project) -> None:
    plain = project.load().settings
    project.write(project.user, {"caps": {"dailyCostUsd": 50}, "prices": {}})
    said = {"sandbox": {"backend": None}, "protectTests": False, "notify": [], "metrics": True, "preset": "harness"}
    project.write(project.shared, said)
    assert project.load().settings == plain


def test_a_setting_with_an_effect_is_taken(project: Project) -> None:
    project.write(project.user, {"caps": {"dailyCostUsd": 30}})
    data = {
        "agent": {"ladder": ["small", "large"]},
        "contextInjection": True,
        "limits": {"dailyCostUsd": 20, "escalateToDeepDebug": True},
        "metrics": False,
        "notify": ["desktop"],
        "onInternalError": "single-pass",
        "protectedPaths": ["src/auth/"],
    }
    project.write(project.local, data)
    settings = project.load().settings
    assert (settings.agent.ladder, settings.context_injection) == (("small", "large"), True)
    assert (settings.daily_limit_micro_usd, settings.limits.escalate_to_deep_debug) == (20_000_000, True)
    assert (settings.caps.daily_cost_usd, settings.metrics, settings.notify) == (30, False, ("desktop",))
    assert (settings.on_internal_error, settings.protected_paths) == ("single-pass", ("src/auth/",))
    project.write(project.local, {"agent": {"rotate": ["claude", "codex"]}})
    assert project.load().settings.agent.rotate == ("claude", "codex")


def test_a_local_file_may_take_back_what_the_shared_one_says(project: Project) -> None:
    project.write(project.shared, {"protectTests": True})
    project.write(project.local, {"protectTests": False})
    assert project.load().raw["protectTests"] is False


def test_two_numbers_for_the_same_limit_are_refused(project: Project) -> None:
    project.write(project.shared, {"supervise": {"maxRestarts": 20}, "maximumIterations": 30})
    message = "supervise.maxRestarts (20) and maximumIterations (30) are one limit and differ"
    assert f".ralph/settings.json: {message}" in project.problems()
    project.write(project.shared, {"supervise": {"maxRestarts": 30}, "maximumIterations": 30})
    assert project.load({"preset": "supervise"}).settings.maximum_iterations == 30


@pytest.mark.parametrize(
    ("data", "iterations"),
    [
        ({"preset": "supervise"}, 100),
        ({"preset": "supervise", "supervise": {"maxRestarts": 7}}, 7),
        ({"preset": "supervise", "maximumIterations": 7}, 7),
        ({"preset": "supervise", "supervise": {"maxRestarts": 700}}, 700),  # the cap on iterations is not for restarts
        ({"preset": "supervise", "maximumIterations": 700}, 700),
        ({"supervise": {"maxRestarts": 700}}, 10),  # it says nothing of other loops
    ],
)
def test_restarts_are_limited_by_either_name(project: Project, data: dict[str, object], iterations: int) -> None:
    project.write(project.shared, data)
    assert project.load().settings.maximum_iterations == iterations


@pytest.mark.parametrize(
    ("data", "missing"),
    [
        ({}, {"maximumIterations", "limits.maxCostUsd"}),
        ({"maximumIterations": 5}, {"limits.maxCostUsd"}),
        ({"limits": {"maxCostUsd": 2}}, {"maximumIterations"}),
    ],
)
def test_wrapper_limits_must_be_explicit(project: Project, data: dict[str, Any], missing: set[str]) -> None:
    problems = project.problems({"preset": "wrapper", **data})
    explicit = {problem.split()[2] for problem in problems if "must be explicit" in problem}
    assert explicit == missing


def test_wrapper_with_explicit_limits_loads_and_protects_paths(project: Project) -> None:
    settings = project.load({"preset": "wrapper", "maximumIterations": 5, "limits": {"maxCostUsd": 2}}).settings
    assert (settings.maximum_iterations, settings.cost_limit_micro_usd) == (5, 2_000_000)
    assert (settings.completion_response, settings.context_injection) == ("COMPLETE", True)
    assert settings.protected_paths == ("src/auth/", "src/payments/", "migrations/", ".env")


def test_names_of_guardrails_are_unlike_each_other(project: Project) -> None:
    items = [{"command": "make test"}, {"command": "make test"}, {"command": "x", "name": "make test (2)"}]
    project.write(project.shared, {"guardrails": items})
    names = [guardrail.name for guardrail in project.load().settings.guardrails]
    assert len(set(names)) == 3
    assert names[2] == "make test (2)"
    project.write(project.shared, {"guardrails": [{"command": "x", "name": "a"}, {"command": "y", "name": "a"}]})
    assert project.problems() == [".ralph/settings.json: guardrails[1].name is that of guardrails[0]: a"]


def test_tags_around_the_completion_response_are_stripped(project: Project) -> None:
    settings = project.load({"completionResponse": "<promise> ALL DONE </promise>"}).settings
    assert settings.completion_response == "ALL DONE"


def test_money_is_exact_to_the_micro_dollar(project: Project) -> None:
    for amount, expected in ((0.1, 100_000), (2.675, 2_675_000), (3, 3_000_000), (1e-9, 1)):
        assert project.load({"limits": {"maxCostUsd": amount}}).settings.cost_limit_micro_usd == expected


def test_the_digest_changes_with_what_holds_and_with_nothing_else(project: Project) -> None:
    plain = project.load().digest
    project.write(project.shared, {"maximumIterations": 10, "$schema": "x"})
    assert project.load().digest == plain
    project.write(project.shared, {"maximumIterations": 11})
    assert project.load().digest != plain


def test_the_merged_settings_are_plain_json(project: Project) -> None:
    project.write(project.shared, EXAMPLE)
    raw = project.load().raw
    assert json.loads(json.dumps(raw)) == raw


def _paths(data: dict[str, Any], path: str = "") -> list[str]:
    found: list[str] = []
    for name, inner in data.items():
        here = f"{path}{name}"
        found += _paths(inner, f"{here}.") if isinstance(inner, dict) and inner else [here]
    return found
