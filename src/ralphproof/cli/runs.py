"""`ralph runs`: every run of this repository, one line each, the newest first; the same as ralph status --all."""

from __future__ import annotations

import os

from ralphproof.cli.parser import Parser
from ralphproof.cli.status import show_all
from ralphproof.views.project import Project

ABOUT = "every run of this repository, one line each, the newest first; the same as ralph status --all."
EXAMPLES = ("ralph runs", "ralph runs --tree", "ralph runs --json")


def parser() -> Parser:
    made = Parser("runs", ABOUT, EXAMPLES)
    made.add_argument("--tree", action="store_true", help="runs that the agent of a run began below that one")
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    project = Project.seen(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        if args.tree:
            from ralphproof.cli.tree import show_forest

            show_forest(ledger, project, args.json)
        else:
            show_all(ledger, project, args.json)
    finally:
        ledger.close()
    return 0
