"""Opening a project, after finishing what dead processes left undone in it."""

from __future__ import annotations

import os

from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.store.locks import DirectoryLock
from ralphproof.store.project import Project
from ralphproof.store.run_folder import list_unpublished_runs
from ralphproof.store.run_state import find_live_turn
from ralphproof.stories.files import MARKER, is_marker_alive, read_marker, remove_stale_marker

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from ralphproof.store.project import Project


def open_project(folder: str | None, environ: Mapping[str, str]) -> Project:
    """The project that a folder belongs to; None is the working folder."""
    return _finished(Project.at(folder, environ))


def view_project(folder: str | None, environ: Mapping[str, str]) -> Project:
    """The same for readers: no state is created, and a project without runs has an empty ledger."""
    return _finished(Project.seen(folder, environ))


def _finished(project: Project) -> Project:
    """The project, once the files of ended runs are written and stale sandbox placeholders removed."""
    if unpublished := list_unpublished_runs(project.store):
        from ralphproof.proof.page import publish_unfinished

        publish_unfinished(project, unpublished)
    if os.path.isdir(os.path.join(project.store, "box")):
        from ralphproof.sandbox.project_mounts import remove_stale_placeholders

        remove_stale_placeholders(project.store)
    return project


# The lock on a project's files while no loop works in it.


class ProjectLock:
    """Holds the project's directory, so that no loop begins meanwhile. Entering raises Refused where one is at work.

    `remarks` tells of a marker that was left behind, and of runs that were cut off.
    """

    def __init__(self, project: Project, what: str) -> None:
        self._project = project
        self._lock = DirectoryLock(project.state_dir, project.root, what)
        self.remarks: list[str] = []

    def __enter__(self) -> Self:
        self._lock.take()
        try:
            refuse_active_marker(self._project.root)
            self._look_at_runs()
            self.remarks += filter(None, [remove_stale_marker(self._project.root, "")])
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _look_at_runs(self) -> None:
        """An agent whose harness died holds no lock, and still writes files."""
        ledger = self._project.ledger()
        try:
            cut_off = [row.id for row in ledger.runs() if not row.ended and row.directory == self._project.root]
        finally:
            ledger.close()
        for run in cut_off:
            if find_live_turn(self._project, run):
                raise Refused(f"what run {run} started is still at work here; end it: ralph cancel {run}")
        self.remarks += [f"run {run} was cut off and is not closed; end it: ralph cancel {run}" for run in cut_off]


def refuse_active_marker(root: str, remedy: str = "wait for it, or end it", ours: bool = True) -> None:
    """Raise Refused where a loop is at work here by its marker, be it `ours` or another program's.

    That takes no lock of ours; its marker is all that tells of it.
    """
    marker = read_marker(root)
    if marker is not None and (ours or "run" not in marker) and is_marker_alive(marker):
        raise Refused(f"{MARKER} says that a loop is at work here (pid {marker.get('pid')}); {remedy}")
