"""Resuming a run that lost its harness, or that ended in a way that allows it."""

from __future__ import annotations

import os
import time

from ralphproof.base.errors import Refused
from ralphproof.base.files import read_file
from ralphproof.base.git_layout import is_run_worktree
from ralphproof.base.process_identity import current_process
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.engine.actions import Conclude, EndRun
from ralphproof.engine.limits import WAITING, Breach
from ralphproof.engine.loop import Loop
from ralphproof.engine.next_action import next_action
from ralphproof.engine.outcome import Aborted, Failed, Stopped
from ralphproof.engine.state import IterationJudged, RunOver, State, build_state
from ralphproof.process.signals import RunClock
from ralphproof.runs.agent_restrictions import refuse_unrelated_run_in_turn
from ralphproof.runs.constraints import load_constraints, sandbox_as_settings, save_constraints
from ralphproof.runs.context import NewRun
from ralphproof.runs.recovery import (
    end_leftover_processes,
    find_live_turn,
    find_unjudged_work,
    refuse_tampered_settings,
    state_when_resumed,
)
from ralphproof.runs.request import REQUEST_NOTE, load_request, override_request, save_request
from ralphproof.store.run_folder import RunFolder
from ralphproof.store.run_state import RUNNING, find_run, refuse_collected_run, run_state
from ralphproof.store.signal_files import SignalFiles
from ralphproof.store.sqlite_ledger import SqliteLedger
from ralphproof.views.interrupted_run import active_seconds, describe_takeover, idle_since_ns, turn_end_ns
from ralphproof.views.run_status import refuse_finished_run
from ralphproof.workspace.tripwires import FileTripwires

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ralphproof.engine.outcome import Outcome
    from ralphproof.process.client import Keeper
    from ralphproof.runs.context import Hearing, Watching
    from ralphproof.runs.request import RunRequest
    from ralphproof.runs.spec import RunSpec
    from ralphproof.store.project import Project
    from ralphproof.store.runs import RunRow


# Taking a run up again: one that lost its harness, or that ended in a way that allows it.


HOW_TO_RAISE_LIMIT = {
    "MAX_ITERATIONS": "--max-iterations N is the new total",
    "COST_LIMIT": "--max-cost-usd is the new total",
    "TOKEN_LIMIT": "--max-tokens is the new total",
    "TIME_LIMIT": "--max-minutes is the new total",
    "DAILY_COST_LIMIT": "raise limits.dailyCostUsd, or wait for the next UTC day",
}


def load_resumed_request(project: Project, name: str, given: RunRequest) -> tuple[RunRow, RunRequest]:
    """The run that is to be taken up, and what it was asked to do, with what is asked for anew."""
    ledger = project.ledger()
    try:
        if not ledger.runs(1):
            raise Refused("there is no run to resume; begin one: ralph run")
        row = find_run(ledger, name)
        refuse_unrelated_run_in_turn("run --resume", ledger, row)
        refuse_collected_run(project, row.id)
        _refuse_unresumable(run_state(ledger, row, project), row, project)
        refuse_finished_run(build_state(ledger.records(row.id)), row.id)
        _refuse_changed_task(ledger, row)
    finally:
        ledger.close()
    kept = load_request(RunFolder(row.directory, row.id, project.store))
    if kept is None:
        raise Refused(f"what run {row.id} was asked to do is not on record; begin a new run")
    request, custom = kept
    if custom and given.custom == request.custom:
        if again := find_planning_command(project.store, row.id):
            raise Refused(f"run {row.id} was begun by ralph plan; plan again: {again}")
        raise Refused(f"run {row.id} was begun by a program, with functions of its own; resume it there")
    return row, replace(override_request(_keep_sandbox(request, given, row, project), given), project_dir=row.directory)


def _keep_sandbox(request: RunRequest, given: RunRequest, row: RunRow, project: Project) -> RunRequest:
    """The wish with the very sandbox that the run had, whatever the settings say by now; a flag may change it."""
    bounds = load_constraints(RunFolder(row.directory, row.id, project.store))
    if bounds is None or not (request.guarded and given.guarded):
        return request
    return replace(request, allow_hosts=(), flags={**request.flags, "sandbox": sandbox_as_settings(bounds.sandbox)})


def _refuse_changed_task(ledger: SqliteLedger, row: RunRow) -> None:
    """What a run has passed says nothing of a task that was changed since: raise Refused for such a one."""
    task = ledger.tasks.row(ledger.tasks.task_of_run(row.id) or "")
    if task is not None and task.updated_at > row.began_at:
        raise Refused(f"task {task.id} was changed since run {row.id} began; begin it anew: ralph work {task.id}")


def _refuse_unresumable(where: str, row: RunRow, project: Project) -> None:
    if where == RUNNING:
        raise Refused(f"run {row.id} is running (pid {row.pid}); look on: ralph attach {row.id}")
    if not os.path.isdir(row.directory):
        raise Refused(f"run {row.id} worked in {row.directory}, which is gone; its saved work is in its branch or refs")
    if row.directory != project.root and not is_run_worktree(row.directory, project.store):
        raise Refused(f"run {row.id} works in {row.directory}; resume it there: ralph run --resume {row.id} -d DIR")


class ResumedRun(NewRun):
    """A run that goes on where its records say that it stands. Nothing that ended is done again."""

    def __init__(
        self, spec: RunSpec, keeper: Keeper, watching: Watching, row: RunRow, hear: Hearing = RunClock.listen
    ) -> None:
        super().__init__(spec, keeper, watching, hear, row.id, row.parent)
        self._laid: FileTripwires | None = None

    def go(self) -> Outcome:
        """Take the run up, and go to its end."""
        return self._taken(self.loop())

    def loop(self) -> Loop:
        """The loop where it stands; nothing is done yet, and nobody else may have it."""
        assert isinstance(self._ledger, SqliteLedger)
        told, project = self._left_behind(), self._spec.project
        stamped = self._ledger.stamped(self.run)
        state = build_state(record for _, record in stamped)
        refuse_finished_run(state, self.run)  # somebody may have been first
        refuse_collected_run(project, self.run)
        if find_live_turn(project, self.run) is None:
            told += end_leftover_processes(self.run)
        stood = state_when_resumed(state)
        self._refuse_tampered(stood)
        self._refuse_stranger(stood)
        self._earlier = tuple(record for _, record in stamped)
        scm = self._scm()
        self._folder.begin()
        rules = self._rules()
        rules = rules if rules.step_after is None else replace(rules, step_after=stood.history.turns)
        loop = self._made(rules, self._world(scm), state)
        remark = f"run {self.run}: {describe_takeover(project, self.run, state)}"
        if state.run:
            family = (self.run, *(row.id for row in self._ledger.descendants(self.run)))
            age = active_seconds(project, self.run, stamped, time.time())
            loop.take_up(age, turn_end_ns(project, self.run, stood), idle_since_ns(project, family))
            refuse_unraised_limit(loop, state)
        told += [f"a wish to wait was put away as {name}" for name in self._answered(state)]
        for line in self._remarks(remark, told):
            loop.notice(line)
        return loop

    def _remarks(self, remark: str, told: list[str]) -> tuple[str, ...]:
        """What there is to say of the run's going on."""
        return remark, *self._spec.remarks, *told

    def _taken(self, loop: Loop) -> Outcome:
        """Have the run, and go to its end. Who has to take it up again needs not say again what was asked for now.

        Where that broke it at once, it is forgotten.
        """
        assert isinstance(self._ledger, SqliteLedger)
        before, judged = self._folder.noted(REQUEST_NOTE), len(loop.state.history.iterations)
        self._have(loop)
        outcome = self._through(loop)
        if isinstance(outcome, Failed) and len(loop.state.history.iterations) <= judged:
            self._folder.note(REQUEST_NOTE, before)
        return outcome

    def _have(self, loop: Loop) -> None:
        """This process has the run from now on."""
        assert isinstance(self._ledger, SqliteLedger)
        save_constraints(self._folder, loop.rules, self._spec, self._sandbox.name)
        save_request(self._folder, self._asked_for(), self._spec.project.mask)
        self._ledger.take_up(self.run, current_process())
        self._ledger.ask(self.run, "resume")
        self.present.follow(self._ledger, self.run)

    def _answered(self, state: State) -> tuple[str, ...]:
        """Whoever resumes a run that waited has answered it: the marker that was judged is put away."""
        match state.phase, state.before:
            case RunOver(Aborted(Breach(reason))), IterationJudged(facts) if (
                reason == WAITING and facts.claim is not None
            ):
                markers, judged = SignalFiles(self._folder.task_folder), facts.claim.stamp
            case _:
                return ()
        now = markers.look()
        if now is None or not now.waiting or judged not in ("", now.stamp):
            return ()
        return markers.consume(time.strftime("%Y%m%d-%H%M%S", time.gmtime()))

    def _wires(self) -> FileTripwires:
        """One object for all: it knows what it found."""
        if self._laid is None:
            made = super()._wires()
            assert isinstance(made, FileTripwires)
            self._laid = made
        return self._laid

    def _refuse_tampered(self, stood: State) -> None:
        assert isinstance(self._ledger, SqliteLedger)
        spec, custom = self._spec, self._spec.custom.agent is not None
        if work := find_unjudged_work(spec.project, self._ledger, self.run, stood, custom):
            refuse_tampered_settings(spec, self.run, work, self._wires())

    def _refuse_stranger(self, state: State) -> None:
        """A turn is read by the agent that took it."""
        if state.turning and state.agent not in (agent.name for agent in self._spec.agents):
            raise Refused(
                f"the last turn of run {self.run} was begun by {state.agent}, and the settings name another agent now; "
                f"resume it with --agent {state.agent}, or close it: ralph cancel {self.run}"
            )


def refuse_unraised_limit(loop: Loop, state: State) -> None:
    """Raise Refused where the limit that stopped a run would stop it again at once."""
    if not (isinstance(state.phase, RunOver) and isinstance(state.phase.outcome, Aborted)):
        return
    reason = state.phase.outcome.reason
    match next_action(replace(loop.state, unsure=False), loop.rules, loop.looked()):
        case EndRun(Aborted(breach)) | Conclude(Stopped(breach)) if breach.reason == reason:
            how = HOW_TO_RAISE_LIMIT.get(reason, "raise that limit in the settings")
            raise Refused(f"run {loop.id} was stopped by {reason}, and still is ({breach.message}); {how}")
        case _:
            return


PLANNING_NOTE = "planning.json"


def plannings_folder(store: str) -> str:
    """The folder of all plannings of a repository."""
    return os.path.join(store, "plans")


def find_planning_command(store: str, run: str) -> str:
    """The command that planned in this run; empty where none did."""
    return next((str(note.get("again", "")) for _, note in read_planning_notes(store) if note.get("run") == run), "")


def read_planning_notes(store: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every planning's folder and what it says of itself, the newest first."""
    import json

    top = plannings_folder(store)
    for name in sorted(os.listdir(top), reverse=True) if os.path.isdir(top) else ():
        try:
            note = json.loads(read_file(os.path.join(top, name, PLANNING_NOTE)) or b"")
        except ValueError:
            continue
        if isinstance(note, dict):
            yield os.path.join(top, name), note
