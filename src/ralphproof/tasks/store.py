"""Tasks between drafts and ledger rows: conversion, lookup, adding, and where the work on a task began."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence

from ralphproof.base.errors import Refused
from ralphproof.base.text import did_you_mean
from ralphproof.base.value import Json
from ralphproof.checks.methods import is_registered_method
from ralphproof.engine.outcome import Completed
from ralphproof.engine.records import RunEnded
from ralphproof.settings.loader import load_settings
from ralphproof.store.ledger import SqliteLedger
from ralphproof.store.project import Project
from ralphproof.store.run_state import ORPHANED, RUNNING, run_state
from ralphproof.store.tasks import TASK_FIELDS, TaskRow
from ralphproof.tasks.draft import TaskDraft, validate_dependencies, validate_draft

# JSON columns, which others may have written.


def read_object(text: str | None) -> tuple[dict[str, Json] | None, str]:
    """The object in a JSON text, and the problem if it cannot be read."""
    if text is None:
        return None, ""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        return None, str(error)
    return (found, "") if isinstance(found, dict) else (None, "it is no JSON object")


# Drafts and rows.


def draft_from_row(row: TaskRow) -> tuple[TaskDraft, str]:
    """The draft of a ledger row, and the problem if its completion spec cannot be read."""
    completion, problem = read_object(row.completion)
    metadata, _ = read_object(row.metadata)
    made = TaskDraft(
        row.id, row.spec_id, row.title, row.description, row.priority, row.dependencies, row.status, row.assignee,
        metadata or {}, completion,
    )  # fmt: skip
    return made, f"its completion spec cannot be read: {problem}" if problem else ""


def row_from_draft(draft: TaskDraft) -> TaskRow:
    """The ledger row of a new task."""
    completion = None if draft.completion is None else json.dumps(draft.completion)
    return TaskRow(
        draft.id, draft.spec_id, draft.title, draft.description, draft.status, draft.priority,
        tuple(draft.dependencies), draft.assignee, json.dumps(draft.metadata), completion,
    )  # fmt: skip


def changed_fields(before: TaskRow, after: TaskRow) -> dict[str, object]:
    """The fields in which two tasks differ."""
    return {name: getattr(after, name) for name in TASK_FIELDS if getattr(after, name) != getattr(before, name)}


def require_task(ledger: SqliteLedger, id: str) -> TaskRow:
    """The task of this id; raises Refused where there is none."""
    if (row := ledger.tasks.row(id)) is not None:
        return row
    known = [other.id for other in ledger.tasks.rows()]
    raise Refused(f"no task is called {id!r}{did_you_mean(id, known)} (see ralph task list)")


def validate_draft_with_plugins(draft: TaskDraft) -> tuple[str, ...]:
    """All problems of a task by itself; installed methods are known."""
    return validate_draft(draft, is_registered_method)


def add_tasks(ledger: SqliteLedger, drafts: tuple[TaskDraft, ...], found: Sequence[str]) -> None:
    """Add tasks, all or none; raises Refused with the given problems and those between tasks."""

    def work() -> None:
        known = {row.id: row.dependencies for row in ledger.tasks.rows()}
        taken = [f"{draft.id}: there is a task of this id already" for draft in drafts if draft.id in known]
        before = validate_dependencies((), known)
        tangled = [line for line in validate_dependencies(drafts, known) if line not in before]
        if every := [*found, *taken, *tangled]:
            raise Refused("\n".join(dict.fromkeys(every)))
        ledger.tasks.add(map(row_from_draft, drafts))

    ledger.tasks.together(work)


def default_promises(root: str) -> Callable[[str], str]:
    """The default promise of each stage; settings are read on first use."""
    words: dict[str, str] = {}

    def promise(stage: str) -> str:
        if not words:
            stages = load_settings(root, os.environ).raw["stages"]
            words.update({name: str(stages[name]["promise"]) for name in stages})
        return words[stage]

    return promise


def refuse_active_task(ledger: SqliteLedger, project: Project, task: str) -> None:
    """Raise Refused for a task that a run works on now."""
    for run in ledger.tasks.attempts(task):
        row = ledger.row(run)
        if row is not None and run_state(ledger, row, project) in (RUNNING, ORPHANED):
            raise Refused(f"run {run} works on task {task}; wait for its end, or end it: ralph cancel {run}")


def secret_warnings(drafts: Iterable[TaskDraft], project: Project) -> list[str]:
    """Warnings for texts that contain secrets: they are stored masked, so a command may not work."""
    held = [draft.id for draft in drafts if (text := json.dumps(_draft_texts(draft))) != project.mask(text)]
    told = "holds a secret, which is not kept: *** stands for it; name the variable that has it instead"
    return [f"task {id} {told}" for id in held]


def _draft_texts(draft: TaskDraft) -> Json:
    texts: list[Json] = [draft.id, draft.spec_id, draft.title, draft.description, draft.assignee]
    return [*texts, list(draft.dependencies), dict(draft.metadata), draft.completion]


# The first run of a task's current work.


def first_run_of_task(ledger: SqliteLedger, task: str, now: str) -> str:
    """The earliest run whose work on this task the run `now` continues; empty if it is the first."""
    rows = [row for run in ledger.tasks.attempts(task) if run != now and (row := ledger.row(run)) is not None]
    first = ""
    for row in sorted(rows, key=lambda row: (row.began_at, row.id)):
        end = ledger.run_end(row.id)
        done = isinstance(end, RunEnded) and isinstance(end.outcome, Completed)
        first = "" if done else first or row.id
    return first
