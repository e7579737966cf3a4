"""The tasks of one `ralph work` call: which comes next, how each ended, and schedulers that work on them one after the
other or in parallel worktrees.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import closing

from ralphproof.base.errors import RalphError, Refused, TaskWrong
from ralphproof.base.text import did_you_mean
from ralphproof.base.value import Json, replace, value
from ralphproof.engine.check import CheckReport
from ralphproof.engine.limits import DAILY_COST_LIMIT, DISK_FULL, SERVICE_UNAVAILABLE, WORKSPACE_GONE
from ralphproof.engine.outcome import Aborted, Completed, Failed, Outcome
from ralphproof.engine.plan import AllDone, Blocked, Task
from ralphproof.landing.landing_items import landing_item_of_run, rejection_reason
from ralphproof.landing.merge_queue import LandingOptions, LandingQueue
from ralphproof.landing.targets import landing_target
from ralphproof.landing.worktree_run import (
    ParallelWorkLock,
    TaskWorktrees,
    move_to_worktree,
    open_worktrees,
    task_worktree_name,
    update_worktree_branch,
)
from ralphproof.runs.displays import stages_json
from ralphproof.runs.execute import PooledRunEnded, RunPool, load_resumed_request
from ralphproof.runs.request import FRESH_RUN, RunRequest, RunTarget
from ralphproof.runs.spec import RunSpec, prepare_spec
from ralphproof.settings.declarations import PIPELINE_STAGES
from ralphproof.store.landings import (
    Landed,
    LandingItem,
    LandingRejected,
    LandingResult,
    MergeConflict,
    MergedChecksFailed,
    NotVerified,
)
from ralphproof.store.project import Project
from ralphproof.store.tasks import CANCELLED, DONE, FAILED, WAITING, WORKING, TaskRow
from ralphproof.tasks.plans import BacklogItem, next_task
from ralphproof.views.tasks import TaskView
from ralphproof.workspace.checkouts import RunWorktree
from ralphproof.workspace.git_command import UserGit

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


Execute = Callable[[RunSpec, RunTarget], Outcome]


class SequentialScheduler:
    """Works on tasks until none is left that can be worked on.

    `execute` runs one task to its end. In a dry run it is None, and `preview` is called instead.
    """

    def __init__(
        self,
        project: Project,
        tasks: list[str],
        build_request: BuildRequest,
        notify: Notify,
        execute: Execute | None,
        preview: Callable[[RunSpec], None],
    ) -> None:
        self._project, self._tasks, self._build_request = project, tasks, build_request
        self._notify, self._execute, self._preview = notify, execute, preview
        self._queue = TaskQueue(project, tasks)
        self._report = WorkReport(notify)
        self._settings_files: tuple[tuple[str, str], ...] = ()  # path and digest, as they were for the first task

    def work(self) -> WorkResult:
        """Work on one task after the other."""
        refuse_unknown_tasks(self._queue, self._tasks)
        while not isinstance(task := self._queue.next(self._report.ends), AllDone | Blocked):
            if not self._work_on(self._queue.views[task.id]):
                break
        else:
            self._report.add_blocked(task)
        return self._report.result(self._queue)

    def _work_on(self, view: TaskView) -> bool:
        """Work on one task; whether the next one may follow."""
        onward = f", goes on with run {view.run}" if view.goes_on else ""
        self._notify(f"Task {view.id}{onward}: {view.title}")
        try:
            spec, target = self._prepare(view)
            self._refuse_changed_settings(spec)
            if self._execute is None:
                return self._show(spec, view)
            outcome = self._execute(spec, target)
        except TaskWrong as error:
            self._report.add_refused(view.id, error)
            return True
        except Refused as error:  # the next task would be refused too
            if not self._report.ends:
                raise
            self._report.add_refused(view.id, error)
            return False
        self._report.add_outcome(view.id, outcome)
        self._queue.refresh(view.id)
        return outcome.exit_code != 130 and not stops_all_tasks(outcome)

    def _refuse_changed_settings(self, spec: RunSpec) -> None:
        """Raise Refused where settings changed since the first task: a check's program may have written them."""
        files = spec.loaded.files
        self._settings_files = self._settings_files or files
        before = dict(self._settings_files)
        if changed := sorted(os.path.basename(path) for path, digest in files if before.get(path) != digest):
            raise Refused(
                f"{', '.join(changed)} changed while tasks were worked on; look at it, then go on: ralph work"
            )

    def _prepare(self, view: TaskView) -> tuple[RunSpec, RunTarget]:
        request = self._build_request(view.id)
        return resume_task(self._project, view, request) if view.goes_on else (prepare_spec(request), FRESH_RUN)

    def _show(self, spec: RunSpec, view: TaskView) -> bool:
        self._report.stages[view.id] = stages_json(spec)
        self._preview(spec)
        self._report.add(view.id, "would be worked on", 0)
        self._queue.suppose_done(view.id)
        return True


# Scheduler of `ralph work --parallel`: tasks side by side in worktrees, landed in order.


# Rework: one more iteration for finished work that could not land


MAX_LISTED, MAX_OUTPUT_CHARS = 20, 4000
CONFLICT_MARKER_PATTERN = "^(<<<<<<<|>>>>>>>) "  # a line of seven equal signs may underline a headline


@value
class Rework:
    """Work that was rejected: `commit` was merged onto the target's commit `onto`, which gave `tree`.

    `message` tells the agent what to fix; `paths` are files with conflict markers.
    """

    onto: str
    tree: str
    commit: str
    why: str
    message: str
    paths: tuple[str, ...] = ()

    @staticmethod
    def of(end: LandingRejected, target: str) -> Rework | None:
        """The rework of a rejection; None where the agent cannot fix it."""
        why = end.why
        if isinstance(why, NotVerified) or not why.tree:
            return None
        first = (
            f"Your work on this task was finished, and then it could not be put onto the branch {target}, which has "
            f"moved on since. The files here are now those of {target} with your work merged into them. "
        )
        paths = why.paths if isinstance(why, MergeConflict) else ()
        return Rework(why.onto, why.tree, end.item.commit, rejection_reason(why), first + _rework_prompt(why), paths)


def _rework_prompt(why: MergeConflict | MergedChecksFailed) -> str:
    if isinstance(why, MergeConflict):
        named = "\n".join(f"- {path}" for path in why.paths[:MAX_LISTED])
        return (
            f"Both changed the same places, and these files hold conflict markers:\n\n{named}\n\nResolve every "
            "conflict so that both changes keep their meaning, and leave no marker behind."
        )
    shown = CheckReport(why.findings).visible.failed  # findings of hidden checks are not shown to agents
    failed = "\n\n".join(f"{one.check}: {one.why}\n{one.output[-MAX_OUTPUT_CHARS:]}" for one in shown[:MAX_LISTED])
    return (
        "Each passes its checks alone, and together they fail. Fix that without undoing what the other did. "
        f"What failed:\n\n{failed}"
    )


def prepare_rework(request: RunRequest, worktree: RunWorktree, rework: Rework) -> RunRequest:
    """Check the merged files out in the worktree, and return the request for one more iteration.

    The work as it was stays in the refs of its run. The worktree's branch is moved to the target's commit, so that all
    that differs from it belongs to this task.
    """
    git = UserGit(worktree.path, os.environ)
    git.run("read-tree", "--reset", "-u", rework.tree)
    git.run("update-ref", "-m", "ralph: on top of what landed", f"refs/heads/{worktree.branch}", rework.onto)
    git.run("symbolic-ref", "HEAD", f"refs/heads/{worktree.branch}")  # the agent may have checked out another branch
    git.run("read-tree", "--reset", "-i", rework.onto)
    left = [stage for stage in PIPELINE_STAGES if stage not in request.task.skip_stages]
    flags = {**request.flags, "maximumIterations": 1}
    return replace(
        request,
        project_dir=worktree.path,
        in_worktree=True,
        message=rework.message,
        flags=flags,
        task=replace(request.task, skip_stages=(*request.task.skip_stages, *left[1:])),
    )


def files_with_conflict_markers(git: UserGit, commit: str, base: str) -> list[str]:
    """Files with conflict markers that `base` does not have: checks that do not read the files would miss them."""

    def marked(revision: str) -> set[str]:
        argv = ("grep", "-l", "-z", "-I", "-E", "--full-name", "-e", CONFLICT_MARKER_PATTERN, revision, "--")
        names = git.run(*argv, good=(0, 1)).out.split(b"\0")
        return {name.partition(b":")[2].decode("utf-8", "replace") for name in names if name}

    return sorted(marked(commit) - marked(base))


# The scheduler


@value
class ParallelOptions:
    """`workers` runs at a time. Work lands on branch `onto`; empty: on ralph/BRANCH of the user's branch."""

    workers: int
    onto: str = ""
    rebase: bool = False
    unverified: bool = False


class ParallelScheduler:
    """Works on several tasks at a time. A task is done when its work has landed; tasks that depend on it begin from
    there.
    """

    def __init__(
        self,
        project: Project,
        tasks: list[str],
        build_request: BuildRequest,
        notify: Notify,
        pool: RunPool,
        options: ParallelOptions,
    ) -> None:
        self._project, self._tasks, self._build_request = project, tasks, build_request
        self._notify, self._pool, self._options = notify, pool, options
        self._queue = TaskQueue(project, tasks)
        self._report = WorkReport(notify)
        self._git = UserGit(open_worktrees(project).root, os.environ)
        self._worktrees = TaskWorktrees(project)
        self._target, self._user_commits, base = landing_target(self._git, options.onto)
        landing = LandingOptions(base, options.rebase, options.unverified)
        self._landing = LandingQueue(
            project, self._target, pool.signals, lambda line: notify(f"landing: {line}"), landing
        )
        self._runs: dict[str, str] = {}  # of each task whose work was sent to be landed
        self._landed: set[str] = set()
        self._rejected: dict[str, Rework] = {}  # tasks whose work was rejected and that wait for one more iteration
        self._reworked: set[str] = set()
        self._halted = False

    def work(self) -> WorkResult:
        """Work on tasks until all have landed or cannot."""
        refuse_unknown_tasks(self._queue, self._tasks)
        with ParallelWorkLock(self._project.store):
            self._queue = TaskQueue(self._project, self._tasks)  # the lock's last holder may have changed tasks
            return self._work()

    def _work(self) -> WorkResult:
        self._pool.signals.listen()
        try:
            self._land_user_commits(self._user_commits)
            self._land_finished()
            left = self._work_and_land()
        except BaseException:
            self._pool.abandon()
            raise
        finally:
            self._landing.close()
        if left is not None and not self._halted:
            self._report.add_blocked(left)
        if self._pool.signals.signals:
            self._report.add_interrupted()
        return self._report.result(self._queue, self._target.name, self._target.tip(), bool(self._landed))

    def _work_and_land(self) -> AllDone | Blocked | None:
        """Run and land tasks until nothing runs, lands or can begin; what is left then."""
        while True:
            left = self._begin_tasks()
            if not (self._pool.open or self._landing.waiting):
                return left
            if ended := self._pool.next():
                self._run_ended(ended)
            self._collect_landings()

    def _land_user_commits(self, commits: LandingItem | None) -> None:
        """Land first what the user committed since the target last followed the user's branch."""
        if commits is None:
            return
        self._notify(f"{self._target.name} lacks what you committed since; it lands first")
        self._landing.send(commits)
        while self._landing.waiting:
            end = self._landing.next()
            if end is not None and not isinstance(end, Landed):
                raise Refused(
                    f"your branch and {self._target.name} do not go together ({rejection_reason(end.why)}); "
                    f"merge it into yours first: git merge {self._target.name}"
                )
            if end is None and self._pool.signals.signals:
                self._notify("interrupted before anything was begun")
                raise KeyboardInterrupt
            self._pool.next()

    def _land_finished(self) -> None:
        """Work that an earlier call finished and could not land, because it died or the work was rejected."""
        known = self._worktrees.names()
        for view in (self._queue.views[task] for task in self._queue.wanted):
            # A run that was resumed outside this scheduler has removed its worktree.
            unlanded = view.status == FAILED and self._worktrees.used_worktree(view.run)
            if not (unlanded or task_worktree_name(view.id) in known) or not self._is_completed(view):
                continue
            self._notify(f"Task {view.id} was done before, and has not landed yet: {view.title}")
            self._land(view.id, view.run)

    def _is_completed(self, view: TaskView) -> bool:
        with closing(self._project.ledger()) as ledger:
            end = ledger.run_end(view.run) if view.run else None
        return isinstance(getattr(end, "outcome", None), Completed)

    def _begin_tasks(self) -> AllDone | Blocked | None:
        """Begin as many runs as there are free workers, rejected work first; what is left where none can begin."""
        while len(self._pool.open) < self._options.workers and not self._pool.signals.signals:
            if self._rejected:
                task = next(iter(self._rejected))  # the one that waits longest
                self._reworked.add(task)
                self._begin(task, self._rejected.pop(task))
                continue
            if self._halted:
                return None
            landing = {task for task, run in self._runs.items() if run in self._landing.waiting}
            busy = {*self._pool.open, *landing}
            task_or_end = self._queue.next((*self._report.ends, *busy), busy)
            if isinstance(task_or_end, AllDone | Blocked):
                return task_or_end
            self._begin(task_or_end.id, None)
        return None

    def _begin(self, task: str, rework: Rework | None) -> None:
        view = self._queue.views[task]
        onward = f", goes on with run {view.run}" if view.goes_on and rework is None else ""
        again = f" once more, because {rework.why}" if rework else ""
        self._notify(f"Task {view.id}{onward}{again}: {view.title}")
        self._pool.begin(task, lambda: self._prepare(view, rework))

    def _prepare(self, view: TaskView, rework: Rework | None) -> tuple[RunSpec, RunTarget]:
        """The run of one task in its own worktree; called in that run's thread."""
        request = self._build_request(view.id)
        if rework is not None:
            worktree = self._worktrees.find(view.id)
            if worktree is None:
                raise TaskWrong(f"the work tree of task {view.id} is gone; its work is on run {view.run}")
            return prepare_spec(prepare_rework(request, worktree, rework)), FRESH_RUN
        if view.goes_on:
            worktree = self._worktrees.find(view.id)
            root = worktree.path if worktree else self._project.root
            return resume_task(replace(self._project, root=root), view, request)
        name, tip = task_worktree_name(view.id), self._target.tip()
        moved, _, remarks = move_to_worktree(request, self._project, name, tip)
        spec = prepare_spec(moved)
        return replace(spec, remarks=(*remarks, *spec.remarks)), FRESH_RUN

    def _run_ended(self, ended: PooledRunEnded) -> None:
        task = ended.name
        if ended.error is not None:
            return self._run_refused(task, ended.error)
        outcome = ended.outcome
        assert outcome is not None
        self._queue.refresh(task)
        if isinstance(outcome, Completed) and self._worktrees.used_worktree(ended.run):
            return self._land(task, ended.run)
        self._report.add_outcome(task, outcome)
        self._halted = self._halted or stops_all_tasks(outcome)

    def _run_refused(self, task: str, error: RalphError) -> None:
        invalid = isinstance(error, TaskWrong)
        self._worktrees.discard_unused(task)
        if not invalid and not self._report.ends and not self._pool.open and not self._landing.waiting:
            raise error
        self._report.add_refused(task, error)
        self._halted = self._halted or not invalid

    def _land(self, task: str, run: str) -> None:
        """Send finished work to be landed; where that fails, only this task is affected."""
        try:
            self._send(task, run)
        except RalphError as error:
            self._notify(f"task {task} cannot land: {error}")
            self._report.add(task, f"not landed: {error}", 1)

    def _send(self, task: str, run: str) -> None:
        item = landing_item_of_run(self._project, run)
        if left := files_with_conflict_markers(self._git, item.commit, self._target.tip()):
            return self._report.add(task, f"not landed: conflict markers are left in {', '.join(left)}", 1)
        # Without a worktree the work still lands: it is in refs of the run, which the agent cannot change.
        if (worktree := self._worktrees.find(task)) is not None:
            update_worktree_branch(worktree, item)
        for remark in item.remarks if task not in self._reworked else ():  # in a rework the merge was made by ralph
            self._notify(f"task {task}: {remark}")
        self._runs[task] = run
        self._landing.send(item)

    def _collect_landings(self) -> None:
        try:
            while (end := self._landing.next()) is not None:
                self._landing_ended(end)
        except KeyboardInterrupt:
            self._landing_stopped("interrupted; ralph work --parallel, or ralph land, goes on with it", 130)
        except RalphError as error:
            self._landing_stopped(str(error), error.exit_code)

    def _landing_stopped(self, why: str, code: int) -> None:
        """Landing failed for all items that wait. Running tasks finish; no new one begins."""
        self._notify(f"nothing can land: {why}")
        over = {*self._report.ends, *self._rejected, *self._pool.open}
        for task in [task for task, run in self._runs.items() if task not in over and run not in self._landed]:
            self._report.add(task, f"not landed: {why}", code)
        self._halted = True

    def _landing_ended(self, end: LandingResult) -> None:
        task = end.item.task
        self._queue.refresh(task)
        if isinstance(end, Landed):
            self._landed.add(end.item.run)
            self._report.add(task, f"done, {end.item.proof}; landed on {end.target}", 0)
            self._notify(f"task {task} landed on {end.target} as {end.commit[:12]}")
            if why := self._worktrees.remove_landed(task, end.item.run):
                self._notify(f"the work tree of task {task} stays, {why}")
            return
        reason = rejection_reason(end.why)
        self._notify(f"task {task} is turned away: {reason}")
        rework = Rework.of(end, self._target.name)
        final = task in self._reworked or self._pool.signals.signals or self._worktrees.find(task) is None
        if rework is None or final:
            self._report.add(task, f"not landed: {reason}; its work is on its branch", 1)
        else:
            self._rejected[task] = rework
