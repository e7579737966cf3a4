"""Saved snapshots of a run, and the patch between two of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from typing import Self

from ralphproof.base.errors import Refused
from ralphproof.base.value import Json
from ralphproof.display.phrases import parse_diffstat
from ralphproof.engine.outcome import published
from ralphproof.engine.records import BaselineSaved, Record, RunBegan, Saved
from ralphproof.engine.workspace import Snapshot
from ralphproof.store.ledger import RunRow
from ralphproof.store.locks import DirectoryLock
from ralphproof.store.project import Project
from ralphproof.store.run_folder import RunFolder
from ralphproof.store.run_state import refuse_collected_run
from ralphproof.views.published_json import list_json
from ralphproof.workspace.git_workspace import GitWorkspace
from ralphproof.workspace.plain_workspace import PlainWorkspace

# Saved trees.


TREES_NOTE = "trees"  # the note of a run beside its parent: which folder its trees are in


def snapshots_by_iteration(records: Iterable[Record]) -> dict[int, Snapshot]:
    """The snapshot after each iteration; 0 is the start of the run."""
    snapshots: dict[int, Snapshot] = {}
    for record in records:
        match record:
            case RunBegan(_, snapshot):
                snapshots[0] = snapshot
            case Saved(iteration, _, snapshot):
                snapshots[iteration] = snapshot
            case _:
                pass
    return snapshots


def require_snapshot(snapshots: dict[int, Snapshot], number: int, run: str) -> Snapshot:
    """The snapshot of one iteration; raises Refused where it was not saved."""
    if number not in snapshots:
        there = f"0 to {max(snapshots)}" if snapshots else "none"
        raise Refused(f"run {run} saved no iteration {number}; there are: {there}")
    if snapshots[number].tree is None:
        raise Refused(f"iteration {number} of run {run} could not be saved: {snapshots[number].problem}")
    return snapshots[number]


def is_fully_saved(project: Project, run: str) -> bool:
    """Whether a run has ended and all its work is in its refs: files that are too large are not."""
    ledger = project.ledger()
    try:
        ended, records = ledger.run_end(run), ledger.records(run)
    finally:
        ledger.close()
    saved = snapshots_by_iteration(records)
    return ended is not None and bool(saved) and all(
        one.id is not None and not one.left_out for one in (saved[max(saved)],)
    )  # fmt: skip


class SavedWorkspace:
    """The workspace of a run, of the kind that it had.

    With `own_folder` a git workspace uses a temporary folder, so that a live run is not disturbed. A plain one reads
    its contents in place, which disturbs nothing.
    """

    def __init__(self, project: Project, row: RunRow, kind: str, own_folder: bool) -> None:
        refuse_collected_run(project, row.id)
        self._scratch = ""
        try:
            self.workspace = self._opened(project, row, kind, own_folder)
        except BaseException:
            self._sweep()
            raise

    def _opened(self, project: Project, row: RunRow, kind: str, own_folder: bool) -> GitWorkspace | PlainWorkspace:
        if kind == "git":
            return GitWorkspace(project.root, self._own() if own_folder else workspace_folder_of(project, row))
        return PlainWorkspace(project.root, workspace_folder_of(project, row))

    def _own(self) -> str:
        from tempfile import mkdtemp

        self._scratch = mkdtemp(prefix="ralph-look-")
        return self._scratch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.workspace.close()
        self._sweep()

    def _sweep(self) -> None:
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)


def workspace_folder_of(project: Project, row: RunRow) -> str:
    """The folder with the private files of a run's workspace."""
    noted = RunFolder(row.directory, row.id, project.store).noted(TREES_NOTE)
    lock = DirectoryLock(project.state_dir, row.directory, row.id)
    return trees_folder(project, noted if isinstance(noted, str) else lock.path)


def trees_folder(project: Project, lock: str) -> str:
    """The folder for the trees of runs under this lock; one run at a time uses it."""
    return os.path.join(project.store, "trees", os.path.basename(lock).removesuffix(".lock"))


# Patches.


MASK_MARGIN_BYTES = 64 * 1024  # behind a cut, so that a secret in it is known as one


def diff_endpoints(records: tuple[Record, ...], number: int | None, run: str) -> tuple[Snapshot, Snapshot]:
    """The two snapshots that a patch compares."""
    snapshots = snapshots_by_iteration(records)
    baseline = next((record.snapshot for record in records if isinstance(record, BaselineSaved)), None)
    if baseline is not None and baseline.tree is not None:
        snapshots[0] = baseline  # what the checks wrote before the first turn is no iteration's work
    if number is None:
        number, before = max(snapshots, default=0), 0
    else:
        before = max((known for known in snapshots if known < number and snapshots[known].tree), default=0)
    return require_snapshot(snapshots, before, run), require_snapshot(snapshots, number, run)


def workspace_kind(records: tuple[Record, ...]) -> str:
    """The kind of workspace of a run."""
    began = next((record for record in records if isinstance(record, RunBegan)), None)
    return str(began.facts.get("workspace", "")) if began else ""


def run_patch(project: Project, row: RunRow, records: tuple[Record, ...], number: int | None) -> bytes:
    """The patch of a run or iteration; raises Refused where one of its trees was not saved."""
    before, after = diff_endpoints(records, number, row.id)
    with SavedWorkspace(project, row, workspace_kind(records), own_folder=True) as saved:
        return saved.workspace.diff(before, after)


def diff_json(
    project: Project, row: RunRow, records: tuple[Record, ...], number: int | None, most: int
) -> dict[str, Json]:  # fmt: skip
    """The patch for programs, truncated."""
    patch = run_patch(project, row, records, number)
    text = project.mask(patch[: most + MASK_MARGIN_BYTES].decode("utf-8", "replace"))[:most]
    return diff_summary_json(row.id, number, patch) | {"patch": text, "truncated": len(patch) > most}


def diff_summary_json(run: str, number: int | None, patch: bytes) -> dict[str, Json]:
    """The files of a patch for programs."""
    changes = list_json("fileChange", parse_diffstat(patch))
    return published("diff", {"run": run, "iteration": number, "changes": changes})
