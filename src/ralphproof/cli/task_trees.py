"""The work trees that tasks have for themselves, by the names of their tasks."""

from __future__ import annotations

import hashlib
import re

from ralphproof.check import slug
from ralphproof.cli.apart import clear_away, forsaken, must_stay, offshoots_of
from ralphproof.errors import RalphError
from ralphproof.value import TYPE_CHECKING, replace
from ralphproof.workspaces.layout import lies_apart

if TYPE_CHECKING:
    from ralphproof.views.project import Project
    from ralphproof.workspaces.offshoot import Offshoot

PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}")


class TaskTrees:
    """Those of one repository. A task has one from its first run until its work has landed."""

    def __init__(self, project: Project) -> None:
        self._project = project

    def known(self) -> set[str]:
        """The names of all that are there; those of races and of single runs are among them."""
        return {offshoot.name for offshoot in offshoots_of(self._project).known()}

    def of(self, task: str) -> Offshoot | None:
        """The one of this task; None where it has none."""
        return offshoots_of(self._project).named(tree_name(task))

    def had(self, run: str) -> bool:
        """Whether a run had one; a task that was begun without --parallel goes on in the user's own files."""
        ledger = self._project.ledger()
        try:
            row = ledger.row(run)
        finally:
            ledger.close()
        return row is not None and lies_apart(row.directory, self._project.store)

    def clear(self, task: str, run: str) -> str:
        """Remove the one of a task whose work, by this run, has landed; why it stays, where it does."""
        offshoot = self.of(task)
        if offshoot is None:
            return ""
        if why := must_stay(self._project, offshoot, run):
            return f"{why}: {offshoot.place}"
        try:
            clear_away(self._project, offshoot, self._attempts(task), branch=True)
        except RalphError as error:
            return str(error)
        return ""

    def forsake(self, task: str) -> None:
        """Remove the one of a task whose run was refused, unless one had begun there: what refused it may be mended."""
        if offshoot := self.of(task):
            forsaken(replace(self._project, root=offshoot.place))

    def _attempts(self, task: str) -> tuple[str, ...]:
        ledger = self._project.ledger()
        try:
            return tuple(ledger.tasks.attempts(task))
        finally:
            ledger.close()


def tree_name(task: str) -> str:
    """The name of a task's work tree: its id, or one made of it where no folder or branch could be called so."""
    if PLAIN.fullmatch(task) and task.lower() not in ("lock", "head"):
        return task
    return f"{slug(task) or 'task'}-{hashlib.sha256(task.encode('utf-8', 'surrogateescape')).hexdigest()[:6]}"
