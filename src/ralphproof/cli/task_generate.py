"""`ralph task generate`: let an agent break a wish or a document into tasks, and take none that is not valid."""

from __future__ import annotations

import os
import sys
from argparse import BooleanOptionalAction

from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser, amount, positive
from ralphproof.cli.run import AGENT, LATEST, NO_NEW_PROMPT, add_holding
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.verdict import Completed
from ralphproof.views.project import Project

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.cli.task_drafting import Drafted
    from ralphproof.plans.draft import Draft
    from ralphproof.value import Json

ABOUT = """let an agent break a wish or a document into tasks, and take none that is not valid.

This is a run as every other: it is recorded, has limits, can be cancelled and resumed. Its check reads the tasks in the
agent's last message. What is wrong with them, to the last field, is told in the next prompt, until they are valid or
the iterations are used up (exit code 1). The agent changes no file: what it changes is put back, and its answer is
refused. Valid tasks are kept, all or none."""
EXAMPLES = (
    'ralph task generate "Let users export their data as CSV and as JSON" --spec export',
    "ralph task generate --from docs/auth-feature.md --spec auth-feature",
    "ralph task generate --from docs/auth-feature.md -o tasks.yaml",
    'ralph task generate "Add a dark mode" --no-import --agent claude --max-cost-usd 1',
    "ralph task generate --resume",
)
NO_TEXT = 'nothing to break into tasks; say what should become true: ralph task generate "...", or --from FILE'


@value
class Ways:
    """Where valid tasks go."""

    file: str | None
    kept: bool


def parser() -> Parser:
    made = Parser("task generate", ABOUT, EXAMPLES)
    add = made.add_argument
    add("text", nargs="?", metavar="TEXT", help="what should become true")
    add("--from", dest="source", metavar="FILE", help="the same from a document; - is standard input")
    add("--spec", metavar="ID", help="the spec or feature that the tasks belong to")
    add("-o", "--output", metavar="FILE", help="write the tasks as YAML, and keep none unless --import says so")
    add("--import", dest="kept", action=BooleanOptionalAction, help="keep the tasks (the default without -o)")
    add("--force", action="store_true", help="with -o: overwrite the file")
    often = "ask at most so often (default: 5)"
    add("-m", "--maximum-iterations", "-n", "--max-iterations", type=positive, metavar="N", help=often)
    add("--agent", metavar="CMD", help=AGENT)
    add("--model", metavar="M", help="the model that the agent is asked to use")
    add("--max-cost-usd", type=amount, metavar="USD", help="stop when the run has spent so much")
    add("--max-minutes", type=amount, metavar="M", help="stop after M minutes")
    add("--allow-unknown-cost", action="store_true", help="with a cost limit, run an agent that cannot report its cost")
    add_holding(made)
    add("--resume", nargs="?", const=LATEST, metavar="RUN", help="go on with such a run, or keep what it came to")
    return made


def main(argv: list[str]) -> int:
    from ralphproof.cli.task_drafting import Reader, drafted

    args = parser().parse(argv)
    text, ways = _text(args), _ways(args)
    _refuse_spec(args.spec)
    reader = Reader(Project.at(args.project_dir, os.environ), args.spec or "")
    end = drafted(args, text, reader)
    if not isinstance(end.outcome, Completed):
        return _failed(end, args, reader.project)
    answer = reader.read(end.said, renewed=True)
    if answer.problems:  # what it depends on may be gone
        raise Refused("\n".join(answer.problems))
    return _settled(end, answer.drafts, ways, args, reader.project)


def _text(args: Namespace) -> str:
    """What is to be broken into tasks; empty for a run that is taken up, which has it."""
    from ralphproof.plans.inline import Inline

    if args.resume is not None:
        if args.text is not None or args.source is not None:
            raise Refused(NO_NEW_PROMPT)
        return ""
    if args.text is not None and args.source is not None:
        raise Refused("give TEXT or --from FILE, not both")
    if args.source == "-":
        from ralphproof.cli.standard_input import read_text

        text = read_text("--from -")
    elif args.source is not None:
        return Inline(None, os.path.realpath(args.source)).read().tasks[0].prompt
    else:
        text = args.text or ""
    if not text.strip():
        raise Refused(NO_TEXT)
    return Inline(text).read().tasks[0].prompt


def _refuse_spec(spec: str | None) -> None:
    """A spec that no task can have would be refused in every answer."""
    from ralphproof.plans.problems import TASK

    for fault in TASK["spec_id"](spec) if spec is not None else ():
        raise Refused(f"--spec{fault}")


def _ways(args: Namespace) -> Ways:
    """Where the tasks are to go; what could not work later is refused before anybody is asked."""
    kept = args.kept if args.kept is not None else args.output is None
    if args.output is None:
        if args.force:
            raise Refused("--force is for -o FILE")
        return Ways(None, kept)
    path = os.path.abspath(args.output)
    if not os.path.isdir(os.path.dirname(path)):
        raise Refused(f"{os.path.dirname(path)} is not a directory; name another place with -o")
    _refuse_taken(path, args.force)
    return Ways(path, kept)


def _refuse_taken(path: str, force: bool) -> None:
    if os.path.isdir(path):
        raise Refused(f"{path} is a directory; name a file with -o")
    if os.path.lexists(path) and not force:
        raise Refused(f"{path} exists; --force overwrites it")


def _failed(end: Drafted, args: Namespace, project: Project) -> int:
    """Say how it ended, and what was wrong with the last answer; the exit code."""
    from ralphproof.display import words

    if args.json:
        _publish(end, (), [], Ways(None, False))
        return end.outcome.exit_code
    if not args.quiet:
        onward = "ralph status and logs say more; go on: ralph task generate --resume"
        print(f"run {end.run} is over; {onward} {end.run}", file=sys.stderr)
    if end.problems:
        put("the last answer is refused:", *(f"  {project.mask(problem)}" for problem in end.problems))
    put(*(project.mask(line) for line in words.outcome(end.outcome)))
    return end.outcome.exit_code


def _settled(end: Drafted, drafts: tuple[Draft, ...], ways: Ways, args: Namespace, project: Project) -> int:
    """Put valid tasks where they are to go, and show them."""
    from ralphproof.cli.task_list import aligned
    from ralphproof.cli.task_store import masked_remarks
    from ralphproof.display import words
    from ralphproof.plans.problems import remarks

    if ways.file is not None:
        _write(ways.file, drafts, args.force)
    if ways.kept:
        _keep(project, drafts, end.run)
    told = [*(remark for draft in drafts for remark in remarks(draft)), *masked_remarks(drafts, project)]
    if args.json:
        _publish(end, drafts, told, ways)
        return 0
    if not args.quiet:
        print(f"run {end.run} is over: {' '.join(words.outcome(end.outcome))}", file=sys.stderr)
    rows = [(draft.id, str(draft.priority), ", ".join(draft.dependencies), draft.title) for draft in drafts]
    put(*(project.mask(line) for line in aligned([("id", "priority", "depends on", "title"), *rows])))
    put(*(f"note: {project.mask(remark)}" for remark in told))
    number = words.count(len(drafts), "task")
    put(*([f"{number} written to {ways.file}"] if ways.file is not None else []))
    put(f"{number} kept; work on them: ralph work" if ways.kept else _not_kept(ways, end.run))
    return 0


def _not_kept(ways: Ways, run: str) -> str:
    how = f"ralph task import {ways.file}" if ways.file is not None else f"ralph task generate --resume {run}"
    return f"none is kept; to keep them: {how}"


def _keep(project: Project, drafts: tuple[Draft, ...], run: str) -> None:
    from ralphproof.cli.task_store import add_all

    ledger = project.ledger(read_only=False)
    try:
        add_all(ledger, drafts, ())
    except Refused as error:
        onward = f"run {run} has them: ralph task generate --resume {run} -o FILE writes them"
        raise Refused(f"{error}\nno task is kept; {onward}") from error
    finally:
        ledger.close()


def _write(path: str, drafts: tuple[Draft, ...], force: bool) -> None:
    from ralphproof.ledgers.files import write_whole
    from ralphproof.plans.yaml_out import written

    _refuse_taken(path, force)
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        write_whole(folder, os.path.basename(path), written(drafts, "list").encode(), private=False)
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror}") from error
    finally:
        os.close(folder)


def _publish(end: Drafted, drafts: tuple[Draft, ...], told: list[str], ways: Ways) -> None:
    from ralphproof.plans.draft import data_of
    from ralphproof.verdict import result

    tasks: list[Json] = [data_of(draft) for draft in drafts]
    outcome = {name: inner for name, inner in result(end.outcome).items() if name not in ("output", "lastOutput")}
    data: dict[str, Json] = {
        "run": end.run, "tasks": tasks, "kept": ways.kept, "file": ways.file, "problems": [*end.problems],
        "remarks": [*told], **outcome,
    }  # fmt: skip
    put_json("generated", data)
