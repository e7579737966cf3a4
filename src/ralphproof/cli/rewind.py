"""`ralph rewind`: bring back the files as an iteration left them."""

from __future__ import annotations

import os
import re
import time

from ralphproof.base.errors import HarnessFailed, Refused
from ralphproof.base.git_layout import git_folders
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.cli.parser import Parser
from ralphproof.display.output import confirm, print_json, print_lines, require_confirmation
from ralphproof.display.phrases import format_count
from ralphproof.runs.gc import REWIND_BACKUP_PREFIX
from ralphproof.runs.open_project import open_project
from ralphproof.store.locks import DirectoryLock
from ralphproof.store.project import Project
from ralphproof.store.run_state import find_live_turn
from ralphproof.views.run_list import find_named_run
from ralphproof.views.snapshots import SavedWorkspace, require_snapshot, snapshots_by_iteration, workspace_kind
from ralphproof.workspace.unsafe_paths import refuse_unsafe_repository

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.engine.records import Record
    from ralphproof.engine.workspace import Snapshot
    from ralphproof.store.runs import RunRow
    from ralphproof.store.sqlite_ledger import SqliteLedger
    from ralphproof.workspace.git_workspace import GitWorkspace
    from ralphproof.workspace.plain_workspace import PlainWorkspace


ABOUT = """the files as an iteration of a run left them; 0 is the start of the run.

First the present files are saved, so that this can be undone: the name to go back with is printed. Only files change:
the index, HEAD and branches stay, and so do ignored files. While a run works here nothing is done."""
EXAMPLES = (
    "ralph rewind latest 2",
    "ralph rewind 20261115-21 0 --yes",
    "ralph rewind latest before-rewind-20261115-213000",
)
MAX_LISTED = 20


def build_parser() -> Parser:
    parser = Parser("rewind", ABOUT, EXAMPLES)
    parser.add_argument("run", metavar="RUN", help="run id, unique prefix, or latest")
    parser.add_argument("where", metavar="N", help="an iteration, 0, or the name that an earlier rewind printed")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    return parser


@value
class RewindTarget:
    """Where to go: the run, and a number or the name of an earlier save."""

    row: RunRow
    records: tuple[Record, ...]
    where: str

    @property
    def place(self) -> str:
        """The same in words."""
        number = f"iteration {int(self.where)}" if self.where.isdigit() and int(self.where) else "the start"
        return f"{number if self.where.isdigit() else self.where} of run {self.row.id}"


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    if not re.fullmatch(rf"\d{{1,9}}|{REWIND_BACKUP_PREFIX}[0-9-]+", args.where, re.ASCII):
        raise Refused(
            f"{args.where!r} is neither an iteration nor a name that a rewind printed ({REWIND_BACKUP_PREFIX}...)"
        )
    require_confirmation(args.yes, args.json, "rewind changes files")
    project = open_project(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        row = find_named_run(ledger, args.run, args)
        if row.directory != project.root and os.path.isdir(row.directory):
            raise Refused(f"run {row.id} worked in {row.directory}; rewind it there: -d {row.directory}")
        aim = RewindTarget(row, ledger.records(row.id), args.where)
        lock = DirectoryLock(project.state_dir, project.root, row.id)
        lock.take()
        try:
            _refuse_live_turns(ledger, project)
            if folders := git_folders(project.root):
                refuse_unsafe_repository(project.root, folders)
            return _rewind(project, aim, args)
        finally:
            lock.release()
    finally:
        ledger.close()


def _refuse_live_turns(ledger: SqliteLedger, project: Project) -> None:
    """An agent whose harness died holds no lock, and still writes files."""
    for row in ledger.runs():
        if not row.ended and row.directory == project.root and find_live_turn(project, row.id):
            raise Refused(f"what run {row.id} started is still at work here; end it: ralph cancel {row.id}")


def _rewind(project: Project, aim: RewindTarget, args: Namespace) -> int:
    with SavedWorkspace(project, aim.row, workspace_kind(aim.records), own_folder=False) as kept:
        workspace = kept.workspace
        target = _find_snapshot(workspace, aim)
        name = _unused_save_name(workspace, aim.row.id)
        now = workspace.save(aim.row.id, name)
        if now.tree is None or now.problem:
            raise HarnessFailed(f"the present files could not be saved, so nothing was changed: {now.problem}")
        paths = _changed_paths(workspace, now, target)
        if paths and not args.json:
            print_lines(f"{format_count(len(paths), 'file')} would change:", *_path_lines(paths))
        if paths and not args.yes and not confirm(f"Make them those of {aim.place}?"):
            print_lines("Nothing was changed.")
            return 0
        done = workspace.restore(target, now)
    _print_result(aim, name, done, args.json)
    return 0


def _find_snapshot(workspace: GitWorkspace | PlainWorkspace, aim: RewindTarget) -> Snapshot:
    if aim.where.isdigit():
        return require_snapshot(snapshots_by_iteration(aim.records), int(aim.where), aim.row.id)
    found = workspace.find_snapshot(aim.row.id, aim.where)
    if found is None:
        raise Refused(f"run {aim.row.id} has no save of the name {aim.where}")
    return found


def _unused_save_name(workspace: GitWorkspace | PlainWorkspace, run: str) -> str:
    """A name that no earlier save has: what can be undone must stay so."""
    name = first = REWIND_BACKUP_PREFIX + time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    number = 1
    while workspace.find_snapshot(run, name) is not None:
        number += 1
        name = f"{first}-{number}"
    return name


def _changed_paths(workspace: GitWorkspace | PlainWorkspace, now: Snapshot, target: Snapshot) -> tuple[str, ...]:
    change = workspace.change(now, target)
    if not change.known:
        raise Refused("what was saved is no longer there; was it pruned?")
    return tuple(path for path in change.paths if path not in {*now.left_out, *target.left_out})


def _path_lines(paths: tuple[str, ...]) -> list[str]:
    more = [f"  ... and {len(paths) - MAX_LISTED} more"] if len(paths) > MAX_LISTED else []
    return [*(f"  {path}" for path in paths[:MAX_LISTED]), *more]


def _print_result(aim: RewindTarget, name: str, done: tuple[str, ...], for_programs: bool) -> None:
    if for_programs:
        print_json("rewind", {"run": aim.row.id, "to": aim.where, "saved": name, "paths": list(done)})
    elif not done:
        print_lines(f"The files are those of {aim.place} already.")
    else:
        print_lines(
            f"The files are those of {aim.place}; {format_count(len(done), 'file')} changed.",
            f"Undo: ralph rewind {aim.row.id} {name}",
        )
