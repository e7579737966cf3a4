"""`ralph task validate`: say what is wrong with tasks, in files or in the record."""

from __future__ import annotations

import os

from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser
from ralphproof.cli.task_files import entries, sorted_out
from ralphproof.cli.task_store import draft_of, wrong_with
from ralphproof.display import words
from ralphproof.plans.graph import tangles
from ralphproof.plans.problems import remarks
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.project import Project

if TYPE_CHECKING:
    from ralphproof.cli.task_files import TaskEntry
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.plans.draft import Draft

ABOUT = """say what is wrong with tasks, in files or in the record.

Files are looked at as ralph task import --update does; nothing is changed. Exit codes: 0 nothing is wrong, 2 something
is, and all of it is said."""
EXAMPLES = ("ralph task validate", "ralph task validate tasks.yaml", "ralph task validate - --json < tasks.yaml")


def parser() -> Parser:
    made = Parser("task validate", ABOUT, EXAMPLES)
    made.add_argument("files", nargs="*", metavar="FILE", help="a file of tasks (default: the tasks in the record)")
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    found = entries(args.files)
    ledger = Project.seen(args.project_dir, os.environ).ledger()
    try:
        drafts, problems = _in_files(ledger, found) if args.files else _recorded(ledger)
    finally:
        ledger.close()
    count = len(found) if args.files else len(drafts)
    told = [remark for draft in drafts for remark in remarks(draft)]
    if args.json:
        put_json("validate", {"valid": not problems, "tasks": count, "problems": [*problems], "remarks": [*told]})
    else:
        verdict = f"{len(problems)} wrong" if problems else "nothing is wrong"
        put(*problems, *(f"note: {remark}" for remark in told), f"{words.count(count, 'task')}: {verdict}")
    return 2 if problems else 0


def _in_files(ledger: Sqlite, found: tuple[TaskEntry, ...]) -> tuple[list[Draft], list[str]]:
    """The tasks that could be read, and all that is wrong with them and the others."""
    known = {row.id: row.dependencies for row in ledger.tasks.rows()}
    read = [entry.reading.draft for entry in found if entry.reading.draft]
    return read, list(sorted_out(found, known, update=True).problems)


def _recorded(ledger: Sqlite) -> tuple[list[Draft], list[str]]:
    """The tasks in the record, and all that is wrong with them."""
    pairs = [draft_of(row) for row in ledger.tasks.rows()]
    drafts = tuple(draft for draft, _ in pairs)
    problems = [(f"{draft.id}: {unread}",) if unread else wrong_with(draft) for draft, unread in pairs]
    return list(drafts), [*(line for lines in problems for line in lines), *tangles(drafts, {})]
