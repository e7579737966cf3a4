"""Cancelling a task: the run that works on it, and the word that says so."""

from __future__ import annotations

from ralphproof.cli.cancel import cancel_run
from ralphproof.cli.in_turn import refuse_in_turn
from ralphproof.cli.out import put, put_json
from ralphproof.errors import Refused
from ralphproof.ledgers.runs import LATEST
from ralphproof.ledgers.tasks import CANCELLED
from ralphproof.record import RunEnded
from ralphproof.value import TYPE_CHECKING
from ralphproof.verdict import Completed
from ralphproof.views.task_view import TaskView

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.ledgers.runs import RunRow
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.ledgers.tasks import TaskRow
    from ralphproof.views.project import Project


def task_meant(ledger: Sqlite, name: str) -> TaskRow | None:
    """The task of this name; raises Refused where a run can be meant as well."""
    task = ledger.tasks.row(name)
    runs = [row.id for row in ledger.runs() if row.id.startswith(name)] if name != LATEST else [LATEST]
    if task is not None and runs:
        whole = f"name the run whole ({runs[0]}), or say: ralph task edit {name} --status cancelled"
        raise Refused(f"{name} is a task, and run {runs[0]} is called so too; {whole}")
    return task


def cancel_task(ledger: Sqlite, project: Project, task: TaskRow, args: Namespace) -> int:
    """End the run that works on a task, where there is one, and mark the task; the exit code."""
    refuse_in_turn("cancel TASK")
    view = TaskView.of(ledger, task, project)
    if view.over:
        return _told(task.id, view.status, args.json, before=True)
    run = _unended(ledger, task.id)
    if run is None:
        ledger.tasks.change(task.id, {"status": CANCELLED})
        return _told(task.id, CANCELLED, args.json, before=False)
    code = cancel_run(ledger, project, run, args, task.id)
    end = ledger.end_of(run.id)
    if isinstance(end, RunEnded) and not isinstance(end.outcome, Completed):
        ledger.tasks.change(task.id, {"status": CANCELLED})
        if not args.json:
            put(f"task {task.id} is cancelled")
    return code


def _unended(ledger: Sqlite, task: str) -> RunRow | None:
    """The last run of a task whose record does not say how it ended."""
    rows = (ledger.row(run) for run in reversed(ledger.tasks.attempts(task)))
    return next((row for row in rows if row is not None and ledger.end_of(row.id) is None), None)


def _told(task: str, status: str, for_programs: bool, before: bool) -> int:
    if for_programs:
        put_json("cancel", {"task": task, "run": None, "status": status, "alreadyEnded": before})
    else:
        put(f"task {task} was {status} already" if before else f"task {task} is {status}")
    return 0
