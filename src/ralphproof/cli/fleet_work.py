"""What one step of a loop does on a machine, from the remote's word to the remote's."""

from __future__ import annotations

import os
import sys
import time

from ralphproof.action import Action, Finish
from ralphproof.cli.fleet_result import LoopResult, land, result_of
from ralphproof.cli.fleet_step import FirstStep, NextStep
from ralphproof.errors import HarnessFailed, Refused
from ralphproof.event import Spent
from ralphproof.fleet import turn
from ralphproof.fleet.beside import Beside
from ralphproof.fleet.light import light
from ralphproof.fleet.taking import Taking
from ralphproof.phase import Over
from ralphproof.record import Saved, TurnBegan
from ralphproof.state import state_of
from ralphproof.value import TYPE_CHECKING, replace, unpack
from ralphproof.verdict import Completed

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.cli.order import Wish
    from ralphproof.cli.signals import Present
    from ralphproof.event import Event
    from ralphproof.fleet.baton import Baton
    from ralphproof.fleet.folder import LoopFolder
    from ralphproof.fleet.turn import StepAsked
    from ralphproof.keeper.client import Keeper
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.record import Record
    from ralphproof.state import State
    from ralphproof.value import Json
    from ralphproof.views.project import Project

    Tell = Callable[[dict[str, Json]], None]

SPENT_S = 1.0


class SpendWatch:
    """Tells what the turn at work costs, at most once a second."""

    def __init__(self, tell: Tell) -> None:
        self._tell, self._at, self._last = tell, 0.0, Spent(0)

    def saw(self, record: Record) -> None:
        """Records go another way."""

    def heard(self, events: list[Event]) -> None:
        for event in events:
            if type(event) is Spent:
                self._last = event
        self.tick()

    def tick(self) -> None:
        now, spent = time.monotonic(), self._last
        if spent != Spent(0) and now - self._at >= SPENT_S:
            self._at, self._last = now, Spent(0)
            self._tell(turn.spent(spent.micro_usd, spent.usage.total if spent.usage else 0))


class StepWork:
    """One step. Words that come meanwhile reach what is at work."""

    def __init__(self, asked: StepAsked, folder: LoopFolder, baton: Baton, tell: Tell) -> None:
        self._asked, self._folder, self._baton, self._tell = asked, folder, baton, tell
        self._order = asked.order
        self._taking = Taking(asked.order, folder, baton, os.environ, self._furnish)
        self._run: FirstStep | None = None
        self._landing: Present | None = None
        self._words: set[str] = set()

    def heard(self, word: str) -> None:
        """Do as somebody says: now, or as soon as there is something at work."""
        self._words.add(word)
        if self._landing is not None:
            self._landing.ring()
        if self._run is None:
            return
        if word == turn.CANCEL:
            self._run.present.cancel()
        else:
            self._run.present.halt(now=word == turn.KILL)

    def take(self, keeper: Keeper) -> dict[str, Json]:
        """Have the loop, take the step, and leave all of it on the remote; what to report."""
        self._taking.take()
        records = self._records()
        self._refuse_unknown(len(records))
        state = state_of(records)
        # What an earlier step could not push comes first: nothing may follow from it before.
        self._keep(over=isinstance(state.phase, Over))
        step, until = self._stepped(keeper, state)
        self._keep(over=isinstance(step, Finish))
        records = self._records()
        new = [light(record) for record in records[self._asked.known :]]
        report = turn.rest(new, step, until, self._baton.head, state_of(records).spend)
        return report | self._land(step)

    def _land(self, step: Action) -> dict[str, Json]:
        """Where the run is completed, and its work is to land somewhere: what became of that."""
        if not self._order.target or not (isinstance(step, Finish) and isinstance(step.outcome, Completed)):
            return {}
        from ralphproof.cli.fleet_land import land_on_remote
        from ralphproof.cli.signals import Present

        self._landing = Present(grace_s=0.0)
        try:
            for word in self._words:
                self.heard(word)
            project, mirror = self._taking.project(), self._baton.mirror
            return {"landed": land_on_remote(self._order, project, mirror, self._landing).published}
        except KeyboardInterrupt as error:
            raise HarnessFailed("landing was interrupted; nothing moved") from error
        finally:
            present, self._landing = self._landing, None
            present.close()

    def _refuse_unknown(self, there: int) -> None:
        known, loop = self._asked.known, self._order.loop
        if known > there:
            raise Refused(f"loop {loop} has {there} records, and {known} are said to be known")

    def give_up(self) -> tuple[str, ...]:
        """Somebody else has the loop: end what is at work here, and put what they lack under lost/."""
        return self._taking.put_aside()

    def _stepped(self, keeper: Keeper, state: State) -> tuple[Action, float | None]:
        if isinstance(state.phase, Over):
            return Finish(state.phase.outcome), None
        project = self._taking.project()
        self._furnish_here(project)
        run = self._equipped(project, keeper, state)
        with Beside(self._order, self._baton, project.store, project.root, self._moved) as beside, run:
            self._run = run
            for word in list(self._words):
                self.heard(word)
            if state.turning:
                self._tell(turn.begun(state.iteration, state.turn, state.agent))
            step = run.step(self._asked.allot, self._asked.finish, self._halted, self._asked.spent)
            outcome = step[0].outcome if isinstance(step[0], Finish) else None
            for trouble in run.tell(outcome) if outcome else ():
                print(project.mask(trouble), file=sys.stderr)
        self._run = None
        beside.finish()
        return step

    def _equipped(self, project: Project, keeper: Keeper, state: State) -> FirstStep:
        from ralphproof.cli.order import NO_WISH, prepare
        from ralphproof.cli.resume_run import wanted

        def watching(*_: object) -> tuple[SpendWatch]:
            return (SpendWatch(self._tell),)

        if not state.run:
            order = prepare(replace(self._wish(), folder=project.root))
            return FirstStep(order, keeper, watching, self._order.loop, self._shared)
        row, wish = wanted(project, self._order.loop, NO_WISH)
        return NextStep(prepare(wish), keeper, watching, row, self._shared)

    def _wish(self) -> Wish:
        import json

        from ralphproof.cli.notes import wish_in

        wish = wish_in(json.dumps(self._order.wish).encode(), os.environ)
        if wish is None:
            raise Refused("wish of the order cannot be read; was it written by another version of ralph?")
        return replace(wish, task_folder="")

    def _shared(self, records: tuple[Record, ...]) -> None:
        """What must be on the remote before anything follows: that a turn begins, and the work of one that ended."""
        if any(isinstance(record, TurnBegan | Saved) for record in records):
            self._keep()
        for record in records:
            if isinstance(record, TurnBegan):
                self._tell(turn.begun(record.iteration, record.turn, record.agent))

    def _keep(self, over: bool = False) -> None:
        """Make all that is on record here durable on the remote; where the run is over, with what came of it."""
        rows = self._taking.rows()
        if not rows:
            return
        result = self._result() if over else None
        also = land(self._order, result) if result else ()
        trees = self._taking.trees(rows)
        self._baton.keep(rows, self._taking.notes(), trees, also, result.commit if result else "")

    def _result(self) -> LoopResult | None:
        """What came of the run, unless the remote has it."""
        if self._baton.held and self._baton.held.scroll.result:
            return None
        project = self._taking.project()
        ledger = project.ledger()
        try:
            row = ledger.row(self._order.loop)
            return result_of(project, row, ledger.records(self._order.loop)) if row else None
        finally:
            ledger.close()

    def _records(self) -> tuple[Record, ...]:
        ledger = self._taking.project().ledger()
        try:
            return ledger.records(self._order.loop)
        finally:
            ledger.close()

    def _halted(self) -> bool:
        return bool(self._words & {turn.HALT, turn.KILL})

    def _moved(self) -> None:
        """Somebody else has the loop: what is at work here works for nobody."""
        self.heard(turn.KILL)

    def _furnish(self, ledger: Sqlite) -> str:
        """Put the order's task into a ledger that lacks it; its id, empty where the order has none."""
        if self._order.task is None:
            return ""
        from ralphproof.cli.task_store import row_of
        from ralphproof.plans.draft import Draft

        draft = unpack({**self._order.task, "is": "Draft"})
        if not isinstance(draft, Draft) or not isinstance(draft.id, str):
            raise Refused("task of the order cannot be read; was it written by another version of ralph?")
        if ledger.tasks.row(draft.id) is None:
            ledger.tasks.add((row_of(draft),))
        return draft.id

    def _furnish_here(self, project: Project) -> None:
        if self._order.task is None:
            return
        ledger = project.ledger(read_only=False)
        try:
            self._furnish(ledger)
        finally:
            ledger.close()
