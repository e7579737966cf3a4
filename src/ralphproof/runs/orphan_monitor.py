"""Program that watches an orphaned turn, whose harness died, and ends it when its budget is spent.

The keeper starts it once, as a process of the turn, so it ends with the turn. While another harness has the run it does
nothing but listen: that harness may die too.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

from ralphproof.agents.selection import transcript_reader
from ralphproof.base.errors import RalphError
from ralphproof.engine.agent import Agent, Ended, Event, Spent, TurnInput, Usage
from ralphproof.engine.environment import SpendPollTimer
from ralphproof.engine.limits import Budget
from ralphproof.engine.loop import judging_call_id
from ralphproof.engine.sandbox import ACTIVE, CONTINUE, STOP
from ralphproof.engine.state import build_state
from ralphproof.process.keeper_client import TurnFollower
from ralphproof.runs.children import load_constraints
from ralphproof.runs.open_project import view_project
from ralphproof.runs.request import load_request
from ralphproof.runs.spec import prepare_spec
from ralphproof.store.ledger import SqliteLedger
from ralphproof.store.project import Project
from ralphproof.store.run_folder import RunFolder
from ralphproof.store.run_state import find_run
from ralphproof.store.spend import LiveSpend, SpendStore, spend_path
from ralphproof.views.snapshots import workspace_folder_of
from ralphproof.workspace.files import ChangeTimes


class OtherSpend:
    """What other runs of the user spend at the same time; publishes the cost of this turn to them.

    The cost of a judge is not published: it would replace the total of all judges that were started with it.
    """

    def __init__(self, state_dir: str, run: str, call: str, publishes: bool) -> None:
        self._live = LiveSpend(spend_path(state_dir))
        self._run, self._call, self._publishes = run, call, publishes
        self._others: int | None = None
        self._shared: int | None = None

    @property
    def others(self) -> int:
        """What all other runs have spent today, as far as known."""
        return self._others or 0

    def refresh(self, spent: Spent) -> None:
        now_s = time.time()
        publish = self._publishes and spent.micro_usd
        others = (
            self._live.update(self._run, self._call, spent, now_s) if publish else self._live.others(self._call, now_s)
        )
        self._others = self._others if others is None else others
        self._shared = self._live.left_of_shared(self._run, self._call)

    def exceeded_by(self, remaining: Budget, spent: Spent) -> bool:
        """Whether this spend exceeds the daily limit, or what is left of the run's shared budget."""
        return remaining.day_exceeded_by(self._others, spent) or Budget(micro_usd=self._shared).exceeded_by(spent)

    def close(self) -> None:
        self._live.close()


class OrphanBudgetMonitor:
    """Adds up the cost of a turn, and stops the turn when it exceeds the budget. While a harness has the run, it only
    listens.

    Where files change although the agent has been silent for long, it reports activity, which delays the idle timeout.
    """

    def __init__(
        self, remaining: Callable[[], Budget], other_spend: OtherSpend, has_harness: Callable[[], bool],
        files_changed: Callable[[], bool],
        idle_s: float,
    ) -> None:  # fmt: skip
        """`remaining` is called again whenever a harness is gone: that harness may have set other limits."""
        self._compute_remaining, self._other_spend, self._has_harness, self._files_changed = (
            remaining,
            other_spend,
            has_harness,
            files_changed,
        )
        self._remaining: Budget | None = None
        self._poll_timer = SpendPollTimer()
        self._spent, self._ended = Spent(0, Usage()), False
        self._file_check_interval_s, self._active_s = idle_s / 4, time.monotonic()

    def events(self, events: list[Event]) -> None:
        self._active_s = time.monotonic()
        for event in events:
            if type(event) is Spent:
                self._spent, self._ended = event, False
            elif type(event) is Ended:  # it spends nothing more
                self._ended = True

    def tick(self) -> int:
        if self._has_harness():
            self._remaining = None
            return CONTINUE
        if self._remaining is None:
            self._remaining = self._compute_remaining()
        if self._is_over_budget(self._remaining) and not self._ended:
            return STOP
        return ACTIVE if self._is_active() else CONTINUE

    def _is_over_budget(self, remaining: Budget) -> bool:
        if self._poll_timer.due(now_s := time.monotonic()):
            self._other_spend.refresh(self._spent)
            self._poll_timer.record_poll(
                now_s, self._other_spend.others + (self._spent.micro_usd or 0), remaining.daily_micro_usd
            )
        return remaining.exceeded_by(self._spent) or self._other_spend.exceeded_by(remaining, self._spent)

    def _is_active(self) -> bool:
        if time.monotonic() - self._active_s < self._file_check_interval_s:
            return False
        self._active_s = time.monotonic()
        return self._files_changed()


def main() -> int:
    """Arguments: `ROOT RUN TURN [JUDGE]`."""
    try:
        follow_turn(*sys.argv[1:])
    except RalphError:
        pass  # the turn's own timeout still holds
    return 0


def follow_turn(root: str, run: str, name: str, *judge: str) -> None:
    """Follow this turn of a run in this project; `judge` is the agent's name where the turn is a judge's."""
    project = view_project(root, os.environ)
    folder = RunFolder(project.root, run, project.store)
    if load_constraints(folder) is None:
        return
    ledger = project.ledger()
    try:
        agent, idle_s = _select_reader(folder, judge[0] if judge else build_state(ledger.records(run)).agent.name)
        turn_input = TurnInput(
            "", "", project.root, (), folder.log_base(name), folder.turn_file(name), "", 0.0, adopt=True
        )
        changes = ChangeTimes(project.root, workspace_folder_of(project, find_run(ledger, run)))
        call = judging_call_id(run) if judge else f"{run}/{name}"
        other_spend = OtherSpend(project.state_dir, run, call, publishes=not judge)
        remaining = lambda: _remaining_budget(project, folder, ledger, call)  # noqa: E731
        monitor = OrphanBudgetMonitor(
            remaining, other_spend, lambda: _has_harness(ledger, run), changes.has_activity, idle_s
        )
        agent.take_turn(turn_input, TurnFollower(lambda: False, steering=True), monitor)
        other_spend.close()
    finally:
        ledger.close()


def _select_reader(folder: RunFolder, name: str) -> tuple[Agent, float]:
    """The agent that parses the turn's output, and the idle timeout.

    The watched agent may have changed the settings. They are used all the same: the budget is not among them.
    """
    try:
        saved = load_request(folder)
        spec = prepare_spec(saved[0]) if saved else None
    except RalphError:
        spec = None
    idle_s = spec.rules.agent.idle_s if spec else None
    readers = (agent for agent in (spec.agents if spec else ()) if agent.name == name)
    return next(readers, None) or transcript_reader(name), idle_s or float("inf")


def _remaining_budget(project: Project, folder: RunFolder, ledger: SqliteLedger, call: str) -> Budget:
    """What the turn may spend, by the limits that were saved when its run was last begun or resumed."""
    spend_store = SpendStore.open(project.state_dir)
    try:
        constraints, own = load_constraints(folder), build_state(ledger.records(folder.run)).spend
        spend = own.plus(spend_store.spend_of(tuple(row.id for row in ledger.descendants(folder.run))))
        budget = constraints.budget if constraints else Budget()
        return budget.left(spend, spend_store.day_spend(time.time(), call))
    finally:
        spend_store.close()


def _has_harness(ledger: SqliteLedger, run: str) -> bool:
    row = ledger.row(run)
    return row is not None and not row.ended and row.process.alive
