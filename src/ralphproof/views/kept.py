"""The trees that a run saved: looked at without touching anything, or brought back."""

from __future__ import annotations

import os

from ralphproof.errors import Refused
from ralphproof.ledgers.folder import RunFolder
from ralphproof.ledgers.lock import DirectoryLock
from ralphproof.record import RunBegan, Saved
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.gc_note import refuse_swept

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from ralphproof.ledgers.runs import RunRow
    from ralphproof.record import Record
    from ralphproof.views.project import Project
    from ralphproof.workspace import Snapshot
    from ralphproof.workspaces.git import Git
    from ralphproof.workspaces.plain import Plain

TREES = "trees"  # the note of a run beside its parent: which folder its trees are in


def snapshots_of(records: Iterable[Record]) -> dict[int, Snapshot]:
    """What was saved after each iteration; 0 is the start of the run."""
    found: dict[int, Snapshot] = {}
    for record in records:
        match record:
            case RunBegan(_, snapshot):
                found[0] = snapshot
            case Saved(iteration, _, snapshot):
                found[iteration] = snapshot
            case _:
                pass
    return found


def snapshot_at(snapshots: dict[int, Snapshot], number: int, run: str) -> Snapshot:
    """The tree of one iteration; raises Refused where it was not saved."""
    if number not in snapshots:
        there = f"0 to {max(snapshots)}" if snapshots else "none"
        raise Refused(f"run {run} saved no iteration {number}; there are: {there}")
    if snapshots[number].tree is None:
        raise Refused(f"iteration {number} of run {run} could not be saved: {snapshots[number].problem}")
    return snapshots[number]


def kept_whole(project: Project, run: str) -> bool:
    """Whether a run is over, and all that it left is in its refs: too large files, say, are not."""
    ledger = project.ledger()
    try:
        ended, records = ledger.end_of(run), ledger.records(run)
    finally:
        ledger.close()
    saved = snapshots_of(records)
    return ended is not None and bool(saved) and all(
        one.id is not None and not one.left_out for one in (saved[max(saved)],)
    )  # fmt: skip


class Kept:
    """A run's workspace, of the kind that it had then.

    With `own_folder` a git workspace works in a folder of its own: then it may be used beside a live run. A plain one
    always reads where its contents are, and reading disturbs nobody.
    """

    def __init__(self, project: Project, row: RunRow, kind: str, own_folder: bool) -> None:
        refuse_swept(project, row.id)
        self._scratch = ""
        try:
            self.workspace = self._opened(project, row, kind, own_folder)
        except BaseException:
            self._sweep()
            raise

    def _opened(self, project: Project, row: RunRow, kind: str, own_folder: bool) -> Git | Plain:
        if kind == "git":
            from ralphproof.workspaces.git import Git

            return Git(project.root, self._own() if own_folder else private_of(project, row))
        from ralphproof.workspaces.plain import Plain

        return Plain(project.root, private_of(project, row))

    def _own(self) -> str:
        import tempfile

        self._scratch = tempfile.mkdtemp(prefix="ralph-look-")
        return self._scratch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.workspace.close()
        self._sweep()

    def _sweep(self) -> None:
        if self._scratch:
            import shutil

            shutil.rmtree(self._scratch, ignore_errors=True)


def private_of(project: Project, row: RunRow) -> str:
    """The folder that holds what the workspace of a run keeps for itself."""
    noted = RunFolder(row.directory, row.id, project.store).noted(TREES)
    lock = DirectoryLock(project.state_dir, row.directory, row.id)
    return trees_folder(project, noted if isinstance(noted, str) else lock.path)


def trees_folder(project: Project, lock: str) -> str:
    """Where runs under this lock keep their trees: one at a time uses it."""
    return os.path.join(project.store, "trees", os.path.basename(lock).removesuffix(".lock"))
