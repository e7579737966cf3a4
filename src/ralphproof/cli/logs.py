"""`ralph logs`: output of the agent, checks and hooks of a run."""

from __future__ import annotations

import os

from ralphproof.base.errors import Refused
from ralphproof.cli.parser import Parser, positive_int
from ralphproof.display.output import print_json
from ralphproof.runs.open_project import view_project
from ralphproof.store.run_state import refuse_collected_run
from ralphproof.views.log_printer import LogPrinter, log_part_json
from ralphproof.views.run_list import find_named_run

ABOUT = "Show the output of the agent and the checks of a run, in the order in which they ran."
EXAMPLES = (
    "ralph logs",
    "ralph logs -f",
    "ralph logs 20261115-21 --iteration 2 --checks",
    "ralph logs --agent --stderr",
    "ralph logs --raw --agent --iteration 1 > agent.ndjson",
)


def build_parser() -> Parser:
    parser = Parser("logs", ABOUT, EXAMPLES)
    add = parser.add_argument
    add("run", nargs="?", metavar="RUN", help="run id or unique prefix (default: the latest run)")
    add("-f", "--follow", action="store_true", help="follow until the run ends")
    add(
        "--iteration",
        type=iteration_number,
        metavar="N",
        help="only this iteration; 0: the checks before the first one",
    )
    add("--agent", action="store_true", help="the agent's output; with the next three: only the named ones")
    add("--checks", action="store_true", help="output of the checks")
    add("--prompt", action="store_true", help="the prompts")
    add("--stderr", action="store_true", help="the agent's standard error")
    add("--raw", action="store_true", help="print unescaped bytes: unsafe on a terminal")
    return parser


def iteration_number(text: str) -> int:
    """An iteration number, or 0."""
    return 0 if text == "0" else positive_int(text)


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    if args.follow and args.json:
        raise Refused("-f and --json cannot be combined; to follow a run as JSON: ralph attach --json")
    project = view_project(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        row = find_named_run(ledger, args.run, args)
        refuse_collected_run(project, row.id)
        reader = LogPrinter(ledger, project, row, args)
        reader.must_have(args.iteration)
        if args.json:
            print_json("logs", {"run": row.id, "logs": [log_part_json(part) for part in reader.parts()]})
        elif args.follow:
            reader.follow()
        else:
            reader.read()
    finally:
        ledger.close()
    return 0
