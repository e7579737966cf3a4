from __future__ import annotations

import os

import pytest

import ralphproof
from ralphproof.base.value import replace
from ralphproof.engine.claim import Claim, ClaimRule
from ralphproof.engine.plan import Pipeline
from ralphproof.runs.assembly import build_preset_pipeline
from ralphproof.settings.declarations import PRESETS, SETTINGS_SCHEMA, Settings
from ralphproof.settings.loader import read_preset
from ralphproof.settings.schema import default_values
from ralphproof.settings.validation import validate_layer
from tests.settings.project import Project


@pytest.fixture
def settings(project: Project) -> Settings:
    return project.load({"guardrails": [{"command": "make test"}]}).settings


def test_there_is_one_file_for_each_preset() -> None:
    folder = os.path.join(ralphproof.__path__[0], "presets")
    assert sorted(name for name in os.listdir(folder) if name.endswith(".json")) == [f"{name}.json" for name in PRESETS]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_changes_settings_that_exist(name: str) -> None:
    data = read_preset(name)
    given = {key: inner for key, inner in data["settings"].items() if inner is not None}  # wrapper has no iterations
    assert validate_layer(given, name) == []
    assert set(data) <= {"settings", "stages", "stageFirst", "restarts", "tasks", "stories", "withoutReview"}


@pytest.mark.parametrize(
    ("name", "iterations", "response"),
    [
        ("harness", 10, "DONE"),
        ("wrapper", None, "COMPLETE"),
        ("pipeline", 10, "DONE"),
        ("stories", 15, "COMPLETE"),
        ("supervise", 100, "DONE"),
    ],
)
def test_presets_set_limits_and_words_of_their_style(name: str, iterations: int | None, response: str) -> None:
    defaults = default_values(SETTINGS_SCHEMA)
    assert isinstance(defaults, dict)
    data = defaults | read_preset(name)["settings"]
    assert (data["maximumIterations"], data["completionResponse"]) == (iterations, response)


def test_patterns_are_off_in_supervise_and_context_is_on_in_wrapper() -> None:
    assert read_preset("supervise")["settings"]["limits"] == {"stallIterations": None, "sameErrorIterations": None}
    assert read_preset("wrapper")["settings"]["contextInjection"] is True


def _pipeline(name: str, settings: Settings) -> Pipeline:
    return build_preset_pipeline(read_preset(name), settings)


@pytest.mark.parametrize(("name", "element"), [("harness", "response"), ("wrapper", "promise")])
def test_a_single_stage_takes_the_users_word_without_its_tags(settings: Settings, name: str, element: str) -> None:
    chosen = replace(settings, completion_response="<promise>FINISHED</promise>")
    (stage,) = _pipeline(name, chosen).stages
    assert stage.claim == ClaimRule("FINISHED", element)
    assert stage.checks == ("make test",)
    assert stage.max_iterations is None
    assert stage.edits


def test_the_pipeline_is_for_tasks_and_its_data_agree_with_the_settings(settings: Settings) -> None:
    data = read_preset("pipeline")
    stages = _pipeline("pipeline", settings).stages
    assert data["tasks"] is True
    assert [(stage.name, stage.claim.word) for stage in stages] == [
        (name, stage.promise) for name, stage in settings.stages.by_name.items()
    ]
    assert not any(read_preset(name).get("tasks") for name in PRESETS if name != "pipeline")


def test_stories_take_the_earliest_stage_first_and_their_file_claims(settings: Settings) -> None:
    pipeline = _pipeline("stories", settings)
    assert pipeline.stage_first
    assert [(stage.name, stage.edits) for stage in pipeline.stages] == [
        ("review-fix", True), ("review", False), ("implement", True),
    ]  # fmt: skip
    words = ["needs_review", "approved", "needs_review"]
    pairs = zip(pipeline.stages, words, strict=True)
    assert all(stage.claim.accepts(Claim(word, source="marker")) for stage, word in pairs)
    assert not any(stage.claim.accepts(Claim(word)) for stage in pipeline.stages for word in ("COMPLETE", *words))
    assert [stage.claim.refuses(Claim("changes_requested", source="marker")) for stage in pipeline.stages] == [
        False, True, False,
    ]  # fmt: skip


def test_stories_without_reviews_are_implemented_only(settings: Settings) -> None:
    (stage,) = _pipeline("stories", replace(settings, review=replace(settings.review, enabled=False))).stages
    assert (stage.name, stage.claim.word) == ("implement", "passes")


def test_supervise_is_done_by_its_marker_and_never_by_silence(settings: Settings) -> None:
    (stage,) = _pipeline("supervise", replace(settings, completion_response="FINISHED")).stages
    assert stage.claim.marker == "DONE"
    assert stage.claim.accepts(Claim("DONE", source="marker"))
    assert not stage.claim.accepts(None)
