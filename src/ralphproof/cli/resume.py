"""`ralph resume`: let a run go on that is paused, was cut off, or waits."""

from __future__ import annotations

import os

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.cli import run
from ralphproof.cli.parser import Parser
from ralphproof.display.output import print_json, print_lines
from ralphproof.runs.agent_restrictions import refuse_unrelated_run_in_turn
from ralphproof.runs.control import unpause_run
from ralphproof.runs.open_project import open_project
from ralphproof.runs.request_flags import LATEST_RUN
from ralphproof.store.project import Project
from ralphproof.store.run_state import RUNNING, find_run, run_state

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.store.runs import RunRow


ABOUT = """let a run go on: one that rests, or one that was cut off, stopped, or waits for somebody.

A run whose harness lives is un-paused: it goes on where it is, and takes no flags. Any other one is taken up here, as
ralph run --resume RUN does, with all flags of ralph run: -m 30 is its new total of iterations. What you changed while
nobody was at work is yours: no commit of the run holds it. Exit codes: those of ralph run; 0 for a run that rested."""
EXAMPLES = ("ralph resume", "ralph resume 20261115-21", "ralph resume latest -m 30 --max-cost-usd 20")
# Flags of `ralph run` that have no meaning here, and what they are then.
UNSET_FLAGS = {"words": None, "prompt": None, "prompt_file": None, "resume": None, "begin": None, "explain": False}
UNAVAILABLE_FLAGS = (("-f", run.NO_NEW_PROMPT), ("--prompt-file", run.NO_NEW_PROMPT))


def build_parser() -> Parser:
    parser = Parser("resume", ABOUT, EXAMPLES, UNAVAILABLE_FLAGS)
    parser.add_argument("run", nargs="?", metavar="RUN", help="run id or unique prefix (default: the latest run)")
    known = parser.flags()
    for action in run.build_parser()._actions:
        if action.option_strings and action.dest not in UNSET_FLAGS and action.option_strings[0] not in known:
            parser._add_action(action)
    parser.set_defaults(**UNSET_FLAGS)
    return parser


def main(argv: list[str]) -> int:
    made = build_parser()
    args = run.parse_with_prompt(argv, made)
    project = open_project(args.project_dir, os.environ)
    row = _find_live_run(project, args.run)
    if row is None:
        args.resume = args.run or LATEST_RUN
        return run.run_from_flags(args, run.request_from_flags)
    _refuse_flags(args, made.parse([]), row.id)
    return _unpause(project, row, args)


def _refuse_flags(args: Namespace, unsaid: Namespace, run: str) -> None:
    """Raise Refused where flags are given to a run that is at work: they would reach nobody."""
    everywhere = {"run", *vars(Parser("", "", ()).parse([]))}
    for name, given in vars(args).items():
        if name not in everywhere and given != getattr(unsaid, name):
            raise Refused(f"run {run} is at work, and --{name.replace('_', '-')} cannot reach it; leave it out")


def _find_live_run(project: Project, name: str | None) -> RunRow | None:
    """The run that is meant, where its harness lives."""
    ledger = project.ledger()
    try:
        if not ledger.runs(1):
            return None
        row = find_run(ledger, name)
        refuse_unrelated_run_in_turn("resume", ledger, row)
        return row if run_state(ledger, row, project) == RUNNING else None
    finally:
        ledger.close()


def _unpause(project: Project, row: RunRow, args: Namespace) -> int:
    ledger = project.ledger(read_only=False)
    try:
        asked, rested, told = unpause_run(ledger, row)
    finally:
        ledger.close()
    if args.json:
        print_json("resume", {"run": row.id, "rested": rested and asked, "wasAsked": asked})
    else:
        print_lines(told)
    return 0
