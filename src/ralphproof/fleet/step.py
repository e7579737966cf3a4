"""One step of a loop on a machine: until the next iteration, a wait, or the end."""

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
from ralphproof.engine.budget import RemainingBudget
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
from ralphproof.runs.constraints import save_constraints
from ralphproof.runs.context import RunContext
from ralphproof.runs.execute import begin_run
from ralphproof.runs.resume import resume_run, take_over
from ralphproof.store.sqlite_ledger import SqliteLedger

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from ralphproof.base.value import Json
    from ralphproof.engine.events import Event as events_Event
    from ralphproof.engine.limits import Limits
    from ralphproof.engine.records import Record
    from ralphproof.engine.state import State
    from ralphproof.fleet.folders import LoopFolder
    from ralphproof.fleet.lease import LoopLease
    from ralphproof.fleet.step_process import StepRequest
    from ralphproof.fleet.submission import LoopSpec
    from ralphproof.process.client import Keeper
    from ralphproof.process.signals import RunClock
    from ralphproof.runs.request import RunRequest
    from ralphproof.runs.spec import RunSpec
    from ralphproof.store.project import Project

    Then = Callable[[tuple[Record, ...]], None]
    Tell = Callable[[dict[str, Json]], None]


# One step of a run that many machines may take: until the next iteration, a wait, or the end.


RESTED_STATUS = "rested"  # the note of how many records there were when a step came to its end


class ReplicatedLedger(SqliteLedger):
    """A ledger whose records are told to somebody before anything follows from them."""

    then: Then = staticmethod(lambda _: None)

    def append(self, run: str, records: tuple[Record, ...]) -> None:
        super().append(run, records)
        self.then(records)


class SteppingLoop(Loop):
    """A loop that rests. `allot` is what one step may spend at most, beside what the run's own limits say.

    `before` is what the run had spent when that was allotted. What an earlier try of the same step has spent since
    then is reported before anything else is begun.
    """

    allot: int | None = None
    before = 0
    finish = False
    halted: Callable[[], bool] = staticmethod(lambda: False)
    _worked = False

    def step(self) -> tuple[Action, float | None]:
        """Go on until the next iteration, a wait or the end comes: that, not done, and until when it waits.

        What is to be told of a wait is told; nobody waits here.
        """
        step = self.until(self._rests)
        if isinstance(step, WaitForService | HoldPaused | AwaitChildRuns):
            self._do(replace(step, seconds=0.0))
            self._flush()
        return step, self._wait_until(step)

    def _rests(self, step: Action) -> bool:
        match step:
            case WaitForService() | HoldPaused() | AwaitChildRuns():
                return True
            case EndRun():
                return not (self.finish or self.environment.clock.stop_reason())
            case SaveWork():
                return False
            case TakeTurn() if self.state.turn_running:
                return False
            case _ if self.halted():
                return True
            case PickNextJob() if self._worked or self.state.spend.micro_usd > self.before:
                return True
            case SaveUserChanges() | Warn():
                return False
            case _:
                self._worked = True
                return False

    @property
    def _ending(self) -> bool:
        return super()._ending or self.halted()

    def _wait_until(self, step: Action) -> float | None:
        match step:
            case WaitForService():
                return self.state.services.ready_at(self.rules.agent_order(self.state, self.state.job))
            case AwaitChildRuns(seconds=seconds):
                return self.environment.clock.epoch() + seconds
            case _:
                return None

    def _left(self, call: str) -> RemainingBudget:
        left = super()._left(call)
        if self.allot is None:
            return left
        own = self.allot - (self.state.spend.micro_usd - self.before)
        return replace(left, micro_usd=own if left.micro_usd is None else min(own, left.micro_usd))


class StepRun:
    """A run that is begun, or resumed, and goes on to where it rests next."""

    def __init__(self, context: RunContext, resumed: bool) -> None:
        self.context, self._resumed = context, resumed

    def step(
        self, allot: int | None, finish: bool, halted: Callable[[], bool], spent: int | None = None
    ) -> tuple[Action, float | None]:
        """Go on to where the run rests next: the action that is not done yet, and until when it waits."""
        loop = self._resume() if self._resumed else begin_run(self.context, SteppingLoop)
        assert isinstance(loop, SteppingLoop)
        loop.allot, loop.finish, loop.halted = allot, finish, halted
        loop.before = loop.state.spend.micro_usd if spent is None else min(spent, loop.state.spend.micro_usd)
        if allot == 0:  # no turn will be paid any more: the run ends as one does that has used up its own limit
            loop.rules = replace(loop.rules, limits=_limits_with_allotment(loop, 0))
        if self._resumed:
            take_over(self.context, loop)
        self._save_allotment(loop, allot)
        rest = loop.step()
        self.context.folder.note(RESTED_STATUS, len(self.context.ledger.records(self.context.run)))
        return rest

    def _resume(self) -> Loop:
        """The loop of a run that goes on. After a step that came to its end, only new remarks are worth a notice."""
        resumed = resume_run(self.context, SteppingLoop)
        rested = self.context.folder.noted(RESTED_STATUS) == resumed.records
        for line in (*(() if rested else (resumed.summary,)), *resumed.remarks):
            resumed.loop.notice(line)
        return resumed.loop

    def _save_allotment(self, loop: SteppingLoop, allot: int | None) -> None:
        """Let the monitor that watches the turn if this process dies hold it to its allotment too."""
        if allot is None:
            return
        rules = replace(loop.rules, limits=_limits_with_allotment(loop, allot))
        save_constraints(self.context.folder, rules, self.context.spec, self.context.sandbox.name)


def _limits_with_allotment(loop: SteppingLoop, allot: int) -> Limits:
    """The run's limits, with no more money than was allotted."""
    budget, most = loop.rules.limits.budget, loop.before + allot
    least = most if budget.micro_usd is None else min(most, budget.micro_usd)
    return replace(loop.rules.limits, budget=replace(budget, micro_usd=least))


def _open_ledger(project: Project, then: Then) -> SqliteLedger:
    ledger = ReplicatedLedger.open(project.store, project.mask)
    assert isinstance(ledger, ReplicatedLedger)
    ledger.then = then
    return ledger


# What goes on beside a step: logs are copied as they grow, and the remote is asked whether somebody else has it.


LOG_COPY_S, LEASE_CHECK_S, TICK_S = 10.0, 15.0, 0.5
FINAL_COPY_TIMEOUT_S = 60.0  # so long the last copies are waited for


class BackgroundSync:
    """A thread of its own, so that neither a slow store nor a slow remote holds anything up."""

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
        """The step is over; the last copies are made now."""
        self._finished.set()

    def finish(self) -> None:
        """Wait for them, not for long."""
        self._thread.join(FINAL_COPY_TIMEOUT_S)
        if self._thread.is_alive():
            self._tell(
                f"the artifacts are not all copied after {FINAL_COPY_TIMEOUT_S:g} seconds; the loop goes on without them"
            )

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
        """Once each: a store that does not answer now does not in ten seconds either."""
        if trouble and trouble != self._told:
            self._told = trouble
            print(f"artifacts: {trouble}", file=sys.stderr, flush=True)


# What one step of a loop does on a machine, from the remote's word to the remote's.


SPEND_REPORT_S = 1.0


class SpendReporter:
    """Tells what the turn at work costs, at most once a second."""

    def __init__(self, tell: Tell) -> None:
        self._tell, self._at, self._last = tell, 0.0, Spent(0)

    def on_record(self, record: Record) -> None:
        """Records go another way."""

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
    """One step. Words that come meanwhile reach what is at work."""

    def __init__(self, request: StepRequest, folder: LoopFolder, lease: LoopLease, tell: Tell) -> None:
        self._request, self._folder, self._lease, self._tell = request, folder, lease, tell
        self._spec = request.spec
        self._takeover = LoopTakeover(request.spec, folder, lease, os.environ, self._ensure_task)
        self._run: StepRun | None = None
        self._landing: RunClock | None = None
        self._commands: set[str] = set()

    def handle_command(self, word: str) -> None:
        """Do as somebody says: now, or as soon as there is something at work."""
        self._commands.add(word)
        if self._landing is not None:
            self._landing.interrupt()
        if self._run is None:
            return
        if word == step_process.CANCEL_STEP:
            self._run.context.clock.cancel()
        else:
            self._run.context.clock.end_command(now=word == step_process.KILL_STEP)

    def run(self, keeper: Keeper) -> dict[str, Json]:
        """Have the loop, take the step, and leave all of it on the remote; what to report."""
        self._takeover.take()
        records = self._records()
        self._refuse_unknown(len(records))
        state = build_state(records)
        # What an earlier step could not push comes first: nothing may follow from it before.
        self._publish(over=isinstance(state.phase, RunOver))
        step, until = self._take_step(keeper, state)
        self._publish(over=isinstance(step, Finish))
        records = self._records()
        new = [compact_record(record) for record in records[self._request.known :]]
        report = step_process.rest_report(new, step, until, self._lease.head, build_state(records).spend)
        return report | self._land(step)

    def _land(self, step: Action) -> dict[str, Json]:
        """Where the run is completed, and its work is to land somewhere: what became of that."""
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
        """Somebody else has the loop: end what is at work here, and put what they lack under lost/."""
        return self._takeover.put_aside()

    def _take_step(self, keeper: Keeper, state: State) -> tuple[Action, float | None]:
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
                self._tell(step_process.turn_begun_report(state.iteration, state.turn, state.agent))
            step = run.step(self._request.allot, self._request.finish, self._halted, self._request.spent)
            outcome = step[0].outcome if isinstance(step[0], Finish) else None
            for trouble in run.context.notifiers.deliver(outcome) if outcome else ():
                print(project.mask(trouble), file=sys.stderr)
        self._run = None
        beside.finish()
        return step

    def _create_run(self, project: Project, keeper: Keeper, state: State) -> StepRun:
        from ralphproof.runs.request import EMPTY_REQUEST
        from ralphproof.runs.resume import load_resumed_request
        from ralphproof.runs.spec import prepare_spec

        if not state.run:
            spec = prepare_spec(replace(self._load_request(), project_dir=project.root))
            return StepRun(self._context(spec, keeper, self._spec.loop), resumed=False)
        row, request = load_resumed_request(project, self._spec.loop, EMPTY_REQUEST)
        return StepRun(self._context(prepare_spec(request), keeper, row.id, row.parent), resumed=True)

    def _context(self, spec: RunSpec, keeper: Keeper, run: str, parent: str = "") -> RunContext:
        def create_observers(*_: object) -> tuple[SpendReporter]:
            return (SpendReporter(self._tell),)

        def open_ledger(project: Project) -> SqliteLedger:
            return _open_ledger(project, self._on_records)

        return RunContext(spec, keeper, create_observers, ignore_signals, run, parent, open_ledger)

    def _load_request(self) -> RunRequest:
        import json

        from ralphproof.runs.request import parse_request

        request = parse_request(json.dumps(self._spec.request).encode(), os.environ)
        if request is None:
            raise Refused("the request of the loop cannot be read; was it written by another version of ralph?")
        return replace(request, task_folder="")

    def _on_records(self, records: tuple[Record, ...]) -> None:
        """What must be on the remote before anything follows: that a turn begins, and the work of one that ended."""
        if any(isinstance(record, TurnBegan | Saved) for record in records):
            self._publish()
        for record in records:
            if isinstance(record, TurnBegan):
                self._tell(step_process.turn_begun_report(record.iteration, record.turn, record.agent))

    def _publish(self, over: bool = False) -> None:
        """Make all that is on record here durable on the remote; where the run is over, with what came of it."""
        rows = self._takeover.rows()
        if not rows:
            return
        result = self._result() if over else None
        also = result_refs(self._spec, result) if result else ()
        trees = self._takeover.trees(rows)
        self._lease.publish(rows, self._takeover.notes(), trees, also, result.commit if result else "")

    def _result(self) -> LoopResult | None:
        """What came of the run, unless the remote has it."""
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
        """Somebody else has the loop: what is at work here works for nobody."""
        self.handle_command(step_process.KILL_STEP)

    def _ensure_task(self, ledger: SqliteLedger) -> str:
        """Put the order's task into a ledger that lacks it; its id, empty where the loop spec has none."""
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
