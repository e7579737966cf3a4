"""Tasks and stories: their status from the runs that worked on them, all about one of them, and boards."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence

from ralphproof.base.escaping import sanitize
from ralphproof.base.git_layout import is_run_worktree
from ralphproof.base.text import strip_control_characters, truncate
from ralphproof.base.value import Json, replace, value
from ralphproof.display import phrases
from ralphproof.display.output import align_columns
from ralphproof.display.phrases import SHORT_PROOF_PHRASES, describe_iteration
from ralphproof.engine import limits
from ralphproof.engine.check import Finding
from ralphproof.engine.limits import Spend
from ralphproof.engine.outcome import (
    Aborted,
    Completed,
    Failed,
    Outcome,
    StoryReview,
    money_json,
    published,
    story_json,
)
from ralphproof.engine.plan import Job, Task
from ralphproof.engine.records import Picked, RunEnded, TurnBegan
from ralphproof.settings.declarations import PIPELINE_STAGES
from ralphproof.store.ledger import RunRow, SqliteLedger
from ralphproof.store.project import Project
from ralphproof.store.run_state import ENDED, ORPHANED, RUNNING, run_state
from ralphproof.store.tasks import CANCELLED, DONE, FAILED, TODO, WAITING, WORKING, TaskRow
from ralphproof.stories.workflow import story_criteria
from ralphproof.tasks.plans import BacklogItem
from ralphproof.tasks.store import read_object
from ralphproof.views.published_json import list_json, time_json
from ralphproof.views.run_status import RunView, format_date, load_run_line, total_effort
from ralphproof.views.timeline import IterationView, RunHistory, describe_verdict, finding_state

# Task status.


CUT_OFF_REASON = "cut off; ralph work goes on with it"
CHANGED_REASON = "changed since it was cut off; ralph work begins it anew"
BY_USER_REASON = "by your word"
ORPHANED_REASON = "its harness died, and what it started is still at work"


@value
class StageCount:
    """The progress of a run in a task's stages: the stage, its iterations so far and at most, and all iterations."""

    stage: str = ""
    iteration: int = 0
    most: int | None = None
    iterations: int = 0

    @staticmethod
    def of(ledger: SqliteLedger, run: str) -> StageCount:
        """From the jobs that were picked. One that a limit kept from being begun does not count."""
        picked = [record for record in ledger.records_of_kind(run, Picked.__name__) if isinstance(record, Picked)]
        begun = {
            record.iteration
            for record in ledger.records_of_kind(run, TurnBegan.__name__)
            if isinstance(record, TurnBegan)
        }
        jobs = [one.choice for one in picked if isinstance(one.choice, Job) and one.iteration in begun]
        if not jobs:
            return StageCount()
        last = jobs[-1]
        tried = sum(job.key == last.key for job in jobs)
        return StageCount(last.stage.name, tried, last.stage.max_iterations, len(jobs))

    def __str__(self) -> str:
        """`coder 2/15`; empty where nothing was begun."""
        if not self.stage:
            return ""
        return f"{self.stage} {self.iteration}" + (f"/{self.most}" if self.most is not None else "")


@value
class TaskView:
    """The status of a task. `iteration` counts within its stage, up to `most`.

    `iterations` are those of all its runs, and `spend` is their cost. `reason` explains the status; `proof` says what
    shows that it is done: verified, judged, claimed, or empty for the user's word. With `goes_on` its last run lost its
    harness, or waits, and can be resumed.
    """

    id: str
    status: str
    title: str = ""
    spec_id: str = ""
    priority: int = 0
    dependencies: tuple[str, ...] = ()
    stage: str = ""
    iteration: int = 0
    most: int | None = None
    iterations: int = 0
    reason: str = ""
    run: str = ""
    assignee: str = ""
    proof: str = ""
    goes_on: bool = False
    spend: Spend | None = None

    @staticmethod
    def of(ledger: SqliteLedger, row: TaskRow, project: Project) -> TaskView:
        """From its last run. An active run overrides the status that the user set; else the newer of the two counts."""
        known = TaskView(row.id, row.status, row.title, row.spec_id, row.priority, row.dependencies)
        known = replace(known, assignee=row.assignee, reason=BY_USER_REASON if known.over else "")
        run = ledger.row(row.run) if row.run else None
        if run is None:
            return known
        where, end = run_state(ledger, run, project), ledger.run_end(run.id)
        count = StageCount.of(ledger, run.id)
        iterations, spend = total_effort(ledger, project, ledger.tasks.attempts(row.id))
        known = replace(known, run=run.id, iterations=iterations, spend=spend)
        at_work = where in (RUNNING, ORPHANED) or (where == ENDED and end is None)  # it was taken up while we looked
        if row.said and not at_work:
            return known
        known = replace(known, stage=count.stage, iteration=count.iteration, most=count.most)
        known = replace(known, assignee=_last_agent(ledger, run.id) or row.assignee)
        if at_work:
            alone = where == ORPHANED
            return replace(known, status=WORKING, reason=ORPHANED_REASON if alone else "", goes_on=alone)
        status, reason, proof = (
            _status_of_outcome(end.outcome) if isinstance(end, RunEnded) else (TODO, CUT_OFF_REASON, "")
        )
        if status == DONE and (why := _unlanded_reason(ledger, run, project)):
            status, reason, proof = FAILED, f"done, {proof}, and {why}; ralph land {run.id}", ""
        if status == TODO and row.updated_at > run.began_at:  # what it had passed says nothing of what is asked now
            return replace(known, status=TODO, reason=CHANGED_REASON)
        refused = (
            isinstance(end, RunEnded) and isinstance(end.outcome, Failed) and end.outcome.check
        )  # nothing was begun
        onward = status in (TODO, WAITING) and not refused
        return replace(known, status=status, reason=reason, proof=proof, goes_on=onward)

    @property
    def count(self) -> StageCount:
        return StageCount(self.stage, self.iteration, self.most, self.iterations)

    @property
    def over(self) -> bool:
        """Whether it needs no more work."""
        return self.status in (DONE, CANCELLED)

    @property
    def standing(self) -> str:
        """The status in a few words; done is never shown without its proof."""
        shown = SHORT_PROOF_PHRASES.get(self.proof) or (BY_USER_REASON if self.reason == BY_USER_REASON else "")
        return f"{self.status}, {shown}" if shown else self.status

    @property
    def item(self) -> BacklogItem:
        """The task for the choice of the next one. One that lost its harness counts as open."""
        task = Task(self.id, "", self.title, self.priority, self.dependencies, spec=self.spec_id)
        return BacklogItem(task, TODO if self.status == WORKING and self.goes_on else self.status, self.goes_on)

    def to_json(self) -> dict[str, Json]:
        """The task for programs."""
        return published("task", {
            "id": self.id, "specId": self.spec_id, "title": self.title, "status": self.status, "reason": self.reason,
            "stage": self.stage or None, "stageIterations": self.iteration, "stageMaximumIterations": self.most,
            "iterations": self.iterations, "priority": self.priority, "dependencies": list(self.dependencies),
            "assignee": self.assignee, "run": self.run or None, "proof": self.proof or None,
            "cost": money_json(self.spend) if self.spend else None,
        })  # fmt: skip


def _unlanded_reason(ledger: SqliteLedger, run: RunRow, project: Project) -> str:
    """Why the work of a run with its own worktree is not available to others; empty where it is."""
    if not is_run_worktree(run.directory, project.store):
        return ""
    rows = ledger.landings.of_run(run.id)
    if any(not row.left for row in rows):
        return ""
    return "was turned away when it should land" if any(not row.open for row in rows) else "has not landed yet"


def _last_agent(ledger: SqliteLedger, run: str) -> str:
    """The agent that a run last asked."""
    turns = ledger.records_of_kind(run, TurnBegan.__name__)
    return turns[-1].agent if turns and isinstance(turns[-1], TurnBegan) else ""


def _status_of_outcome(outcome: Outcome) -> tuple[str, str, str]:
    """Status, reason and proof of a task whose last run ended with this outcome."""
    match outcome:
        case Completed():
            return DONE, "", outcome.proof
        case Aborted(breach) if breach.reason == limits.WAITING:
            return WAITING, breach.message, ""
        case Aborted(breach) if breach.reason == limits.CANCELLED:
            return CANCELLED, "", ""
        case Aborted(breach) if breach.reason in (limits.INTERRUPTED, limits.STEP):
            return TODO, CUT_OFF_REASON, ""
        case Aborted(breach):
            return FAILED, f"{breach.reason}: {breach.message}", ""
        case Failed(error) if outcome.check:
            return TODO, f"ERROR: {error}", ""
        case Failed(error):  # it could not go on; that says nothing of the task
            return TODO, f"ERROR: {error}; ralph work goes on with it", ""


def list_task_views(ledger: SqliteLedger, project: Project) -> tuple[TaskView, ...]:
    """All tasks with their status, oldest first."""
    return tuple(TaskView.of(ledger, row, project) for row in ledger.tasks.rows())


def load_task_views(project: Project) -> tuple[TaskView, ...]:
    """The same, with a ledger of its own."""
    ledger = project.ledger()
    try:
        return list_task_views(ledger, project)
    finally:
        ledger.close()


MAX_SUMMARY_TASKS = 20  # in ralph status


def task_summary_lines(tasks: Sequence[TaskView]) -> list[str]:
    """Lines for `ralph status`; where there are too many tasks, open ones first."""
    shown = tasks if len(tasks) <= MAX_SUMMARY_TASKS else sorted(tasks, key=lambda view: view.over)[:MAX_SUMMARY_TASKS]
    lines = align_columns([(view.id, view.standing, str(view.count), view.title) for view in shown])
    more = [f"  and {len(tasks) - MAX_SUMMARY_TASKS} more: ralph task list"] if len(tasks) > MAX_SUMMARY_TASKS else []
    return ["tasks", *(f"  {line}" for line in lines), *more]


def task_of_run(ledger: SqliteLedger, run: str) -> tuple[str, StageCount] | None:
    """The task that a run works on, and its progress; None for a run without a task."""
    task = ledger.tasks.task_of_run(run)
    return (task, StageCount.of(ledger, run)) if task is not None else None


def task_progress_line(task: str, count: StageCount) -> str:
    """The progress as a sentence."""
    if not count.stage:
        return f"task {task}: about to begin"
    of = f" of {count.most}" if count.most is not None else ""
    return f"task {task}: stage {count.stage}, iteration {count.iteration}{of}"


# Acceptance criteria, and what the last judgement says about each.


# The format of a judge's answer; of a long criterion it has the beginning.
_RULING_PATTERN = r"(NOT met|met): \d+\. (.*)"
_REASON_SEPARATOR = " | why: "
MAX_CRITERION_CHARS = 300


@value
class CriterionRuling:
    """A judge's ruling on one criterion."""

    met: bool
    why: str
    run: str
    iteration: int

    def __str__(self) -> str:
        return f"{'met' if self.met else 'not met'} (run {self.run}, iteration {self.iteration}: {self.why})"


def acceptance_criteria(completion: dict[str, Json]) -> list[str]:
    """The acceptance criteria of a completion spec, whatever else is wrong with it."""
    listed = completion.get("acceptance_criteria")
    return [str(criterion) for criterion in listed] if isinstance(listed, list) else []


def last_ruling(criterion: str, history: Iterable[IterationView]) -> CriterionRuling | None:
    """The last ruling on a criterion; None where no judge named it."""
    name = " ".join(strip_control_characters(criterion).split()).replace("`", "'")[:MAX_CRITERION_CHARS]
    last = None
    for iteration in history:
        for finding in (check.finding for check in iteration.checks if check.finding):
            if not finding.judged or finding.errored:
                continue
            for met, why in _parse_rulings(finding.output, name):
                last = CriterionRuling(met, why, iteration.run, iteration.number)
    return last


def _parse_rulings(output: str, name: str) -> Iterator[tuple[bool, str]]:
    for line in output.split("\n"):
        match = re.fullmatch(_RULING_PATTERN, line)
        if match is None or not match[2].startswith(name):
            continue
        cut, why, reason = match[2][len(name) :].partition(_REASON_SEPARATOR)
        if why and (not cut or len(name) == MAX_CRITERION_CHARS):
            yield match[1] == "met", reason.partition(" | quoted: ")[0]


def criteria_lines(completion: dict[str, Json], history: tuple[IterationView, ...]) -> Iterator[str]:
    """One line for each criterion; a question mark where it was not judged."""
    for criterion in acceptance_criteria(completion):
        known = last_ruling(criterion, history)
        yield f"[{'?' if not known else 'x' if known.met else ' '}] {criterion}" + (f": {known}" if known else "")


def criteria_json(criteria: Iterable[str], history: tuple[IterationView, ...]) -> list[Json]:
    """The criteria for programs; `met` is null where they were not judged."""
    rulings = ((text, last_ruling(text, history)) for text in criteria)
    return [
        published("criterion", {
            "text": text, "met": known.met if known else None, "run": known.run if known else None,
            "iteration": known.iteration if known else None, "reason": known.why if known else None,
        })
        for text, known in rulings
    ]  # fmt: skip


# Verifications: every check of every iteration of every run of a task.


MAX_REASON_CHARS = 300  # of what a judge says; the record has all of it


def load_iterations(ledger: SqliteLedger, runs: Iterable[str]) -> tuple[IterationView, ...]:
    """All begun iterations of these runs, oldest first; checks before the first iteration have the number 0."""
    found: list[IterationView] = []
    for run in runs:
        history = RunHistory(run)
        history.catch_up(ledger)
        found += (one for _, one in sorted(history.timeline.iterations.items()) if one.number or one.checks)
    return tuple(found)


def _iteration_lines(iteration: IterationView) -> Iterator[str]:
    """An iteration with its checks, for people."""
    stage = f", {iteration.job.stage.name}" if iteration.job else ""
    verdict = f": {describe_verdict(iteration.verdict)}" if iteration.verdict else ": not judged"
    at = format_date(iteration.ended_s or iteration.began_s)
    yield f"{describe_iteration(iteration.number)}{stage}{verdict if iteration.number else ''} ({at})"
    for finding in (check.finding for check in iteration.checks if check.finding):
        by = "judged" if finding.judged else "machine"
        told = f"  {finding_state(finding):<8}  {by:<7}  {finding.command or finding.check}"
        why = _describe_result(finding)
        yield f"{told}: {why}" if why else told


def _describe_result(finding: Finding) -> str:
    if finding.why != "exit":
        return finding.why
    if finding.judged or finding.code is None:
        return " ".join(finding.output.split())[:MAX_REASON_CHARS]
    return f"exit code {finding.code}"


# The details of a task.


MAX_RAW_CHARS = 2000  # of a completion spec that cannot be read


@value
class TaskDetail:
    """A task with its runs and verifications. `others` are the statuses of the tasks that it depends on."""

    row: TaskRow
    view: TaskView
    others: dict[str, str]
    runs: tuple[RunView, ...]
    history: tuple[IterationView, ...]

    def lines(self) -> Iterator[str]:
        """For people."""
        row, view = self.row, self.view
        yield f"{row.id}: {row.title}"
        yield self._status()
        yield f"spec {row.spec_id or 'none'}, priority {row.priority}" + (f", {view.assignee}" if view.assignee else "")
        yield f"made {format_date(row.created_at)}, changed {format_date(row.updated_at)}"
        if row.dependencies:
            yield "depends on " + ", ".join(f"{id} ({self.others.get(id, 'there is none')})" for id in row.dependencies)
        yield from (f"{key}: {text}" for key, text in (read_object(row.metadata)[0] or {}).items())
        if row.description:
            yield from ("", *_indent(row.description))
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
            yield from _indent(truncate(self.row.completion or "", MAX_RAW_CHARS))
        elif completion is None:
            yield "no completion spec: it was made by an older version, and the promise of each stage alone counts"
        else:
            yield f"outcome: {completion.get('outcome', '')}"
            yield "acceptance criteria:"
            yield from (f"  {line}" for line in criteria_lines(completion, self.history))
            for stage in PIPELINE_STAGES:
                yield from _stage_lines(stage, completion.get(stage))

    def _runs(self) -> Iterator[str]:
        for run in self.runs:
            end = phrases.describe_outcome(run.outcome)[-1] if run.outcome else run.state
            yield from ("", f"run {run.row.id}, began {format_date(run.row.began_at)}: {end}")
            for iteration in self.history:
                if iteration.run == run.row.id:
                    yield from (f"  {line}" for line in _iteration_lines(iteration))

    def to_json(self) -> dict[str, Json]:
        """The task with its details, for programs."""
        row = self.row
        completion, problem = read_object(row.completion)
        return self.view.to_json() | {
            "description": row.description, "storedStatus": row.status, "createdAt": time_json(row.created_at),
            "updatedAt": time_json(row.updated_at), "metadata": read_object(row.metadata)[0],
            "completion": completion, "completionProblem": problem or None,
            "completionText": row.completion if problem else None,
            "dependsOn": list_json("dependency", ((id, self.others.get(id)) for id in row.dependencies)),
            "criteria": criteria_json(acceptance_criteria(completion or {}), self.history),
            "runs": list_json("run", self.runs), "timeline": list_json("iteration", self.history),
        }  # fmt: skip


def load_task_detail(ledger: SqliteLedger, project: Project, row: TaskRow) -> TaskDetail:
    """The details of a task."""
    others = {other: ledger.tasks.row(other) for other in row.dependencies}
    stand = {other: TaskView.of(ledger, found, project).status for other, found in others.items() if found}
    rows = [found for run in ledger.tasks.attempts(row.id) if (found := ledger.row(run))]
    runs = tuple(load_run_line(ledger, run, project) for run in rows)
    history = load_iterations(ledger, (run.id for run in rows))
    return TaskDetail(row, TaskView.of(ledger, row, project), stand, runs, history)


def _stage_lines(stage: str, criteria: object) -> Iterator[str]:
    """The criteria of a stage."""
    if not isinstance(criteria, dict):
        return
    most = criteria.get("max_iterations")
    limit = f", at most {phrases.format_count(most, 'iteration')}" if isinstance(most, int) else ""
    method = criteria.get("verification_method") or "as the settings say"
    yield f"{stage}: promise {criteria.get('promise')}, {method}{limit}"
    if criteria.get("description"):
        yield from _indent(str(criteria["description"]))
    config = criteria.get("verification_config")
    if isinstance(config, dict):
        yield from (f"    {key}: {json.dumps(inner, ensure_ascii=False)}" for key, inner in config.items())


def _indent(text: str) -> list[str]:
    return [f"    {line}".rstrip() for line in sanitize(text).split("\n")]


# Boards.


TODO_LANE, DONE_LANE = "todo", "done"
LANES = (TODO_LANE, *PIPELINE_STAGES, DONE_LANE)
STORY_LANES = {
    "open": ("open",), "needs_review": ("needs_review", "passes"), "changes_requested": ("changes_requested",),
    "approved": ("approved",),
}  # fmt: skip


def task_lane(view: TaskView) -> str:
    """The lane of a task: its stage, also where it stopped; else before or behind all stages."""
    if view.status in (DONE, CANCELLED):
        return DONE_LANE
    return view.stage if view.stage in PIPELINE_STAGES else TODO_LANE


def task_board(views: tuple[TaskView, ...]) -> dict[str, Json]:
    """Every task in its lane, active ones first, then by priority."""
    cards: dict[str, list[Json]] = {lane: [] for lane in LANES}
    for view in sorted(views, key=lambda one: (one.status != WORKING, one.priority, one.id)):
        lane = task_lane(view)
        cards[lane].append({**view.to_json(), "lane": lane})
    lanes: list[Json] = [published("lane", {"name": lane, "tasks": [*tasks]}) for lane, tasks in cards.items()]
    return published("board", {"run": None, "lanes": lanes})


def story_board(
    project: Project, row: RunRow, stories: tuple[StoryReview, ...], history: RunHistory
) -> dict[str, Json]:  # fmt: skip
    """Every story of a run in its lane, in the plan's order, with the work on it."""
    criteria = story_criteria(project, row) if stories else {}
    worked: dict[str, list[IterationView]] = {}
    for _, iteration in sorted(history.timeline.iterations.items()):
        if iteration.job is not None:
            task = iteration.job.task
            worked.setdefault(task.id, []).append(iteration)
            criteria.setdefault(task.id, tuple(map(project.mask, task.acceptance)))
    lanes: list[Json] = []
    for lane, states in STORY_LANES.items():
        cards = [
            _story_card(story, criteria.get(story.story, ()), tuple(worked.get(story.story, ()))) | {"lane": lane}
            for story in stories
            if story.status in states
        ]
        lanes.append(published("lane", {"name": lane, "stories": [*cards]}))
    return published("board", {"run": row.id, "lanes": lanes})


def _story_card(
    story: StoryReview, criteria: tuple[str, ...], iterations: tuple[IterationView, ...]
) -> dict[str, Json]:  # fmt: skip
    spend = Spend()
    for iteration in iterations:
        spend = spend.plus(iteration.spend)
    return story_json(story) | {
        "criteria": criteria_json(criteria, iterations), "iterations": len(iterations),
        "cost": money_json(spend) if iterations else None, "timeline": list_json("iteration", iterations),
    }  # fmt: skip
