"""The task that a run works on, from the task that somebody wrote."""

from __future__ import annotations

import math

from ralphproof.plan import (
    COMMAND_S,
    JUDGE_MICRO_USD,
    JUDGE_S,
    Criteria,
    Custom,
    External,
    MultiStage,
    Part,
    Semantic,
    StringMatch,
)
from ralphproof.plans import fields
from ralphproof.plans.criteria import BLOCK_NAMES, PART_NAMES
from ralphproof.plans.draft import STAGES, bare
from ralphproof.plans.problems import label, problems
from ralphproof.plans.templates import expanded
from ralphproof.value import TYPE_CHECKING, replace

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.plan import Task, Verification
    from ralphproof.plans.draft import Draft


def task_of(draft: Draft) -> Task:
    """The task of a draft that has no problems; fields are put in, templates filled."""
    task, completion = bare(draft), draft.completion or {}
    blocks = ((stage, block) for stage in STAGES if isinstance(block := completion.get(stage), dict))
    return replace(task, criteria=tuple((stage, _criteria(block, task)) for stage, block in blocks))


def task_of_old(draft: Draft) -> tuple[Task, str]:
    """The task of a row whose completion is missing or cannot be read, and the warning about it.

    It has no criteria; outcome and acceptance criteria as far as they can be read.
    """
    found = problems(draft)
    why = "it has no completion" if draft.completion is None else "its completion cannot be used"
    more = f" ({found[0].partition(': ')[2]})" if found and draft.completion is not None else ""
    return bare(draft), (
        f"{label(draft.id)}: {why}{more}, so the settings alone say how it is verified;"
        " give it an outcome and an acceptance criterion"
    )


def _criteria(block: dict[str, Any], task: Task) -> Criteria:
    chosen = _chosen(block, BLOCK_NAMES)
    how = way(*chosen, task) if chosen else None
    description = (block.get("description") or "").strip()
    return Criteria(block["promise"].strip(), description, how, block.get("max_iterations"))


def _chosen(block: dict[str, Any], names: tuple[str, str, str]) -> tuple[str, dict[str, Any]] | None:
    method, config, template = (block.get(name) for name in names)
    if template is not None:
        return expanded(template, block.get("with"))
    return (method, config or {}) if method is not None else None


def way(method: str, config: dict[str, Any], task: Task) -> Verification:
    """How a method with a config in which nothing is wrong verifies this task."""
    given = {name: inner for name, inner in config.items() if inner is not None}
    match method:
        case "string_match":
            return StringMatch()
        case "external":
            return _external(given)
        case "semantic":
            return _semantic(given, task)
        case "multi_stage":
            parts = tuple(_part(part, task) for part in given["stages"])
            return MultiStage(parts, given.get("require_all", True), given.get("parallel", True))
        case _:
            return Custom(method, config)


def _external(given: dict[str, Any]) -> External:
    import os

    return External(
        fields.in_command(given["command"]),
        given.get("success_exit_code", 0),
        given.get("output_contains", ""),
        given.get("output_not_contains", ""),
        float(given.get("timeout", COMMAND_S)),
        os.path.normpath(given.get("working_dir", ".")),
    )


def _semantic(given: dict[str, Any], task: Task) -> Semantic:
    dearest = given.get("max_cost_usd")
    return Semantic(
        fields.asked(given.get("check_for", []), task),
        tuple(given.get("negative_patterns", ())),
        given.get("model", ""),
        given.get("agent", ""),
        JUDGE_MICRO_USD if dearest is None else math.ceil(dearest * 1_000_000),
        float(given.get("timeout", JUDGE_S)),
    )


def _part(part: dict[str, Any], task: Task) -> Part:
    method, config = _chosen(part, PART_NAMES) or ("", {})
    required = part.get("required")
    return Part(part["name"], way(method, config, task), required is not False, tuple(part.get("depends_on") or ()))
