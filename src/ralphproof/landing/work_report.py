"""How the tasks of one `ralph work` call ended: shared by the sequential and the parallel scheduler."""

from __future__ import annotations

from ralphproof.base.errors import Refused
from ralphproof.base.text import did_you_mean
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.engine.limits import DAILY_COST_LIMIT, DISK_FULL, SERVICE_UNAVAILABLE, WORKSPACE_GONE
from ralphproof.engine.outcome import Aborted, Completed, Failed
from ralphproof.engine.plan import AllDone, Blocked
from ralphproof.store.tasks import DONE, FAILED, WAITING, WORKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ralphproof.base.value import Json
    from ralphproof.engine.outcome import Outcome
    from ralphproof.landing.task_queue import TaskQueue
    from ralphproof.views.tasks import TaskView

    Notify = Callable[[str], None]  # takes one line of progress

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
