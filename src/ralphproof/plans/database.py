"""Plans of tasks that are kept elsewhere: all of a database, or a single one."""

from __future__ import annotations

from ralphproof.plan import Plan
from ralphproof.plans.problems import no_plug_ins, problems
from ralphproof.plans.task import task_of, task_of_old
from ralphproof.value import TYPE_CHECKING, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ralphproof.plan import Task
    from ralphproof.plans.draft import Draft


class Database:
    """A plan of all tasks that `rows` gives, each with whether it is done; it is asked anew at every read.

    `methods` says which methods of verification plug-ins bring. A row that cannot be used as it is becomes a task
    without criteria; `warnings` has a line about each of them since the last read.
    """

    def __init__(
        self, rows: Callable[[], Iterable[tuple[Draft, bool]]], methods: Callable[[str], bool] = no_plug_ins
    ) -> None:
        self._rows, self._methods = rows, methods
        self._made: dict[str, tuple[Draft, Task, str]] = {}
        self.warnings: tuple[str, ...] = ()

    def read(self) -> Plan:
        """All tasks as they now stand."""
        rows = list(self._rows())
        made = {draft.id: self._task(draft) for draft, _ in rows}
        self._made = made
        self.warnings = tuple(warning for _, _, warning in made.values() if warning)
        return Plan(tuple(replace(made[draft.id][1], done=done) for draft, done in rows))

    def _task(self, draft: Draft) -> tuple[Draft, Task, str]:
        """A row's task, made once as long as the row stays the same."""
        known = self._made.get(draft.id)
        if known is not None and known[0] == draft:
            return known
        if problems(draft, self._methods):
            return draft, *task_of_old(draft, self._methods)
        return draft, task_of(draft), ""


class Fixed:
    """A plan of one task that never changes."""

    def __init__(self, task: Task) -> None:
        self._plan = Plan((task,))

    def read(self) -> Plan:
        """The task."""
        return self._plan
