"""The work trees that tasks have for themselves, by the names of their tasks."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from contextlib import suppress

from ralphproof.check import slug
from ralphproof.cli.apart import clear_away, forsaken, must_stay, offshoots_of
from ralphproof.errors import Busy, RalphError, from_system
from ralphproof.ledgers.files import private_folder
from ralphproof.value import TYPE_CHECKING, replace
from ralphproof.workspaces.layout import lies_apart

if TYPE_CHECKING:
    from ralphproof.views.project import Project
    from ralphproof.workspaces.offshoot import Offshoot

LOCK = "work.lock"
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
        if why := must_stay(self._project, offshoot, run, branch=True):
            return f"{why}: {offshoot.place}"
        try:
            clear_away(self._project, offshoot, self._attempts(task), branch=True)
        except RalphError as error:
            return str(error)
        return ""

    def forsake(self, task: str) -> None:
        """Remove the one of a task whose run was refused, unless one had begun there: what refused it may be mended."""
        if offshoot := self.of(task):
            with suppress(RalphError):  # why the run was refused is what is told
                forsaken(replace(self._project, root=offshoot.place))

    def _attempts(self, task: str) -> tuple[str, ...]:
        ledger = self._project.ledger()
        try:
            return tuple(ledger.tasks.attempts(task))
        finally:
            ledger.close()


class Alone:
    """The right to work on tasks of a repository side by side. It ends with the process, however that ends.

    Two at once would take up the same tasks, and one would reset a work tree in which an agent of the other works.
    """

    def __init__(self, store: str) -> None:
        self._path = os.path.join(store, LOCK)

    def __enter__(self) -> None:
        """Raises Busy where somebody else has it."""
        try:
            private_folder(os.path.dirname(self._path))
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise from_system(error) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            if not isinstance(error, BlockingIOError):
                raise from_system(error) from error
            raise Busy("another ralph work --parallel is at work on these tasks; wait until it has ended") from error

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)  # a program that we are just starting may still have a copy of it
        os.close(self._file)


def tree_name(task: str) -> str:
    """The name of a task's work tree: its id, or one made of it where no folder or branch could be called so."""
    if PLAIN.fullmatch(task) and task.lower() not in ("lock", "head"):
        return task
    return f"{slug(task) or 'task'}-{hashlib.sha256(task.encode('utf-8', 'surrogateescape')).hexdigest()[:6]}"
