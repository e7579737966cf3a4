"""`ralph cancel`: end a run or task from another terminal."""

from __future__ import annotations

import os
import sys

from ralphproof.base.errors import Refused
from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.value import TYPE_CHECKING, Json
from ralphproof.cli.parser import Parser, find_named_run
from ralphproof.display import phrases
from ralphproof.display.output import print_json, print_lines
from ralphproof.engine.outcome import Completed, Outcome, outcome_json
from ralphproof.engine.records import RunEnded
from ralphproof.runs.control import CANCEL_TIMEOUT_S, Cancellation, recorded_outcome
from ralphproof.runs.open_project import open_project, refuse_in_turn, refuse_unrelated_run_in_turn
from ralphproof.store.ledger import LATEST, RunRow, SqliteLedger
from ralphproof.store.project import Project
from ralphproof.store.tasks import CANCELLED, TaskRow
from ralphproof.views.tasks import TaskView

if TYPE_CHECKING:
    from argparse import Namespace


ABOUT = """End a run or a task from another terminal; also a run whose harness died.

The request is recorded first, so it holds even if no process can act on it yet. A live run then ends its agent or
check, saves, and reports its outcome; so do the runs that its agent started. A task is cancelled together with its
run.
Exit codes: 0 all of them have ended, 1 not all have ended in time."""
EXAMPLES = ("ralph cancel", "ralph cancel 20261115-21", "ralph cancel TASK-001", "ralph cancel --no-wait --json")


def build_parser() -> Parser:
    parser = Parser("cancel", ABOUT, EXAMPLES)
    about = "run id or unique prefix, or task id (default: the latest run)"
    parser.add_argument("run", nargs="?", metavar="RUN", help=about)
    parser.add_argument("--no-wait", action="store_true", help="do not wait for the end")
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    project = open_project(args.project_dir, os.environ)
    ledger = project.ledger(read_only=False)
    try:
        task = find_task(ledger, args.run) if args.run is not None and ledger.has_tasks() else None
        if task:
            return cancel_task(ledger, project, task, args)
        row = find_named_run(ledger, args.run, args, shown=True)
        refuse_unrelated_run_in_turn("cancel", ledger, row)
        return cancel_run(ledger, project, row, args)
    finally:
        ledger.close()


def cancel_run(ledger: SqliteLedger, project: Project, row: RunRow, args: Namespace, task: str = "") -> int:
    """End a run and its child runs, print how they ended; the exit code. `task` is the task that was named."""
    cancellation = Cancellation(ledger, project, row)
    cancellation.end(wait=not args.no_wait)
    for remark in cancellation.remarks:
        print(collapse_lines(sanitize(project.mask(f"note: {remark}"))), file=sys.stderr)
    extra: dict[str, Json] = {"task": task} if task else {}
    if not ledger.run_end(row.id):
        return _print_requested(row.id, args, extra)
    _print_result(recorded_outcome(ledger, row.id), cancellation, args.json, extra)
    return 1 if cancellation.unfinished() and not args.no_wait else 0


def _print_requested(run: str, args: Namespace, extra: dict[str, Json]) -> int:
    waited = not args.no_wait
    if args.json:
        print_json("cancel", {"run": run, **extra, "ended": False, "outcome": None})
    else:
        late = f"; it has not ended within {phrases.format_duration(CANCEL_TIMEOUT_S)}, see ralph status"
        print_lines(f"run {run} is asked to end" + (late if waited else ""))
    return 1 if waited else 0


def _print_result(outcome: Outcome, cancellation: Cancellation, for_programs: bool, extra: dict[str, Json]) -> None:
    run, already_ended, left = cancellation.run, cancellation.had_ended, [row.id for row in cancellation.unfinished()]
    descendants = [name for name in cancellation.requested if name != run]
    if for_programs:
        children: list[Json] = [{"run": name, "ended": name not in left} for name in descendants]
        facts: dict[str, Json] = {"ended": True, "alreadyEnded": already_ended, "outcome": outcome_json(outcome, run)}
        print_json("cancel", {"run": run, **extra, **facts, "children": children})
        return
    print_lines(
        f"run {run} had ended already" if already_ended else f"run {run} is over", *phrases.describe_outcome(outcome)
    )
    if ended := [name for name in descendants if name not in left]:
        print_lines(f"its child runs that ended too: {', '.join(ended)}")
    if left:
        print_lines(f"its child runs that have not ended yet: {', '.join(left)}")


def find_task(ledger: SqliteLedger, name: str) -> TaskRow | None:
    """The task of this name; refuses a name that also matches a run."""
    task = ledger.tasks.row(name)
    runs = [row.id for row in ledger.runs() if row.id.startswith(name)] if name != LATEST else [LATEST]
    if task is not None and runs:
        hint = f"write the full run id ({runs[0]}), or: ralph task edit {name} --status cancelled"
        raise Refused(f"{name} is a task, and also matches run {runs[0]}; {hint}")
    return task


def cancel_task(ledger: SqliteLedger, project: Project, task: TaskRow, args: Namespace) -> int:
    """End the run that works on a task, if any, and mark the task as cancelled; the exit code."""
    refuse_in_turn("cancel TASK")
    view = TaskView.of(ledger, task, project)
    if view.over:
        return _report_task(task.id, view.status, args.json, already_ended=True)
    run = _find_open_run(ledger, task.id)
    if run is None:
        ledger.tasks.change(task.id, {"status": CANCELLED})
        return _report_task(task.id, CANCELLED, args.json, already_ended=False)
    code = cancel_run(ledger, project, run, args, task.id)
    end = ledger.run_end(run.id)
    if isinstance(end, RunEnded) and not isinstance(end.outcome, Completed):
        ledger.tasks.change(task.id, {"status": CANCELLED})
        if not args.json:
            print_lines(f"task {task.id} is cancelled")
    return code


def _find_open_run(ledger: SqliteLedger, task: str) -> RunRow | None:
    """The last run of a task that has no recorded end."""
    rows = (ledger.row(run) for run in reversed(ledger.tasks.attempts(task)))
    return next((row for row in rows if row is not None and ledger.run_end(row.id) is None), None)


def _report_task(task: str, status: str, for_programs: bool, already_ended: bool) -> int:
    if for_programs:
        print_json("cancel", {"task": task, "run": None, "status": status, "alreadyEnded": already_ended})
    else:
        print_lines(f"task {task} was {status} already" if already_ended else f"task {task} is {status}")
    return 0
