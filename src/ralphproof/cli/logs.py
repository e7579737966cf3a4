"""`ralph logs`: what the agent, the checks and hooks of a run printed."""

from __future__ import annotations

import os

from ralphproof.base.errors import Refused
from ralphproof.cli.parser import Parser, positive_int
from ralphproof.display.output import print_json
from ralphproof.runs.open_project import view_project
from ralphproof.store.run_state import refuse_collected_run
from ralphproof.views.log_printer import LogPrinter, log_part_json
from ralphproof.views.run_list import find_named_run

ABOUT = "what the agent and the checks of a run printed, in the order in which they ran."
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
    add("run", nargs="?", metavar="RUN", help="an id or its beginning (default: the latest run)")
    add("-f", "--follow", action="store_true", help="go on until the run ends")
    add(
        "--iteration",
        type=iteration_number,
        metavar="N",
        help="of this iteration alone; 0: the checks before the first",
    )
    add("--agent", action="store_true", help="what the agent printed; with the next three: only what is named")
    add("--checks", action="store_true", help="what the checks printed")
    add("--prompt", action="store_true", help="what the agent was told")
    add("--stderr", action="store_true", help="what the agent printed on standard error")
    add("--raw", action="store_true", help="the bytes as they are: unsafe for a terminal where an agent wrote them")
    return parser


def iteration_number(text: str) -> int:
    """An iteration's number, or 0."""
    return 0 if text == "0" else positive_int(text)


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    if args.follow and args.json:
        raise Refused("-f and --json do not go together; a program follows a run with: ralph run --json")
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
