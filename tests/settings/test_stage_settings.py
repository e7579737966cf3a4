"""What settings may say of stages and of guardrails, and what comes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ralphproof.checks.methods import guardrail_verification
from ralphproof.engine.plan import (
    CustomVerification,
    ExternalVerification,
    MultiStageVerification,
    SemanticVerification,
    VerificationPart,
)
from ralphproof.settings.declarations import StageSettings, StagesSettings
from ralphproof.settings.implementations import BUILTIN
from ralphproof.tasks.pipeline import max_task_iterations
from tests.settings.project import Project


def stage(project: Project, data: dict[str, Any], name: str = "coder") -> StageSettings:
    return project.load({"stages": {name: data}}).settings.stages.by_name[name]


def test_stages_have_the_defaults_of_their_hats(project: Project) -> None:
    settings = project.load({"preset": "pipeline"}).settings
    assert settings.pipeline.enabled
    assert settings.stages == StagesSettings(
        StageSettings(True, None, None, 15, "IMPLEMENTATION_COMPLETE", "external", {}),
        StageSettings(True, None, None, 5, "REVIEW_PASSED", "semantic", {}),
        StageSettings(True, None, None, 10, "TESTS_PASSED", "external", {}),
        StageSettings(True, None, None, 5, "QA_PASSED", "multi_stage", {}),
    )


def test_a_stage_takes_what_is_set_without_the_tags_around_its_promise(project: Project) -> None:
    data = {
        "enabled": False, "agent": "codex", "model": "large", "maxIterations": 3,
        "promise": "<promise> SHIPPED </promise>", "verification": "external",
        "verificationConfig": {"command": "make {{title}}"},
    }  # fmt: skip
    assert stage(project, data) == StageSettings(
        False, "codex", "large", 3, "SHIPPED", "external", {"command": "make {{title}}"}
    )


def test_what_a_stage_leaves_open_the_pipeline_says(project: Project) -> None:
    nothing = {"maxIterations": None, "verification": None}
    assert (stage(project, nothing).max_iterations, stage(project, nothing).verification) == (10, "string_match")
    flags = {
        "stages": {"qa": nothing}, "pipeline": {"defaultMaxIterations": 4, "defaultVerification": "semantic"},
    }  # fmt: skip
    made = project.load(flags).settings.stages.qa
    assert (made.max_iterations, made.verification) == (4, "semantic")


SEMANTIC = {"check_for": ["no secrets"], "negative_patterns": ["TODO"]}
PARTS = [{"name": "a", "method": "external", "config": {"command": "true"}}]
BAD_STAGES: list[tuple[dict[str, Any], str]] = [
    (
        {"verification": "externall"},
        "stages.coder.verification must be one of string_match, semantic, external, multi_stage, or installed; "
        'not "externall"; did you mean external?',
    ),
    (
        {"verificationConfig": {"command": "x", "timout": 1}},
        "unknown key stages.coder.verificationConfig.timout; did you mean timeout?",
    ),
    ({"verificationConfig": {"timeout": 3}}, "stages.coder.verificationConfig.command is missing"),
    (
        {"verification": "semantic", "verificationConfig": {"check_for": ["is {{titel}} done"]}},
        "stages.coder.verificationConfig.check_for[0] has no field {{titel}} to put in; did you mean title?",
    ),
    (
        {"verification": "multi_stage", "verificationConfig": {"stages": [{**PARTS[0], "required": False}]}},
        "stages.coder.verificationConfig.stages: no stage is required, so nothing would be verified",
    ),
    ({"verification": "string_match", "verificationConfig": {"x": 1}}, "unknown key stages.coder.verificationConfig.x"),
    ({"promise": "changes_requested"}, "stages.coder.promise may not be CHANGES_REQUESTED"),
]


@pytest.mark.parametrize(("data", "message"), BAD_STAGES)
def test_a_stage_that_cannot_be_verified_so_is_refused_with_its_file(
    project: Project, data: dict[str, Any], message: str
) -> None:
    project.write(project.shared, {"stages": {"coder": data}})
    (problem,) = project.problems()
    assert problem.startswith(".ralph/settings.json: ")
    assert message in problem


def test_a_default_that_does_not_exist_is_refused_where_it_is_set(project: Project) -> None:
    project.write(project.shared, {"stages": {"qa": {"verification": None}}})
    project.write(project.local, {"pipeline": {"defaultVerification": "nothing"}})
    (problem,) = project.problems()
    assert problem.startswith(".ralph/settings.local.json: stages.qa.verification must be one of")


def test_all_faults_of_all_stages_are_told_at_once(project: Project) -> None:
    project.write(
        project.shared,
        {"stages": {"coder": {"verification": "x"}, "qa": {"verificationConfig": {"y": 1}, "maxIterations": 0}}},
    )
    problems = project.problems()
    assert len(problems) == 4, problems
    assert [part for part in ("stages.coder.verification ", "unknown key", "stages is missing", "maxIterations")
            if not any(part in problem for problem in problems)] == []  # fmt: skip


GOOD_GUARDRAILS: list[tuple[dict[str, Any], Any, str]] = [
    ({"command": "make"}, ExternalVerification("make", timeout_s=600.0), "make"),
    ({"command": "make {{title}}", "method": "external", "timeoutSeconds": 5},
     ExternalVerification("make {{title}}", timeout_s=5.0), "make {{title}}"),
    (
        {"command": "x", "config": {"success_exit_code": 3, "output_contains": "ok", "output_not_contains": "no",
                                    "working_dir": "sub/"}},
        ExternalVerification("x", 3, "ok", "no", 600.0, "sub"),
        "x",
    ),
    (
        {"method": "semantic", "config": SEMANTIC, "name": "reviewed"},
        SemanticVerification(("no secrets",), ("TODO",)),
        "reviewed",
    ),
    (
        {"method": "multi_stage", "config": {"stages": PARTS}},
        MultiStageVerification((VerificationPart("a", ExternalVerification("true")),)),
        "multi_stage",
    ),
    (
        {"method": "some.where:It", "config": {"x": [1]}},
        CustomVerification("some.where:It", {"x": [1]}),
        "some.where:It",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("item", "how", "name"), GOOD_GUARDRAILS)
def test_a_guardrail_may_be_verified_by_any_method(project: Project, item: dict[str, Any], how: Any, name: str) -> None:
    (made,) = project.load({"guardrails": [item]}).settings.guardrails
    assert guardrail_verification(made) == how
    assert made.name == name
    assert made.command == item.get("command", "")
    assert made.shown == (item.get("command") or name)


def test_two_guardrails_of_one_method_are_told_apart(project: Project) -> None:
    items = [{"method": "semantic", "config": SEMANTIC}] * 2
    made = project.load({"guardrails": items}).settings.guardrails
    assert [guardrail.name for guardrail in made] == ["semantic", "semantic (2)"]


BAD_GUARDRAILS: list[tuple[dict[str, Any], str]] = [
    ({"method": "external"}, "guardrails[0].command is missing; method external runs a command"),
    ({"method": "semantic", "config": SEMANTIC, "command": "x"}, "guardrails[0].command is for method external"),
    ({"method": "semantic", "config": SEMANTIC, "retries": 1}, "guardrails[0].retries is for method external"),
    ({"method": "semantic", "config": SEMANTIC, "timeoutSeconds": 9}, "guardrails[0].timeoutSeconds is for method"),
    ({"method": "semantic"}, "guardrails[0].config needs check_for or negative_patterns"),
    (
        {"method": "semantic", "config": {"check_for": "{{title}}"}},
        "guardrails[0].config has {{title}}, and a guardrail",
    ),
    ({"method": "string_match"}, "guardrails[0]: string_match asks for nothing that"),
    (
        {"method": "multi_stage", "config": {"stages": [*PARTS, {"name": "b", "method": "string_match"}]}},
        "guardrails[0]: string_match asks for nothing that",
    ),
    ({"command": "x", "config": {"command": "y"}}, "guardrails[0].config.command has a key of its own"),
    ({"command": "x", "config": {"timeout": 5}}, "guardrails[0].config.timeout has a key of its own"),
    ({"command": "x", "config": {"success_exit_code": 999}}, "success_exit_code must be a whole number from 0 to 255"),
    ({"command": "x", "config": {"working_dir": "../out"}}, "working_dir must be a folder inside the project"),
    ({"method": "semantik", "config": {}}, 'not "semantik"; did you mean semantic?'),
]


@pytest.mark.parametrize(("item", "message"), BAD_GUARDRAILS)
def test_a_guardrail_that_cannot_be_asked_is_refused(project: Project, item: dict[str, Any], message: str) -> None:
    project.write(project.shared, {"guardrails": [item]})
    (problem,) = project.problems()
    assert problem.startswith(".ralph/settings.json: ")
    assert message in problem


def test_a_guardrail_of_nothing_at_all_is_one_problem(project: Project) -> None:
    project.write(project.shared, {"guardrails": [{"hint": "x"}]})
    assert project.problems() == [".ralph/settings.json: guardrails[0].command is missing"]


@pytest.mark.parametrize(
    ("flags", "user", "most"),
    [
        ({}, {}, 50),
        ({}, {"caps": {"iterations": 70}}, 70),
        ({"maximumIterations": 7}, {}, 7),
        ({"maximumIterations": 90}, {}, 50),
        ({}, {"maximumIterations": 12}, 12),
        ({"maximumIterations": 10}, {}, 10),
    ],
)
def test_a_task_is_bounded_by_what_somebody_set_else_by_the_caps(
    project: Project, flags: dict[str, Any], user: dict[str, Any], most: int
) -> None:
    project.write(project.user, user)
    assert max_task_iterations(project.load({"preset": "pipeline", **flags})) == most


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real distribution with one method."""
    info = tmp_path / "site" / "some_checks-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-checks\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ralphproof.checks]\ntidy = some_checks_module:Tidy\n")
    (info.parent / "some_checks_module.py").write_text('class Tidy:\n    """Nothing is lying around.\n\n    More."""\n')
    monkeypatch.syspath_prepend(str(info.parent))


@pytest.mark.usefixtures("plug_in")
def test_an_installed_method_is_known_everywhere_and_named_where_another_is_meant(project: Project) -> None:
    from ralphproof.checks.methods import is_registered_method

    assert stage(project, {"verification": "tidy", "verificationConfig": {"any": 1}}).verification == "tidy"
    assert project.load({"pipeline": {"defaultVerification": "tidy"}}).settings.pipeline.enabled
    (problem,) = project.problems({"stages": {"qa": {"verification": "tidi"}}})
    assert problem.endswith("; installed: tidy; did you mean tidy?")
    assert is_registered_method("tidy")
    assert not is_registered_method("external")


def test_a_method_of_our_own_needs_only_its_line_in_the_registry(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BUILTIN["checks"], "tidy", "some_checks_module:Tidy")
    assert stage(project, {"verification": "tidy"}).verification == "tidy"
    (made,) = project.load({"guardrails": [{"method": "tidy", "config": {"any": 1}}]}).settings.guardrails
    assert guardrail_verification(made) == CustomVerification("tidy", {"any": 1})
    (problem,) = project.problems({"guardrails": [{"method": "tidi"}]})
    assert "multi_stage, tidy, or installed" in problem
    assert problem.endswith("did you mean tidy?")
