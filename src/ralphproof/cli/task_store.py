"""Between a task as it is written and as it is kept: rows and drafts, and who may change what."""

from __future__ import annotations

import os

from ralphproof.errors import Refused
from ralphproof.ledgers.tasks import FIELDS, TaskRow
from ralphproof.plans.draft import Draft
from ralphproof.plans.graph import tangles
from ralphproof.plans.problems import problems
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.standing import ORPHANED, RUNNING, standing
from ralphproof.views.task_text import read_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.value import Json
    from ralphproof.views.project import Project


def draft_of(row: TaskRow) -> tuple[Draft, str]:
    """A task as it would be written, and why its completion spec cannot be read, where it cannot."""
    completion, problem = read_object(row.completion)
    metadata, _ = read_object(row.metadata)
    made = Draft(
        row.id, row.spec_id, row.title, row.description, row.priority, row.dependencies, row.status, row.assignee,
        metadata or {}, completion,
    )  # fmt: skip
    return made, f"its completion spec cannot be read: {problem}" if problem else ""


def row_of(draft: Draft) -> TaskRow:
    """A new task as it is kept."""
    import json

    completion = None if draft.completion is None else json.dumps(draft.completion)
    return TaskRow(
        draft.id, draft.spec_id, draft.title, draft.description, draft.status, draft.priority,
        tuple(draft.dependencies), draft.assignee, json.dumps(draft.metadata), completion,
    )  # fmt: skip


def changes(before: TaskRow, after: TaskRow) -> dict[str, object]:
    """The fields in which two tasks differ."""
    return {name: getattr(after, name) for name in FIELDS if getattr(after, name) != getattr(before, name)}


def existing(ledger: Sqlite, id: str) -> TaskRow:
    """The task of this id; raises Refused where there is none."""
    from ralphproof.cli.parser import nearest

    if (row := ledger.tasks.row(id)) is not None:
        return row
    known = [other.id for other in ledger.tasks.rows()]
    raise Refused(f"no task is called {id!r}{nearest(id, known)} (see ralph task list)")


def wrong_with(draft: Draft) -> tuple[str, ...]:
    """Everything that is wrong with a task, other tasks aside."""
    return problems(draft, known_method)


def add_all(ledger: Sqlite, drafts: tuple[Draft, ...], found: Sequence[str]) -> None:
    """Keep new tasks, all or none; raises Refused with what was found already and what is wrong between tasks."""

    def work() -> None:
        known = {row.id: row.dependencies for row in ledger.tasks.rows()}
        taken = [f"{draft.id}: there is a task of this id already" for draft in drafts if draft.id in known]
        before = tangles((), known)
        tangled = [line for line in tangles(drafts, known) if line not in before]
        if every := [*found, *taken, *tangled]:
            raise Refused("\n".join(dict.fromkeys(every)))
        ledger.tasks.add(map(row_of, drafts))

    ledger.tasks.together(work)


def known_method(name: str) -> bool:
    """Whether an installed package brings a way to verify of this name."""
    from ralphproof.config.methods import plugged

    return plugged(name)


def usual_promises(root: str) -> Callable[[str], str]:
    """The word that claims a stage where a task says none; the settings are read when the first one is asked for."""
    words: dict[str, str] = {}

    def promise(stage: str) -> str:
        if not words:
            from ralphproof.config.load import load

            stages = load(root, os.environ).raw["stages"]
            words.update({name: str(stages[name]["promise"]) for name in stages})
        return words[stage]

    return promise


def refuse_worked_on(ledger: Sqlite, project: Project, task: str) -> None:
    """Raise Refused for a task that a run works on now."""
    for run in ledger.tasks.attempts(task):
        row = ledger.row(run)
        if row is not None and standing(ledger, row, project) in (RUNNING, ORPHANED):
            raise Refused(f"run {run} works on task {task}; wait for its end, or end it: ralph cancel {run}")


def masked_remarks(drafts: Iterable[Draft], project: Project) -> list[str]:
    """Which of these hold secrets: they are kept without them, so a command may not do what it should."""
    import json

    held = [draft.id for draft in drafts if (text := json.dumps(_texts(draft))) != project.mask(text)]
    told = "holds a secret, which is not kept: *** stands for it; name the variable that has it instead"
    return [f"task {id} {told}" for id in held]


def _texts(draft: Draft) -> Json:
    texts: list[Json] = [draft.id, draft.spec_id, draft.title, draft.description, draft.assignee]
    return [*texts, list(draft.dependencies), dict(draft.metadata), draft.completion]
