"""Task drafts: a task as it was written, its validation, and its conversion to a task that a run works on."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ralphproof.base.graph import MAX_CYCLES, find_cycles
from ralphproof.base.value import TYPE_CHECKING, Json, replace, value
from ralphproof.checks.methods import STAGE_KEYS, chosen_method, parse_verification, validate_completion
from ralphproof.engine.plan import STRING_MATCH, CompletionCriteria, Task
from ralphproof.settings.declarations import PIPELINE_STAGES
from ralphproof.settings.field_rules import (
    KIB,
    MAX_KEY_CHARS,
    any_text,
    choice,
    integer,
    list_of,
    mapping,
    show_value,
    suggest_name,
    text,
    unsafe_characters,
    validate_mapping,
)
from ralphproof.store.tasks import DONE, TASK_STATUSES, TODO

if TYPE_CHECKING:
    from ralphproof.settings.field_rules import Rule


@value
class TaskDraft:
    """One task with its completion as plain JSON, so that writing it out again loses nothing."""

    id: str
    spec_id: str = ""
    title: str = ""
    description: str = ""
    priority: int = 0
    dependencies: tuple[str, ...] = ()
    status: str = TODO
    assignee: str = ""
    metadata: dict[str, Json] = {}  # noqa: RUF012 (never changed)
    completion: dict[str, Json] | None = None


def draft_to_dict(draft: TaskDraft) -> dict[str, Json]:
    """A draft as a mapping for a task file, without empty fields."""
    return {
        "id": draft.id,
        **({"spec_id": draft.spec_id} if draft.spec_id else {}),
        "title": draft.title,
        **({"description": draft.description} if draft.description else {}),
        "priority": draft.priority,
        "dependencies": list(draft.dependencies),
        **({"status": draft.status} if draft.status != TODO else {}),
        **({"assignee": draft.assignee} if draft.assignee else {}),
        **({"metadata": draft.metadata} if draft.metadata else {}),
        **({"completion": draft.completion} if draft.completion is not None else {}),
    }


def task_without_criteria(draft: TaskDraft) -> Task:
    """The task without its criteria; outcome and acceptance as far as they can be read."""
    completion = draft.completion or {}
    outcome, wanted = completion.get("outcome"), completion.get("acceptance_criteria")
    texts = [text.strip() for text in wanted if isinstance(text, str)] if isinstance(wanted, list) else []
    return Task(
        draft.id,
        draft.description if draft.description.strip() else draft.title,
        draft.title,
        draft.priority,
        draft.dependencies,
        draft.status == DONE,
        outcome=outcome.strip() if isinstance(outcome, str) else "",
        acceptance=tuple(text for text in texts if text),
        spec=draft.spec_id,
    )


# Dependencies: duplicate ids, unknown ids, and cycles.


def validate_dependencies(drafts: tuple[TaskDraft, ...], known: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Faults between tasks, each in one line. `known` are the existing tasks with their dependencies; a draft replaces
    the known task of its id.
    """
    ids = Counter(draft.id for draft in drafts)
    edges = {**known, **{draft.id: draft.dependencies for draft in drafts}}
    doubled = (f"{name}: the id is given {times} times" for name, times in ids.items() if times > 1)
    return (
        *doubled,
        *(line for draft in drafts for line in _unknown_dependencies(draft, edges)),
        *(f"{circle[0]}: dependencies go in a circle: {_format_cycle(circle)}" for circle in find_cycles(edges)),
    )


def _unknown_dependencies(draft: TaskDraft, edges: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    for name in dict.fromkeys(draft.dependencies):
        if name not in edges:
            yield f"{draft.id}: dependencies name {name}, which is no task{suggest_name(name, edges)}"


def _format_cycle(cycle: tuple[str, ...]) -> str:
    if len(cycle) > MAX_CYCLES:
        return " -> ".join([*cycle[:MAX_CYCLES], f"... ({len(cycle) - MAX_CYCLES - 1} more)", cycle[-1]])
    return " -> ".join(cycle)


# Validation of one task, and warnings.


_ID = text(200)
_LINE = text(200, blank=True)
_VAGUE = (
    r"(?i)^\W*(improve|enhance|optimi[sz]e|clean up)\b(?!.*\d)",
    r"(?i)\bworks? (well|fine|correctly|properly|as expected)\b",
)


def _id_rule(data: object) -> Iterator[str]:
    yield from _ID(data)
    if isinstance(data, str) and data.strip() and data != data.strip():
        yield f" has blanks around it: {show_value(data)}"


def _metadata_rule(data: object) -> Iterator[str]:
    yield from mapping(data)
    if isinstance(data, dict) and len(json.dumps(data, default=str)) > KIB * KIB:
        yield " has more than 1024 KiB"


TASK_RULES: dict[str, Rule] = {
    "id": _id_rule, "spec_id": _LINE, "title": text(500), "description": any_text(KIB * KIB, blank=True),
    "priority": integer(-(2**31), 2**31 - 1), "dependencies": list_of(_id_rule, 1000), "status": choice(*TASK_STATUSES),
    "assignee": _LINE, "metadata": _metadata_rule, "completion": mapping,
}  # fmt: skip


def no_plugin_methods(_: str) -> bool:
    """A method test that knows only the four built-in methods."""
    return False


def validate_draft(draft: TaskDraft, methods: Callable[[str], bool] = no_plugin_methods) -> tuple[str, ...]:
    """All problems of a task, one line each; empty if it may be created and run."""
    data = draft_to_dict(draft)
    problems = (
        *validate_mapping(data, "", TASK_RULES, ("id", "title")),
        *find_unserializable(data, ""),
        *validate_completion(draft.completion, task_without_criteria(draft), methods),
    )
    return tuple(f"{task_label(draft.id)}: {line}" for line in dict.fromkeys(problems))


def task_label(name: object, otherwise: str = "task") -> str:
    """The name of a task in messages."""
    return name if isinstance(name, str) and not list(_id_rule(name)) else otherwise


def find_unserializable(data: object, path: str) -> Iterator[str]:
    """Values that neither JSON nor a file can hold, at any depth."""
    if isinstance(data, str) and (characters := unsafe_characters(data)):
        yield f"{path} holds {characters}"
    elif isinstance(data, list):
        for place, inner in enumerate(data):
            yield from find_unserializable(inner, f"{path}[{place}]")
    elif isinstance(data, dict):
        for name, inner in data.items():
            if unsafe_characters(name) or len(name) > MAX_KEY_CHARS:
                why = (
                    f"holds {unsafe_characters(name)}"
                    if unsafe_characters(name)
                    else f"is longer than {MAX_KEY_CHARS} characters"
                )
                yield f"{path or 'the task'} has a key that {why}: {show_value(name)}"
            else:
                yield from find_unserializable(inner, f"{path}.{name}" if path else name)


def draft_warnings(draft: TaskDraft) -> tuple[str, ...]:
    """Warnings about valid but probably mistaken content, one line each."""
    completion, outcome = draft.completion or {}, task_without_criteria(draft).outcome
    warnings = []
    if outcome and (len(outcome.split()) < 3 or any(re.search(pattern, outcome) for pattern in _VAGUE)):
        warnings.append(f"completion.outcome is hard to measure: {show_value(outcome)}; say what a machine could see")
    for stage in PIPELINE_STAGES:
        block = completion.get(stage)
        if isinstance(block, dict) and block.get("verification_method") == STRING_MATCH:
            warnings.append(f"completion.{stage} is verified by its promise alone, which is the agent's own word")
    return tuple(f"{task_label(draft.id)}: {line}" for line in warnings)


# Conversion to the task of a run.


def task_from_draft(draft: TaskDraft) -> Task:
    """The task of a valid draft, with placeholders substituted and templates expanded."""
    task, completion = task_without_criteria(draft), draft.completion or {}
    blocks = ((stage, block) for stage in PIPELINE_STAGES if isinstance(block := completion.get(stage), dict))
    return replace(task, criteria=tuple((stage, _parse_criteria(block, task)) for stage, block in blocks))


def task_without_completion(draft: TaskDraft) -> tuple[Task, str]:
    """The task of a draft without a completion spec, and the warning about it."""
    return task_without_criteria(draft), (
        f"{task_label(draft.id)}: it has no completion, so the settings alone say how it is verified;"
        " give it an outcome and an acceptance criterion"
    )


def _parse_criteria(block: dict[str, Any], task: Task) -> CompletionCriteria:
    chosen = chosen_method(block, STAGE_KEYS)
    how = parse_verification(*chosen, task) if chosen else None
    description = (block.get("description") or "").strip()
    return CompletionCriteria(block["promise"].strip(), description, how, block.get("max_iterations"))
