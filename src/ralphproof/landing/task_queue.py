"""The tasks of one `ralph work` call, and the choice of the next one."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.engine.plan import AllDone, Blocked
from ralphproof.store.tasks import CANCELLED, DONE, FAILED, WORKING
from ralphproof.tasks.backlog import BacklogItem, next_task
from ralphproof.views.tasks import TaskView

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralphproof.engine.plan import Task
    from ralphproof.store.project import Project
    from ralphproof.store.tasks import TaskRow


# The tasks of one call of `ralph work`: those that there were when it began, and how each stands now.


SETTLED_STATUSES = (DONE, FAILED, CANCELLED)  # of a run that has ended; who takes it up changes the row
CHANGED_STATUS = "changed"


class TaskQueue:
    """How all tasks stand. Whoever may have changed something looks again.

    `names` are those that the user named. Tasks that appear later are `new`, and are not taken up. `changed` has
    those that somebody changed since, each with the run that was at work then: who began the work has not seen what
    they say now, so they are neither taken up nor done.
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
        """The tasks that this call is about, oldest first."""
        return [id for id in self._first if not self._names or id in self._names]

    def next(self, over: Iterable[str], busy: Iterable[str] = ()) -> Task | AllDone | Blocked:
        """The task to take up next; those that are `over` had their turn, and those that are `busy` are not done."""
        held = dict.fromkeys(busy, WORKING)
        items = tuple(replace(one, status=held.get(id, one.status)) for id, one in self._items.items())
        return next_task(items, self._names, frozenset((*over, *self.new, *self.changed)))

    def suppose_done(self, task: str) -> None:
        """Go on as if this one were done."""
        self._items[task] = replace(self._items[task], status=DONE)

    def look(self, task: str) -> None:
        """See how all stand after a run of this one, and which of the others were changed meanwhile."""
        before = [(row, self.views[id].over) for id, row in self._rows.items() if id != task]
        self._rows.pop(task, None)  # how it stands may have changed without its row: its work has landed, say
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
        """Whether nothing but a change of its row changes how it stands."""
        return not row.run or self.views[row.id].status in SETTLED_STATUSES
