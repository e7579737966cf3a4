"""`ralph rewind`: restore the files as an iteration left them."""

from __future__ import annotations

import os
import re
import time

from ralphproof.base.errors import HarnessFailed, Refused
from ralphproof.base.git_layout import git_folders
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.cli.parser import Parser, find_named_run
from ralphproof.display.output import confirm, print_json, print_lines, require_confirmation
from ralphproof.display.phrases import format_count
from ralphproof.runs.gc import REWIND_BACKUP_PREFIX
from ralphproof.runs.open_project import open_project
from ralphproof.store.locks import DirectoryLock
from ralphproof.store.project import Project
from ralphproof.store.run_state import find_live_turn
from ralphproof.views.snapshots import SavedWorkspace, require_snapshot, snapshots_by_iteration, workspace_kind
from ralphproof.workspace.git_command import refuse_unsafe_repository

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.engine.records import Record
    from ralphproof.engine.workspace import Snapshot
    from ralphproof.store.ledger import RunRow, SqliteLedger
    from ralphproof.workspace.git_workspace import GitWorkspace
    from ralphproof.workspace.plain_workspace import PlainWorkspace


ABOUT = """Restore the files as an iteration of a run left them; 0 is the start of the run.

The present files are saved first, so this can be undone: the name to go back to is printed. Only files change: index,
HEAD, branches and ignored files stay. Refused while a run works here."""
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
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    return parser


@value
class RewindTarget:
    """The run, and an iteration number or the name of an earlier save."""

    row: RunRow
    records: tuple[Record, ...]
    where: str

    @property
    def place(self) -> str:
        """The target in words."""
        number = f"iteration {int(self.where)}" if self.where.isdigit() and int(self.where) else "the start"
        return f"{number if self.where.isdigit() else self.where} of run {self.row.id}"


def main(argv: list[str]) -> int:
    args = build_parser().parse(argv)
    if not re.fullmatch(rf"\d{{1,9}}|{REWIND_BACKUP_PREFIX}[0-9-]+", args.where, re.ASCII):
        raise Refused(
            f"{args.where!r} is neither an iteration nor a name that rewind printed ({REWIND_BACKUP_PREFIX}...)"
        )
    require_confirmation(args.yes, args.json, "rewind changes files")
    project = open_project(args.project_dir, os.environ)
    ledger = project.ledger()
    try:
        row = find_named_run(ledger, args.run, args)
        if row.directory != project.root and os.path.isdir(row.directory):
            raise Refused(f"run {row.id} worked in {row.directory}; rewind it there: -d {row.directory}")
        target = RewindTarget(row, ledger.records(row.id), args.where)
        lock = DirectoryLock(project.state_dir, project.root, row.id)
        lock.take()
        try:
            _refuse_live_turns(ledger, project)
            if folders := git_folders(project.root):
                refuse_unsafe_repository(project.root, folders)
            return _rewind(project, target, args)
        finally:
            lock.release()
    finally:
        ledger.close()


def _refuse_live_turns(ledger: SqliteLedger, project: Project) -> None:
    """Refuse while an agent works: one whose harness died holds no lock, and still writes files."""
    for row in ledger.runs():
        if not row.ended and row.directory == project.root and find_live_turn(project, row.id):
            raise Refused(f"what run {row.id} started is still running here; end it: ralph cancel {row.id}")


def _rewind(project: Project, target: RewindTarget, args: Namespace) -> int:
    with SavedWorkspace(project, target.row, workspace_kind(target.records), own_folder=False) as saved:
        workspace = saved.workspace
        snapshot = _find_snapshot(workspace, target)
        name = _unused_save_name(workspace, target.row.id)
        current = workspace.save(target.row.id, name)
        if current.tree is None or current.problem:
            raise HarnessFailed(f"the present files could not be saved, so nothing was changed: {current.problem}")
        paths = _changed_paths(workspace, current, snapshot)
        if paths and not args.json:
            print_lines(f"{format_count(len(paths), 'file')} would change:", *_path_lines(paths))
        if paths and not args.yes and not confirm(f"Restore the files of {target.place}?"):
            print_lines("Nothing was changed.")
            return 0
        changed = workspace.restore(snapshot, current)
    _print_result(target, name, changed, args.json)
    return 0


def _find_snapshot(workspace: GitWorkspace | PlainWorkspace, target: RewindTarget) -> Snapshot:
    if target.where.isdigit():
        return require_snapshot(snapshots_by_iteration(target.records), int(target.where), target.row.id)
    found = workspace.find_snapshot(target.row.id, target.where)
    if found is None:
        raise Refused(f"run {target.row.id} has no save of the name {target.where}")
    return found


def _unused_save_name(workspace: GitWorkspace | PlainWorkspace, run: str) -> str:
    """A name that no earlier save has: earlier rewinds stay undoable."""
    name = first = REWIND_BACKUP_PREFIX + time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    number = 1
    while workspace.find_snapshot(run, name) is not None:
        number += 1
        name = f"{first}-{number}"
    return name


def _changed_paths(workspace: GitWorkspace | PlainWorkspace, now: Snapshot, target: Snapshot) -> tuple[str, ...]:
    change = workspace.change(now, target)
    if not change.known:
        raise Refused("the saved files no longer exist; were they pruned?")
    return tuple(path for path in change.paths if path not in {*now.left_out, *target.left_out})


def _path_lines(paths: tuple[str, ...]) -> list[str]:
    more = [f"  ... and {len(paths) - MAX_LISTED} more"] if len(paths) > MAX_LISTED else []
    return [*(f"  {path}" for path in paths[:MAX_LISTED]), *more]


def _print_result(target: RewindTarget, name: str, changed: tuple[str, ...], for_programs: bool) -> None:
    if for_programs:
        print_json("rewind", {"run": target.row.id, "to": target.where, "saved": name, "paths": list(changed)})
    elif not changed:
        print_lines(f"The files are already those of {target.place}.")
    else:
        print_lines(
            f"The files are those of {target.place}; {format_count(len(changed), 'file')} changed.",
            f"Undo: ralph rewind {target.row.id} {name}",
        )
