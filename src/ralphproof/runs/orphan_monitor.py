"""Program that the keeper starts when a harness died: follows the orphaned turn, and ends it when its budget is spent.

The keeper starts it, once. It is a process of the turn, so it ends with it. While another harness has the run it only
listens: that one may die too.
"""

from __future__ import annotations

import os
import sys
import time

from ralphproof.agents.selection import transcript_reader
from ralphproof.base.errors import RalphError
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.agent import TurnInput
from ralphproof.engine.budget import Budget, RemainingBudget
from ralphproof.engine.environment import SpendPollTimer
from ralphproof.engine.events import Ended, Event, Spent, Usage
from ralphproof.engine.sandbox import ACTIVE, CONTINUE, STOP
from ralphproof.engine.state import build_state
from ralphproof.engine.turn_io import judging_call_id
from ralphproof.process.observer import TurnFollower
from ralphproof.runs.children import remaining_budget
from ralphproof.runs.constraints import load_budget
from ralphproof.runs.open_project import view_project
from ralphproof.runs.request import load_request
from ralphproof.runs.spec import prepare_spec
from ralphproof.store.project import Project
from ralphproof.store.run_folder import RunFolder
from ralphproof.store.run_state import find_run
from ralphproof.store.spend import LiveSpend, SpendStore, spend_path
from ralphproof.views.snapshots import workspace_folder_of
from ralphproof.workspace.files import ChangeTimes

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.engine.agent import Agent
    from ralphproof.store.sqlite_ledger import SqliteLedger


class OtherSpend:
    """What other runs of the user spend at the same time; they are told what this turn has cost.

    A judge's figure is not told: it would stand for those of all that were asked with it.
    """

    def __init__(self, state_dir: str, run: str, call: str, tells: bool) -> None:
        self._live = LiveSpend(spend_path(state_dir))
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

    def passed_by(self, left: RemainingBudget, spent: Spent) -> bool:
        """Whether this is more than a day may cost, or than is left of a budget that the run shares."""
        return left.day_exceeded_by(self._others, spent) or RemainingBudget(self._shared).exceeded_by(spent)

    def close(self) -> None:
        self._live.close()


class OrphanBudgetMonitor:
    """Adds up what the turn costs, and says stop when it is too much. While somebody has the run, it only listens.

    Where files change although the agent has been silent for long, it says that it is at work.
    """

    def __init__(
        self, left: Callable[[], RemainingBudget], elsewhere: OtherSpend, taken: Callable[[], bool],
        stirred: Callable[[], bool],
        idle_s: float,
    ) -> None:  # fmt: skip
        """What is `left` is asked anew whenever a harness is gone: it may have been held to other limits."""
        self._ask_left, self._elsewhere, self._taken, self._stirred = left, elsewhere, taken, stirred
        self._left: RemainingBudget | None = None
        self._pace = SpendPollTimer()
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
            return CONTINUE
        if self._left is None:
            self._left = self._ask_left()
        if self._over(self._left) and not self._ended:
            return STOP
        return ACTIVE if self._at_work() else CONTINUE

    def _over(self, left: RemainingBudget) -> bool:
        if self._pace.due(now_s := time.monotonic()):
            self._elsewhere.look(self._spent)
            self._pace.record_poll(now_s, self._elsewhere.others + (self._spent.micro_usd or 0), left.daily_micro_usd)
        return left.exceeded_by(self._spent) or self._elsewhere.passed_by(left, self._spent)

    def _at_work(self) -> bool:
        if time.monotonic() - self._looked_s < self._look_every_s:
            return False
        self._looked_s = time.monotonic()
        return self._stirred()


def main() -> int:
    """The stand-in's program: `ROOT RUN TURN [JUDGE]`."""
    try:
        follow_turn(*sys.argv[1:])
    except RalphError:
        pass  # the turn's own timeout still holds
    return 0


def follow_turn(root: str, run: str, name: str, *judge: str) -> None:
    """Follow the turn of this name of a run in this project; a judge's comes with the name of whoever is asked."""
    project = view_project(root, os.environ)
    folder = RunFolder(project.root, run, project.store)
    if load_budget(folder) is None:
        return
    ledger = project.ledger()
    try:
        agent, idle_s = _select_reader(folder, judge[0] if judge else build_state(ledger.records(run)).agent)
        brief = TurnInput("", "", project.root, (), folder.log_base(name), folder.turn_file(name), "", 0.0, adopt=True)
        since = ChangeTimes(project.root, workspace_folder_of(project, find_run(ledger, run)))
        call = judging_call_id(run) if judge else f"{run}/{name}"
        elsewhere = OtherSpend(project.state_dir, run, call, tells=not judge)
        left = lambda: _remaining_budget(project, folder, ledger, call)  # noqa: E731
        meter = OrphanBudgetMonitor(left, elsewhere, lambda: _has_harness(ledger, run), since.has_activity, idle_s)
        agent.take_turn(brief, TurnFollower(lambda: False, steering=True), meter)
        elsewhere.close()
    finally:
        ledger.close()


def _select_reader(folder: RunFolder, name: str) -> tuple[Agent, float]:
    """Who reads the turn, and after how much silence it would be idle.

    The agent that we look at may have changed the settings: it is read all the same, and what it may spend is not
    among them.
    """
    try:
        kept = load_request(folder)
        spec = prepare_spec(kept[0]) if kept else None
    except RalphError:
        spec = None
    idle_s = spec.rules.agent_idle_s if spec else None
    known = (agent for agent in (spec.agents if spec else ()) if agent.name == name)
    return next(known, None) or transcript_reader(name), idle_s or float("inf")


def _remaining_budget(project: Project, folder: RunFolder, ledger: SqliteLedger, call: str) -> RemainingBudget:
    """What the turn may spend, by the limits that were written down when its run was last begun or taken up."""
    spend_store = SpendStore.open(project.state_dir)
    try:
        spend = build_state(ledger.records(folder.run)).spend
        return remaining_budget(load_budget(folder) or Budget(), spend, folder.run, ledger, spend_store, call)
    finally:
        spend_store.close()


def _has_harness(ledger: SqliteLedger, run: str) -> bool:
    row = ledger.row(run)
    return row is not None and not row.ended and row.process.alive
