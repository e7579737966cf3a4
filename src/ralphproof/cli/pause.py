"""`ralph pause`: pause a run before its next turn."""

from __future__ import annotations

import os
import time

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.cli.parser import Parser
from ralphproof.display.output import print_json, print_lines
from ralphproof.runs.agent_restrictions import refuse_unrelated_run_in_turn
from ralphproof.runs.control import request_pause
from ralphproof.runs.open_project import open_project
from ralphproof.store.project import Project
from ralphproof.store.run_state import ENDED
from ralphproof.store.runs import PAUSE
from ralphproof.views.run_list import find_named_run
from ralphproof.views.run_records import RecordTail
from ralphproof.views.run_status import refuse_without_harness

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.store.sqlite_ledger import SqliteLedger


# `ralph pause`: let a run rest before its next turn, and edit in peace.


ABOUT = """let a run rest before its next turn, and edit in peace.

A turn that runs, and its checks, are finished first. The wish is written down, so it holds even if the run's harness
dies. What you change while it rests is yours: it is no work of the agent's, and no commit of the run holds it.
ralph resume RUN goes on. Exit codes: 0 it rests or will, 1 with --wait: it ended or was resumed instead, 2 there is
nobody who could rest."""
EXAMPLES = ("ralph pause", "ralph pause --wait", "ralph pause 20261115-21 --json")
POLL_S = 0.1


def build_parser() -> Parser:
    parser = Parser("pause", ABOUT, EXAMPLES)
    parser.add_argument("run", nargs="?", metavar="RUN", help="an id or its beginning (default: the latest run)")
    parser.add_argument("--wait", action="store_true", help="until it rests")
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    project = open_project(args.project_dir, os.environ)
    ledger = project.ledger(read_only=False)
    try:
        row = find_named_run(ledger, args.run, args, shown=True)
        refuse_unrelated_run_in_turn("pause", ledger, row)
        trail = RecordTail(ledger, row)
        run = trail.row.id
        already = request_pause(trail, ledger, project)
        if args.wait and not _wait_until_paused(trail, ledger, project):
            return _print_not_paused(run, args)
        _print_result(run, trail.state.paused, already, args)
        return 0
    finally:
        ledger.close()


def _wait_until_paused(trail: RecordTail, ledger: SqliteLedger, project: Project) -> bool:
    """Wait until a run rests; False where it ended, or somebody wants something else of it."""
    while not trail.state.paused:
        where = trail.standing(project)
        if where == ENDED or ledger.wish(trail.row.id) != PAUSE:
            return False
        refuse_without_harness(project, trail.row, trail.state, where)
        time.sleep(POLL_S)
        trail.more()
    return True


def _print_result(run: str, rests: bool, already: bool, args: Namespace) -> None:
    if args.json:
        print_json("pause", {"run": run, "rests": rests, "already": already})
    elif rests:
        print_lines(f"run {run} rests; ralph resume {run} goes on")
    else:
        print_lines(f"run {run} will rest before its next turn; ralph resume {run} goes on")


def _print_not_paused(run: str, args: Namespace) -> int:
    if args.json:
        print_json("pause", {"run": run, "rests": False, "already": False})
    else:
        print_lines(f"run {run} did not rest: it ended, or somebody wants it to go on; ralph status {run} says more")
    return 1
