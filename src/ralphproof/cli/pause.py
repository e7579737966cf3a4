"""`ralph pause`: let a run rest before its next turn, and edit in peace."""

from __future__ import annotations

import os
import time

from ralphproof.cli.in_turn import refuse_foreign_in_turn
from ralphproof.cli.named_run import named_run
from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser
from ralphproof.errors import Refused
from ralphproof.ledgers.runs import CANCEL, PAUSE
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.onward import refuse_unheard
from ralphproof.views.project import Project
from ralphproof.views.standing import ENDED
from ralphproof.views.trail import Trail

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.ledgers.sqlite import Sqlite

ABOUT = """let a run rest before its next turn, and edit in peace.

A turn that runs, and its checks, are finished first. The wish is written down, so it holds even if the run's harness
dies. What you change while it rests is yours: it is no work of the agent's, and no commit of the run holds it.
ralph resume RUN goes on. Exit codes: 0 it rests or will, 1 with --wait: it ended or was resumed instead, 2 there is
nobody who could rest."""
EXAMPLES = ("ralph pause", "ralph pause --wait", "ralph pause 20261115-21 --json")
LOOK_S = 0.1


def parser() -> Parser:
    made = Parser("pause", ABOUT, EXAMPLES)
    made.add_argument("run", nargs="?", metavar="RUN", help="an id or its beginning (default: the latest run)")
    made.add_argument("--wait", action="store_true", help="until it rests")
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    project = Project.at(args.project_dir, os.environ)
    ledger = project.ledger(read_only=False)
    try:
        row = named_run(ledger, args.run, args, shown=True)
        refuse_foreign_in_turn("pause", ledger, row)
        trail = Trail(ledger, row)
        run = trail.row.id
        already = ask_to_rest(trail, ledger, project)
        if args.wait and not _rests(trail, ledger, project):
            return _told_not(run, args)
        _tell(run, trail.state.paused, already, args)
        return 0
    finally:
        ledger.close()


def ask_to_rest(trail: Trail, ledger: Sqlite, project: Project) -> bool:
    """Want a run to rest; whether somebody did already. Raises Refused where there is nobody who could."""
    run = trail.row.id
    refuse_unheard(project, trail.row, trail.state, trail.standing(project))
    if ledger.wish(run) == CANCEL:
        raise Refused(f"run {run} is asked to end; ralph status {run} says whether it has")
    already = ledger.wish(run) == PAUSE
    if not already:
        ledger.ask(run, PAUSE)
    return already


def _rests(trail: Trail, ledger: Sqlite, project: Project) -> bool:
    """Wait until a run rests; False where it ended, or somebody wants something else of it."""
    while not trail.state.paused:
        where = trail.standing(project)
        if where == ENDED or ledger.wish(trail.row.id) != PAUSE:
            return False
        refuse_unheard(project, trail.row, trail.state, where)
        time.sleep(LOOK_S)
        trail.more()
    return True


def _tell(run: str, rests: bool, already: bool, args: Namespace) -> None:
    if args.json:
        put_json("pause", {"run": run, "rests": rests, "already": already})
    elif rests:
        put(f"run {run} rests; ralph resume {run} goes on")
    else:
        put(f"run {run} will rest before its next turn; ralph resume {run} goes on")


def _told_not(run: str, args: Namespace) -> int:
    if args.json:
        put_json("pause", {"run": run, "rests": False, "already": False})
    else:
        put(f"run {run} did not rest: it ended, or somebody wants it to go on; ralph status {run} says more")
    return 1
