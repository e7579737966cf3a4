"""The five styles of loop as data, and the pipeline that each describes."""

from __future__ import annotations

import os

from ralphproof.claim import ClaimRule, without_tags
from ralphproof.config.stage_final import final_leaves
from ralphproof.config.stage_guardrails import guardrail_inquiry
from ralphproof.stage import Pipeline, Stage
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.config.settings import Settings

_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "presets")


def read_preset(name: str) -> dict[str, Any]:
    """The data of a preset: the settings that it changes, its stages, and how they are ordered."""
    import json

    with open(os.path.join(_FOLDER, f"{name}.json"), encoding="utf-8") as file:
        data: dict[str, Any] = json.load(file)
    return data


def pipeline_of(
    preset: dict[str, Any], settings: Settings, template: str = "{prompt}", own: tuple[str, ...] = ()
) -> Pipeline:
    """The stages of a preset, with the user's own word and guardrails in them, and the checks that a caller brings."""
    rails = guardrail_inquiry(settings)
    final = tuple(leaf.name for leaf in final_leaves(settings, rails.leaves))
    stages = (
        Stage(
            name=stage["name"],
            claim=_claim(stage.get("claim"), settings.completion_response),
            checks=(*rails.checks, *own),
            template=template,
            max_iterations=stage.get("maxIterations"),
            edits=stage.get("edits", True),
            judges=rails.judges,
            together=rails.together,
            trusts=not (rails.machine or own or final),
            back=tuple(stage.get("back", ())),
            commit=stage.get("commit", ""),
            fills=preset.get("stories", False),
            final=final if stage.get("ends", True) else (),
        )
        for stage in (preset["stages"] if settings.review.enabled else preset.get("withoutReview", preset["stages"]))
    )
    return Pipeline(tuple(stages), stage_first=preset.get("stageFirst", False))


def _claim(data: dict[str, str] | None, response: str) -> ClaimRule:
    """A stage without a claim needs none; one that names no word of its own takes the user's."""
    if data is None:
        return ClaimRule()
    marker = data.get("marker")
    word = data.get("word") or marker or without_tags(response)  # a rule without a word would accept anything
    return ClaimRule(word, data.get("element", "response"), marker, data.get("refusal"), data.get("made", ""))
