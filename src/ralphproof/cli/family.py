"""Runs that the agent of a run began: those that it asked for, those that are at work, and what they cost."""

from __future__ import annotations

import os
import time

from ralphproof.budget import Budget, Children, Spend
from ralphproof.record import Saved, TurnBegan
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.standing import turn_at_work
from ralphproof.world import Left

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphproof.cli.requests import Requests
    from ralphproof.ledgers.folder import RunFolder
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.ledgers.spend import SpendBook
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.views.project import Project

LEAVE_S = 20.0  # for children that are asked to end: longer than an agent's grace
LOOK_S = 0.1
REQUESTS = "children"  # in the task folder; the note of what is about to begin has the same name


def at_work(project: Project, row: RunRow) -> bool:
    """Whether anything of a run still lives."""
    return not row.ended and (row.process.alive or turn_at_work(project, row.id) is not None)


def left_after(budget: Budget, spend: Spend, run: str, ledger: Sqlite, purse: SpendBook, call: str) -> Left:
    """What a call of a run may spend that has spent this, beside what its children have, and all of today's runs."""
    spend = spend.beside(purse.spend_of(tuple(row.id for row in ledger.descendants(run))))
    return Left.of(budget, spend, purse.day(time.time(), call))


def ask_to_end(project: Project, ledger: Sqlite, run: str) -> list[str]:
    """Ask the runs below one that was lost to end, as far as they are at work; what there is to say of it."""
    left = [row.id for row in ledger.descendants(run) if at_work(project, row)]
    for one in left:
        ledger.ask(one, "cancel")
    return [f"run {one} of it goes on, and is asked to end" for one in left]


class Kin:
    """The children of one run, theirs too, as the ledger of its repository knows them.

    One that was begun for the agent and is not on record yet is among them, also where it was begun before this
    process took the run up.
    """

    def __init__(
        self, folder: RunFolder, project: Project, ledger: Sqlite, purse: SpendBook, env: Mapping[str, str]
    ) -> None:
        """`env` is what the agent of the run is started with."""
        self._folder, self._project, self._ledger, self._purse = folder, project, ledger, purse
        self._run, self._env = folder.run, env
        self._place = os.path.join(folder.task_folder, REQUESTS)
        self._asked: Requests | None = None
        self._fresh = True
        self._seen: dict[str, float | None] | None = None
        self._worked = False

    def look(self) -> Children:
        """Those that are not over, and what all of them have cost. Those that were asked for are begun first."""
        if requests := self._requests():
            requests.begin()
        active, rows = self._active()
        return Children(active, self._purse.spend_of(tuple(row.id for row in rows)) if rows else Spend())

    def remarks(self) -> tuple[str, ...]:
        """What there is to say of requests since this was last asked."""
        self.look()
        return self._asked.remarks() if self._asked else ()

    def dismiss(self) -> tuple[str, ...]:
        """Begin nothing more, ask those that are at work to end, and wait until they have."""
        requests = self._requests()
        if requests:
            requests.drop()
        deadline, asked = time.monotonic() + LEAVE_S, dict[str, None]()
        while True:
            left, rows = self._active()
            for run in [row.id for row in rows if row.id in left and row.id not in asked]:
                self._ledger.ask(run, "cancel")
                asked[run] = None
            if not left or time.monotonic() >= deadline:
                break
            time.sleep(LOOK_S)
        told = [*(requests.remarks() if requests else ())]
        told += [f"runs of its own were asked to end: {', '.join(asked)}"] if asked else []
        return (*told, *([f"not over yet: {', '.join(left)}"] if left else []))

    def stirred(self) -> bool:
        """Whether one of them was at work since this was last asked; at first, since the last turn was seen to."""
        rows = self._ledger.descendants(self._run)
        if not rows:
            return False
        before, self._seen = self._seen, {row.id: self._ledger.written_at(row.id) for row in rows}
        worked, self._worked = self._worked, any(at_work(self._project, row) for row in rows)
        if before is not None:
            return worked or self._worked or before != self._seen
        since = self._turn_seen_to()
        return self._worked or any(at is not None and at > since for at in self._seen.values())

    def _turn_seen_to(self) -> float:
        marks = (at for at, record in self._ledger.stamped(self._run) if isinstance(record, TurnBegan | Saved))
        return max(marks, default=0.0)

    def _active(self) -> tuple[tuple[str, ...], tuple[RunRow, ...]]:
        """Those that are not over, and the rows of all. One that begins at this moment is in the one or the other."""
        coming = self._asked.coming() if self._asked else ()
        rows = self._ledger.descendants(self._run)
        known = {row.id for row in rows}
        working = (row.id for row in rows if at_work(self._project, row))
        return (*working, *(run for run in coming if run not in known)), rows

    def _requests(self) -> Requests | None:
        """None as long as nothing was ever asked for, which is most often."""
        fresh, self._fresh = self._fresh, False
        if self._asked is None and (os.path.isdir(self._place) or (fresh and self._folder.noted(REQUESTS))):
            from ralphproof.cli.requests import Requests

            self._asked = Requests(self._folder, self._project, self._ledger, self._env)
        return self._asked
