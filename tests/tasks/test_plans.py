"""The plan of one task."""

from __future__ import annotations

from ralphproof.engine.plan import PlanSource, Task
from ralphproof.tasks.plans import FixedPlan


def test_a_fixed_task_stays_the_same() -> None:
    source: PlanSource = FixedPlan(Task("T-1", "do it"))
    assert source.read().tasks == (Task("T-1", "do it"),)
    assert source.read() == source.read()
