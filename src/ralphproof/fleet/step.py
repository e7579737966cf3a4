"""One step of a loop on a worker: until the next iteration, a wait, or the end."""

from __future__ import annotations

import os
import sys
import time
from threading import Event, Thread

from ralphproof.base.errors import HarnessFailed, RalphError, Refused
from ralphproof.base.value import TYPE_CHECKING, replace, unpack
from ralphproof.engine.actions import (
    Action,
    AwaitChildRuns,
    EndRun,
    Finish,
    HoldPaused,
    PickNextJob,
    SaveUserChanges,
    SaveWork,
    TakeTurn,
    WaitForService,
    Warn,
)
from ralphproof.engine.events import Spent
from ralphproof.engine.loop import Loop
from ralphproof.engine.outcome import Completed
from ralphproof.engine.records import Saved, TurnBegan
from ralphproof.engine.state import RunOver, build_state
from ralphproof.fleet import step_process
from ralphproof.fleet.artifacts import ArtifactFolder, list_growing_logs, list_logs
from ralphproof.fleet.record_format import compact_record
from ralphproof.fleet.remote_landing import LoopResult, load_loop_result, result_refs
from ralphproof.fleet.takeover import LoopTakeover
from ralphproof.process.signals import ignore_signals
from ralphproof.runs.children import save_constraints
from ralphproof.runs.context import RunContext
from ralphproof.runs.execute import begin_run
from ralphproof.runs.resume import resume_run, take_over
from ralphproof.store.ledger import SqliteLedger

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from ralphproof.base.value import Json
    from ralphproof.engine.actions import RunRules
    from ralphproof.engine.events import Event as events_Event
    from ralphproof.engine.records import Record
    from ralphproof.engine.state import State
    from ralphproof.fleet.folders import LoopFolder
    from ralphproof.fleet.lease import LoopLease
    from ralphproof.fleet.step_process import StepRequest
    from ralphproof.fleet.submission import LoopSpec
    from ralphproof.process.keeper_client import KeeperClient
    from ralphproof.process.signals import RunClock
    from ralphproof.runs.request import RunRequest
    from ralphproof.runs.spec import RunSpec
    from ralphproof.store.project import Project

    Tell = Callable[[dict[str, Json]], None]


# The run, one step at a time


RESTED_STATUS = "rested"  # note with the number of records when a step ended normally


class LoopStepper:
    """Drives a loop to where it rests next: the next iteration, a wait, or the end.

    `spent_before` is what the run had spent when the step was allotted. What an earlier try of the same step has spent
    since then is reported before anything else begins.
    """

    def __init__(self, loop: Loop, spent_before: int, finish: bool, is_halted: Callable[[], bool]) -> None:
        self._loop, self._spent_before, self._finish, self._is_halted = loop, spent_before, finish, is_halted
        self._worked = False

    def step(self) -> tuple[Action, float | None]:
        """The action before which the loop rests, and until when it waits. A wait is recorded; nobody waits here."""
        action = self._loop.until(self._rests_before)
        if isinstance(action, WaitForService | HoldPaused | AwaitChildRuns):
            self._loop.perform(replace(action, seconds=0.0))
            self._loop.flush()
        return action, self._wait_until(action)

    def _rests_before(self, action: Action) -> bool:
        state = self._loop.state
        match action:
            case WaitForService() | HoldPaused() | AwaitChildRuns():
                return True
            case EndRun():
                return not (self._finish or self._loop.environment.clock.stop_reason())
            case SaveWork():
                return False
            case TakeTurn() if state.turn_running:
                return False
            case _ if self._is_halted():
                return True
            case PickNextJob() if self._worked or state.spend.micro_usd > self._spent_before:
                return True
            case SaveUserChanges() | Warn():
                return False
            case _:
                self._worked = True
                return False

    def _wait_until(self, action: Action) -> float | None:
        state = self._loop.state
        match action:
            case WaitForService():
                return state.agent.services.ready_at(self._loop.rules.agent_order(state, state.job))
            case AwaitChildRuns(seconds=seconds):
                return self._loop.environment.clock.epoch() + seconds
            case _:
                return None


class StepRun:
    """A new or resumed run that is carried on until its next stop."""

    def __init__(self, context: RunContext, resumed: bool) -> None:
        self.context, self._resumed = context, resumed

    def step(
        self, allot: int | None, finish: bool, halted: Callable[[], bool], spent: int | None = None
    ) -> tuple[Action, float | None]:
        """Continue until the next stop: the action that is not carried out yet, and until when it waits."""
        loop = self._resume() if self._resumed else begin_run(self.context)
        spent_before = loop.state.spend.micro_usd if spent is None else min(spent, loop.state.spend.micro_usd)
        most = None if allot is None else spent_before + allot
        loop.limit_step(most, halted)
        if allot == 0:  # nothing is left for turns: the run ends as if its own limit were used up
            loop.rules = _rules_with_limit(loop.rules, spent_before)
        if self._resumed:
            take_over(self.context, loop)
        if most is not None:  # for the monitor that watches the turn if this process dies
            rules = _rules_with_limit(loop.rules, most)
            save_constraints(self.context.folder, rules, self.context.spec, self.context.sandbox.name)
        rest = LoopStepper(loop, spent_before, finish, halted).step()
        self.context.folder.note(RESTED_STATUS, len(self.context.ledger.records(self.context.run)))
        return rest

    def _resume(self) -> Loop:
        """The loop of a resumed run. After a step that ended normally, only new remarks are issued, not the summary."""
        resumed = resume_run(self.context)
        rested = self.context.folder.noted(RESTED_STATUS) == resumed.records
        for line in (*(() if rested else (resumed.summary,)), *resumed.remarks):
            resumed.loop.notice(line)
        return resumed.loop


def _rules_with_limit(rules: RunRules, max_micro_usd: int) -> RunRules:
    """The rules, with no more money than this."""
    budget = rules.limits.budget
    least = max_micro_usd if budget.micro_usd is None else min(max_micro_usd, budget.micro_usd)
    return replace(rules, limits=replace(rules.limits, budget=replace(budget, micro_usd=least)))


# In the background of a step: copy growing logs, and check whether another worker has taken the loop.


LOG_COPY_S, LEASE_CHECK_S, TICK_S = 10.0, 15.0, 0.5
FINAL_COPY_TIMEOUT_S = 60.0  # for the last copies after a step


class BackgroundSync:
    """A thread that copies logs and polls the lease, so that a slow store or remote does not delay the step."""

    def __init__(self, spec: LoopSpec, lease: LoopLease, store: str, root: str, moved: Callable[[], None]) -> None:
        self._spec, self._lease, self._on_moved = spec, lease, moved
        self._kept = os.path.join(store, "runs", spec.loop)
        self._shown = os.path.join(root, ".ralph", "runs", spec.loop)
        self._finished = Event()
        self._thread = Thread(target=self._run_thread, daemon=True)
        self._told = ""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Signal the end of the step; the thread then makes the last copies."""
        self._finished.set()

    def finish(self) -> None:
        """Wait for the last copies, up to FINAL_COPY_TIMEOUT_S."""
        self._thread.join(FINAL_COPY_TIMEOUT_S)
        if self._thread.is_alive():
            self._tell(f"not all are copied after {FINAL_COPY_TIMEOUT_S:g} seconds; the loop goes on without them")

    def _run_thread(self) -> None:
        artifacts = self._open_artifacts()
        copied_s = asked_s = time.monotonic()
        while not self._finished.wait(TICK_S):
            now_s = time.monotonic()
            if artifacts and now_s - copied_s >= LOG_COPY_S:
                copied_s = now_s
                self._tell(artifacts.copy_changed(list_growing_logs(self._kept)))
            if now_s - asked_s >= LEASE_CHECK_S:
                asked_s = now_s
                if self._lease.has_moved() and not self._finished.is_set():
                    self._on_moved()
        if artifacts:
            self._tell(artifacts.copy_changed(list_logs(self._kept, self._shown)))

    def _open_artifacts(self) -> ArtifactFolder | None:
        if not self._spec.artifacts:
            return None
        try:
            return ArtifactFolder(self._spec.artifacts, self._spec.loop)
        except RalphError as error:
            self._tell(str(error))
            return None

    def _tell(self, trouble: str) -> None:
        """Print an error unless it repeats the last one: a store that is down stays so for many attempts."""
        if trouble and trouble != self._told:
            self._told = trouble
            print(f"artifacts: {trouble}", file=sys.stderr, flush=True)


# The whole step: take over from the remote, run, publish to the remote.


SPEND_REPORT_S = 1.0


class SpendReporter:
    """Reports the cost of the running turn, at most once a second."""

    def __init__(self, tell: Tell) -> None:
        self._tell, self._at, self._last = tell, 0.0, Spent(0)

    def on_record(self, record: Record) -> None:
        """Ignored: records are sent with the final report."""

    def on_events(self, events: list[events_Event]) -> None:
        for event in events:
            if type(event) is Spent:
                self._last = event
        self.tick()

    def tick(self) -> None:
        now, spent = time.monotonic(), self._last
        if spent != Spent(0) and now - self._at >= SPEND_REPORT_S:
            self._at, self._last = now, Spent(0)
            self._tell(step_process.spend_report(spent.micro_usd, spent.usage.total if spent.usage else 0))


class Step:
    """One step. Commands that arrive meanwhile are passed to the running turn or landing."""

    def __init__(self, request: StepRequest, folder: LoopFolder, lease: LoopLease, tell: Tell) -> None:
        self._request, self._folder, self._lease, self._tell = request, folder, lease, tell
        self._spec = request.spec
        self._takeover = LoopTakeover(request.spec, folder, lease, os.environ, self._ensure_task)
        self._run: StepRun | None = None
        self._landing: RunClock | None = None
        self._commands: set[str] = set()

    def handle_command(self, word: str) -> None:
        """Carry out a command of the worker now, or as soon as a run or landing is active."""
        self._commands.add(word)
        if self._landing is not None:
            self._landing.interrupt()
        if self._run is None:
            return
        if word == step_process.CANCEL_STEP:
            self._run.context.clock.cancel()
        else:
            self._run.context.clock.end_command(now=word == step_process.KILL_STEP)

    def run(self, keeper: KeeperClient) -> dict[str, Json]:
        """Take the loop, take the step, and push everything to the remote; returns the report."""
        self._takeover.take()
        records = self._records()
        self._refuse_unknown(len(records))
        state = build_state(records)
        # First push what an earlier step could not push: the run must not continue before.
        self._publish(over=isinstance(state.phase, RunOver))
        step, until = self._take_step(keeper, state)
        self._publish(over=isinstance(step, Finish))
        records = self._records()
        new = [compact_record(record) for record in records[self._request.known :]]
        report = step_process.rest_report(new, step, until, self._lease.head, build_state(records).spend)
        return report | self._land(step)

    def _land(self, step: Action) -> dict[str, Json]:
        """Land a completed run that has a target branch; the landing part of the report."""
        if not self._spec.target or not (isinstance(step, Finish) and isinstance(step.outcome, Completed)):
            return {}
        from ralphproof.fleet.remote_landing import land_on_remote
        from ralphproof.process.signals import RunClock

        self._landing = RunClock(grace_s=0.0)
        try:
            for word in self._commands:
                self.handle_command(word)
            project, mirror = self._takeover.project(), self._lease.mirror
            return {"landed": land_on_remote(self._spec, project, mirror, self._landing).published}
        except KeyboardInterrupt as error:
            raise HarnessFailed("landing was interrupted; nothing moved") from error
        finally:
            clock, self._landing = self._landing, None
            clock.close()

    def _refuse_unknown(self, there: int) -> None:
        known, loop = self._request.known, self._spec.loop
        if known > there:
            raise Refused(f"loop {loop} has {there} records, and {known} are said to be known")

    def give_up(self) -> tuple[str, ...]:
        """Another worker has the loop: end our processes, and save what that worker lacks under lost/."""
        return self._takeover.put_aside()

    def _take_step(self, keeper: KeeperClient, state: State) -> tuple[Action, float | None]:
        if isinstance(state.phase, RunOver):
            return Finish(state.phase.outcome), None
        project = self._takeover.project()
        self._ensure_local_task(project)
        run = self._create_run(project, keeper, state)
        with (
            BackgroundSync(self._spec, self._lease, project.store, project.root, self._on_moved) as beside,
            run.context,
        ):
            self._run = run
            for word in list(self._commands):
                self.handle_command(word)
            if state.turn_running:
                self._tell(step_process.turn_begun_report(state.iteration, state.turn, state.agent.name))
            step = run.step(self._request.allot, self._request.finish, self._halted, self._request.spent)
            outcome = step[0].outcome if isinstance(step[0], Finish) else None
            for trouble in run.context.notifiers.deliver(outcome) if outcome else ():
                print(project.mask(trouble), file=sys.stderr)
        self._run = None
        beside.finish()
        return step

    def _create_run(self, project: Project, keeper: KeeperClient, state: State) -> StepRun:
        from ralphproof.runs.request import EMPTY_REQUEST
        from ralphproof.runs.resume import load_resumed_request
        from ralphproof.runs.spec import prepare_spec

        if not state.run.id:
            spec = prepare_spec(replace(self._load_request(), project_dir=project.root))
            return StepRun(self._context(spec, keeper, self._spec.loop), resumed=False)
        row, request = load_resumed_request(project, self._spec.loop, EMPTY_REQUEST)
        return StepRun(self._context(prepare_spec(request), keeper, row.id, row.parent), resumed=True)

    def _context(self, spec: RunSpec, keeper: KeeperClient, run: str, parent: str = "") -> RunContext:
        def create_observers(*_: object) -> tuple[SpendReporter]:
            return (SpendReporter(self._tell),)

        def open_ledger(project: Project) -> SqliteLedger:
            ledger = SqliteLedger.open(project.store, project.mask)
            ledger.on_append = self._on_records  # published before the run continues
            return ledger

        return RunContext(spec, keeper, create_observers, ignore_signals, run, parent, open_ledger)

    def _load_request(self) -> RunRequest:
        import json

        from ralphproof.runs.request import parse_request

        request = parse_request(json.dumps(self._spec.request).encode(), os.environ)
        if request is None:
            raise Refused("the request of the loop cannot be read; was it written by another version of ralph?")
        return replace(request, task_folder="")

    def _on_records(self, records: tuple[Record, ...]) -> None:
        """Publish records that must be on the remote before the run continues: a turn's start, and the work of an ended
        turn.
        """
        if any(isinstance(record, TurnBegan | Saved) for record in records):
            self._publish()
        for record in records:
            if isinstance(record, TurnBegan):
                self._tell(step_process.turn_begun_report(record.iteration, record.turn, record.agent))

    def _publish(self, over: bool = False) -> None:
        """Push all local records to the remote; if the run is over, together with its result."""
        rows = self._takeover.rows()
        if not rows:
            return
        result = self._result() if over else None
        also = result_refs(self._spec, result) if result else ()
        trees = self._takeover.trees(rows)
        self._lease.publish(rows, self._takeover.notes(), trees, also, result.commit if result else "")

    def _result(self) -> LoopResult | None:
        """The run's result, unless the remote has it."""
        if self._lease.record and self._lease.record.meta.result:
            return None
        project = self._takeover.project()
        ledger = project.ledger()
        try:
            row = ledger.row(self._spec.loop)
            return load_loop_result(project, row, ledger.records(self._spec.loop)) if row else None
        finally:
            ledger.close()

    def _records(self) -> tuple[Record, ...]:
        ledger = self._takeover.project().ledger()
        try:
            return ledger.records(self._spec.loop)
        finally:
            ledger.close()

    def _halted(self) -> bool:
        return bool(self._commands & {step_process.STOP_STEP, step_process.KILL_STEP})

    def _on_moved(self) -> None:
        """Another worker has the loop: end the agent, because its work would be discarded."""
        self.handle_command(step_process.KILL_STEP)

    def _ensure_task(self, ledger: SqliteLedger) -> str:
        """Add the loop spec's task to a ledger that lacks it; returns the task's id, empty if the spec has none."""
        if self._spec.task is None:
            return ""
        from ralphproof.tasks.draft import TaskDraft
        from ralphproof.tasks.store import row_from_draft

        draft = unpack({**self._spec.task, "is": "TaskDraft"})
        if not isinstance(draft, TaskDraft) or not isinstance(draft.id, str):
            raise Refused("task of the loop spec cannot be read; was it written by another version of ralph?")
        if ledger.tasks.row(draft.id) is None:
            ledger.tasks.add((row_from_draft(draft),))
        return draft.id

    def _ensure_local_task(self, project: Project) -> None:
        if self._spec.task is None:
            return
        ledger = project.ledger(read_only=False)
        try:
            self._ensure_task(ledger)
        finally:
            ledger.close()
