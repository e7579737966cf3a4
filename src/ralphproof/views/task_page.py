"""All about one task: what it asks for, how it stands, its runs, and every verification of it."""

from __future__ import annotations

from ralphproof.check import clip
from ralphproof.config.keys import STAGES
from ralphproof.display import words
from ralphproof.display.clean import clean
from ralphproof.record import RunEnded
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.views.stance import date
from ralphproof.views.standing import standing
from ralphproof.views.task_criteria import criteria_lines, published_criteria
from ralphproof.views.task_history import passages
from ralphproof.views.task_text import read_object
from ralphproof.views.task_view import TaskView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.ledgers.runs import RunRow
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.ledgers.tasks import TaskRow
    from ralphproof.value import Json
    from ralphproof.views.project import Project
    from ralphproof.views.task_history import Passage

RAW_CHARS = 2000  # of a completion spec that cannot be read


@value
class TaskPage:
    """A task with all that is known of it. `others` is how the tasks stand that it depends on."""

    row: TaskRow
    view: TaskView
    others: dict[str, str]
    runs: tuple[tuple[RunRow, str], ...]
    history: tuple[Passage, ...]

    def lines(self) -> Iterator[str]:
        """For people."""
        row, view = self.row, self.view
        yield f"{row.id}: {row.title}"
        yield self._status()
        yield f"spec {row.spec_id or 'none'}, priority {row.priority}" + (f", {view.assignee}" if view.assignee else "")
        yield f"made {date(row.created_at)}, changed {date(row.updated_at)}"
        if row.dependencies:
            yield "depends on " + ", ".join(f"{id} ({self.others.get(id, 'there is none')})" for id in row.dependencies)
        yield from (f"{key}: {text}" for key, text in (read_object(row.metadata)[0] or {}).items())
        if row.description:
            yield from ("", *_indented(row.description))
        yield from ("", *self._completion())
        yield from self._runs()

    def _status(self) -> str:
        view = self.view
        parts = [view.status, *([view.proof] if view.proof else []), *([str(view.count)] if view.stage else [])]
        return f"status: {', '.join(parts)}" + (f" ({view.reason})" if view.reason else "")

    def _completion(self) -> Iterator[str]:
        completion, problem = read_object(self.row.completion)
        if problem:
            yield f"its completion spec cannot be read: {problem}; it is kept as it was found:"
            yield from _indented(clip(self.row.completion or "", RAW_CHARS))
        elif completion is None:
            yield "no completion spec: it was made by an older version, and the promise of each stage alone counts"
        else:
            yield f"outcome: {completion.get('outcome', '')}"
            yield "acceptance criteria:"
            yield from (f"  {line}" for line in criteria_lines(completion, self.history))
            for stage in STAGES:
                yield from _stage_lines(stage, completion.get(stage))

    def _runs(self) -> Iterator[str]:
        for run, end in self.runs:
            yield from ("", f"run {run.id}, began {date(run.began_at)}: {end}")
            for passage in self.history:
                yield from (f"  {line}" for line in passage.lines() if passage.run == run.id)

    def published(self) -> dict[str, Json]:
        """For programs."""
        row = self.row
        completion, problem = read_object(row.completion)
        history: list[Json] = [passage.published() for passage in self.history]
        runs: list[Json] = [{"run": run.id, "beganAt": run.began_at, "end": end} for run, end in self.runs]
        others: list[Json] = [{"id": id, "status": self.others.get(id)} for id in row.dependencies]
        criteria: list[Json] = [*published_criteria(completion or {}, self.history)]
        return self.view.published() | {
            "description": row.description, "said": row.status, "createdAt": row.created_at,
            "updatedAt": row.updated_at, "metadata": read_object(row.metadata)[0], "completion": completion,
            "completionProblem": problem or None, "completionText": row.completion if problem else None,
            "dependsOn": others, "acceptance": criteria, "runs": runs, "verification": history,
        }  # fmt: skip


def page_of(ledger: Sqlite, project: Project, row: TaskRow) -> TaskPage:
    """All about a task."""
    others = {other: ledger.tasks.row(other) for other in row.dependencies}
    stand = {other: TaskView.of(ledger, found, project).status for other, found in others.items() if found}
    runs = [found for run in ledger.tasks.attempts(row.id) if (found := ledger.row(run))]
    ends = tuple((run, _end(ledger, run, project)) for run in runs)
    return TaskPage(row, TaskView.of(ledger, row, project), stand, ends, passages(ledger, (run.id for run in runs)))


def _end(ledger: Sqlite, run: RunRow, project: Project) -> str:
    """How a run ended, or where it stands."""
    end = ledger.end_of(run.id)
    return words.outcome(end.outcome)[-1] if isinstance(end, RunEnded) else standing(ledger, run, project)


def _stage_lines(stage: str, criteria: object) -> Iterator[str]:
    """What a task asks of a stage."""
    if not isinstance(criteria, dict):
        return
    most = criteria.get("max_iterations")
    limit = f", at most {words.count(most, 'iteration')}" if isinstance(most, int) else ""
    method = criteria.get("verification_method") or "as the settings say"
    yield f"{stage}: promise {criteria.get('promise')}, {method}{limit}"
    if criteria.get("description"):
        yield from _indented(str(criteria["description"]))
    config = criteria.get("verification_config")
    if isinstance(config, dict):
        import json

        yield from (f"    {key}: {json.dumps(inner, ensure_ascii=False)}" for key, inner in config.items())


def _indented(text: str) -> list[str]:
    return [f"    {line}".rstrip() for line in clean(text).split("\n")]
