"""Stands in for a harness that died: follows its agent's turn, or its judge's, and ends it when all is spent.

The keeper starts it, once. It is a process of the turn, so it ends with it. While another harness has the run it only
listens: that one may die too.
"""

from __future__ import annotations

import os
import sys
import time

from ralphproof.agent import Brief
from ralphproof.asking import judging_as
from ralphproof.budget import Budget
from ralphproof.cli.family import left_after
from ralphproof.cli.notes import kept_limits, kept_wish
from ralphproof.cli.order import prepare
from ralphproof.config.agents import reader_of
from ralphproof.errors import RalphError
from ralphproof.event import Ended, Event, Spent, Usage
from ralphproof.keeper.follow import Following
from ralphproof.ledgers.folder import RunFolder
from ralphproof.ledgers.live_spend import LiveSpend
from ralphproof.ledgers.spend import SpendBook, spend_file
from ralphproof.sandbox import ACTIVE, GO_ON, STOP
from ralphproof.state import state_of
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.kept import private_of
from ralphproof.views.project import Project
from ralphproof.views.standing import row_of
from ralphproof.workspaces.since import Since
from ralphproof.world import Left, Pace

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.agent import Agent
    from ralphproof.ledgers.sqlite import Sqlite


class Elsewhere:
    """What other runs of the user spend at the same time; they are told what this turn has cost.

    A judge's figure is not told: it would stand for those of all that were asked with it.
    """

    def __init__(self, state_dir: str, run: str, call: str, tells: bool) -> None:
        self._live = LiveSpend(spend_file(state_dir))
        self._run, self._call, self._tells = run, call, tells
        self._others: int | None = None
        self._shared: int | None = None

    @property
    def others(self) -> int:
        """What all others have spent today, as far as that is known."""
        return self._others or 0

    def look(self, spent: Spent) -> None:
        now_s = time.time()
        tell = self._tells and spent.micro_usd
        others = self._live.tell(self._run, self._call, spent, now_s) if tell else self._live.others(self._call, now_s)
        self._others = self._others if others is None else others
        self._shared = self._live.left_of_shared(self._run, self._call)

    def passed_by(self, left: Left, spent: Spent) -> bool:
        """Whether this is more than a day may cost, or than is left of a budget that the run shares."""
        return left.day_passed_by(self._others, spent) or Left(self._shared).passed_by(spent)

    def close(self) -> None:
        self._live.close()


class Meter:
    """Adds up what the turn costs, and says stop when it is too much. While somebody has the run, it only listens.

    Where files change although the agent has been silent for long, it says that it is at work.
    """

    def __init__(
        self, left: Callable[[], Left], elsewhere: Elsewhere, taken: Callable[[], bool], stirred: Callable[[], bool],
        idle_s: float,
    ) -> None:  # fmt: skip
        """What is `left` is asked anew whenever a harness is gone: it may have been held to other limits."""
        self._ask_left, self._elsewhere, self._taken, self._stirred = left, elsewhere, taken, stirred
        self._left: Left | None = None
        self._pace = Pace()
        self._spent, self._ended = Spent(0, Usage()), False
        self._look_every_s, self._looked_s = idle_s / 4, time.monotonic()

    def events(self, events: list[Event]) -> None:
        self._looked_s = time.monotonic()
        for event in events:
            if type(event) is Spent:
                self._spent, self._ended = event, False
            elif type(event) is Ended:  # it spends no more
                self._ended = True

    def tick(self) -> int:
        if self._taken():
            self._left = None
            return GO_ON
        if self._left is None:
            self._left = self._ask_left()
        if self._over(self._left) and not self._ended:
            return STOP
        return ACTIVE if self._at_work() else GO_ON

    def _over(self, left: Left) -> bool:
        if self._pace.due(now_s := time.monotonic()):
            self._elsewhere.look(self._spent)
            self._pace.looked(now_s, self._elsewhere.others + (self._spent.micro_usd or 0), left.daily_micro_usd)
        return left.passed_by(self._spent) or self._elsewhere.passed_by(left, self._spent)

    def _at_work(self) -> bool:
        if time.monotonic() - self._looked_s < self._look_every_s:
            return False
        self._looked_s = time.monotonic()
        return self._stirred()


def main() -> int:
    """The stand-in's program: `ROOT RUN TURN [JUDGE]`."""
    try:
        follow(*sys.argv[1:])
    except RalphError:
        pass  # the turn's own timeout still holds
    return 0


def follow(root: str, run: str, name: str, *judge: str) -> None:
    """Follow the turn of this name of a run in this project; a judge's comes with the name of whoever is asked."""
    project = Project.seen(root, os.environ)
    folder = RunFolder(project.root, run, project.store)
    if kept_limits(folder) is None:
        return
    ledger = project.ledger()
    try:
        agent, idle_s = _agent(folder, judge[0] if judge else state_of(ledger.records(run)).agent)
        brief = Brief("", "", project.root, (), folder.base(name), folder.turn_file(name), "", 0.0, taken_up=True)
        since = Since(project.root, private_of(project, row_of(ledger, run)))
        call = judging_as(run) if judge else f"{run}/{name}"
        elsewhere = Elsewhere(project.state_dir, run, call, tells=not judge)
        left = lambda: _left(project, folder, ledger, call)  # noqa: E731
        meter = Meter(left, elsewhere, lambda: _taken(ledger, run), since.stirred, idle_s)
        agent.take_turn(brief, Following(lambda: False, steering=True), meter)
        elsewhere.close()
    finally:
        ledger.close()


def _agent(folder: RunFolder, name: str) -> tuple[Agent, float]:
    """Who reads the turn, and after how much silence it would be idle.

    The agent that we look at may have changed the settings: it is read all the same, and what it may spend is not
    among them.
    """
    try:
        kept = kept_wish(folder)
        order = prepare(kept[0]) if kept else None
    except RalphError:
        order = None
    idle_s = order.rules.agent_idle_s if order else None
    known = (agent for agent in (order.agents if order else ()) if agent.name == name)
    return next(known, None) or reader_of(name), idle_s or float("inf")


def _left(project: Project, folder: RunFolder, ledger: Sqlite, call: str) -> Left:
    """What the turn may spend, by the limits that were written down when its run was last begun or taken up."""
    purse = SpendBook.open(project.state_dir)
    try:
        spend = state_of(ledger.records(folder.run)).spend
        return left_after(kept_limits(folder) or Budget(), spend, folder.run, ledger, purse, call)
    finally:
        purse.close()


def _taken(ledger: Sqlite, run: str) -> bool:
    row = ledger.row(run)
    return row is not None and not row.ended and row.process.alive
