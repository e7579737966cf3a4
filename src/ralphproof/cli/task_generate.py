"""`ralph task generate`: tasks drafted by an agent."""

from __future__ import annotations

import os
import sys
from argparse import BooleanOptionalAction

from ralphproof.base.errors import Refused
from ralphproof.base.standard_streams import read_stdin_text
from ralphproof.base.value import TYPE_CHECKING, Json, value
from ralphproof.cli.parser import Parser, positive_int
from ralphproof.cli.run import NO_NEW_PROMPT, add_agent_flags
from ralphproof.display import phrases
from ralphproof.display.output import align_columns, print_json, print_lines
from ralphproof.engine.outcome import Completed, outcome_fields
from ralphproof.planning.task_generation import Generation, TaskGenerator
from ralphproof.runs.open_project import open_project
from ralphproof.runs.request import LATEST_RUN
from ralphproof.store.project import Project
from ralphproof.tasks.draft import TASK_RULES, TaskDraft, draft_to_dict, draft_warnings
from ralphproof.tasks.files import write_task_file, write_yaml
from ralphproof.tasks.plans import PromptPlan
from ralphproof.tasks.store import add_tasks, secret_warnings

if TYPE_CHECKING:
    from argparse import Namespace


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
    add = parser.add_argument
    add("text", nargs="?", metavar="TEXT", help="what should be achieved")
    add("--from", dest="source", metavar="FILE", help="read the request from a document; - is standard input")
    add("--spec", metavar="ID", help="spec or feature that the tasks belong to")
    add("-o", "--output", metavar="FILE", help="write the tasks as YAML; save them only with --import")
    add("--import", dest="kept", action=BooleanOptionalAction, help="save the tasks (the default without -o)")
    add("--force", action="store_true", help="with -o: overwrite the file")
    about = "most iterations (default: 5)"
    add("-m", "--maximum-iterations", "-n", "--max-iterations", type=positive_int, metavar="N", help=about)
    add_agent_flags(parser)
    add("--resume", nargs="?", const=LATEST_RUN, metavar="RUN", help="continue such a run, or save its tasks")
    return parser


def generate_main(argv: list[str]) -> int:
    args = generate_parser().parse(argv)
    text, destination = _source_text(args), _destination_from_flags(args)
    _refuse_bad_spec(args.spec)
    generator = TaskGenerator(open_project(args.project_dir, os.environ), args.spec or "")
    generation = generator.generate(args, text) if args.resume is None else generator.resume(args, args.resume)
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
