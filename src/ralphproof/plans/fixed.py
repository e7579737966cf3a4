"""The plan of one task as it was when the run began: what is changed in it later is for the next run."""

from __future__ import annotations

from ralphproof.plan import Plan
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphproof.plan import Task


class Fixed:
    """A plan of one task that never changes."""

    def __init__(self, task: Task) -> None:
        self._plan = Plan((task,))

    def read(self) -> Plan:
        """The task."""
        return self._plan
