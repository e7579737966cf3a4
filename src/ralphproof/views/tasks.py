"""The status of tasks, from the user's word and the runs that worked on them."""

from __future__ import annotations

from ralphproof.base.git_layout import is_run_worktree
from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.display.output import align_columns
from ralphproof.display.phrases import SHORT_PROOF_PHRASES
from ralphproof.engine import limits
from ralphproof.engine.outcome import Aborted, Completed, Failed, Outcome
from ralphproof.engine.plan import Job, Task
from ralphproof.engine.records import Picked, RunEnded, TurnBegan
from ralphproof.store.run_state import ENDED, ORPHANED, RUNNING, run_state
from ralphproof.store.tasks import CANCELLED, DONE, FAILED, TODO, WAITING, WORKING
from ralphproof.tasks.plans import BacklogItem
from ralphproof.views.run_status import spend_json, total_effort

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ralphproof.base.value import Json
    from ralphproof.engine.budget import Spend
    from ralphproof.store.ledger import RunRow, SqliteLedger
    from ralphproof.store.project import Project
    from ralphproof.store.tasks import TaskRow


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

    def published(self) -> Json:
        """For programs."""
        if not self.stage:
            return None
        return {"name": self.stage, "iteration": self.iteration, "maxIterations": self.most}


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

    def published(self) -> dict[str, Json]:
        """For programs."""
        return {
            "id": self.id, "specId": self.spec_id, "title": self.title, "status": self.status, "reason": self.reason,
            "stage": self.count.published(), "iteration": self.iterations, "priority": self.priority,
            "dependencies": list(self.dependencies), "assignee": self.assignee, "run": self.run or None,
            "proof": self.proof or None, "spend": spend_json(self.spend) if self.spend else None,
        }  # fmt: skip


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


def tasks_json(tasks: Iterable[TaskView]) -> list[Json]:
    """The list of tasks for programs."""
    return [view.published() for view in tasks]


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
