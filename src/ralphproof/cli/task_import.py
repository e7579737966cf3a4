"""`ralph task import`: make tasks from files."""

from __future__ import annotations

import os

from ralphproof.backlog import CANCELLED, DONE, TODO
from ralphproof.cli.in_turn import refuse_in_turn
from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser
from ralphproof.cli.task_files import entries, sorted_out
from ralphproof.cli.task_store import changes, draft_of, masked_remarks, refuse_worked_on, row_of
from ralphproof.errors import Refused
from ralphproof.plans.problems import remarks
from ralphproof.value import TYPE_CHECKING, replace, value
from ralphproof.views.project import Project
from ralphproof.views.task_view import TaskView

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.cli.task_files import TaskEntry
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.ledgers.tasks import TaskRow
    from ralphproof.plans.draft import Draft
    from ralphproof.value import Json

ABOUT = """make tasks from files of YAML or JSON: one task, or a list of them; - is standard input.

All of them are kept, or none, and then everything that is wrong is said (exit code 2). With --partial those are kept
that have nothing wrong and depend on nothing that has; the others are named, and the exit code is 2 as well. Tasks that
exist already are changed with --update: all that the file says of them, but of the status only that they are done or
cancelled."""
EXAMPLES = (
    "ralph task import tasks.yaml",
    "ralph task import tasks/*.yaml --dry-run",
    "ralph task import tasks.yaml --update",
    "generate-tasks | ralph task import - --partial",
)


@value
class Imported:
    """What came of it."""

    added: tuple[Draft, ...]
    changed: tuple[Draft, ...]
    same: tuple[str, ...]
    problems: tuple[str, ...]


def parser() -> Parser:
    made = Parser("task import", ABOUT, EXAMPLES)
    made.add_argument("files", nargs="+", metavar="FILE", help="a file of tasks; - is standard input")
    made.add_argument("--update", action="store_true", help="change tasks that exist already")
    made.add_argument("--partial", action="store_true", help="keep what has nothing wrong, and name the others")
    made.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    project = Project.seen(args.project_dir, os.environ) if args.dry_run else Project.at(args.project_dir, os.environ)
    if args.update:
        refuse_in_turn("task import --update")
    found = entries(args.files)
    ledger = project.ledger(read_only=args.dry_run)
    try:
        if args.dry_run:
            made = _sorted(ledger, project, found, args)[0]
        else:
            made = ledger.tasks.together(lambda: _kept(ledger, project, found, args))
    finally:
        ledger.close()
    _tell(made, project, args)
    return 2 if made.problems else 0


def _kept(ledger: Sqlite, project: Project, found: tuple[TaskEntry, ...], args: Namespace) -> Imported:
    made, fields = _sorted(ledger, project, found, args)
    ledger.tasks.add(map(row_of, made.added))
    for id, changed in fields.items():
        ledger.tasks.change(id, changed)
    return made


def _sorted(
    ledger: Sqlite, project: Project, found: tuple[TaskEntry, ...], args: Namespace
) -> tuple[Imported, dict[str, dict[str, object]]]:  # fmt: skip
    """What is to be added and changed, and the fields that change; raises Refused where not all of it can be."""
    rows = {row.id: row for row in ledger.tasks.rows()}
    sieve = sorted_out(found, {row.id: row.dependencies for row in rows.values()}, args.update)
    if sieve.problems and not args.partial:
        raise Refused("\n".join(sieve.problems))
    drafts = [replace(draft, status=_word(draft.status)) for draft in sieve.good]
    again = {draft.id: _fields(ledger, project, rows[draft.id], draft) for draft in drafts if draft.id in rows}
    fields = {id: changed for id, changed in again.items() if changed}
    for id in fields:
        refuse_worked_on(ledger, project, id)
    added, changed = (tuple(one for one in drafts if one.id in ids) for ids in ({*_ids(drafts)} - {*rows}, fields))
    return Imported(added, changed, tuple(id for id in again if id not in fields), sieve.problems), fields


def _ids(drafts: list[Draft]) -> list[str]:
    return [draft.id for draft in drafts]


def _word(status: str) -> str:
    """What a file's status is as a user's word: how far the work of others had come tells nothing here."""
    return status if status in (DONE, CANCELLED) else TODO


def _fields(ledger: Sqlite, project: Project, row: TaskRow, draft: Draft) -> dict[str, object]:
    """What an update changes. A file that says todo opens nothing again; that is said with `ralph task edit`."""
    before = row_of(draft_of(row)[0])
    fields = changes(replace(before, status=row.status), row_of(replace(draft, status=row.status)))
    if draft.status != TODO and draft.status != TaskView.of(ledger, row, project).status:
        fields["status"] = draft.status
    return fields


def _tell(made: Imported, project: Project, args: Namespace) -> None:
    drafts = (*made.added, *made.changed)
    told = [remark for draft in drafts for remark in remarks(draft)] + masked_remarks(drafts, project)
    added, changed = ([draft.id for draft in group] for group in (made.added, made.changed))
    if args.json:
        kept: dict[str, Json] = {"added": [*added], "changed": [*changed], "unchanged": [*made.same]}
        put_json("import", {**kept, "dryRun": args.dry_run, "problems": [*made.problems], "remarks": [*told]})
        return
    would = "would be " if args.dry_run else ""
    for what, ids in (("added", added), ("changed", changed)):
        put(*([f"{would}{what}: {', '.join(ids)}"] if ids else []))
    put(*([f"unchanged: {', '.join(made.same)}"] if made.same else []), *(f"note: {remark}" for remark in told))
    put(*(f"left out: {problem}" for problem in made.problems))
    if not drafts and not made.same and not made.problems:
        put("there is no task in it")
