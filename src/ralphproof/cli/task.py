"""`ralph task`: list, show, import, export and validate tasks, and templates."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable

from ralphproof.base.errors import Refused
from ralphproof.base.escaping import sanitize
from ralphproof.base.text import did_you_mean
from ralphproof.base.value import TYPE_CHECKING, Json
from ralphproof.checks.templates import TemplateParameter, VerificationTemplate, list_templates
from ralphproof.cli.parser import Parser, Subverbs
from ralphproof.display import phrases
from ralphproof.display.output import align_columns, print_json, print_lines
from ralphproof.runs.open_project import open_project, refuse_in_turn, view_project
from ralphproof.store.project import Project
from ralphproof.store.tasks import TASK_STATUSES
from ralphproof.tasks.draft import draft_warnings
from ralphproof.tasks.files import (
    ImportResult,
    draft_to_export,
    import_tasks,
    read_task_files,
    validate_files,
    validate_recorded,
    write_task_file,
    write_yaml,
)
from ralphproof.tasks.store import require_task, secret_warnings
from ralphproof.views.tasks import TaskView, load_task_detail, load_task_views

if TYPE_CHECKING:
    from argparse import Namespace


LIST_ABOUT = """List all tasks: id, state, stage with its number of tries, priority, title.

A task is todo, working, waiting (for a person), failed, done or cancelled: as you set it, or, if a run has worked on
it since, by the state of that run."""
LIST_EXAMPLES = ("ralph task list", "ralph task list --status failed", "ralph task list --spec auth-feature --json")
NO_TASKS = "no task yet; create one: ralph task create, or ralph task import"


def list_parser() -> Parser:
    parser = Parser("task list", LIST_ABOUT, LIST_EXAMPLES)
    parser.add_argument(
        "--status", choices=TASK_STATUSES, metavar="S", help=f"only tasks in this state: {', '.join(TASK_STATUSES)}"
    )
    parser.add_argument("--spec", metavar="SPEC", help="only tasks of this spec")
    return parser


def list_main(argv: list[str]) -> int:
    args = list_parser().parse(argv)
    every = load_task_views(view_project(args.project_dir, os.environ))
    of_status = [view for view in every if args.status in (None, view.status)]
    wanted = [view for view in of_status if args.spec in (None, view.spec_id)]
    if args.json:
        print_json("tasks", {"tasks": [view.to_json() for view in wanted]})
    elif not every:
        print_lines(NO_TASKS)
    else:
        print_lines(*_task_table(wanted))
    return 0


def _task_table(tasks: Iterable[TaskView]) -> list[str]:
    heading = ("id", "status", "stage", "priority", "title")
    lines = [(view.id, view.standing, str(view.count), str(view.priority), view.title) for view in tasks]
    return align_columns([heading, *lines])


ABOUT = """Create, import, list and edit tasks with their completion criteria. ralph work works on them.

{verbs}

ralph task VERB --help shows details."""
EXAMPLES = (
    'ralph task create TASK-001 auth "Implement JWT auth" --outcome "All endpoints require a valid token" \\',
    '    --acceptance "Invalid tokens return 401" --tester-verify-cmd "pytest tests/test_auth.py"',
    "ralph task import tasks.yaml",
    "ralph task list",
    "ralph task show TASK-001",
)
TASK_VERBS = {
    "create": "create a task",
    "followup": "create a task that depends on another one",
    "generate": "let an agent split a request or document into tasks",
    "import": "create tasks from files",
    "export": "write tasks to a file that can be imported",
    "validate": "print what is wrong with tasks, in files or in the record",
    "list": "list all tasks",
    "show": "show one task with every verification",
    "edit": "change a task",
    "templates": "list the verification templates",
}

SUBVERBS = Subverbs(
    "task",
    ABOUT,
    EXAMPLES,
    TASK_VERBS,
    "list",
    {
        **dict.fromkeys(TASK_VERBS, "task"),
        **dict.fromkeys(("create", "edit", "followup"), "task_edit"),
        "generate": "task_generate",
    },
)
build_parser, build_parsers, main = SUBVERBS.build_parser, SUBVERBS.build_parsers, SUBVERBS.main


EXPORT_ABOUT = """Write tasks as a YAML file that can be imported: the named ones, or all.

A single named task is written alone, under the key task; --shape list makes it a list. Of the state only done and
cancelled are written."""
EXPORT_EXAMPLES = (
    "ralph task export -o tasks.yaml",
    "ralph task export TASK-001",
    "ralph task export TASK-001 TASK-002 | ralph task import - -d ../other",
)


def export_parser() -> Parser:
    parser = Parser("task export", EXPORT_ABOUT, EXPORT_EXAMPLES)
    parser.add_argument("ids", nargs="*", metavar="ID", help="task ids (default: all)")
    parser.add_argument("-o", "--output", metavar="FILE", help="output file (default: standard output)")
    parser.add_argument("--shape", choices=("task", "list"), help="write one task, or a list")
    return parser


def export_main(argv: list[str]) -> int:
    args = export_parser().parse(argv)
    project = view_project(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        rows = [require_task(ledger, id) for id in dict.fromkeys(args.ids)] if args.ids else list(ledger.tasks.rows())
        drafts = tuple(draft_to_export(row, TaskView.of(ledger, row, project).status) for row in rows)
    finally:
        ledger.close()
    shape = args.shape or ("task" if len(args.ids) == 1 else "list")
    if shape == "task" and len(drafts) != 1:
        raise Refused(f"--shape task needs exactly one task, not {len(drafts)}; name it, or use --shape list")
    text = write_yaml(drafts, shape)
    if args.output is not None:
        write_task_file(args.output, text)
    if args.json:
        print_json("export", {"shape": shape, "tasks": len(drafts), "file": args.output, "text": text})
    elif args.output is not None:
        print_lines(f"{phrases.format_count(len(drafts), 'task')} written to {args.output}")
    else:
        _print_yaml(text)
    return 0


def _print_yaml(text: str) -> None:
    """Print unchanged for programs, with control characters escaped for a terminal."""
    sys.stdout.flush()
    if sys.stdout.isatty():
        print(sanitize(text), end="")
    else:
        sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))


IMPORT_ABOUT = """Create tasks from YAML or JSON files: one task or a list; - is standard input.

All tasks are kept, or none, and then all errors are printed (exit code 2). With --partial valid tasks with valid
dependencies are kept; the others are listed, and the exit code is also 2. --update changes existing tasks: everything
that the file contains, but of the state only done and cancelled."""
IMPORT_EXAMPLES = (
    "ralph task import tasks.yaml",
    "ralph task import tasks/*.yaml --dry-run",
    "ralph task import tasks.yaml --update",
    "generate-tasks | ralph task import - --partial",
)


def import_parser() -> Parser:
    parser = Parser("task import", IMPORT_ABOUT, IMPORT_EXAMPLES)
    parser.add_argument("files", nargs="+", metavar="FILE", help="task file; - is standard input")
    parser.add_argument("--update", action="store_true", help="change existing tasks")
    parser.add_argument("--partial", action="store_true", help="keep valid tasks, and list the others")
    parser.add_argument("--dry-run", action="store_true", help="only print what would be done")
    return parser


def import_main(argv: list[str]) -> int:
    args = import_parser().parse(argv)
    project = view_project(args.project_dir, os.environ) if args.dry_run else open_project(args.project_dir, os.environ)
    if args.update:
        refuse_in_turn("task import --update")
    entries = read_task_files(args.files)
    ledger = project.ledger(read_only=args.dry_run)
    try:
        result = import_tasks(
            ledger,
            project,
            entries,
            lambda row: TaskView.of(ledger, row, project).status,
            update=args.update,
            partial=args.partial,
            dry_run=args.dry_run,
        )
    finally:
        ledger.close()
    _print_imported(result, project, args)
    return 2 if result.problems else 0


def _print_imported(result: ImportResult, project: Project, args: Namespace) -> None:
    drafts = (*result.added, *result.changed)
    warnings = [remark for draft in drafts for remark in draft_warnings(draft)] + secret_warnings(drafts, project)
    added, changed = ([draft.id for draft in group] for group in (result.added, result.changed))
    if args.json:
        counts: dict[str, Json] = {"added": [*added], "changed": [*changed], "unchanged": [*result.same]}
        print_json("import", {**counts, "dryRun": args.dry_run, "problems": [*result.problems], "remarks": [*warnings]})
        return
    would = "would be " if args.dry_run else ""
    for what, ids in (("added", added), ("changed", changed)):
        print_lines(*([f"{would}{what}: {', '.join(ids)}"] if ids else []))
    print_lines(
        *([f"unchanged: {', '.join(result.same)}"] if result.same else []), *(f"note: {remark}" for remark in warnings)
    )
    print_lines(*(f"left out: {problem}" for problem in result.problems))
    if not drafts and not result.same and not result.problems:
        print_lines("the files contain no task")


SHOW_ABOUT = """Show all about one task: its criteria, state, runs, and every verification.

A failed check that only warns is shown as advisory. A model's judgement is shown as judged; all other results are from
machines."""
SHOW_EXAMPLES = ("ralph task show TASK-001", "ralph task show TASK-001 --json")


def show_parser() -> Parser:
    parser = Parser("task show", SHOW_ABOUT, SHOW_EXAMPLES)
    parser.add_argument("id", metavar="ID", help="task id")
    return parser


def show_main(argv: list[str]) -> int:
    args = show_parser().parse(argv)
    project = view_project(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        detail = load_task_detail(ledger, project, require_task(ledger, args.id))
    finally:
        ledger.close()
    if args.json:
        print_json("task", detail.to_json())
    else:
        print_lines(*detail.lines())
    return 0


TEMPLATES_ABOUT = """List the verification templates, or show one with its parameters.

A stage uses one with --coder-verify-template NAME and --coder-with KEY=VALUE, likewise for the other stages, or with
verification_template and with in a task file."""
TEMPLATES_EXAMPLES = (
    "ralph task templates",
    "ralph task templates pytest_coverage",
    "ralph task edit TASK-001 --tester-verify-template pytest_coverage --tester-with minimum=90",
)


def templates_parser() -> Parser:
    parser = Parser("task templates", TEMPLATES_ABOUT, TEMPLATES_EXAMPLES)
    parser.add_argument("name", nargs="?", metavar="NAME", help="show this template")
    return parser


def templates_main(argv: list[str]) -> int:
    args = templates_parser().parse(argv)
    known = {template.name: template for template in list_templates()}
    if args.name is not None and args.name not in known:
        raise Refused(f"no template {args.name}{did_you_mean(args.name, known)} (see ralph task templates)")
    chosen = [known[args.name]] if args.name is not None else list(known.values())
    if args.json:
        data: list[Json] = [_template_json(template) for template in chosen]
        print_json("templates", {"templates": data})
    elif args.name is not None:
        _print_template(chosen[0])
    else:
        print_lines(*align_columns([(template.name, template.method, template.purpose) for template in chosen]))
    return 0


def _print_template(template: VerificationTemplate) -> None:
    print_lines(f"{template.name}: {template.purpose}", f"method: {template.method}")
    print_lines(*(f"{key}: {json.dumps(inner, ensure_ascii=False)}" for key, inner in template.config.items()))
    print_lines(
        *(f"with {parameter.name}: {parameter.about} ({_default_text(parameter)})" for parameter in template.parameters)
    )


def _default_text(parameter: TemplateParameter) -> str:
    return "needed" if parameter.default is None else f"default: {parameter.default}"


def _template_json(template: VerificationTemplate) -> dict[str, Json]:
    parameters: list[Json] = [
        {"name": one.name, "kind": one.kind, "about": one.about, "default": one.default} for one in template.parameters
    ]
    return {
        "name": template.name, "purpose": template.purpose, "method": template.method, "config": template.config,
        "parameters": parameters,
    }  # fmt: skip


VALIDATE_ABOUT = """Print what is wrong with tasks, in files or in the record.

Files are checked as by ralph task import --update; nothing is changed.
Exit codes: 0 all valid, 2 errors were found; all are printed."""
VALIDATE_EXAMPLES = (
    "ralph task validate",
    "ralph task validate tasks.yaml",
    "ralph task validate - --json < tasks.yaml",
)


def validate_parser() -> Parser:
    parser = Parser("task validate", VALIDATE_ABOUT, VALIDATE_EXAMPLES)
    parser.add_argument("files", nargs="*", metavar="FILE", help="task file (default: the tasks in the record)")
    return parser


def validate_main(argv: list[str]) -> int:
    args = validate_parser().parse(argv)
    entries = read_task_files(args.files)
    ledger = view_project(args.project_dir, os.environ).ledger()
    try:
        drafts, problems = validate_files(ledger, entries) if args.files else validate_recorded(ledger)
    finally:
        ledger.close()
    count = len(entries) if args.files else len(drafts)
    warnings = [remark for draft in drafts for remark in draft_warnings(draft)]
    if args.json:
        print_json("validate", {"valid": not problems, "tasks": count, "problems": [*problems], "remarks": [*warnings]})
    else:
        verdict = phrases.format_count(len(problems), "error") if problems else "all valid"
        print_lines(
            *problems, *(f"note: {remark}" for remark in warnings), f"{phrases.format_count(count, 'task')}: {verdict}"
        )
    return 2 if problems else 0
