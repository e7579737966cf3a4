"""What a run may use now: its limits may be others since it was taken up again."""

from __future__ import annotations

from ralphproof.ledgers.folder import RunFolder
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.value import Json
    from ralphproof.views.project import Project

NOTE = "limits"  # what is noted of a run whenever a process takes it, beside its logs
FACTS = {
    "iterations": ("maximumIterations", 1), "micro_usd": ("maxCostUsd", 1_000_000), "tokens": ("maxTokens", 1),
    "seconds": ("maxSeconds", 1), "daily_micro_usd": ("dailyCostUsd", 1_000_000),
}  # fmt: skip


def in_force(facts: dict[str, Json], project: Project, row: RunRow) -> dict[str, Json]:
    """The facts of a run's beginning, with the limits that hold for it now."""
    noted = RunFolder(row.directory, row.id, project.store).noted(NOTE)
    budget = noted.get("budget") if isinstance(noted, dict) else None
    if not isinstance(budget, dict):
        return facts
    now: dict[str, Json] = {}
    for name, (fact, unit) in FACTS.items():
        amount = budget.get(name)
        now[fact] = amount / unit if unit > 1 and isinstance(amount, int | float) else amount
    return {**facts, **now}
