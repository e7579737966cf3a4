"""Scheduler of `ralph work --parallel`: tasks side by side in worktrees, landed in order."""

from __future__ import annotations

import os

from ralphproof.base.errors import RalphError, Refused, TaskWrong
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.engine.outcome import Completed
from ralphproof.engine.plan import AllDone, Blocked
from ralphproof.landing.merge_queue import LandingQueue
from ralphproof.landing.results import rejection_reason
from ralphproof.landing.rework import Rework, files_with_conflict_markers, prepare_rework
from ralphproof.landing.sequential_scheduler import SequentialScheduler, outcome_text, stops_all_tasks
from ralphproof.landing.targets import current_branch, landing_target
from ralphproof.landing.task_queue import TaskQueue
from ralphproof.landing.worktree_run import (
    ParallelWorkLock,
    TaskWorktrees,
    landing_item_of_run,
    move_to_worktree,
    open_worktrees,
    task_worktree_name,
    update_worktree_branch,
)
from ralphproof.process.signals import SignalRouter
from ralphproof.runs.pool import RunPool
from ralphproof.store.landings import Landed
from ralphproof.store.spend import InProcessSharedBudget
from ralphproof.store.tasks import FAILED
from ralphproof.workspace.git_command import UserGit

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from ralphproof.base.value import Json
    from ralphproof.runs.pool import PooledRunEnded
    from ralphproof.runs.request import RunRequest
    from ralphproof.runs.spec import RunSpec
    from ralphproof.runs.target import RunTarget
    from ralphproof.store.landings import LandingItem, LandingResult
    from ralphproof.views.tasks import TaskView


# One call of `ralph work --parallel`: tasks side by side, each in a worktree of its own, landed in a row.


class ParallelScheduler(SequentialScheduler):
    """Works on several tasks at a time. A task is done when its work has landed: what depends on it begins there."""

    def __init__(self, args: Namespace, wish_of: Callable[[Namespace, str], RunRequest]) -> None:
        super().__init__(args, None, wish_of)
        self._dry = False
        self._users = UserGit(open_worktrees(self._project).root, os.environ)
        self._trees = TaskWorktrees(self._project)
        self._target, theirs = landing_target(self._users, args.onto or "")
        self._theirs: LandingItem | None = theirs
        self._conductor = SignalRouter()
        total = None if args.total_cost_usd is None else round(args.total_cost_usd * 1_000_000)
        self._lanes = RunPool(args, self._conductor, InProcessSharedBudget(total))
        base = "" if args.onto else self._users.branch_commit(current_branch(self._users))
        self._dock = LandingQueue(
            self._project, self._target, self._conductor, self._landing, rebase=args.rebase, unverified=args.unverified,
            base=base,
        )  # fmt: skip
        self._runs: dict[str, str] = {}  # of each task whose work was sent to be landed
        self._landed: set[str] = set()
        self._turned: dict[str, Rework] = {}  # tasks that were turned away, and wait for one more iteration
        self._mended: set[str] = set()
        self._halted = False

    def work(self) -> int:
        """Take up what can be taken up, until all of it has landed or cannot; the exit code."""
        self._refuse_unknown()
        with ParallelWorkLock(self._project.store):
            self._board = TaskQueue(self._project, self._args.tasks)  # who had the right before may have changed it all
            return self._worked()

    def _worked(self) -> int:
        self._conductor.listen()
        try:
            self._bring_theirs()
            self._send_finished()
            left = self._through()
        except BaseException:
            self._lanes.abandon()
            raise
        finally:
            self._dock.close()
        if left is not None and not self._halted:
            self._tell_blocked(left)
        idle = not self._ends
        self._tell_left()
        self._tell_new()
        if self._conductor.signals:
            self._codes.append(130)
        return self._summed_up(idle)

    def _through(self) -> AllDone | Blocked | None:
        """Until nothing goes on and nothing can be begun; what is left then."""
        while True:
            left = self._fill()
            if not (self._lanes.open or self._dock.waiting):
                return left
            if ended := self._lanes.next():
                self._ran(ended)
            self._hear_dock()

    def _bring_theirs(self) -> None:
        """What the user committed since the target last followed them lands first: work begins on top of it."""
        if self._theirs is None:
            return
        self._say(f"{self._target.name} lacks what you committed since; it lands first")
        self._dock.send(self._theirs)
        while self._dock.waiting:
            end = self._dock.next()
            if end is not None and not isinstance(end, Landed):
                raise Refused(
                    f"your branch and {self._target.name} do not go together ({rejection_reason(end.why)}); merge it into yours "
                    f"first: git merge {self._target.name}"
                )
            if end is None and self._conductor.signals:
                self._say("interrupted before anything was begun")
                raise KeyboardInterrupt
            self._lanes.next()

    def _send_finished(self) -> None:
        """Work that an earlier call finished and could not land, because it died or was turned away."""
        known = self._trees.known()
        for view in (self._board.views[task] for task in self._board.wanted):
            unlanded = view.status == FAILED and self._trees.had(view.run)  # who resumed it alone cleared its tree away
            if not (unlanded or task_worktree_name(view.id) in known) or not self._completed(view):
                continue
            self._say(f"Task {view.id} was done before, and has not landed yet: {view.title}")
            self._land(view.id, view.run)

    def _completed(self, view: TaskView) -> bool:
        ledger = self._project.ledger()
        try:
            end = ledger.end_of(view.run) if view.run else None
        finally:
            ledger.close()
        return isinstance(getattr(end, "outcome", None), Completed)

    # Beginning

    def _fill(self) -> AllDone | Blocked | None:
        """Begin as many as there are places for: those that were turned away first. What is left where none can be."""
        while len(self._lanes.open) < self._args.parallel and not self._conductor.signals:
            if self._turned:
                task = next(iter(self._turned))  # who waits longest
                self._mended.add(task)
                self._begin(task, self._turned.pop(task))
                continue
            if self._halted:
                return None
            busy = {*self._lanes.open, *self._docked}
            found = self._board.next((*self._ends, *busy), busy)
            if isinstance(found, AllDone | Blocked):
                return found
            self._begin(found.id, None)
        return None

    @property
    def _docked(self) -> dict[str, str]:
        """The tasks whose work is on its way."""
        return {task: run for task, run in self._runs.items() if run in self._dock.waiting}

    def _begin(self, task: str, mend: Rework | None) -> None:
        view = self._board.views[task]
        onward = f", goes on with run {view.run}" if view.goes_on and mend is None else ""
        again = f" once more, because {mend.why}" if mend else ""
        self._say(f"Task {view.id}{onward}{again}: {view.title}")
        self._lanes.begin(task, lambda: self._ordered(view, mend))

    def _ordered(self, view: TaskView, mend: Rework | None) -> tuple[RunSpec, RunTarget]:
        """What one task's run is to do, in its own work tree; called in that run's thread."""
        from ralphproof.runs.resume import load_resumed_request
        from ralphproof.runs.spec import prepare_spec
        from ralphproof.runs.target import FRESH_RUN, RunTarget

        request = self._wish_of(self._args, view.id)
        if mend is not None:
            offshoot = self._trees.of(view.id)
            if offshoot is None:
                raise TaskWrong(f"the work tree of task {view.id} is gone; its work is on run {view.run}")
            return prepare_spec(prepare_rework(request, offshoot, mend)), FRESH_RUN
        if view.goes_on:
            offshoot = self._trees.of(view.id)
            root = offshoot.path if offshoot else self._project.root
            try:
                row, kept = load_resumed_request(replace(self._project, root=root), view.run, request)
            except Refused as error:
                raise TaskWrong(str(error)) from error
            return prepare_spec(kept), RunTarget(row=row)
        apart, _, told = move_to_worktree(request, self._project, task_worktree_name(view.id), self._target.tip())
        spec = prepare_spec(apart)
        return replace(spec, remarks=(*told, *spec.remarks)), FRESH_RUN

    # What came of it

    def _ran(self, ended: PooledRunEnded) -> None:
        task = ended.name
        if ended.error is not None:
            return self._refused(task, ended.error)
        outcome = ended.outcome
        assert outcome is not None
        self._board.look(task)
        if isinstance(outcome, Completed) and self._trees.had(ended.run):
            return self._land(task, ended.run)
        self._ended(task, outcome_text(outcome), outcome.exit_code)
        self._halted = self._halted or stops_all_tasks(outcome)

    def _refused(self, task: str, error: RalphError) -> None:
        wrong = isinstance(error, TaskWrong)
        self._trees.forsake(task)
        if not wrong and not self._ends and not self._lanes.open and not self._dock.waiting:
            raise error
        self._ended(task, f"{'not valid' if wrong else 'not begun'}: {error}", error.exit_code)
        self._say(f"task {task} is left out: {error}")
        self._halted = self._halted or not wrong

    def _land(self, task: str, run: str) -> None:
        """Have finished work landed; what is in the way of that is this task's alone."""
        try:
            self._send(task, run)
        except RalphError as error:
            self._say(f"task {task} cannot land: {error}")
            self._ended(task, f"not landed: {error}", 1)

    def _send(self, task: str, run: str) -> None:
        parcel = landing_item_of_run(self._project, run)
        if left := files_with_conflict_markers(self._users, parcel.commit, self._target.tip()):
            return self._ended(task, f"not landed: conflict markers are left in {', '.join(left)}", 1)
        if (offshoot := self._trees.of(task)) is not None:  # its agent may have ruined it: the work is in refs of ours
            update_worktree_branch(offshoot, parcel)
        for remark in parcel.remarks if task not in self._mended else ():  # what was merged there was no user's doing
            self._say(f"task {task}: {remark}")
        self._runs[task] = run
        self._dock.send(parcel)

    def _hear_dock(self) -> None:
        try:
            while (end := self._dock.next()) is not None:
                self._settled(end)
        except KeyboardInterrupt:
            self._not_landed("interrupted; ralph work --parallel, or ralph land, goes on with it", 130)
        except RalphError as error:
            self._not_landed(str(error), error.exit_code)

    def _not_landed(self, why: str, code: int) -> None:
        """Nothing that is on its way can land; what is under way elsewhere goes on, and nothing else begins."""
        self._say(f"nothing can land: {why}")
        over = {*self._ends, *self._turned, *self._lanes.open}
        for task in [task for task, run in self._runs.items() if task not in over and run not in self._landed]:
            self._ended(task, f"not landed: {why}", code)
        self._halted = True

    def _settled(self, end: LandingResult) -> None:
        task = end.item.task
        self._board.look(task)
        if isinstance(end, Landed):
            self._landed.add(end.item.run)
            self._ended(task, f"done, {end.item.proof}; landed on {end.target}", 0)
            self._say(f"task {task} landed on {end.target} as {end.commit[:12]}")
            if why := self._trees.clear(task, end.item.run):
                self._say(f"the work tree of task {task} stays, {why}")
            return None
        self._say(f"task {task} is turned away: {rejection_reason(end.why)}")
        mend = Rework.of(end, self._target.name)
        if task in self._mended or mend is None or self._conductor.signals or self._trees.of(task) is None:
            return self._ended(task, f"not landed: {rejection_reason(end.why)}; its work is on its branch", 1)
        self._turned[task] = mend

    def _landing(self, line: str) -> None:
        self._say(f"landing: {line}")

    def _more_json(self) -> dict[str, Json]:
        return {"target": self._target.name, "tip": self._target.tip()}

    def _put_summary(self, idle: bool) -> None:
        from ralphproof.display.output import print_lines

        super()._put_summary(idle)
        if self._landed:
            name = self._target.name
            print_lines(f"All that landed is on branch {name}; take it: git merge {name}")
