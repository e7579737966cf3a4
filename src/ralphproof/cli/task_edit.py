"""`ralph task create`, `followup` and `edit`, with the flags that describe a task."""

from __future__ import annotations

import argparse
import os
from typing import Any

from ralphproof.base.value import replace
from ralphproof.cli.parser import Parser, positive_int
from ralphproof.display.output import print_json, print_lines
from ralphproof.runs.open_project import open_project
from ralphproof.settings.declarations import PIPELINE_STAGES
from ralphproof.store.project import Project
from ralphproof.store.tasks import MAX_INTEGER, SETTABLE_STATUSES
from ralphproof.tasks.draft import TaskDraft, draft_warnings
from ralphproof.tasks.flags import draft_from_flags, edit_task
from ralphproof.tasks.store import add_tasks, require_task, secret_warnings, validate_draft_with_plugins
from ralphproof.views.tasks import TaskView


def add_task_flags(parser: Parser) -> None:
    """Add the flags that describe a task."""
    add = parser.add_argument
    add("--outcome", metavar="TEXT", help="one measurable sentence: what is true when the task is done")
    add("--acceptance", action="append", metavar="TEXT", help="requirement that can be checked; repeatable")
    add("--description", metavar="TEXT", help="background for whoever works on the task")
    add("--priority", type=_bounded_int, metavar="N", help="lower numbers come first (default: 0)")
    add("--depends-on", action="append", metavar="ID", help="task that must be done before; repeatable")
    add("--assignee", metavar="NAME", help="name of the assignee")
    add("--metadata", action="append", metavar="KEY=VALUE", help="additional data; repeatable")


def add_stage_flags(parser: Parser) -> None:
    """Add the criteria flags of each stage; the help shows only those of the first stage."""
    named = f"{', '.join(PIPELINE_STAGES[1:-1])} and {PIPELINE_STAGES[-1]}"
    group = parser.add_argument_group(
        "completion criteria of each stage", f"The same flags exist with {named} instead of {PIPELINE_STAGES[0]}."
    )
    for stage in PIPELINE_STAGES:

        def add(name: str, help: str, first: bool = stage == PIPELINE_STAGES[0], of: str = stage, **more: Any) -> None:
            group.add_argument(f"--{of}-{name}", help=help if first else argparse.SUPPRESS, **more)

        add("promise", "word that claims completion (default: that of the settings)", metavar="WORD")
        add("description", "what the stage must achieve", metavar="TEXT")
        add("verify", "string_match, external, semantic, multi_stage, or an installed plugin", metavar="METHOD")
        add("verify-cmd", "command that must succeed; implies external", metavar="CMD")
        add("verify-config", "configuration of the method, a JSON object", metavar="JSON")
        add("verify-template", "verification template; see ralph task templates", metavar="NAME")
        add("with", "template parameter; repeatable", action="append", metavar="KEY=VALUE")
        add("max-iterations", "most tries", type=positive_int, metavar="N")


def _bounded_int(text: str) -> int:
    """A whole number within the bounds of the store."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 16 and abs(int(text)) <= MAX_INTEGER):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


CREATE_ABOUT = """Create a task with its completion criteria.

An outcome and at least one acceptance criterion are required. For each stage you can set the word that claims
completion and how the claim is verified: --coder-promise and the flags after it also exist for reviewer, tester and
qa. By default coder and tester are verified by the repository's guardrails, the reviewer by a model that judges the
acceptance criteria, qa by both. An invalid task is refused with all its errors, and nothing is saved (exit code 2)."""
CREATE_EXAMPLES = (
    'ralph task create TASK-001 auth "Implement JWT auth" --outcome "All endpoints require a valid token" \\',
    '    --acceptance "Login returns a token" --acceptance "Invalid tokens return 401" \\',
    "    --coder-promise AUTH_IMPLEMENTED --coder-verify external --coder-verify-cmd \"grep -r 'jwt.verify' src/\" \\",
    '    --tester-verify-cmd "pytest tests/test_auth.py"',
    'ralph task create T-2 auth "Rotate keys" --outcome "Keys rotate daily" --acceptance "Old keys expire" \\',
    "    --depends-on TASK-001 --priority 2 --qa-verify-template pytest",
)


def create_parser() -> Parser:
    names = {
        "id": "unique id of the new task",
        "spec": "spec or feature that the task belongs to",
        "title": "short title",
    }
    return _new_task_parser("task create", CREATE_ABOUT, CREATE_EXAMPLES, names)


def _new_task_parser(verb: str, about: str, examples: tuple[str, ...], names: dict[str, str]) -> Parser:
    parser = Parser(verb, about, examples)
    for name, help in names.items():
        parser.add_argument(name, metavar=name.upper(), help=help)
    add_task_flags(parser)
    add_stage_flags(parser)
    return parser


def create_main(argv: list[str]) -> int:
    args = create_parser().parse(argv)
    project = open_project(args.project_dir, os.environ)
    problems: list[str] = []
    return save_new_task(project, draft_from_flags(args, args.spec, project, problems), problems, args.json)


def save_new_task(project: Project, draft: TaskDraft, problems: list[str], for_programs: bool) -> int:
    """Save a new task and print it; refuses an invalid one with all its errors."""
    ledger = project.ledger(read_only=False)
    try:
        add_tasks(ledger, (draft,), [*problems, *validate_draft_with_plugins(draft)])
        row = ledger.tasks.row(draft.id)
        assert row is not None, "it was just added"
        view = TaskView.of(ledger, row, project)
    finally:
        ledger.close()
    warnings = [*draft_warnings(draft), *secret_warnings((draft,), project)]
    if for_programs:
        print_json("task", {**view.to_json(), "warnings": [*warnings]})
    else:
        print_lines(
            f"task {draft.id} is kept; work on it: ralph work {draft.id}", *(f"note: {remark}" for remark in warnings)
        )
    return 0


EDIT_ABOUT = """Change a task or set its state.

A flag replaces the old value: --acceptance and --depends-on give the whole list (one empty text empties it),
--metadata KEY=VALUE sets one entry and KEY= removes it; a stage keeps what no flag names. --status todo reopens a
failed or done task. A task that a run works on cannot be changed, and agents cannot change tasks."""
EDIT_EXAMPLES = (
    "ralph task edit TASK-001 --priority 1 --acceptance 'Login returns a token' --acceptance 'Logout works'",
    "ralph task edit TASK-001 --tester-verify-cmd 'pytest tests/auth' --clear-qa",
    "ralph task edit TASK-001 --status todo",
)


def edit_parser() -> Parser:
    parser = Parser("task edit", EDIT_ABOUT, EDIT_EXAMPLES)
    parser.add_argument("id", metavar="ID", help="task id")
    parser.add_argument("--title", metavar="TEXT", help="short title")
    parser.add_argument("--spec", metavar="SPEC", help="spec or feature that the task belongs to")
    parser.add_argument(
        "--status",
        choices=SETTABLE_STATUSES,
        metavar="S",
        help=f"set the state: {', '.join(SETTABLE_STATUSES)}",
    )
    add_task_flags(parser)
    for stage in PIPELINE_STAGES:
        help = f"remove the criteria of the {stage}; flags of that stage then start from nothing"
        parser.add_argument(f"--clear-{stage}", action="store_true", help=help)
    add_stage_flags(parser)
    return parser


def edit_main(argv: list[str]) -> int:
    args = edit_parser().parse(argv)
    project = open_project(args.project_dir, os.environ)
    ledger = project.ledger(read_only=False)
    try:
        draft, names = ledger.tasks.together(lambda: edit_task(ledger, project, args))
        view = TaskView.of(ledger, require_task(ledger, args.id), project)
    finally:
        ledger.close()
    warnings = [*draft_warnings(draft), *secret_warnings((draft,), project)]
    if args.json:
        print_json("task", {**view.to_json(), "changed": [*names], "warnings": [*warnings]})
    else:
        print_lines(f"task {draft.id} is changed: {', '.join(names)}", *(f"note: {remark}" for remark in warnings))
    return 0


FOLLOWUP_ABOUT = """Create a task that depends on another one.

It belongs to the same spec, and its metadata names the other one as followup_of. Everything else is as with ralph task
create: an outcome and at least one acceptance criterion are required."""
FOLLOWUP_EXAMPLES = (
    'ralph task followup TASK-001 TASK-002 "Rotate the signing keys" --outcome "Keys rotate daily" \\',
    '    --acceptance "Tokens of the old key are refused after a day"',
)


def followup_parser() -> Parser:
    names = {
        "parent": "task that the new one depends on",
        "id": "unique id of the new task",
        "title": "short title",
    }
    return _new_task_parser("task followup", FOLLOWUP_ABOUT, FOLLOWUP_EXAMPLES, names)


def followup_main(argv: list[str]) -> int:
    args = followup_parser().parse(argv)
    project = open_project(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        parent = require_task(ledger, args.parent)
    finally:
        ledger.close()
    problems: list[str] = []
    draft = draft_from_flags(args, parent.spec_id, project, problems)
    dependencies = tuple(dict.fromkeys((parent.id, *draft.dependencies)))
    metadata = {**draft.metadata, "followup_of": parent.id}
    return save_new_task(project, replace(draft, dependencies=dependencies, metadata=metadata), problems, args.json)
