"""`ralph task edit`: change a task, or say how it stands."""

from __future__ import annotations

import os

from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser
from ralphproof.cli.task_flags import add_stage_flags, add_task_flags, completion_of, pairs
from ralphproof.cli.task_store import (
    changes,
    draft_of,
    existing,
    masked_remarks,
    refuse_worked_on,
    row_of,
    usual_promises,
    wrong_with,
)
from ralphproof.config.keys import STAGES
from ralphproof.errors import Refused
from ralphproof.ledgers.tasks import SAID
from ralphproof.plans.draft import Draft
from ralphproof.plans.graph import tangles
from ralphproof.plans.problems import remarks
from ralphproof.value import TYPE_CHECKING, replace
from ralphproof.views.project import Project
from ralphproof.views.task_view import TaskView

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.ledgers.sqlite import Sqlite

ABOUT = """change a task, or say how it stands.

What a flag says takes the place of what was there: --acceptance and --depends-on give the whole list anew (one empty
text empties it), --metadata KEY=VALUE sets one entry and KEY= takes it out, a stage keeps what is not said anew.
--status todo opens a task again that has failed or is done. A task that a run works on cannot be changed, and no agent
changes a task."""
EXAMPLES = (
    "ralph task edit TASK-001 --priority 1 --acceptance 'Login returns a token' --acceptance 'Logout works'",
    "ralph task edit TASK-001 --tester-verify-cmd 'pytest tests/auth' --clear-qa",
    "ralph task edit TASK-001 --status todo",
)


def parser() -> Parser:
    made = Parser("task edit", ABOUT, EXAMPLES)
    made.add_argument("id", metavar="ID", help="the task")
    made.add_argument("--title", metavar="TEXT", help="a few words")
    made.add_argument("--spec", metavar="SPEC", help="the spec or feature that it belongs to")
    made.add_argument("--status", choices=SAID, metavar="S", help=f"how it stands, by your word: {', '.join(SAID)}")
    add_task_flags(made)
    for stage in STAGES:
        help = f"drop what it says of the {stage}; flags of that stage beside it begin anew"
        made.add_argument(f"--clear-{stage}", action="store_true", help=help)
    add_stage_flags(made)
    return made


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    project = Project.at(args.project_dir, os.environ)
    ledger = project.ledger(read_only=False)
    try:
        draft, names = ledger.tasks.together(lambda: _edited(ledger, project, args))
        view = TaskView.of(ledger, existing(ledger, args.id), project)
    finally:
        ledger.close()
    told = [*remarks(draft), *masked_remarks((draft,), project)]
    if args.json:
        put_json("task", {**view.published(), "changed": [*names], "remarks": [*told]})
    else:
        put(f"task {draft.id} is changed: {', '.join(names)}", *(f"note: {remark}" for remark in told))
    return 0


def _edited(ledger: Sqlite, project: Project, args: Namespace) -> tuple[Draft, tuple[str, ...]]:
    """Change the task, or raise Refused with all that the change would break; what it is now, and what has changed.

    What was wrong before is no reason to refuse: rows of older versions have no completion spec at all.
    """
    row, problems = existing(ledger, args.id), list[str]()
    refuse_worked_on(ledger, project, row.id)
    before, _ = draft_of(row)
    after = _changed(before, args, project, problems)
    known = {other.id: other.dependencies for other in ledger.tasks.rows()}
    old = {*wrong_with(before), *tangles((before,), known)}
    problems += [fault for fault in (*wrong_with(after), *tangles((after,), known)) if fault not in old]
    if problems:
        raise Refused("\n".join(problems))
    fields = changes(row_of(before), row_of(after)) | ({"status": args.status} if args.status else {})
    if not fields:
        raise Refused("nothing is to be changed; say what by flags (see ralph task edit --help)")
    ledger.tasks.change(row.id, fields)
    return after, tuple(fields)


def _changed(before: Draft, args: Namespace, project: Project, problems: list[str]) -> Draft:
    cleared = [stage for stage in STAGES if vars(args)[f"clear_{stage}"]]
    old = {name: inner for name, inner in (before.completion or {}).items() if name not in cleared}
    completion = completion_of(args, old, usual_promises(project.root), problems)
    given = {
        "title": args.title, "spec_id": args.spec, "description": args.description, "priority": args.priority,
        "assignee": args.assignee,
    }  # fmt: skip
    said = {name: text for name, text in given.items() if text is not None}
    if args.depends_on is not None:
        said["dependencies"] = tuple(id for id in args.depends_on if id)
    if args.metadata is not None:
        entries = {**before.metadata, **pairs("--metadata", args.metadata, problems)}
        said["metadata"] = {key: text for key, text in entries.items() if text != ""}
    if completion != (before.completion or {}):
        said["completion"] = completion
    return replace(before, **said)
