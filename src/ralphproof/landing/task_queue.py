"""The tasks of one `ralph work` call: the choice of the next one, and how each ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing

from ralphproof.base.errors import RalphError, Refused, TaskWrong
from ralphproof.base.text import did_you_mean
from ralphproof.base.value import Json, replace, value
from ralphproof.engine.limits import DAILY_COST_LIMIT, DISK_FULL, SERVICE_UNAVAILABLE, WORKSPACE_GONE
from ralphproof.engine.outcome import Aborted, Completed, Failed, Outcome
from ralphproof.engine.plan import AllDone, Blocked, Task
from ralphproof.runs.execute import load_resumed_request
from ralphproof.runs.request import RunRequest, RunTarget
from ralphproof.runs.spec import RunSpec, prepare_spec
from ralphproof.store.project import Project
from ralphproof.store.tasks import CANCELLED, DONE, FAILED, WAITING, WORKING, TaskRow
from ralphproof.tasks.plans import BacklogItem, next_task
from ralphproof.views.tasks import TaskView

Notify = Callable[[str], None]  # takes one line of progress
BuildRequest = Callable[[str], RunRequest]  # for the task of this id


SETTLED_STATUSES = (DONE, FAILED, CANCELLED)  # of a run that has ended; resuming it changes the row
CHANGED_STATUS = "changed"


class TaskQueue:
    """The state of all tasks; `refresh` reads it again after a run.

    `names` are the tasks that the user named; none: all. Tasks that are created later are `new`, and are not worked on.
    `changed` maps tasks that were edited since to the run during which this happened. The user who started this call
    has not seen the edit, so they are neither worked on nor counted as done.
    """

    def __init__(self, project: Project, names: Iterable[str]) -> None:
        self._project, self._names = project, frozenset(names)
        self._rows: dict[str, TaskRow] = {}
        self._items: dict[str, BacklogItem] = {}
        self.views: dict[str, TaskView] = {}
        self.new: list[str] = []
        self.changed: dict[str, str] = {}
        self._read()
        self._first = dict.fromkeys(self.views)

    @property
    def wanted(self) -> list[str]:
        """The tasks that were named, or all; oldest first."""
        return [id for id in self._first if not self._names or id in self._names]

    def next(self, over: Iterable[str], busy: Iterable[str] = ()) -> Task | AllDone | Blocked:
        """The task to work on next, except those that are `over` or `busy`; a busy one does not count as done."""
        working = dict.fromkeys(busy, WORKING)
        items = tuple(replace(one, status=working.get(id, one.status)) for id, one in self._items.items())
        return next_task(items, self._names, frozenset((*over, *self.new, *self.changed)))

    def suppose_done(self, task: str) -> None:
        """Treat this task as done, for a dry run."""
        self._items[task] = replace(self._items[task], status=DONE)

    def refresh(self, task: str) -> None:
        """Read all tasks after a run of this one, and note which of the others were edited meanwhile."""
        before = [(row, self.views[id].over) for id, row in self._rows.items() if id != task]
        self._rows.pop(task, None)  # its state may change without its row: when its work lands
        self._read()
        run = self.views[task].run
        for row, was_over in before:
            same = self._rows[row.id].updated_at == row.updated_at or (was_over and self.views[row.id].over)
            if not same:
                self.changed.setdefault(row.id, run)
        self.new = [id for id in self.views if id not in self._first]
        for id in self.changed:
            self._items[id] = replace(self._items[id], status=CHANGED_STATUS)

    def _read(self) -> None:
        with closing(self._project.ledger()) as ledger:
            for row in ledger.tasks.rows():
                if self._rows.get(row.id) != row or not self._settled(row):
                    view = TaskView.of(ledger, row, self._project)
                    self._rows[row.id], self.views[row.id], self._items[row.id] = row, view, view.item

    def _settled(self, row: TaskRow) -> bool:
        """Whether the state cannot change unless the row does."""
        return not row.run or self.views[row.id].status in SETTLED_STATUSES


# How the tasks ended


# Reasons that would stop the run of the next task too.
STOPS_ALL_TASKS = (DAILY_COST_LIMIT, DISK_FULL, SERVICE_UNAVAILABLE, WORKSPACE_GONE)


@value
class WorkResult:
    """What `ralph work` prints at the end. `stages` has the stages of tasks that a dry run would work on.

    `idle` is a sentence where no task was worked on. Work that landed is on branch `target`, whose commit is `tip`.
    """

    ends: dict[str, str]
    titles: dict[str, str]
    stages: dict[str, list[Json]]
    new: tuple[str, ...]
    idle: str
    exit_code: int
    target: str = ""
    tip: str = ""
    landed: bool = False


class WorkReport:
    """Collects how each task ended, in words, and the exit codes."""

    def __init__(self, notify: Notify) -> None:
        self._notify = notify
        self.ends: dict[str, str] = {}
        self.stages: dict[str, list[Json]] = {}
        self._codes: list[int] = []

    def add(self, task: str, how: str, code: int) -> None:
        """Record how a task ended or why it was not worked on."""
        self.ends[task] = how
        self._codes.append(code)

    def add_outcome(self, task: str, outcome: Outcome) -> None:
        """Record the outcome of a task's run."""
        self.add(task, outcome_text(outcome), outcome.exit_code)

    def add_refused(self, task: str, error: RalphError) -> None:
        """Record a task whose run could not begin."""
        self.add(task, f"{'not valid' if isinstance(error, TaskWrong) else 'not begun'}: {error}", error.exit_code)
        self._notify(f"task {task} is left out: {error}")

    def add_blocked(self, left: AllDone | Blocked) -> None:
        """Record tasks that wait for others which cannot be worked on."""
        if isinstance(left, Blocked):
            self._codes.append(1)
            self.ends |= dict.fromkeys(left.tasks, "BLOCKED")
            self._notify(f"nothing more can be worked on: {left.why}")

    def add_interrupted(self) -> None:
        self._codes.append(130)

    def result(self, queue: TaskQueue, target: str = "", tip: str = "", landed: bool = False) -> WorkResult:
        """The result of the call, including tasks that were not worked on.

        Precedence of exit codes: signal, fault, refusal, stop, wait.
        """
        idle = "" if self.ends else _idle_text(queue)
        self._add_left(queue)
        if queue.new:
            self._notify(f"created meanwhile, and left for the next ralph work: {', '.join(queue.new)}")
        code = next((code for code in (130, 3, 2, 1, 4) if code in self._codes), 0)
        titles = {task: queue.views[task].title for task in self.ends}
        return WorkResult(self.ends, titles, self.stages, tuple(queue.new), idle, code, target, tip, landed)

    def _add_left(self, queue: TaskQueue) -> None:
        """Add tasks that were not worked on and are not done; in a dry run only where nothing would be worked on."""
        if self.stages:
            return
        for task in queue.wanted:
            if task not in self.ends and (left := self._left(queue, queue.views[task])):
                self.add(task, *left)

    def _left(self, queue: TaskQueue, view: TaskView) -> tuple[str, int] | None:
        """Why a task was not worked on, and the exit code for it; None where it is over."""
        if run := queue.changed.get(view.id):
            self._notify(
                f"task {view.id} was changed while run {run} was at work; look at it: ralph task show {view.id}; "
                f"then ralph work {view.id}"
            )
            return f"changed while run {run} was at work", 1
        if view.over:
            return None
        if view.status == FAILED:
            return f"failed before: {view.reason}; ralph work {view.id} begins it anew", 1
        if view.status == WAITING:
            return f"waits: {view.reason}; ralph work {view.id} goes on with it", 4
        if view.status == WORKING and not view.goes_on:
            return f"run {view.run} works on it; ralph attach {view.run}", 1
        return "not taken up", 1


def _idle_text(queue: TaskQueue) -> str:
    if all(queue.views[task].status == DONE for task in queue.wanted):
        return "nothing to do: every task is done"
    return "nothing to do: no task is open (see ralph task list)"


def refuse_unknown_tasks(queue: TaskQueue, names: Iterable[str]) -> None:
    """Raise Refused for names that no task has, and for tasks that another run is working on."""
    views = queue.views
    if not views:
        raise Refused("there is no task yet; write one: ralph task create, or ralph task import FILE")
    for name in names:
        if name not in views:
            raise Refused(f"there is no task {name}{did_you_mean(name, views)} (see ralph task list)")
        if views[name].status == WORKING and not views[name].goes_on:
            raise Refused(f"task {name} is being worked on by run {views[name].run}; ralph attach {views[name].run}")


def stops_all_tasks(outcome: Outcome) -> bool:
    """Whether runs of other tasks would end the same way. A check that cannot be run may belong to this task only."""
    if isinstance(outcome, Failed):
        return not outcome.check
    return isinstance(outcome, Aborted) and outcome.reason in STOPS_ALL_TASKS


def outcome_text(outcome: Outcome) -> str:
    """How the run of a task ended, in words."""
    match outcome:
        case Completed():
            return f"done, {outcome.proof}"
        case Aborted():
            return f"{outcome.reason}: {outcome.breach.message}"
        case _:
            return f"ERROR: {outcome.error}"


# Runs of tasks that go on


def resume_task(project: Project, view: TaskView, request: RunRequest) -> tuple[RunSpec, RunTarget]:
    """The run that a task goes on with; raises TaskWrong where it cannot, which concerns this task alone."""
    try:
        row, saved = load_resumed_request(project, view.run, request)
    except Refused as error:
        raise TaskWrong(str(error)) from error
    _refuse_other_stages(view, request, saved)
    return prepare_spec(saved), RunTarget(row=row)


def _refuse_other_stages(view: TaskView, request: RunRequest, saved: RunRequest) -> None:
    """Raise TaskWrong where a run that goes on was begun with other stages than those that are requested now."""
    if not request.task.skip_stages or set(request.task.skip_stages) == set(saved.task.skip_stages):
        return
    begun = f"without {', '.join(saved.task.skip_stages)}" if saved.task.skip_stages else "with every stage"
    anew = " ".join(f"--skip {stage}" for stage in request.task.skip_stages)
    raise TaskWrong(
        f"run {view.run} was begun {begun}, and goes on so: leave --skip away, "
        f"or begin anew: ralph cancel {view.id}, then ralph work {view.id} {anew}"
    )
