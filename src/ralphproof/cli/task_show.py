"""`ralph task show`: all about one task, with every verification of it."""

from __future__ import annotations

import os

from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser
from ralphproof.cli.task_store import existing
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.project import Project
from ralphproof.views.task_page import page_of

if TYPE_CHECKING:
    pass

ABOUT = """all about one task: what it asks for, how it stands, its runs, and every verification of it.

A check that failed and only warns is told as advisory. What a model judged is told as judged; all other answers are a
machine's."""
EXAMPLES = ("ralph task show TASK-001", "ralph task show TASK-001 --json")


def parser() -> Parser:
    made = Parser("task show", ABOUT, EXAMPLES)
    made.add_argument("id", metavar="ID", help="the task")
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    project = Project.seen(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        page = page_of(ledger, project, existing(ledger, args.id))
    finally:
        ledger.close()
    if args.json:
        put_json("task", page.published())
    else:
        put(*page.lines())
    return 0
