"""Runs that the agent of a run began: those that it asked for, those that are at work, and what they cost."""

from __future__ import annotations

import os
import time

from ralphproof.budget import Budget, Children, Spend
from ralphproof.cli.standing import turn_at_work
from ralphproof.record import RunBegan
from ralphproof.value import TYPE_CHECKING
from ralphproof.world import Left

if TYPE_CHECKING:
    from ralphproof.cli.project import Project
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.ledgers.spend import SpendBook
    from ralphproof.ledgers.sqlite import Sqlite

LEAVE_S = 20.0  # for children that are asked to end: longer than an agent's grace
LOOK_S = 0.1


def at_work(project: Project, row: RunRow) -> bool:
    """Whether anything of a run still lives."""
    return not row.ended and (row.process.alive or turn_at_work(project, row.id) is not None)


def left_to(run: str, ledger: Sqlite, purse: SpendBook) -> int | None:
    """What a run may still spend, in micro-dollars, with all that it began; None where nothing is known of that."""
    began = next((record for record in ledger.records(run) if isinstance(record, RunBegan)), None)
    most = began.facts.get("maxCostUsd") if began else None
    if not isinstance(most, int | float):
        return None
    spent = purse.spend_of((run, *(row.id for row in ledger.descendants(run))))
    return max(1, round(most * 1_000_000) - spent.micro_usd)


def left_after(budget: Budget, spend: Spend, run: str, ledger: Sqlite, purse: SpendBook) -> Left:
    """What a turn of a run may spend that has spent this, beside what its children have, and all of today's runs."""
    spend = spend.beside(purse.spend_of(tuple(row.id for row in ledger.descendants(run))))
    return Left.of(budget, spend, purse.day(time.time()))


class Kin:
    """The children of one run, theirs too, as the ledger of its repository knows them."""

    def __init__(self, run: str, project: Project, ledger: Sqlite, purse: SpendBook, task_folder: str) -> None:
        self._run, self._project, self._ledger, self._purse = run, project, ledger, purse
        self._requests = os.path.join(task_folder, "children")

    def look(self) -> Children:
        """Those that are not over, and what all of them have cost. Those that were asked for are begun first."""
        if os.path.isdir(self._requests):
            from ralphproof.cli.detach import reap
            from ralphproof.cli.requests import begin_requested

            begin_requested(self._requests, self._run, self._project, self._ledger)
            reap()
        rows = self._ledger.descendants(self._run)
        if not rows:
            return Children()
        active = tuple(row.id for row in rows if at_work(self._project, row))
        return Children(active, self._purse.spend_of(tuple(row.id for row in rows)))

    def dismiss(self) -> tuple[str, ...]:
        """Ask those that are at work to end, and wait until they have."""
        active = self.look().active
        if not active:
            return ()
        for run in active:
            self._ledger.ask(run, "cancel")
        deadline = time.monotonic() + LEAVE_S
        while (left := self.look().active) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        told = [f"runs of its own were asked to end: {', '.join(active)}"]
        return (*told, *([f"not over yet: {', '.join(left)}"] if left else []))
