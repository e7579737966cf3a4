"""`ralph task`: tasks with completion criteria."""

from __future__ import annotations

import argparse
import json
import os
import sys
from argparse import BooleanOptionalAction, Namespace
from collections.abc import Iterable
from typing import Any

from ralphproof.base.errors import Refused
from ralphproof.base.escaping import sanitize
from ralphproof.base.standard_streams import read_stdin_text
from ralphproof.base.text import did_you_mean
from ralphproof.base.value import Json, replace, value
from ralphproof.checks.templates import TemplateParameter, VerificationTemplate, list_templates
from ralphproof.cli.parser import Parser, Subverbs, positive_int
from ralphproof.cli.run_flags import NO_NEW_PROMPT, add_agent_flags, agent_request, settings_from_flags
from ralphproof.display import phrases
from ralphproof.display.output import align_columns, print_json, print_lines, print_result
from ralphproof.display.terminal import DisplayFlags
from ralphproof.engine.outcome import Completed, outcome_fields
from ralphproof.planning.task_generation import Generation, TaskGenerator
from ralphproof.runs.open_project import open_project, refuse_in_turn, view_project
from ralphproof.settings.declarations import PIPELINE_STAGES
from ralphproof.store.ledger import LATEST
from ralphproof.store.project import Project
from ralphproof.store.tasks import MAX_INTEGER, SETTABLE_STATUSES, TASK_STATUSES
from ralphproof.tasks.draft import TASK_RULES, TaskDraft, draft_to_dict, draft_warnings
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
from ralphproof.tasks.flags import draft_from_flags, edit_task
from ralphproof.tasks.plans import PromptPlan
from ralphproof.tasks.store import add_tasks, require_task, secret_warnings, validate_draft_with_plugins
from ralphproof.views.tasks import TaskView, load_task_detail, load_task_views

LIST_ABOUT = """List all tasks: id, state, stage with its number of tries, priority, title.

A task is todo, working, waiting (for a person), failed, done or cancelled: as you set it, or, if a run has worked on
it since, by the state of that run."""
LIST_EXAMPLES = ("ralph task list", "ralph task list --status failed", "ralph task list --spec auth-feature --json")
NO_TASKS = "no task yet; create one: ralph task create, or ralph task import"


def list_parser() -> Parser:
    parser = Parser("task list", LIST_ABOUT, LIST_EXAMPLES)
    parser.add("--status S", f"only tasks in this state: {', '.join(TASK_STATUSES)}", choices=TASK_STATUSES)
    parser.add("--spec SPEC", "only tasks of this spec")
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

SUBVERBS = Subverbs("task", ABOUT, EXAMPLES, TASK_VERBS, "list")
task_parser, task_main = SUBVERBS.build_parser, SUBVERBS.main


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
    parser.add("ids", "task ids (default: all)", nargs="*", metavar="ID")
    parser.add("-o, --output FILE", "output file (default: standard output)")
    parser.add("--shape", "write one task, or a list", choices=("task", "list"))
    return parser


def export_main(argv: list[str]) -> int:
    args = export_parser().parse(argv)
    project = view_project(args.project_dir, os.environ)
    with project.ledger() as ledger:
        rows = [require_task(ledger, id) for id in dict.fromkeys(args.ids)] if args.ids else list(ledger.tasks.rows())
        drafts = tuple(draft_to_export(row, TaskView.of(ledger, row, project).status) for row in rows)
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
    parser.add("files", "task file; - is standard input", nargs="+", metavar="FILE")
    parser.add("--update", "change existing tasks")
    parser.add("--partial", "keep valid tasks, and list the others")
    parser.add("--dry-run", "only print what would be done")
    return parser


def import_main(argv: list[str]) -> int:
    args = import_parser().parse(argv)
    project = view_project(args.project_dir, os.environ) if args.dry_run else open_project(args.project_dir, os.environ)
    if args.update:
        refuse_in_turn("task import --update")
    entries = read_task_files(args.files)
    with project.ledger(read_only=args.dry_run) as ledger:
        result = import_tasks(
            ledger,
            project,
            entries,
            lambda row: TaskView.of(ledger, row, project).status,
            update=args.update,
            partial=args.partial,
            dry_run=args.dry_run,
        )
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
    parser.add("id", "task id", metavar="ID")
    return parser


def show_main(argv: list[str]) -> int:
    args = show_parser().parse(argv)
    project = view_project(args.project_dir, os.environ)
    with project.ledger() as ledger:
        detail = load_task_detail(ledger, project, require_task(ledger, args.id))
    print_result(args.json, "task", detail.to_json(), *detail.lines())
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
    parser.add("name", "show this template", nargs="?", metavar="NAME")
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
    parser.add("files", "task file (default: the tasks in the record)", nargs="*", metavar="FILE")
    return parser


def validate_main(argv: list[str]) -> int:
    args = validate_parser().parse(argv)
    entries = read_task_files(args.files)
    with view_project(args.project_dir, os.environ).ledger() as ledger:
        drafts, problems = validate_files(ledger, entries) if args.files else validate_recorded(ledger)
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


def add_task_flags(parser: Parser) -> None:
    """Add the flags that describe a task."""
    add = parser.add
    add("--outcome TEXT", "one measurable sentence: what is true when the task is done")
    add("--acceptance TEXT", "requirement that can be checked; repeatable", action="append")
    add("--description TEXT", "background for whoever works on the task")
    add("--priority N", "lower numbers come first (default: 0)", type=_bounded_int)
    add("--depends-on ID", "task that must be done before; repeatable", action="append")
    add("--assignee NAME", "name of the assignee")
    add("--metadata KEY=VALUE", "additional data; repeatable", action="append")


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
    return save_new_task(project, draft_from_flags(vars(args), args.spec, project, problems), problems, args.json)


def save_new_task(project: Project, draft: TaskDraft, problems: list[str], for_programs: bool) -> int:
    """Save a new task and print it; refuses an invalid one with all its errors."""
    with project.ledger(read_only=False) as ledger:
        add_tasks(ledger, (draft,), [*problems, *validate_draft_with_plugins(draft)])
        row = ledger.tasks.row(draft.id)
        assert row is not None, "it was just added"
        view = TaskView.of(ledger, row, project)
    warnings = [*draft_warnings(draft), *secret_warnings((draft,), project)]
    print_result(
        for_programs,
        "task",
        {**view.to_json(), "warnings": [*warnings]},
        f"task {draft.id} is kept; work on it: ralph work {draft.id}",
        *(f"note: {remark}" for remark in warnings),
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
    parser.add("id", "task id", metavar="ID")
    parser.add("--title TEXT", "short title")
    parser.add("--spec SPEC", "spec or feature that the task belongs to")
    parser.add("--status S", f"set the state: {', '.join(SETTABLE_STATUSES)}", choices=SETTABLE_STATUSES)
    add_task_flags(parser)
    for stage in PIPELINE_STAGES:
        help = f"remove the criteria of the {stage}; flags of that stage then start from nothing"
        parser.add(f"--clear-{stage}", help)
    add_stage_flags(parser)
    return parser


def edit_main(argv: list[str]) -> int:
    args = edit_parser().parse(argv)
    project = open_project(args.project_dir, os.environ)
    with project.ledger(read_only=False) as ledger:
        draft, names = ledger.tasks.together(lambda: edit_task(ledger, project, vars(args)))
        view = TaskView.of(ledger, require_task(ledger, args.id), project)
    warnings = [*draft_warnings(draft), *secret_warnings((draft,), project)]
    print_result(
        args.json,
        "task",
        {**view.to_json(), "changed": [*names], "warnings": [*warnings]},
        f"task {draft.id} is changed: {', '.join(names)}",
        *(f"note: {remark}" for remark in warnings),
    )
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
    with project.ledger() as ledger:
        parent = require_task(ledger, args.parent)
    problems: list[str] = []
    draft = draft_from_flags(vars(args), parent.spec_id, project, problems)
    dependencies = tuple(dict.fromkeys((parent.id, *draft.dependencies)))
    metadata = {**draft.metadata, "followup_of": parent.id}
    return save_new_task(project, replace(draft, dependencies=dependencies, metadata=metadata), problems, args.json)


GENERATE_ABOUT = """Let an agent split a request or document into tasks, and accept only valid ones.

This is a normal run: recorded, limited, cancellable and resumable. Its check reads the tasks in the agent's last
message. All errors go into the next prompt, until the tasks are valid or the iterations are used up (exit code 1). The
agent may change no file: changes are reverted, and its answer is refused. All valid tasks are saved, or none."""
GENERATE_EXAMPLES = (
    'ralph task generate "Let users export their data as CSV and as JSON" --spec export',
    "ralph task generate --from docs/auth-feature.md --spec auth-feature",
    "ralph task generate --from docs/auth-feature.md -o tasks.yaml",
    'ralph task generate "Add a dark mode" --no-import --agent claude --max-cost-usd 1',
    "ralph task generate --resume",
)
NO_TEXT_MESSAGE = 'nothing to split into tasks; use: ralph task generate "...", or --from FILE'


@value
class TaskDestination:
    """Where valid tasks go."""

    file: str | None
    kept: bool


def generate_parser() -> Parser:
    parser = Parser("task generate", GENERATE_ABOUT, GENERATE_EXAMPLES)
    add = parser.add
    add("text", "what should be achieved", nargs="?", metavar="TEXT")
    add("--from FILE", "read the request from a document; - is standard input", dest="source")
    add("--spec ID", "spec or feature that the tasks belong to")
    add("-o, --output FILE", "write the tasks as YAML; save them only with --import")
    add("--import", "save the tasks (the default without -o)", dest="kept", action=BooleanOptionalAction)
    add("--force", "with -o: overwrite the file")
    about = "most iterations (default: 5)"
    add("-m, --maximum-iterations, -n, --max-iterations N", about, type=positive_int)
    add_agent_flags(parser)
    add("--resume RUN", "continue such a run, or save its tasks", nargs="?", const=LATEST)
    return parser


def generate_main(argv: list[str]) -> int:
    args = generate_parser().parse(argv)
    text, destination = _source_text(args), _destination_from_flags(args)
    _refuse_bad_spec(args.spec)
    settings = settings_from_flags(args) | (
        {"maximumIterations": args.maximum_iterations} if args.maximum_iterations else {}
    )
    request, project = agent_request(args, ("", None), settings), open_project(args.project_dir, os.environ)
    generator = TaskGenerator(project, args.spec or "", request, DisplayFlags.of(args))
    generation = generator.generate(text) if args.resume is None else generator.resume(args.resume)
    if not isinstance(generation.outcome, Completed):
        return _print_failure(generation, args, generator.project)
    answer = generator.read(generation.message, taken=True)
    if answer.problems:  # its dependencies may be deleted meanwhile
        raise Refused("\n".join(answer.problems))
    return _save_and_print(generation, answer.drafts, destination, args, generator.project)


def _source_text(args: Namespace) -> str:
    """The request to split into tasks; empty for a resumed run, which has it."""
    if args.resume is not None:
        if args.text is not None or args.source is not None:
            raise Refused(NO_NEW_PROMPT)
        return ""
    if args.text is not None and args.source is not None:
        raise Refused("give TEXT or --from FILE, not both")
    if args.source == "-":
        text = read_stdin_text("--from -")
    elif args.source is not None:
        return PromptPlan(None, os.path.realpath(args.source)).read().tasks[0].prompt
    else:
        text = args.text or ""
    if not text.strip():
        raise Refused(NO_TEXT_MESSAGE)
    return PromptPlan(text).read().tasks[0].prompt


def _refuse_bad_spec(spec: str | None) -> None:
    """Refuse a spec that would make every task invalid."""
    for fault in TASK_RULES["spec_id"](spec) if spec is not None else ():
        raise Refused(f"--spec{fault}")


def _destination_from_flags(args: Namespace) -> TaskDestination:
    """Where the tasks go; refuses an unusable file before the agent starts."""
    save = args.kept if args.kept is not None else args.output is None
    if args.output is None:
        if args.force:
            raise Refused("--force is for -o FILE")
        return TaskDestination(None, save)
    path = os.path.abspath(args.output)
    if not os.path.isdir(os.path.dirname(path)):
        raise Refused(f"{os.path.dirname(path)} is not a directory; name another place with -o")
    _refuse_existing(path, args.force)
    return TaskDestination(path, save)


def _refuse_existing(path: str, force: bool) -> None:
    if os.path.isdir(path):
        raise Refused(f"{path} is a directory; name a file with -o")
    if os.path.lexists(path) and not force:
        raise Refused(f"{path} exists; --force overwrites it")


def _print_failure(generation: Generation, args: Namespace, project: Project) -> int:
    """Print the outcome and the errors of the last answer; the exit code."""
    if args.json:
        _print_json_result(generation, (), [], TaskDestination(None, False))
        return generation.outcome.exit_code
    if not args.quiet:
        next_step = "see ralph status and logs; continue: ralph task generate --resume"
        print(f"run {generation.run} ended; {next_step} {generation.run}", file=sys.stderr)
    if generation.problems:
        print_lines("the last answer was refused:", *(f"  {project.mask(problem)}" for problem in generation.problems))
    print_lines(*(project.mask(line) for line in phrases.describe_outcome(generation.outcome)))
    return generation.outcome.exit_code


def _save_and_print(
    generation: Generation,
    drafts: tuple[TaskDraft, ...],
    destination: TaskDestination,
    args: Namespace,
    project: Project,
) -> int:
    """Save or write valid tasks, and print them."""
    if destination.file is not None:
        _refuse_existing(destination.file, args.force)
        write_task_file(destination.file, write_yaml(drafts, "list"))
    if destination.kept:
        _save_tasks(project, drafts, generation.run)
    warnings = [*(remark for draft in drafts for remark in draft_warnings(draft)), *secret_warnings(drafts, project)]
    if args.json:
        _print_json_result(generation, drafts, warnings, destination)
        return 0
    if not args.quiet:
        print(f"run {generation.run} ended: {' '.join(phrases.describe_outcome(generation.outcome))}", file=sys.stderr)
    rows = [(draft.id, str(draft.priority), ", ".join(draft.dependencies), draft.title) for draft in drafts]
    print_lines(*(project.mask(line) for line in align_columns([("id", "priority", "depends on", "title"), *rows])))
    print_lines(*(f"note: {project.mask(remark)}" for remark in warnings))
    number = phrases.format_count(len(drafts), "task")
    print_lines(*([f"{number} written to {destination.file}"] if destination.file is not None else []))
    print_lines(
        f"{number} saved; work on them: ralph work"
        if destination.kept
        else _not_saved_note(destination, generation.run)
    )
    return 0


def _not_saved_note(destination: TaskDestination, run: str) -> str:
    how = (
        f"ralph task import {destination.file}"
        if destination.file is not None
        else f"ralph task generate --resume {run}"
    )
    return f"none is saved; to save them: {how}"


def _save_tasks(project: Project, drafts: tuple[TaskDraft, ...], run: str) -> None:
    ledger = project.ledger(read_only=False)
    try:
        add_tasks(ledger, drafts, ())
    except Refused as error:
        hint = f"run {run} has them: ralph task generate --resume {run} -o FILE writes them"
        raise Refused(f"{error}\nno task is saved; {hint}") from error
    finally:
        ledger.close()


def _print_json_result(
    generation: Generation, drafts: tuple[TaskDraft, ...], warnings: list[str], destination: TaskDestination
) -> None:
    tasks: list[Json] = [draft_to_dict(draft) for draft in drafts]
    outcome = {
        name: inner
        for name, inner in outcome_fields(generation.outcome).items()
        if name not in ("output", "lastOutput")
    }
    data: dict[str, Json] = {
        "run": generation.run, "tasks": tasks, "kept": destination.kept, "file": destination.file,
        "problems": [*generation.problems],
        "remarks": [*warnings], **outcome,
    }  # fmt: skip
    print_json("generated", data)
