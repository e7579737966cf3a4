"""`ralph task followup`: make a task that comes after another one."""

from __future__ import annotations

import os

from ralphproof.cli.parser import Parser
from ralphproof.cli.task_create import drafted, keep
from ralphproof.cli.task_flags import add_stage_flags, add_task_flags
from ralphproof.cli.task_store import existing
from ralphproof.value import replace
from ralphproof.views.project import Project

ABOUT = """make a task that comes after another one.

It depends on that one, belongs to the same spec, and remembers it as followup_of. Everything else is as with ralph task
create: an outcome and at least one acceptance criterion are needed."""
EXAMPLES = (
    'ralph task followup TASK-001 TASK-002 "Rotate the signing keys" --outcome "Keys rotate daily" \\',
    '    --acceptance "Tokens of the old key are refused after a day"',
)


def parser() -> Parser:
    made = Parser("task followup", ABOUT, EXAMPLES)
    made.add_argument("parent", metavar="PARENT", help="the task that it comes after")
    made.add_argument("id", metavar="ID", help="its name, unlike that of any other task")
    made.add_argument("title", metavar="TITLE", help="a few words")
    add_task_flags(made)
    add_stage_flags(made)
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    project = Project.at(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        parent = existing(ledger, args.parent)
    finally:
        ledger.close()
    problems: list[str] = []
    draft = drafted(args, parent.spec_id, project, problems)
    dependencies = tuple(dict.fromkeys((parent.id, *draft.dependencies)))
    metadata = {**draft.metadata, "followup_of": parent.id}
    return keep(project, replace(draft, dependencies=dependencies, metadata=metadata), problems, args.json)
