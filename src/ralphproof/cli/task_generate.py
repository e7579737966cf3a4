"""`ralph task generate`: tasks drafted by an agent."""

from __future__ import annotations

import os
import sys
from argparse import BooleanOptionalAction

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.cli.parser import Parser, positive_int, positive_number
from ralphproof.cli.run import AGENT_HELP, NO_NEW_PROMPT, add_sandbox_flags
from ralphproof.display.output import print_json, print_lines
from ralphproof.engine.outcome import Completed
from ralphproof.runs.open_project import open_project
from ralphproof.runs.request_flags import LATEST_RUN
from ralphproof.store.project import Project

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.base.value import Json
    from ralphproof.planning.task_generation import Drafted
    from ralphproof.tasks.draft import TaskDraft

GENERATE_ABOUT = """let an agent break a wish or a document into tasks, and take none that is not valid.

This is a run as every other: it is recorded, has limits, can be cancelled and resumed. Its check reads the tasks in the
agent's last message. What is wrong with them, to the last field, is told in the next prompt, until they are valid or
the iterations are used up (exit code 1). The agent changes no file: what it changes is put back, and its answer is
refused. Valid tasks are kept, all or none."""
GENERATE_EXAMPLES = (
    'ralph task generate "Let users export their data as CSV and as JSON" --spec export',
    "ralph task generate --from docs/auth-feature.md --spec auth-feature",
    "ralph task generate --from docs/auth-feature.md -o tasks.yaml",
    'ralph task generate "Add a dark mode" --no-import --agent claude --max-cost-usd 1',
    "ralph task generate --resume",
)
NO_TEXT_MESSAGE = 'nothing to break into tasks; say what should become true: ralph task generate "...", or --from FILE'


@value
class TaskDestination:
    """Where valid tasks go."""

    file: str | None
    kept: bool


def generate_parser() -> Parser:
    parser = Parser("task generate", GENERATE_ABOUT, GENERATE_EXAMPLES)
    add = parser.add_argument
    add("text", nargs="?", metavar="TEXT", help="what should become true")
    add("--from", dest="source", metavar="FILE", help="the same from a document; - is standard input")
    add("--spec", metavar="ID", help="the spec or feature that the tasks belong to")
    add("-o", "--output", metavar="FILE", help="write the tasks as YAML, and keep none unless --import says so")
    add("--import", dest="kept", action=BooleanOptionalAction, help="keep the tasks (the default without -o)")
    add("--force", action="store_true", help="with -o: overwrite the file")
    often = "ask at most so often (default: 5)"
    add("-m", "--maximum-iterations", "-n", "--max-iterations", type=positive_int, metavar="N", help=often)
    add("--agent", metavar="CMD", help=AGENT_HELP)
    add("--model", metavar="M", help="model to request from the agent")
    add("--max-cost-usd", type=positive_number, metavar="USD", help="stop when the run has spent this much")
    add("--max-minutes", type=positive_number, metavar="M", help="stop after M minutes")
    add("--allow-unknown-cost", action="store_true", help="with a cost limit, run an agent that cannot report its cost")
    add_sandbox_flags(parser)
    add("--resume", nargs="?", const=LATEST_RUN, metavar="RUN", help="go on with such a run, or keep what it came to")
    return parser


def generate_main(argv: list[str]) -> int:
    from ralphproof.planning.task_generation import Reader, drafted

    args = generate_parser().parse(argv)
    text, ways = _source_text(args), _destination_from_flags(args)
    _refuse_bad_spec(args.spec)
    reader = Reader(open_project(args.project_dir, os.environ), args.spec or "")
    end = drafted(args, text, reader)
    if not isinstance(end.outcome, Completed):
        return _print_failure(end, args, reader.project)
    answer = reader.read(end.said, renewed=True)
    if answer.problems:  # what it depends on may be gone
        raise Refused("\n".join(answer.problems))
    return _save_and_print(end, answer.drafts, ways, args, reader.project)


def _source_text(args: Namespace) -> str:
    """What is to be broken into tasks; empty for a run that is taken up, which has it."""
    from ralphproof.tasks.plans import PromptPlan

    if args.resume is not None:
        if args.text is not None or args.source is not None:
            raise Refused(NO_NEW_PROMPT)
        return ""
    if args.text is not None and args.source is not None:
        raise Refused("give TEXT or --from FILE, not both")
    if args.source == "-":
        from ralphproof.base.standard_streams import read_stdin_text

        text = read_stdin_text("--from -")
    elif args.source is not None:
        return PromptPlan(None, os.path.realpath(args.source)).read().tasks[0].prompt
    else:
        text = args.text or ""
    if not text.strip():
        raise Refused(NO_TEXT_MESSAGE)
    return PromptPlan(text).read().tasks[0].prompt


def _refuse_bad_spec(spec: str | None) -> None:
    """A spec that no task can have would be refused in every answer."""
    from ralphproof.tasks.draft import TASK_RULES

    for fault in TASK_RULES["spec_id"](spec) if spec is not None else ():
        raise Refused(f"--spec{fault}")


def _destination_from_flags(args: Namespace) -> TaskDestination:
    """Where the tasks are to go; what could not work later is refused before anybody is asked."""
    kept = args.kept if args.kept is not None else args.output is None
    if args.output is None:
        if args.force:
            raise Refused("--force is for -o FILE")
        return TaskDestination(None, kept)
    path = os.path.abspath(args.output)
    if not os.path.isdir(os.path.dirname(path)):
        raise Refused(f"{os.path.dirname(path)} is not a directory; name another place with -o")
    _refuse_existing(path, args.force)
    return TaskDestination(path, kept)


def _refuse_existing(path: str, force: bool) -> None:
    if os.path.isdir(path):
        raise Refused(f"{path} is a directory; name a file with -o")
    if os.path.lexists(path) and not force:
        raise Refused(f"{path} exists; --force overwrites it")


def _print_failure(end: Drafted, args: Namespace, project: Project) -> int:
    """Say how it ended, and what was wrong with the last answer; the exit code."""
    from ralphproof.display import phrases

    if args.json:
        _print_json_result(end, (), [], TaskDestination(None, False))
        return end.outcome.exit_code
    if not args.quiet:
        onward = "ralph status and logs say more; go on: ralph task generate --resume"
        print(f"run {end.run} is over; {onward} {end.run}", file=sys.stderr)
    if end.problems:
        print_lines("the last answer is refused:", *(f"  {project.mask(problem)}" for problem in end.problems))
    print_lines(*(project.mask(line) for line in phrases.describe_outcome(end.outcome)))
    return end.outcome.exit_code


def _save_and_print(
    end: Drafted, drafts: tuple[TaskDraft, ...], ways: TaskDestination, args: Namespace, project: Project
) -> int:
    """Put valid tasks where they are to go, and show them."""
    from ralphproof.display import phrases
    from ralphproof.display.output import align_columns
    from ralphproof.tasks.draft import draft_warnings
    from ralphproof.tasks.store import secret_warnings

    if ways.file is not None:
        _write_tasks(ways.file, drafts, args.force)
    if ways.kept:
        _save_tasks(project, drafts, end.run)
    told = [*(remark for draft in drafts for remark in draft_warnings(draft)), *secret_warnings(drafts, project)]
    if args.json:
        _print_json_result(end, drafts, told, ways)
        return 0
    if not args.quiet:
        print(f"run {end.run} is over: {' '.join(phrases.describe_outcome(end.outcome))}", file=sys.stderr)
    rows = [(draft.id, str(draft.priority), ", ".join(draft.dependencies), draft.title) for draft in drafts]
    print_lines(*(project.mask(line) for line in align_columns([("id", "priority", "depends on", "title"), *rows])))
    print_lines(*(f"note: {project.mask(remark)}" for remark in told))
    number = phrases.format_count(len(drafts), "task")
    print_lines(*([f"{number} written to {ways.file}"] if ways.file is not None else []))
    print_lines(f"{number} kept; work on them: ralph work" if ways.kept else _not_saved_note(ways, end.run))
    return 0


def _not_saved_note(ways: TaskDestination, run: str) -> str:
    how = f"ralph task import {ways.file}" if ways.file is not None else f"ralph task generate --resume {run}"
    return f"none is kept; to keep them: {how}"


def _save_tasks(project: Project, drafts: tuple[TaskDraft, ...], run: str) -> None:
    from ralphproof.tasks.store import add_tasks

    ledger = project.ledger(read_only=False)
    try:
        add_tasks(ledger, drafts, ())
    except Refused as error:
        onward = f"run {run} has them: ralph task generate --resume {run} -o FILE writes them"
        raise Refused(f"{error}\nno task is kept; {onward}") from error
    finally:
        ledger.close()


def _write_tasks(path: str, drafts: tuple[TaskDraft, ...], force: bool) -> None:
    from ralphproof.base.files import write_atomically
    from ralphproof.tasks.files import write_yaml

    _refuse_existing(path, force)
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        write_atomically(folder, os.path.basename(path), write_yaml(drafts, "list").encode(), private=False)
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror}") from error
    finally:
        os.close(folder)


def _print_json_result(end: Drafted, drafts: tuple[TaskDraft, ...], told: list[str], ways: TaskDestination) -> None:
    from ralphproof.engine.outcome import outcome_json
    from ralphproof.tasks.draft import draft_to_dict

    tasks: list[Json] = [draft_to_dict(draft) for draft in drafts]
    outcome = {name: inner for name, inner in outcome_json(end.outcome).items() if name not in ("output", "lastOutput")}
    data: dict[str, Json] = {
        "run": end.run, "tasks": tasks, "kept": ways.kept, "file": ways.file, "problems": [*end.problems],
        "remarks": [*told], **outcome,
    }  # fmt: skip
    print_json("generated", data)
