"""Scheduler of `ralph work`: one task after the other, each a run of its own."""

from __future__ import annotations

import os
from collections.abc import Callable

from ralphproof.base.errors import Refused, TaskWrong
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.outcome import Outcome
from ralphproof.engine.plan import AllDone, Blocked
from ralphproof.landing.task_queue import (
    TaskQueue,
    WorkReport,
    WorkResult,
    refuse_unknown_tasks,
    resume_task,
    stops_all_tasks,
)
from ralphproof.runs.dry_run import stages_json
from ralphproof.runs.request import FRESH_RUN, RunTarget
from ralphproof.runs.spec import RunSpec, prepare_spec
from ralphproof.store.project import Project
from ralphproof.views.tasks import TaskView

Execute = Callable[[RunSpec, RunTarget], Outcome]

if TYPE_CHECKING:
    from ralphproof.landing.task_queue import BuildRequest, Notify


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
