"""The tasks of one `ralph work` call, and the choice of the next one."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.engine.plan import AllDone, Blocked
from ralphproof.store.tasks import CANCELLED, DONE, FAILED, WORKING
from ralphproof.tasks.plans import BacklogItem, next_task
from ralphproof.views.tasks import TaskView

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralphproof.engine.plan import Task
    from ralphproof.store.project import Project
    from ralphproof.store.tasks import TaskRow


SETTLED_STATUSES = (DONE, FAILED, CANCELLED)  # of a run that has ended; resuming it changes the row
CHANGED_STATUS = "changed"


class TaskQueue:
    """The state of all tasks; `refresh` reads it again after a run.

    `names` are the tasks that the user named; none: all. Tasks that are created later are `new`, and are not worked on.
    `changed` maps tasks that were edited since to the run during which this happened. The user who started this call
    has not seen the edit, so they are neither worked on nor counted as done.
    """

    def __init__(self, project: Project, names: Iterable[str]) -> None:
        self._project, self._names = project, frozenset(names)
        self._rows: dict[str, TaskRow] = {}
        self._items: dict[str, BacklogItem] = {}
        self.views: dict[str, TaskView] = {}
        self.new: list[str] = []
        self.changed: dict[str, str] = {}
        self._read()
        self._first = dict.fromkeys(self.views)

    @property
    def wanted(self) -> list[str]:
        """The tasks that were named, or all; oldest first."""
        return [id for id in self._first if not self._names or id in self._names]

    def next(self, over: Iterable[str], busy: Iterable[str] = ()) -> Task | AllDone | Blocked:
        """The task to work on next, except those that are `over` or `busy`; a busy one does not count as done."""
        working = dict.fromkeys(busy, WORKING)
        items = tuple(replace(one, status=working.get(id, one.status)) for id, one in self._items.items())
        return next_task(items, self._names, frozenset((*over, *self.new, *self.changed)))

    def suppose_done(self, task: str) -> None:
        """Treat this task as done, for a dry run."""
        self._items[task] = replace(self._items[task], status=DONE)

    def refresh(self, task: str) -> None:
        """Read all tasks after a run of this one, and note which of the others were edited meanwhile."""
        before = [(row, self.views[id].over) for id, row in self._rows.items() if id != task]
        self._rows.pop(task, None)  # its state may change without its row: when its work lands
        self._read()
        run = self.views[task].run
        for row, was_over in before:
            same = self._rows[row.id].updated_at == row.updated_at or (was_over and self.views[row.id].over)
            if not same:
                self.changed.setdefault(row.id, run)
        self.new = [id for id in self.views if id not in self._first]
        for id in self.changed:
            self._items[id] = replace(self._items[id], status=CHANGED_STATUS)

    def _read(self) -> None:
        ledger = self._project.ledger()
        try:
            for row in ledger.tasks.rows():
                if self._rows.get(row.id) != row or not self._settled(row):
                    view = TaskView.of(ledger, row, self._project)
                    self._rows[row.id], self.views[row.id], self._items[row.id] = row, view, view.item
        finally:
            ledger.close()

    def _settled(self, row: TaskRow) -> bool:
        """Whether the state cannot change unless the row does."""
        return not row.run or self.views[row.id].status in SETTLED_STATUSES
