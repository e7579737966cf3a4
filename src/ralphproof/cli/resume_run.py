"""Taking a run up again: one that lost its harness, or that ended in a way that allows it."""

from __future__ import annotations

import os
import time

from ralphproof.action import Conclude, End
from ralphproof.cli.begin import Begun
from ralphproof.cli.in_turn import refuse_foreign_in_turn
from ralphproof.cli.leftover import end_leftovers, live_turn
from ralphproof.cli.notes import WISH, keep_limits, keep_wish, kept_bounds, kept_wish, overlaid, same_box
from ralphproof.cli.signals import Present
from ralphproof.cli.unjudged import opened, refuse_tampered, unjudged
from ralphproof.decision import next_action
from ralphproof.errors import Refused
from ralphproof.ledgers.folder import RunFolder
from ralphproof.ledgers.markers import Markers
from ralphproof.ledgers.process import this_process
from ralphproof.ledgers.sqlite import Sqlite
from ralphproof.limit import WAITING, Breach
from ralphproof.loop import Loop
from ralphproof.phase import Concluded, Over
from ralphproof.state import State, state_of
from ralphproof.value import TYPE_CHECKING, replace
from ralphproof.verdict import Aborted, Failed, Stopped
from ralphproof.views.found import age_s, ended_ns, found, quiet_ns
from ralphproof.views.gc_note import refuse_swept
from ralphproof.views.onward import refuse_final
from ralphproof.views.standing import RUNNING, row_of, standing
from ralphproof.workspaces.layout import lies_apart
from ralphproof.workspaces.tripwires import Wires

if TYPE_CHECKING:
    from ralphproof.cli.equipment import Hearing, Watching
    from ralphproof.cli.order import Order, Wish
    from ralphproof.keeper.client import Keeper
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.verdict import Outcome
    from ralphproof.views.project import Project

RAISE = {
    "MAX_ITERATIONS": "--max-iterations N is the new total",
    "COST_LIMIT": "--max-cost-usd is the new total",
    "TOKEN_LIMIT": "--max-tokens is the new total",
    "TIME_LIMIT": "--max-minutes is the new total",
    "DAILY_COST_LIMIT": "raise limits.dailyCostUsd, or wait for the next UTC day",
}


def wanted(project: Project, name: str, given: Wish) -> tuple[RunRow, Wish]:
    """The run that is to be taken up, and what it was asked to do, with what is asked for anew."""
    ledger = project.ledger()
    try:
        if not ledger.runs(1):
            raise Refused("there is no run to resume; begin one: ralph run")
        row = row_of(ledger, name)
        refuse_foreign_in_turn("run --resume", ledger, row)
        refuse_swept(project, row.id)
        _refuse(standing(ledger, row, project), row, project)
        refuse_final(state_of(ledger.records(row.id)), row.id)
        _refuse_other_task(ledger, row)
    finally:
        ledger.close()
    kept = kept_wish(RunFolder(row.directory, row.id, project.store))
    if kept is None:
        raise Refused(f"what run {row.id} was asked to do is not on record; begin a new run")
    wish, brought = kept
    if brought and given.brought == wish.brought:
        from ralphproof.cli.planning_leftover import again_of

        if again := again_of(project.store, row.id):
            raise Refused(f"run {row.id} was begun by ralph plan; plan again: {again}")
        raise Refused(f"run {row.id} was begun by a program, with functions of its own; resume it there")
    return row, replace(overlaid(_held_as_before(wish, given, row, project), given), folder=row.directory)


def _held_as_before(wish: Wish, given: Wish, row: RunRow, project: Project) -> Wish:
    """The wish with the very sandbox that the run had, whatever the settings say by now; a flag may change it."""
    bounds = kept_bounds(RunFolder(row.directory, row.id, project.store))
    if bounds is None or not (wish.guarded and given.guarded):
        return wish
    return replace(wish, hosts=(), flags={**wish.flags, "sandbox": same_box(bounds.sandbox)})


def _refuse_other_task(ledger: Sqlite, row: RunRow) -> None:
    """What a run has passed says nothing of a task that was changed since: raise Refused for such a one."""
    task = ledger.tasks.row(ledger.tasks.task_of_run(row.id) or "")
    if task is not None and task.updated_at > row.began_at:
        raise Refused(f"task {task.id} was changed since run {row.id} began; begin it anew: ralph work {task.id}")


def _refuse(where: str, row: RunRow, project: Project) -> None:
    if where == RUNNING:
        raise Refused(f"run {row.id} is running (pid {row.pid}); look on: ralph attach {row.id}")
    if not os.path.isdir(row.directory):
        raise Refused(f"run {row.id} worked in {row.directory}, which is gone; its saved work is in its branch or refs")
    if row.directory != project.root and not lies_apart(row.directory, project.store):
        raise Refused(f"run {row.id} works in {row.directory}; resume it there: ralph run --resume {row.id} -d DIR")


class Retaken(Begun):
    """A run that goes on where its records say that it stands. Nothing that ended is done again."""

    def __init__(
        self, order: Order, keeper: Keeper, watching: Watching, row: RunRow, hear: Hearing = Present.listen
    ) -> None:
        super().__init__(order, keeper, watching, hear, row.id, row.parent)
        self._laid: Wires | None = None

    def go(self) -> Outcome:
        """Take the run up, and go to its end."""
        return self._taken(self.loop())

    def loop(self) -> Loop:
        """The loop where it stands; nothing is done yet, and nobody else may have it."""
        assert isinstance(self._ledger, Sqlite)
        told, project = self._left_behind(), self._order.project
        stamped = self._ledger.stamped(self.run)
        state = state_of(record for _, record in stamped)
        refuse_final(state, self.run)  # somebody may have been first
        refuse_swept(project, self.run)
        if live_turn(project, self.run) is None:
            told += end_leftovers(self.run)
        stood = opened(state)
        self._refuse_tampered(stood)
        self._refuse_stranger(stood)
        self._earlier = tuple(record for _, record in stamped)
        scm = self._scm()
        self._folder.begin()
        rules = self._rules()
        rules = rules if rules.step_after is None else replace(rules, step_after=stood.history.turns)
        loop = self._made(rules, self._world(scm), state)
        remark = f"run {self.run}: {found(project, self.run, state)}"
        if state.run:
            family = (self.run, *(row.id for row in self._ledger.descendants(self.run)))
            age = age_s(project, self.run, stamped, time.time())
            loop.take_up(age, ended_ns(project, self.run, stood), quiet_ns(project, family))
            refuse_unchanged(loop, state)
        told += [f"a wish to wait was put away as {name}" for name in self._answered(state)]
        for line in self._remarks(remark, told):
            loop.notice(line)
        return loop

    def _remarks(self, remark: str, told: list[str]) -> tuple[str, ...]:
        """What there is to say of the run's going on."""
        return remark, *self._order.remarks, *told

    def _taken(self, loop: Loop) -> Outcome:
        """Have the run, and go to its end. Who has to take it up again needs not say again what was asked for now.

        Where that broke it at once, it is forgotten.
        """
        assert isinstance(self._ledger, Sqlite)
        before, judged = self._folder.noted(WISH), len(loop.state.history.iterations)
        self._have(loop)
        outcome = self._through(loop)
        if isinstance(outcome, Failed) and len(loop.state.history.iterations) <= judged:
            self._folder.note(WISH, before)
        return outcome

    def _have(self, loop: Loop) -> None:
        """This process has the run from now on."""
        assert isinstance(self._ledger, Sqlite)
        keep_limits(self._folder, loop.rules, self._order, self._sandbox.name)
        keep_wish(self._folder, self._asked_for(), self._order.project.mask)
        self._ledger.take_up(self.run, this_process())
        self._ledger.ask(self.run, "resume")
        self.present.follow(self._ledger, self.run)

    def _answered(self, state: State) -> tuple[str, ...]:
        """Whoever resumes a run that waited has answered it: the marker that was judged is put away."""
        match state.phase, state.before:
            case Over(Aborted(Breach(reason))), Concluded(facts) if reason == WAITING and facts.claim is not None:
                markers, judged = Markers(self._folder.task_folder), facts.claim.stamp
            case _:
                return ()
        now = markers.look()
        if now is None or not now.waiting or judged not in ("", now.stamp):
            return ()
        return markers.consume(time.strftime("%Y%m%d-%H%M%S", time.gmtime()))

    def _wires(self) -> Wires:
        """One object for all: it knows what it found."""
        if self._laid is None:
            made = super()._wires()
            assert isinstance(made, Wires)
            self._laid = made
        return self._laid

    def _refuse_tampered(self, stood: State) -> None:
        assert isinstance(self._ledger, Sqlite)
        order, brought = self._order, self._order.brought.agent is not None
        if work := unjudged(order.project, self._ledger, self.run, stood, brought):
            refuse_tampered(order, self.run, work, self._wires())

    def _refuse_stranger(self, state: State) -> None:
        """A turn is read by the agent that took it."""
        if state.turning and state.agent not in (agent.name for agent in self._order.agents):
            raise Refused(
                f"the last turn of run {self.run} was begun by {state.agent}, and the settings name another agent now; "
                f"resume it with --agent {state.agent}, or close it: ralph cancel {self.run}"
            )


def refuse_unchanged(loop: Loop, state: State) -> None:
    """Raise Refused where the limit that stopped a run would stop it again at once."""
    if not (isinstance(state.phase, Over) and isinstance(state.phase.outcome, Aborted)):
        return
    reason = state.phase.outcome.reason
    match next_action(replace(loop.state, unsure=False), loop.rules, loop.looked()):
        case End(Aborted(breach)) | Conclude(Stopped(breach)) if breach.reason == reason:
            how = RAISE.get(reason, "raise that limit in the settings")
            raise Refused(f"run {loop.id} was stopped by {reason}, and still is ({breach.message}); {how}")
        case _:
            return
