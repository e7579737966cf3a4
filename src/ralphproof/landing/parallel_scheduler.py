"""Scheduler of `ralph work --parallel`: tasks side by side in worktrees, landed in order."""

from __future__ import annotations

import os

from ralphproof.base.errors import RalphError, Refused, TaskWrong
from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.engine.outcome import Completed
from ralphproof.engine.plan import AllDone, Blocked
from ralphproof.landing.merge_queue import LandingQueue
from ralphproof.landing.results import rejection_reason
from ralphproof.landing.rework import Rework, files_with_conflict_markers, prepare_rework
from ralphproof.landing.targets import current_branch, landing_target
from ralphproof.landing.task_queue import TaskQueue
from ralphproof.landing.work_report import WorkReport, outcome_text, refuse_unknown_tasks, stops_all_tasks
from ralphproof.landing.worktree_run import (
    ParallelWorkLock,
    TaskWorktrees,
    landing_item_of_run,
    move_to_worktree,
    open_worktrees,
    task_worktree_name,
    update_worktree_branch,
)
from ralphproof.runs.pool import RunPool
from ralphproof.runs.request import FRESH_RUN, RunTarget
from ralphproof.runs.resume import load_resumed_request
from ralphproof.runs.spec import prepare_spec
from ralphproof.store.landings import Landed
from ralphproof.store.tasks import FAILED
from ralphproof.workspace.git_command import UserGit

if TYPE_CHECKING:
    from ralphproof.landing.sequential_scheduler import BuildRequest
    from ralphproof.landing.work_report import Notify, WorkResult
    from ralphproof.runs.pool import PooledRunEnded
    from ralphproof.runs.spec import RunSpec
    from ralphproof.store.landings import LandingItem, LandingResult
    from ralphproof.store.project import Project
    from ralphproof.views.tasks import TaskView


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
        self._target, self._user_commits = landing_target(self._git, options.onto)
        base = "" if options.onto else self._git.branch_commit(current_branch(self._git))
        self._landing = LandingQueue(
            project, self._target, pool.signals, lambda line: notify(f"landing: {line}"), rebase=options.rebase,
            unverified=options.unverified, base=base,
        )  # fmt: skip
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
        ledger = self._project.ledger()
        try:
            end = ledger.run_end(view.run) if view.run else None
        finally:
            ledger.close()
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
            try:
                row, saved = load_resumed_request(replace(self._project, root=root), view.run, request)
            except Refused as error:
                raise TaskWrong(str(error)) from error
            return prepare_spec(saved), RunTarget(row=row)
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
        self._report.add(task, outcome_text(outcome), outcome.exit_code)
        self._halted = self._halted or stops_all_tasks(outcome)

    def _run_refused(self, task: str, error: RalphError) -> None:
        invalid = isinstance(error, TaskWrong)
        self._worktrees.discard_unused(task)
        if not invalid and not self._report.ends and not self._pool.open and not self._landing.waiting:
            raise error
        self._report.add(task, f"{'not valid' if invalid else 'not begun'}: {error}", error.exit_code)
        self._notify(f"task {task} is left out: {error}")
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
