"""Scheduler of `ralph work`: one task after the other, each a run of its own."""

from __future__ import annotations

import os
import sys

from ralphproof.base.errors import Refused, TaskWrong
from ralphproof.base.text import did_you_mean
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.limits import DAILY_COST_LIMIT, DISK_FULL, SERVICE_UNAVAILABLE, WORKSPACE_GONE
from ralphproof.engine.outcome import Aborted, Completed, Failed
from ralphproof.engine.plan import AllDone, Blocked
from ralphproof.landing.task_queue import TaskQueue
from ralphproof.runs.observers import execute_observed
from ralphproof.store.tasks import DONE, FAILED, WAITING, WORKING
from ralphproof.views.tasks import TaskView

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from ralphproof.base.value import Json
    from ralphproof.engine.outcome import Outcome
    from ralphproof.process.client import Keeper
    from ralphproof.runs.request import RunRequest
    from ralphproof.runs.spec import RunSpec
    from ralphproof.runs.target import RunTarget


# One call of `ralph work`: task after task, each a run of its own, and how all of it ended.


# Ends of one run that would be those of the next one too.
STOPS_ALL_TASKS = (DAILY_COST_LIMIT, DISK_FULL, SERVICE_UNAVAILABLE, WORKSPACE_GONE)


class SequentialScheduler:
    """Work on tasks until none is left that can be worked on; without a keeper, only say what would be done."""

    def __init__(self, args: Namespace, keeper: Keeper | None, wish_of: Callable[[Namespace, str], RunRequest]) -> None:
        from ralphproof.runs.open_project import open_project

        self._args, self._keeper, self._wish_of, self._dry = args, keeper, wish_of, keeper is None
        self._project = open_project(args.project_dir, os.environ)
        self._board = TaskQueue(self._project, args.tasks)
        self._files: tuple[tuple[str, str], ...] = ()  # the settings of the start, by their digests
        self._ends: dict[str, str] = {}  # of each task, in words
        self._stages: dict[str, list[Json]] = {}  # of each that would be worked on
        self._codes: list[int] = []

    def work(self) -> int:
        """Take up what can be taken up; the exit code."""
        self._refuse_unknown()
        while not isinstance(task := self._board.next(self._ends), AllDone | Blocked):
            if not self._one(self._board.views[task.id]):
                break
        else:
            self._tell_blocked(task)
        idle = not self._ends
        self._tell_left()
        self._tell_new()
        return self._summed_up(idle)

    def _refuse_unknown(self) -> None:
        views = self._board.views
        if not views:
            raise Refused("there is no task yet; write one: ralph task create, or ralph task import FILE")
        for name in self._args.tasks:
            if name not in views:
                raise Refused(f"there is no task {name}{did_you_mean(name, views)} (see ralph task list)")
            if views[name].status == WORKING and not views[name].goes_on:
                raise Refused(
                    f"task {name} is being worked on by run {views[name].run}; ralph attach {views[name].run}"
                )

    def _one(self, view: TaskView) -> bool:
        """Work on one task; whether the next one may follow."""
        onward = f", goes on with run {view.run}" if view.goes_on else ""
        self._say(f"Task {view.id}{onward}: {view.title}")
        try:
            spec, target = self._spec(view)
            self._refuse_other_settings(spec)
            if self._keeper is None:
                return self._show(spec, view)
            outcome = execute_observed(spec, self._keeper, self._args, target)
        except TaskWrong as error:
            self._ended(view.id, f"not valid: {error}", error.exit_code)
            self._say(f"task {view.id} is left out: {error}")
            return True
        except Refused as error:  # it would refuse the next one too
            if not self._ends:
                raise
            self._ended(view.id, f"not begun: {error}", error.exit_code)
            self._say(str(error))
            return False
        self._ended(view.id, outcome_text(outcome), outcome.exit_code)
        self._board.look(view.id)
        return outcome.exit_code != 130 and not stops_all_tasks(outcome)

    def _refuse_other_settings(self, spec: RunSpec) -> None:
        """Raise Refused where the settings are not those of the start: what checks run may have written them."""
        files = spec.loaded.files
        self._files = self._files or files
        if other := sorted(os.path.basename(path) for path, digest in files if dict(self._files).get(path) != digest):
            raise Refused(f"{', '.join(other)} changed while tasks were worked on; look at it, then go on: ralph work")

    def _spec(self, view: TaskView) -> tuple[RunSpec, RunTarget]:
        from ralphproof.runs.resume import load_resumed_request
        from ralphproof.runs.spec import prepare_spec
        from ralphproof.runs.target import FRESH_RUN, RunTarget

        request = self._wish_of(self._args, view.id)
        if not view.goes_on:
            return prepare_spec(request), FRESH_RUN
        try:
            row, kept = load_resumed_request(self._project, view.run, request)
        except Refused as error:  # its run is in another directory, say; the other tasks are not
            raise TaskWrong(str(error)) from error
        _refuse_other_stages(view, request, kept)
        return prepare_spec(kept), RunTarget(row=row)

    def _show(self, spec: RunSpec, view: TaskView) -> bool:
        from ralphproof.runs.dry_run import print_stages, stages_json

        self._stages[view.id] = stages_json(spec)
        if not self._args.json:
            print_stages(spec)
        self._ended(view.id, "would be worked on", 0)
        self._board.suppose_done(view.id)
        return True

    def _ended(self, task: str, how: str, code: int) -> None:
        self._ends[task] = how
        self._codes.append(code)

    def _tell_blocked(self, left: AllDone | Blocked) -> None:
        if isinstance(left, Blocked):
            self._codes.append(1)
            self._ends |= dict.fromkeys(left.tasks, "BLOCKED")
            self._say(f"nothing more can be worked on: {left.why}")

    def _tell_left(self) -> None:
        """Name what had no turn and is not done. A dry run has nothing to do with it, unless there is nothing else."""
        if self._stages:
            return
        for task in self._board.wanted:
            if task not in self._ends and (left := self._left(self._board.views[task])):
                self._ended(task, *left)

    def _left(self, view: TaskView) -> tuple[str, int] | None:
        """Why a task had no turn, and the exit code for it; None where it needs none."""
        if run := self._board.changed.get(view.id):
            self._say(
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

    def _tell_new(self) -> None:
        if new := self._board.new:
            self._say(f"made meanwhile, and left for the next ralph work: {', '.join(new)}")

    def _summed_up(self, idle: bool) -> int:
        """Say how all of it ended. A signal beats a fault, a fault a stop, a stop a wait."""
        code = next((code for code in (130, 3, 2, 1, 4) if code in self._codes), 0)
        if self._args.json:
            self._put_json(code)
        elif not self._args.quiet:
            self._put_summary(idle)
        return code

    def _put_json(self, code: int) -> None:
        from ralphproof.display.output import print_json

        if not self._dry:
            tasks: list[Json] = [{"task": task, "end": how} for task, how in self._ends.items()]
            print_json("work", {"tasks": tasks, "new": [*self._board.new], **self._more_json(), "exitCode": code})
            return
        titles = {task: self._board.views[task].title for task in self._ends}
        shown: list[Json] = [
            {"task": task, "title": titles[task], "stages": self._stages.get(task, []), "end": how}
            for task, how in self._ends.items()
        ]
        print_json("work", {"dryRun": True, "tasks": shown, "exitCode": code})

    def _more_json(self) -> dict[str, Json]:
        """What else programs are told."""
        return {}

    def _put_summary(self, idle: bool) -> None:
        from ralphproof.display.output import print_lines

        if idle:
            done = all(self._board.views[task].status == DONE for task in self._board.wanted)
            print_lines(
                "nothing to do: every task is done" if done else "nothing to do: no task is open (see ralph task list)"
            )
        print_lines(*(f"{task}  {how}" for task, how in self._ends.items()))

    def _say(self, line: str) -> None:
        from ralphproof.base.escaping import collapse_lines, sanitize

        if not self._args.quiet:
            print(collapse_lines(sanitize(self._project.mask(line))), file=sys.stderr)


def _refuse_other_stages(view: TaskView, request: RunRequest, kept: RunRequest) -> None:
    """Raise TaskWrong where a run that goes on was begun with other stages than those that are wanted now."""
    if not request.skip_stages or set(request.skip_stages) == set(kept.skip_stages):
        return
    begun = f"without {', '.join(kept.skip_stages)}" if kept.skip_stages else "with every stage"
    anew = " ".join(f"--skip {stage}" for stage in request.skip_stages)
    raise TaskWrong(
        f"run {view.run} was begun {begun}, and goes on so: leave --skip away, "
        f"or begin anew: ralph cancel {view.id}, then ralph work {view.id} {anew}"
    )


def stops_all_tasks(outcome: Outcome) -> bool:
    """Whether the run of another task would end so too. A check that cannot be run may be the one task's own."""
    if isinstance(outcome, Failed):
        return not outcome.check
    return isinstance(outcome, Aborted) and outcome.reason in STOPS_ALL_TASKS


def outcome_text(outcome: Outcome) -> str:
    """How the run of a task ended."""
    match outcome:
        case Completed():
            return f"done, {outcome.proof}"
        case Aborted():
            return f"{outcome.reason}: {outcome.breach.message}"
        case _:
            return f"ERROR: {outcome.error}"
