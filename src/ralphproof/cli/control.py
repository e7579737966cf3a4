"""Steering a run from another terminal: `ralph pause`, `ralph say` and `ralph cancel`."""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace

from ralphproof.base.errors import Refused
from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.standard_streams import read_stdin_bytes
from ralphproof.base.value import Json
from ralphproof.cli.parser import Parser, find_named_run
from ralphproof.display import phrases
from ralphproof.display.output import print_json, print_lines, print_result
from ralphproof.engine.outcome import Completed, Outcome, outcome_json
from ralphproof.engine.records import RunEnded
from ralphproof.runs.control import (
    CANCEL_TIMEOUT_S,
    MAX_MESSAGE_BYTES,
    MESSAGE_TOO_LONG,
    Cancellation,
    leave_message,
    parse_message,
    recorded_outcome,
    refuse_final_run,
    request_pause,
)
from ralphproof.runs.open_project import open_project, refuse_in_turn, refuse_unrelated_run_in_turn
from ralphproof.store.ledger import LATEST, PAUSE, RunRow, SqliteLedger
from ralphproof.store.project import Project
from ralphproof.store.run_state import ENDED, RUNNING
from ralphproof.store.tasks import CANCELLED, TaskRow
from ralphproof.views.run_status import refuse_without_harness
from ralphproof.views.tasks import TaskView
from ralphproof.views.timeline import RecordTail

# ralph pause


PAUSE_ABOUT = """Pause a run before its next turn.

A running turn and its checks finish first. The request is recorded, so it holds even if the run's harness dies. Your
changes during the pause count as yours: they are not the agent's work, and no commit of the run contains them. ralph
resume RUN continues. Exit codes: 0 paused or will be, 1 with --wait: it ended or was resumed instead, 2 the run is not
live."""
PAUSE_EXAMPLES = ("ralph pause", "ralph pause --wait", "ralph pause 20261115-21 --json")
POLL_S = 0.1


def pause_parser() -> Parser:
    parser = Parser("pause", PAUSE_ABOUT, PAUSE_EXAMPLES)
    parser.add_run()
    parser.add("--wait", "wait until it is paused")
    return parser


def pause_main(argv: list[str]) -> int:
    args = pause_parser().parse(argv)
    project = open_project(args.project_dir, os.environ)
    with project.ledger(read_only=False) as ledger:
        row = find_named_run(ledger, args.run, args, shown=True)
        refuse_unrelated_run_in_turn("pause", ledger, row)
        tail = RecordTail(ledger, row)
        already = request_pause(tail, ledger, project)
        missed = args.wait and not _wait_until_paused(tail, ledger, project)
    paused = tail.state.user.paused and not missed
    if missed:
        line = f"run {row.id} was not paused: it ended or was resumed; see: ralph status {row.id}"
    else:
        when = "is paused" if paused else "will pause before its next turn"
        line = f"run {row.id} {when}; continue it: ralph resume {row.id}"
    print_result(args.json, "pause", {"run": row.id, "rests": paused, "already": already and not missed}, line)
    return 1 if missed else 0


def _wait_until_paused(tail: RecordTail, ledger: SqliteLedger, project: Project) -> bool:
    """Wait until a run is paused; False if it ended, or the pause was withdrawn."""
    while not tail.state.user.paused:
        state = tail.standing(project)
        if state == ENDED or ledger.requested_control(tail.row.id) != PAUSE:
            return False
        refuse_without_harness(project, tail.row, tail.state, state)
        time.sleep(POLL_S)
        tail.more()
    return True


# ralph say


SAY_ABOUT = """Add a message to the next prompt of a run; its agent reads it once.

The message is kept in the run's record, and the prompt marks it as yours. A running turn does not get it. A run that
waits or was cut off reads it when it is resumed. Agents and checks are refused: see docs/steering.md.
Exit codes: 0 kept, 2 the run is finished, the message is empty, or an agent sent it."""
SAY_EXAMPLES = (
    'ralph say latest "leave the public interface as it is"',
    "ralph say 20261115-21 - < remarks.md",
)


def say_parser() -> Parser:
    parser = Parser("say", SAY_ABOUT, SAY_EXAMPLES)
    parser.add("run", "run id, unique prefix, or latest", metavar="RUN")
    parser.add("text", "message; - is standard input", nargs="+", metavar="TEXT")
    return parser


def say_main(argv: list[str]) -> int:
    args = say_parser().parse(argv)
    project = open_project(args.project_dir, os.environ)
    with project.ledger(read_only=False) as ledger:
        row = find_named_run(ledger, args.run, args, shown=True)
        refuse_final_run(ledger, row)
        number, state, confirmation = leave_message(ledger, row, text_of(args.text), project)
    print_result(
        args.json, "say", {"run": row.id, "number": number, "state": state, "kept": state != RUNNING}, confirmation
    )
    return 0


def text_of(words: list[str]) -> str:
    """The message; refuses an empty or too long one."""
    return parse_message(
        read_stdin_bytes("-", MAX_MESSAGE_BYTES, MESSAGE_TOO_LONG)
        if words == ["-"]
        else " ".join(words).encode("utf-8", "surrogateescape")
    )


# ralph cancel


CANCEL_ABOUT = """End a run or a task from another terminal; also a run whose harness died.

The request is recorded first, so it holds even if no process can act on it yet. A live run then ends its agent or
check, saves, and reports its outcome; so do the runs that its agent started. A task is cancelled together with its
run.
Exit codes: 0 all of them have ended, 1 not all have ended in time."""
CANCEL_EXAMPLES = ("ralph cancel", "ralph cancel 20261115-21", "ralph cancel TASK-001", "ralph cancel --no-wait --json")


def cancel_parser() -> Parser:
    parser = Parser("cancel", CANCEL_ABOUT, CANCEL_EXAMPLES)
    about = "run id or unique prefix, or task id (default: the latest run)"
    parser.add_run(about)
    parser.add("--no-wait", "do not wait for the end")
    return parser


def cancel_main(argv: list[str]) -> int:
    args = cancel_parser().parse(argv)
    project = open_project(args.project_dir, os.environ)
    with project.ledger(read_only=False) as ledger:
        task = find_task(ledger, args.run) if args.run is not None and ledger.has_tasks() else None
        if task:
            return cancel_task(ledger, project, task, args)
        row = find_named_run(ledger, args.run, args, shown=True)
        refuse_unrelated_run_in_turn("cancel", ledger, row)
        return cancel_run(ledger, project, row, args)


def cancel_run(ledger: SqliteLedger, project: Project, row: RunRow, args: Namespace, task: str = "") -> int:
    """End a run and its child runs, print how they ended; the exit code. `task` is the task that was named."""
    cancellation = Cancellation(ledger, project, row)
    cancellation.end(wait=not args.no_wait)
    for remark in cancellation.remarks:
        print(collapse_lines(sanitize(project.mask(f"note: {remark}"))), file=sys.stderr)
    extra: dict[str, Json] = {"task": task} if task else {}
    if not ledger.run_end(row.id):
        return _print_requested(row.id, args, extra)
    _print_cancelled(recorded_outcome(ledger, row.id), cancellation, args.json, extra)
    return 1 if cancellation.unfinished() and not args.no_wait else 0


def _print_requested(run: str, args: Namespace, extra: dict[str, Json]) -> int:
    late = f"; it has not ended within {phrases.format_duration(CANCEL_TIMEOUT_S)}, see ralph status"
    line = f"run {run} is asked to end{'' if args.no_wait else late}"
    print_result(args.json, "cancel", {"run": run, **extra, "ended": False, "outcome": None}, line)
    return 0 if args.no_wait else 1


def _print_cancelled(outcome: Outcome, cancellation: Cancellation, for_programs: bool, extra: dict[str, Json]) -> None:
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
    print_result(
        for_programs,
        "cancel",
        {"task": task, "run": None, "status": status, "alreadyEnded": already_ended},
        f"task {task} was {status} already" if already_ended else f"task {task} is {status}",
    )
    return 0
