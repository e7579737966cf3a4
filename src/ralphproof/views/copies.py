"""Copies of repositories that runs left, because the repository had lost something, or are still at work with."""

from __future__ import annotations

import os

from ralphproof.errors import RalphError
from ralphproof.value import TYPE_CHECKING, replace, value
from ralphproof.views.standing import ENDED, standing
from ralphproof.workspaces.backup import START, kept_in

if TYPE_CHECKING:
    from ralphproof.views.project import Project
    from ralphproof.workspaces.backup import Kept

BACKUP = "backup"


@value
class RepositoryCopy:
    """The state of a repository when a run began. `store` is where its records are: a repository that was made anew in
    the same place has another one."""

    store: str
    start: Kept

    @property
    def folder(self) -> str:
        return os.path.join(self.store, BACKUP)


def copies_of(project: Project) -> list[RepositoryCopy]:
    """Every copy of every repository, the newest first."""
    stores = os.path.join(project.state_dir, "repos")
    names = sorted(os.listdir(stores)) if os.path.isdir(stores) else []
    found = [
        RepositoryCopy(store, kept)
        for store in (os.path.join(stores, name) for name in names)
        for kept in kept_in(os.path.join(store, BACKUP))
        if kept.path.endswith(START)
    ]
    return sorted(found, key=lambda one: one.start.at, reverse=True)


def is_of(copy: RepositoryCopy, root: str) -> bool:
    """Whether this is the project that the copy was made in."""
    return os.path.realpath(copy.start.root) == os.path.realpath(root)


def is_over(project: Project, copy: RepositoryCopy) -> bool:
    """Whether the run is over whose copy this is: one at work still needs it."""
    there = replace(project, store=copy.store)
    try:
        ledger = there.ledger()
    except RalphError:
        return True  # nothing is known of it any more
    try:
        row = ledger.row(copy.start.run)
        return row is None or standing(ledger, row, there) == ENDED
    finally:
        ledger.close()
