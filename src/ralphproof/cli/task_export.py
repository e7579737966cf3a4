"""`ralph task export`: write tasks as a file that can be imported."""

from __future__ import annotations

import os
import sys

from ralphproof.backlog import CANCELLED, DONE, TODO
from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser
from ralphproof.cli.task_store import draft_of, existing
from ralphproof.display import words
from ralphproof.errors import Refused
from ralphproof.plans.yaml_out import written
from ralphproof.value import TYPE_CHECKING, replace
from ralphproof.views.project import Project
from ralphproof.views.task_view import TaskView

if TYPE_CHECKING:
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.ledgers.tasks import TaskRow
    from ralphproof.plans.draft import Draft

ABOUT = """write tasks as a file of YAML that can be imported: those that are named, else all.

One task that is named is written alone, under the key task; --shape list makes a list of it. Of how a task stands only
that it is done or cancelled is written."""
EXAMPLES = (
    "ralph task export -o tasks.yaml",
    "ralph task export TASK-001",
    "ralph task export TASK-001 TASK-002 | ralph task import - -d ../other",
)


def parser() -> Parser:
    made = Parser("task export", ABOUT, EXAMPLES)
    made.add_argument("ids", nargs="*", metavar="ID", help="tasks by their ids (default: all)")
    made.add_argument("-o", "--output", metavar="FILE", help="write to this file (default: standard output)")
    made.add_argument("--shape", choices=("task", "list"), help="one task alone, or a list")
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    project = Project.seen(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        rows = [existing(ledger, id) for id in dict.fromkeys(args.ids)] if args.ids else list(ledger.tasks.rows())
        drafts = tuple(_draft(ledger, row, project) for row in rows)
    finally:
        ledger.close()
    shape = args.shape or ("task" if len(args.ids) == 1 else "list")
    if shape == "task" and len(drafts) != 1:
        raise Refused(f"--shape task is for one task, and these are {len(drafts)}; name it, or use --shape list")
    text = written(drafts, shape)
    if args.output is not None:
        _write(args.output, text)
    if args.json:
        put_json("export", {"shape": shape, "tasks": len(drafts), "file": args.output, "text": text})
    elif args.output is not None:
        put(f"{words.count(len(drafts), 'task')} written to {args.output}")
    else:
        _print(text)
    return 0


def _draft(ledger: Sqlite, row: TaskRow, project: Project) -> Draft:
    draft, unread = draft_of(row)
    if unread:
        raise Refused(f"task {row.id} cannot be written: {unread}; ralph task show {row.id} shows it")
    status = TaskView.of(ledger, row, project).status
    return replace(draft, status=status if status in (DONE, CANCELLED) else TODO)


def _print(text: str) -> None:
    """As it is for programs; a terminal obeys nothing that stands in it."""
    from ralphproof.display.clean import clean

    sys.stdout.flush()
    if sys.stdout.isatty():
        print(clean(text), end="")
    else:
        sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))


def _write(path: str, text: str) -> None:
    from ralphproof.errors import from_system
    from ralphproof.ledgers.files import NO_SPACE, write_whole

    place, name = os.path.split(os.path.abspath(path))
    try:
        folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            write_whole(folder, name, text.encode("utf-8", "surrogateescape"), private=False)
        finally:
            os.close(folder)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise from_system(error) from error
        raise Refused(f"cannot write {path}: {error.strerror or error}; name another file") from error
