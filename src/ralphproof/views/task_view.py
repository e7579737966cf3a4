"""A task at this moment: how it stands, by the user's word and by the run that last worked on it."""

from __future__ import annotations

from ralphproof import limit
from ralphproof.backlog import CANCELLED, DONE, FAILED, TODO, WAITING, WORKING, Listed
from ralphproof.display.words import SHORT_PROOFS
from ralphproof.plan import Task
from ralphproof.record import Picked, RunEnded, TurnBegan
from ralphproof.stage import Job
from ralphproof.value import TYPE_CHECKING, replace, value
from ralphproof.verdict import Aborted, Completed, Failed, Outcome
from ralphproof.views.bills import effort, spend_json
from ralphproof.views.standing import ENDED, ORPHANED, RUNNING, standing
from ralphproof.workspaces.layout import lies_apart

if TYPE_CHECKING:
    from ralphproof.budget import Spend
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.ledgers.tasks import TaskRow
    from ralphproof.value import Json
    from ralphproof.views.project import Project

CUT_OFF = "cut off; ralph work goes on with it"
CHANGED = "changed since it was cut off; ralph work begins it anew"
BY_WORD = "by your word"
ALONE = "its harness died, and what it started is still at work"


@value
class StageCount:
    """Where a run stands in a task's stages: which one, for how many times, of how many, and all its iterations."""

    stage: str = ""
    iteration: int = 0
    most: int | None = None
    iterations: int = 0

    @staticmethod
    def of(ledger: Sqlite, run: str) -> StageCount:
        """By what was picked before each of its iterations. One that a limit kept from being begun is none."""
        picked = [record for record in ledger.of_kind(run, Picked.__name__) if isinstance(record, Picked)]
        begun = {
            record.iteration for record in ledger.of_kind(run, TurnBegan.__name__) if isinstance(record, TurnBegan)
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
    """How a task stands. `iteration` counts within its stage, up to `most`.

    `iterations` are all that its runs ever took, and `spend` is what those cost.
    `reason` says why, where there is something to say; `proof` what shows that it is done: verified, judged, claimed,
    or nothing but the user's word. Where it `goes_on`, its last run lost its harness, or waits, and can be taken up.
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
    def of(ledger: Sqlite, row: TaskRow, project: Project) -> TaskView:
        """Look at its last run. One that is at work beats the user's word; else the newer of the two counts."""
        known = TaskView(row.id, row.status, row.title, row.spec_id, row.priority, row.dependencies)
        known = replace(known, assignee=row.assignee, reason=BY_WORD if known.over else "")
        run = ledger.row(row.run) if row.run else None
        if run is None:
            return known
        where, end = standing(ledger, run, project), ledger.end_of(run.id)
        count = StageCount.of(ledger, run.id)
        iterations, spend = effort(ledger, project, ledger.tasks.attempts(row.id))
        known = replace(known, run=run.id, iterations=iterations, spend=spend)
        at_work = where in (RUNNING, ORPHANED) or (where == ENDED and end is None)  # it was taken up while we looked
        if row.said and not at_work:
            return known
        known = replace(known, stage=count.stage, iteration=count.iteration, most=count.most)
        known = replace(known, assignee=_agent(ledger, run.id) or row.assignee)
        if at_work:
            alone = where == ORPHANED
            return replace(known, status=WORKING, reason=ALONE if alone else "", goes_on=alone)
        status, reason, proof = _ended(end.outcome) if isinstance(end, RunEnded) else (TODO, CUT_OFF, "")
        if status == DONE and (why := _unlanded(ledger, run, project)):
            status, reason, proof = FAILED, f"done, {proof}, and {why}; ralph land {run.id}", ""
        if status == TODO and row.updated_at > run.began_at:  # what it had passed says nothing of what is asked now
            return replace(known, status=TODO, reason=CHANGED)
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
        """Nothing is left to be done."""
        return self.status in (DONE, CANCELLED)

    @property
    def standing(self) -> str:
        """How it stands, in a few words: that it is done is never told without what shows it."""
        shown = SHORT_PROOFS.get(self.proof) or (BY_WORD if self.reason == BY_WORD else "")
        return f"{self.status}, {shown}" if shown else self.status

    @property
    def item(self) -> Listed:
        """What the choice of the next task needs to know of it. One that lost its harness is open to be taken up."""
        task = Task(self.id, "", self.title, self.priority, self.dependencies, spec=self.spec_id)
        return Listed(task, TODO if self.status == WORKING and self.goes_on else self.status, self.goes_on)

    def published(self) -> dict[str, Json]:
        """For programs."""
        return {
            "id": self.id, "specId": self.spec_id, "title": self.title, "status": self.status, "reason": self.reason,
            "stage": self.count.published(), "iteration": self.iterations, "priority": self.priority,
            "dependencies": list(self.dependencies), "assignee": self.assignee, "run": self.run or None,
            "proof": self.proof or None, "spend": spend_json(self.spend) if self.spend else None,
        }  # fmt: skip


def _unlanded(ledger: Sqlite, run: RunRow, project: Project) -> str:
    """Why the work of a run that had a work tree for itself is not where others can build on it; empty where it is."""
    if not lies_apart(run.directory, project.store):
        return ""
    rows = ledger.landings.of_run(run.id)
    if any(not row.left for row in rows):
        return ""
    return "was turned away when it should land" if any(not row.open for row in rows) else "has not landed yet"


def _agent(ledger: Sqlite, run: str) -> str:
    """The agent that a run last asked."""
    turns = ledger.of_kind(run, TurnBegan.__name__)
    return turns[-1].agent if turns and isinstance(turns[-1], TurnBegan) else ""


def _ended(outcome: Outcome) -> tuple[str, str, str]:
    """Status, reason and proof of a task whose last run ended so."""
    match outcome:
        case Completed():
            return DONE, "", outcome.proof
        case Aborted(breach) if breach.reason == limit.WAITING:
            return WAITING, breach.message, ""
        case Aborted(breach) if breach.reason == limit.CANCELLED:
            return CANCELLED, "", ""
        case Aborted(breach) if breach.reason in (limit.INTERRUPTED, limit.STEP):
            return TODO, CUT_OFF, ""
        case Aborted(breach):
            return FAILED, f"{breach.reason}: {breach.message}", ""
        case Failed(error) if outcome.check:
            return TODO, f"ERROR: {error}", ""
        case Failed(error):  # it could not go on; that says nothing of the task
            return TODO, f"ERROR: {error}; ralph work goes on with it", ""


def views(ledger: Sqlite, project: Project) -> tuple[TaskView, ...]:
    """Every task and how it stands, oldest first."""
    return tuple(TaskView.of(ledger, row, project) for row in ledger.tasks.rows())


def views_of(project: Project) -> tuple[TaskView, ...]:
    """The same for whoever has no ledger open."""
    ledger = project.ledger()
    try:
        return views(ledger, project)
    finally:
        ledger.close()
