"""`ralph resume`: continue a run that is paused, was cut off, or waits."""

from __future__ import annotations

import os

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.cli import run
from ralphproof.cli.parser import Parser
from ralphproof.display.output import print_json, print_lines
from ralphproof.runs.control import unpause_run
from ralphproof.runs.open_project import open_project, refuse_unrelated_run_in_turn
from ralphproof.runs.request import LATEST_RUN
from ralphproof.store.ledger import RunRow
from ralphproof.store.project import Project
from ralphproof.store.run_state import RUNNING, find_run, run_state

if TYPE_CHECKING:
    from argparse import Namespace


ABOUT = """Continue a run that is paused, was cut off, was stopped, or waits for a person.

A run whose harness lives is un-paused and takes no flags. Any other run is continued here, as with ralph run --resume
RUN, with all flags of ralph run: -m 30 is its new total of iterations. Your changes made while no agent worked count
as yours: no commit of the run contains them. Exit codes: those of ralph run; 0 for a run that was paused."""
EXAMPLES = ("ralph resume", "ralph resume 20261115-21", "ralph resume latest -m 30 --max-cost-usd 20")
# Values of the `ralph run` flags that do not exist here.
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
    parser = build_parser()
    args = run.parse_with_prompt(argv, parser)
    project = open_project(args.project_dir, os.environ)
    row = _find_live_run(project, args.run)
    if row is None:
        args.resume = args.run or LATEST_RUN
        return run.run_from_flags(args, run.request_from_flags)
    _refuse_flags(args, parser.parse([]), row.id)
    return _unpause(project, row, args)


def _refuse_flags(args: Namespace, defaults: Namespace, run: str) -> None:
    """Refuse flags for a live run: they could not take effect."""
    common = {"run", *vars(Parser("", "", ()).parse([]))}
    for name, flag in vars(args).items():
        if name not in common and flag != getattr(defaults, name):
            raise Refused(f"run {run} is live, and --{name.replace('_', '-')} cannot change it; leave it out")


def _find_live_run(project: Project, name: str | None) -> RunRow | None:
    """The selected run, if its harness lives."""
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
        was_requested, was_paused, message = unpause_run(ledger, row)
    finally:
        ledger.close()
    if args.json:
        print_json("resume", {"run": row.id, "rested": was_paused and was_requested, "wasAsked": was_requested})
    else:
        print_lines(message)
    return 0
