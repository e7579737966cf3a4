"""Opening a project, after finishing what dead processes left undone in it."""

from __future__ import annotations

import os

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.store.project import Project
from ralphproof.store.run_folder import list_unpublished_runs

if TYPE_CHECKING:
    from collections.abc import Mapping


def open_project(folder: str | None, environ: Mapping[str, str]) -> Project:
    """The project that a folder belongs to; None is the working folder."""
    return _finished(Project.at(folder, environ))


def view_project(folder: str | None, environ: Mapping[str, str]) -> Project:
    """The same for readers: no state is created, and a project without runs has an empty ledger."""
    return _finished(Project.seen(folder, environ))


def _finished(project: Project) -> Project:
    """The project, once the files of ended runs are written and stale sandbox placeholders removed."""
    if unpublished := list_unpublished_runs(project.store):
        from ralphproof.proof.publish import publish_unfinished

        publish_unfinished(project, unpublished)
    if os.path.isdir(os.path.join(project.store, "box")):
        from ralphproof.sandbox.read_only_paths import remove_stale_placeholders

        remove_stale_placeholders(project.store)
    return project
