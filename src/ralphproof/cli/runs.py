"""`ralph runs`: every run of this repository, one line each."""

from __future__ import annotations

import os

from ralphproof.cli.parser import Parser
from ralphproof.cli.status import print_all_runs, print_run_trees
from ralphproof.runs.open_project import view_project

ABOUT = "List all runs of this repository, newest first; the same as ralph status --all."
EXAMPLES = ("ralph runs", "ralph runs --tree", "ralph runs --json")


def build_parser() -> Parser:
    parser = Parser("runs", ABOUT, EXAMPLES)
    parser.add_argument(
        "--tree", action="store_true", help="show runs that an agent started below the run of that agent"
    )
    return parser


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    project = view_project(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        if args.tree:
            print_run_trees(ledger, project, args.json)
        else:
            print_all_runs(ledger, project, args.json)
    finally:
        ledger.close()
    return 0
