"""`ralph resume`: let a run go on: one that rests, or one that was cut off, stopped, or waits for somebody."""

from __future__ import annotations

import os

from ralphproof.cli import run
from ralphproof.cli.in_turn import refuse_foreign_in_turn
from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser
from ralphproof.errors import Refused
from ralphproof.ledgers.runs import PAUSE, RESUME
from ralphproof.state import state_of
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.project import Project
from ralphproof.views.standing import RUNNING, row_of, standing

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.ledgers.runs import RunRow
    from ralphproof.ledgers.sqlite import Sqlite

ABOUT = """let a run go on: one that rests, or one that was cut off, stopped, or waits for somebody.

A run whose harness lives is un-paused: it goes on where it is, and takes no flags. Any other one is taken up here, as
ralph run --resume RUN does, with all flags of ralph run: -m 30 is its new total of iterations. What you changed while
nobody was at work is yours: no commit of the run holds it. Exit codes: those of ralph run; 0 for a run that rested."""
EXAMPLES = ("ralph resume", "ralph resume 20261115-21", "ralph resume latest -m 30 --max-cost-usd 20")
# Flags of `ralph run` that have no meaning here, and what they are then.
UNSAID = {"words": None, "prompt": None, "prompt_file": None, "resume": None, "begin": None, "explain": False}
ABSENT = (("-f", run.NO_NEW_PROMPT), ("--prompt-file", run.NO_NEW_PROMPT))


def parser() -> Parser:
    made = Parser("resume", ABOUT, EXAMPLES, ABSENT)
    made.add_argument("run", nargs="?", metavar="RUN", help="an id or its beginning (default: the latest run)")
    known = made.flags()
    for action in run.parser()._actions:
        if action.option_strings and action.dest not in UNSAID and action.option_strings[0] not in known:
            made._add_action(action)
    made.set_defaults(**UNSAID)
    return made


def main(argv: list[str]) -> int:
    made = parser()
    args = run.parsed(argv, made)
    project = Project.at(args.project_dir, os.environ)
    row = _live(project, args.run)
    if row is None:
        args.resume = args.run or run.LATEST
        return run.carry_out(args, run.wish_of)
    _refuse_flags(args, made.parse([]), row.id)
    return _unpaused(project, row, args)


def _refuse_flags(args: Namespace, unsaid: Namespace, run: str) -> None:
    """Raise Refused where flags are given to a run that is at work: they would reach nobody."""
    everywhere = {"run", *vars(Parser("", "", ()).parse([]))}
    for name, given in vars(args).items():
        if name not in everywhere and given != getattr(unsaid, name):
            raise Refused(f"run {run} is at work, and --{name.replace('_', '-')} cannot reach it; leave it out")


def _live(project: Project, name: str | None) -> RunRow | None:
    """The run that is meant, where its harness lives."""
    ledger = project.ledger()
    try:
        if not ledger.runs(1):
            return None
        row = row_of(ledger, name)
        refuse_foreign_in_turn("resume", ledger, row)
        return row if standing(ledger, row, project) == RUNNING else None
    finally:
        ledger.close()


def _unpaused(project: Project, row: RunRow, args: Namespace) -> int:
    ledger = project.ledger(read_only=False)
    try:
        asked, rested, told = let_go_on(ledger, row)
    finally:
        ledger.close()
    if args.json:
        put_json("resume", {"run": row.id, "rested": rested and asked, "wasAsked": asked})
    else:
        put(told)
    return 0


def let_go_on(ledger: Sqlite, row: RunRow) -> tuple[bool, bool, str]:
    """Un-pause a run whose harness lives: whether it was asked to rest, whether it rested, and what to say of it."""
    asked, rested = ledger.wish(row.id) == PAUSE, state_of(ledger.records(row.id)).paused
    if not asked:
        return asked, rested, f"run {row.id} was not paused; it is at work, ralph attach {row.id} looks on"
    ledger.ask(row.id, RESUME)
    return asked, rested, f"run {row.id} goes on" + ("" if rested else "; it had not rested yet")
