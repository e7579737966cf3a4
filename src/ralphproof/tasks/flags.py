"""Tasks from command-line flags: completion criteria of each stage, new tasks, and changes of a task."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from ralphproof.base.errors import Refused
from ralphproof.base.value import Json, replace
from ralphproof.checks.templates import expand_template, list_templates
from ralphproof.engine.claim import strip_claim_tags
from ralphproof.engine.plan import EXTERNAL
from ralphproof.settings.declarations import PIPELINE_STAGES
from ralphproof.store.ledger import SqliteLedger
from ralphproof.store.project import Project
from ralphproof.tasks.draft import TaskDraft, validate_dependencies
from ralphproof.tasks.store import (
    changed_fields,
    default_promises,
    draft_from_row,
    refuse_active_task,
    require_task,
    row_from_draft,
    validate_draft_with_plugins,
)

STAGE_FLAGS = (
    "promise", "description", "verify", "verify_cmd", "verify_config", "verify_template", "with", "max_iterations",
)  # fmt: skip


def draft_from_flags(flags: Mapping[str, Any], spec: str, project: Project, problems: list[str]) -> TaskDraft:
    """The task that the flags describe; invalid flags are added to the problems."""
    completion = completion_from_flags(flags, {}, default_promises(project.root), problems)
    metadata: dict[str, Json] = {**parse_pairs("--metadata", flags["metadata"], problems)}
    return TaskDraft(
        flags["id"], spec, flags["title"], flags["description"] or "", flags["priority"] or 0,
        tuple(flags["depends_on"] or ()), "todo", flags["assignee"] or "", metadata, completion,
    )  # fmt: skip


def edit_task(ledger: SqliteLedger, project: Project, flags: Mapping[str, Any]) -> tuple[TaskDraft, tuple[str, ...]]:
    """Change the task; returns it with the names of the changed fields. Refuses changes that add errors.

    Errors that existed before are no reason to refuse: the user may mend one after the other.
    """
    row, problems = require_task(ledger, flags["id"]), list[str]()
    refuse_active_task(ledger, project, row.id)
    before, _ = draft_from_row(row)
    after = _changed_draft(before, flags, project, problems)
    known = {other.id: other.dependencies for other in ledger.tasks.rows()}
    known_faults = {*validate_draft_with_plugins(before), *validate_dependencies((before,), known)}
    problems += [
        fault
        for fault in (*validate_draft_with_plugins(after), *validate_dependencies((after,), known))
        if fault not in known_faults
    ]
    if problems:
        raise Refused("\n".join(problems))
    fields = changed_fields(row_from_draft(before), row_from_draft(after))
    fields |= {"status": flags["status"]} if flags["status"] else {}
    if not fields:
        raise Refused("nothing to change; use flags (see ralph task edit --help)")
    ledger.tasks.change(row.id, fields)
    return after, tuple(fields)


def _changed_draft(before: TaskDraft, flags: Mapping[str, Any], project: Project, problems: list[str]) -> TaskDraft:
    cleared = [stage for stage in PIPELINE_STAGES if flags[f"clear_{stage}"]]
    old = {name: inner for name, inner in (before.completion or {}).items() if name not in cleared}
    completion = completion_from_flags(flags, old, default_promises(project.root), problems)
    names = {"title": "title", "spec_id": "spec", **{name: name for name in ("description", "priority", "assignee")}}
    changes = {field: flags[name] for field, name in names.items() if flags[name] is not None}
    if flags["depends_on"] is not None:
        changes["dependencies"] = tuple(id for id in flags["depends_on"] if id)
    if flags["metadata"] is not None:
        entries = {**before.metadata, **parse_pairs("--metadata", flags["metadata"], problems)}
        changes["metadata"] = {key: text for key, text in entries.items() if text != ""}
    if completion != (before.completion or {}):
        changes["completion"] = completion
    return replace(before, **changes)


def parse_pairs(flag: str, texts: list[str] | None, problems: list[str]) -> dict[str, str]:
    """Parse KEY=VALUE texts; invalid ones are added to the problems."""
    pairs: dict[str, str] = {}
    for text in texts or ():
        key, equals, text_value = text.partition("=")
        if not equals or not key:
            problems.append(f"{flag} {text!r} is not KEY=VALUE")
        pairs[key] = text_value
    return pairs


def completion_from_flags(
    flags: Mapping[str, Any], before: dict[str, Any], promise: Callable[[str], str], problems: list[str]
) -> dict[str, Any]:
    """The completion spec `before`, updated by the flags."""
    completion = dict(before)
    if flags["outcome"] is not None:
        completion["outcome"] = flags["outcome"]
    if flags["acceptance"] is not None:
        completion["acceptance_criteria"] = [text for text in flags["acceptance"] if text]
    for stage in PIPELINE_STAGES:
        given = {what: flags[f"{stage}_{what}"] for what in STAGE_FLAGS}
        if given := {what: text for what, text in given.items() if text is not None}:
            old = completion.get(stage)
            completion[stage] = _stage_criteria(stage, given, old if isinstance(old, dict) else {}, promise, problems)
    return completion


def _stage_criteria(
    stage: str, flags: dict[str, Any], before: dict[str, Any], promise: Callable[[str], str], problems: list[str]
) -> dict[str, Any]:
    criteria: dict[str, Any] = {**before}
    criteria |= {what: flags[what] for what in ("promise", "description", "max_iterations") if what in flags}
    criteria["promise"] = strip_claim_tags(str(criteria.get("promise") or promise(stage)))
    method, config = _verify_method(stage, flags, before, problems)
    if method:
        criteria = {name: inner for name, inner in criteria.items() if name not in ("verification_template", "with")}
        criteria |= {"verification_method": method, "verification_config": config}
    return criteria


def _verify_method(
    stage: str, flags: dict[str, Any], before: dict[str, Any], problems: list[str]
) -> tuple[str, dict[str, Any]]:
    """Verification method and its configuration."""
    extra = _parse_config(stage, flags, problems)
    extra |= {"command": flags["verify_cmd"]} if "verify_cmd" in flags else {}
    by_template = "verify_template" in flags or "with" in flags
    method, config = _template_method(stage, flags, problems) if by_template else _method_with_previous(flags, before)
    if "verify_cmd" in flags and method not in ("", EXTERNAL):
        problems.append(f"--{stage}-verify-cmd is for {EXTERNAL}, not for {method}")
    if extra and not method and not by_template:
        problems.append(f"--{stage}-verify-config needs a method: add --{stage}-verify METHOD")
    return method, {**config, **extra}


def _method_with_previous(flags: dict[str, Any], before: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The method; if it stays the same, its configuration stays too."""
    old, config = str(before.get("verification_method") or ""), before.get("verification_config")
    method = flags.get("verify") or (EXTERNAL if "verify_cmd" in flags else old)
    return method, dict(config) if method == old and isinstance(config, dict) else {}


def _template_method(stage: str, flags: dict[str, Any], problems: list[str]) -> tuple[str, dict[str, Any]]:
    if "verify_template" not in flags:
        problems.append(f"--{stage}-with needs --{stage}-verify-template")
        return "", {}
    name = flags["verify_template"]
    try:
        method, config = expand_template(name, _template_arguments(name, stage, flags.get("with"), problems))
    except Refused as error:
        problems += [f"--{stage}-verify-template: {line}" for line in str(error).splitlines()]
        return "", {}
    if flags.get("verify", method) != method:
        problems.append(f"--{stage}-verify-template {name} is {method}, not {flags['verify']}")
    return method, dict(config)


def _template_arguments(name: str, stage: str, texts: list[str] | None, problems: list[str]) -> dict[str, Any]:
    """The template's arguments, converted to the types of its parameters."""
    kinds = {
        one.name: one.kind for template in list_templates() if template.name == name for one in template.parameters
    }
    flag = f"--{stage}-with"
    arguments: dict[str, Any] = {}
    for key, text in (pair for one in texts or () for pair in parse_pairs(flag, [one], problems).items()):
        match kinds.get(key):
            case "percent" | "status" | "seconds":
                arguments[key] = _parse_number(text)
            case "texts" | "paths":
                arguments[key] = [*arguments.get(key, []), text]
            case _:
                arguments[key] = text
    return arguments


def _parse_number(text: str) -> int | float | str:
    """A number if the text is one, else the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _parse_config(stage: str, flags: dict[str, Any], problems: list[str]) -> dict[str, Any]:
    if "verify_config" not in flags:
        return {}
    try:
        config = json.loads(flags["verify_config"])
    except (ValueError, RecursionError) as error:
        problems.append(f"--{stage}-verify-config is not JSON: {error}")
        return {}
    if not isinstance(config, dict):
        problems.append(f"--{stage}-verify-config is not a JSON object")
    return config if isinstance(config, dict) else {}
