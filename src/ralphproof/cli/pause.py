"""`ralph pause`: pause a run before its next turn."""

from __future__ import annotations

import os
import time

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.cli.parser import Parser, find_named_run
from ralphproof.display.output import print_json, print_lines
from ralphproof.runs.control import request_pause
from ralphproof.runs.open_project import open_project, refuse_unrelated_run_in_turn
from ralphproof.store.ledger import PAUSE, SqliteLedger
from ralphproof.store.project import Project
from ralphproof.store.run_state import ENDED
from ralphproof.views.run_status import refuse_without_harness
from ralphproof.views.timeline import RecordTail

if TYPE_CHECKING:
    from argparse import Namespace


ABOUT = """Pause a run before its next turn.

A running turn and its checks finish first. The request is recorded, so it holds even if the run's harness dies. Your
changes during the pause count as yours: they are not the agent's work, and no commit of the run contains them. ralph
resume RUN continues. Exit codes: 0 paused or will be, 1 with --wait: it ended or was resumed instead, 2 the run is not
live."""
EXAMPLES = ("ralph pause", "ralph pause --wait", "ralph pause 20261115-21 --json")
POLL_S = 0.1


def build_parser() -> Parser:
    parser = Parser("pause", ABOUT, EXAMPLES)
    parser.add_argument("run", nargs="?", metavar="RUN", help="run id or unique prefix (default: the latest run)")
    parser.add_argument("--wait", action="store_true", help="wait until it is paused")
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    project = open_project(args.project_dir, os.environ)
    ledger = project.ledger(read_only=False)
    try:
        row = find_named_run(ledger, args.run, args, shown=True)
        refuse_unrelated_run_in_turn("pause", ledger, row)
        tail = RecordTail(ledger, row)
        run = tail.row.id
        already = request_pause(tail, ledger, project)
        if args.wait and not _wait_until_paused(tail, ledger, project):
            return _print_not_paused(run, args)
        _print_result(run, tail.state.user.paused, already, args)
        return 0
    finally:
        ledger.close()


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


def _print_result(run: str, paused: bool, already: bool, args: Namespace) -> None:
    if args.json:
        print_json("pause", {"run": run, "rests": paused, "already": already})
    elif paused:
        print_lines(f"run {run} is paused; continue it: ralph resume {run}")
    else:
        print_lines(f"run {run} will pause before its next turn; continue it: ralph resume {run}")


def _print_not_paused(run: str, args: Namespace) -> int:
    if args.json:
        print_json("pause", {"run": run, "rests": False, "already": False})
    else:
        print_lines(f"run {run} was not paused: it ended or was resumed; see: ralph status {run}")
    return 1
