"""Stands in for a harness that died: follows its agent's turn and ends it when it has spent all that it may.

The keeper starts it. It is a process of the turn, so it ends with it; it leaves when another harness has taken the run.
"""

from __future__ import annotations

import os
import sys
import time

from ralphproof.agent import Brief
from ralphproof.cli.family import left_after
from ralphproof.cli.kept import private_of
from ralphproof.cli.notes import kept_wish
from ralphproof.cli.order import prepare
from ralphproof.cli.project import Project
from ralphproof.cli.standing import row_of
from ralphproof.errors import RalphError
from ralphproof.event import Ended, Event, Spent
from ralphproof.keeper.follow import Following
from ralphproof.ledgers.folder import RunFolder
from ralphproof.ledgers.spend import SpendBook
from ralphproof.sandbox import ACTIVE, GO_ON, STOP
from ralphproof.state import state_of
from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.since import Since

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.agent import Agent
    from ralphproof.cli.order import Order
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.world import Left


class Meter:
    """Adds up what the turn costs. Says stop when it is too much; when somebody has the run, it looks no longer.

    Where files change although the agent has been silent for long, it says that it is at work.
    """

    def __init__(self, left: Left, taken: Callable[[], bool], stirred: Callable[[], bool], idle_s: float) -> None:
        self._left, self._taken, self._stirred, self._over = left, taken, stirred, False
        self._look_every_s, self._looked_s = idle_s / 4, time.monotonic()

    def events(self, events: list[Event]) -> None:
        self._looked_s = time.monotonic()
        for event in events:
            if type(event) is Spent:
                self._over = self._over or self._left.passed_by(event)
            elif type(event) is Ended:  # it spends no more
                self._over = False

    def tick(self) -> int:
        if self._taken():
            raise SystemExit(0)
        return STOP if self._over else ACTIVE if self._at_work() else GO_ON

    def _at_work(self) -> bool:
        if time.monotonic() - self._looked_s < self._look_every_s:
            return False
        self._looked_s = time.monotonic()
        return self._stirred()


def main(argv: list[str]) -> int:
    """Follow the turn of this name of a run in this project."""
    root, run, name = argv
    project = Project.seen(root, os.environ)
    folder = RunFolder(project.root, run, project.store)
    kept = kept_wish(folder)
    if kept is None:
        return 0
    order, ledger = prepare(kept[0]), project.ledger()
    try:
        agent, left = _agent(order, ledger, run), _left(order, ledger, run)
        brief = Brief("", "", project.root, (), folder.base(name), folder.turn_file(name), "", 0.0, taken_up=True)
        since = Since(project.root, private_of(project, row_of(ledger, run, project.root)))
        idle_s = order.rules.agent_idle_s or float("inf")
        meter = Meter(left, lambda: _taken(ledger, run), since.stirred, idle_s)
        agent.take_turn(brief, Following(lambda: False, steering=True), meter)
    finally:
        ledger.close()
    return 0


def _agent(order: Order, ledger: Sqlite, run: str) -> Agent:
    name = state_of(ledger.records(run)).agent
    return next((agent for agent in order.agents if agent.name == name), order.agents[0])


def _left(order: Order, ledger: Sqlite, run: str) -> Left:
    purse = SpendBook.open(order.project.state_dir)
    try:
        return left_after(order.rules.limits.budget, state_of(ledger.records(run)).spend, run, ledger, purse)
    finally:
        purse.close()


def _taken(ledger: Sqlite, run: str) -> bool:
    return any(row.id == run and (row.ended or row.process.alive) for row in ledger.runs(100))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except RalphError:
        sys.exit(0)  # the turn's own timeout still holds
