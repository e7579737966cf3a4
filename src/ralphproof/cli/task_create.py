"""`ralph task create`: make a task, with what done means for it."""

from __future__ import annotations

import os

from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser
from ralphproof.cli.task_flags import add_stage_flags, add_task_flags, completion_of, pairs
from ralphproof.cli.task_store import add_all, masked_remarks, usual_promises, wrong_with
from ralphproof.plans.draft import Draft
from ralphproof.plans.problems import remarks
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.project import Project
from ralphproof.views.task_view import TaskView

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.value import Json

ABOUT = """make a task, with what done means for it.

An outcome and at least one acceptance criterion are needed. For each stage you may say which word claims it and how
that is verified: --coder-promise and the flags after it are there for reviewer, tester and qa too. Where you say
nothing, coder and tester are verified by the repository's guardrails, the reviewer by a model that judges the
acceptance criteria, qa by both. Either the task is made as you wrote it, or everything that is wrong with it is said,
and nothing is kept (exit code 2)."""
EXAMPLES = (
    'ralph task create TASK-001 auth "Implement JWT auth" --outcome "All endpoints require a valid token" \\',
    '    --acceptance "Login returns a token" --acceptance "Invalid tokens return 401" \\',
    "    --coder-promise AUTH_IMPLEMENTED --coder-verify external --coder-verify-cmd \"grep -r 'jwt.verify' src/\" \\",
    '    --tester-verify-cmd "pytest tests/test_auth.py"',
    'ralph task create T-2 auth "Rotate keys" --outcome "Keys rotate daily" --acceptance "Old keys expire" \\',
    "    --depends-on TASK-001 --priority 2 --qa-verify-template pytest",
)


def parser() -> Parser:
    made = Parser("task create", ABOUT, EXAMPLES)
    made.add_argument("id", metavar="ID", help="its name, unlike that of any other task")
    made.add_argument("spec", metavar="SPEC", help="the spec or feature that it belongs to")
    made.add_argument("title", metavar="TITLE", help="a few words")
    add_task_flags(made)
    add_stage_flags(made)
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    project = Project.at(args.project_dir, os.environ)
    problems: list[str] = []
    return keep(project, drafted(args, args.spec, project, problems), problems, args.json)


def drafted(args: Namespace, spec: str, project: Project, problems: list[str]) -> Draft:
    """The task that the command line describes; what is wrong with the flags is added to the problems."""
    completion = completion_of(args, {}, usual_promises(project.root), problems)
    metadata: dict[str, Json] = {**pairs("--metadata", args.metadata, problems)}
    return Draft(
        args.id, spec, args.title, args.description or "", args.priority or 0, tuple(args.depends_on or ()), "todo",
        args.assignee or "", metadata, completion,
    )  # fmt: skip


def keep(project: Project, draft: Draft, problems: list[str], for_programs: bool) -> int:
    """Keep one new task, or raise Refused with all that is wrong with it; the exit code."""
    ledger = project.ledger(read_only=False)
    try:
        add_all(ledger, (draft,), [*problems, *wrong_with(draft)])
        row = ledger.tasks.row(draft.id)
        assert row is not None, "it was kept just now"
        view = TaskView.of(ledger, row, project)
    finally:
        ledger.close()
    told = [*remarks(draft), *masked_remarks((draft,), project)]
    if for_programs:
        put_json("task", {**view.published(), "remarks": [*told]})
    else:
        put(f"task {draft.id} is kept; work on it: ralph work {draft.id}", *(f"note: {remark}" for remark in told))
    return 0
