"""Rewinding the files of a project to what an iteration of a run left."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable

from ralphproof.base.errors import HarnessFailed, Refused
from ralphproof.base.git_layout import git_folders
from ralphproof.base.value import value
from ralphproof.engine.records import Record
from ralphproof.engine.workspace import Snapshot
from ralphproof.runs.gc import REWIND_BACKUP_PREFIX
from ralphproof.store.ledger import RunRow, SqliteLedger
from ralphproof.store.locks import DirectoryLock
from ralphproof.store.project import Project
from ralphproof.store.run_state import find_live_turn
from ralphproof.views.snapshots import SavedWorkspace, require_snapshot, snapshots_by_iteration, workspace_kind
from ralphproof.workspace.git_command import refuse_unsafe_repository
from ralphproof.workspace.git_workspace import GitWorkspace
from ralphproof.workspace.plain_workspace import PlainWorkspace


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


@value
class RewindResult:
    """The files that changed, and the name under which the earlier ones were saved."""

    saved: str
    paths: tuple[str, ...]


def parse_rewind_target(where: str) -> str:
    """An iteration or the name of an earlier save, as the user gave it; raises Refused for anything else."""
    if not re.fullmatch(rf"\d{{1,9}}|{REWIND_BACKUP_PREFIX}[0-9-]+", where, re.ASCII):
        raise Refused(f"{where!r} is neither an iteration nor a name that rewind printed ({REWIND_BACKUP_PREFIX}...)")
    return where


def rewind_files(
    project: Project, ledger: SqliteLedger, target: RewindTarget, accept: Callable[[tuple[str, ...]], bool]
) -> RewindResult | None:
    """Save the present files, and restore those of the target where `accept` agrees to the paths; None where not.

    Raises Refused where the run worked elsewhere, or something is running in the project.
    """
    row = target.row
    if row.directory != project.root and os.path.isdir(row.directory):
        raise Refused(f"run {row.id} worked in {row.directory}; rewind it there: -d {row.directory}")
    lock = DirectoryLock(project.state_dir, project.root, row.id)
    lock.take()
    try:
        _refuse_live_turns(ledger, project)
        if folders := git_folders(project.root):
            refuse_unsafe_repository(project.root, folders)
        return _rewind(project, target, accept)
    finally:
        lock.release()


def _refuse_live_turns(ledger: SqliteLedger, project: Project) -> None:
    """Refuse while an agent works: one whose harness died holds no lock, and still writes files."""
    for row in ledger.runs():
        if not row.ended and row.directory == project.root and find_live_turn(project, row.id):
            raise Refused(f"what run {row.id} started is still running here; end it: ralph cancel {row.id}")


def _rewind(project: Project, target: RewindTarget, accept: Callable[[tuple[str, ...]], bool]) -> RewindResult | None:
    with SavedWorkspace(project, target.row, workspace_kind(target.records), own_folder=False) as saved:
        workspace = saved.workspace
        snapshot = _find_snapshot(workspace, target)
        name = _unused_save_name(workspace, target.row.id)
        current = workspace.save(target.row.id, name)
        if current.tree is None or current.problem:
            raise HarnessFailed(f"the present files could not be saved, so nothing was changed: {current.problem}")
        paths = _changed_paths(workspace, current, snapshot)
        if paths and not accept(paths):
            return None
        return RewindResult(name, workspace.restore(snapshot, current))


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
