"""One step of a loop, in a process of its own: from where the run rests until the next iteration, a wait, or the end.

`main` is started with the worker's folder. Its input is a step request as one line of JSON, then `stop`, `cancel` or
`kill`. Its output are reports, one JSON object per line: `begun` and `spent` during the step; finally `rest`, `fenced`
(another worker has the loop; this step does not count) or `failed` (what is recorded stays).

It is a separate process so that if it or the worker dies, the agent continues under its keeper and the next step
adopts it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import closing
from threading import Event, Lock, Thread
from typing import NoReturn, Self

from ralphproof.base.errors import HarnessFailed, RalphError, Refused, wrap_os_error
from ralphproof.base.escaping import collapse_lines, sanitize
from ralphproof.base.programs import ProgramResult, run_program
from ralphproof.base.redaction import find_environment_secrets, mask_text
from ralphproof.base.standard_streams import reopen_closed_streams
from ralphproof.base.value import Json, pack, replace, value
from ralphproof.engine.agent import Event as AgentEvent
from ralphproof.engine.agent import Spent
from ralphproof.engine.limits import Warn
from ralphproof.engine.loop import Loop
from ralphproof.engine.next_action import (
    Action,
    AwaitChildRuns,
    EndRun,
    Finish,
    HoldPaused,
    PickNextJob,
    RunRules,
    SaveUserChanges,
    SaveWork,
    TakeTurn,
    WaitForService,
)
from ralphproof.engine.outcome import Completed
from ralphproof.engine.records import Judged, Record, Saved, TurnBegan
from ralphproof.engine.state import RunOver, State, build_state
from ralphproof.fleet.artifacts import ArtifactFolder, list_growing_logs, list_logs
from ralphproof.fleet.loop_folder import LoopFolder, LoopTakeover, ensure_task
from ralphproof.fleet.messages import (
    MAX_LOOP_SPEC_BYTES,
    MAX_NAME_CHARS,
    LoopEnd,
    LoopSpec,
    end_after_landing,
    loop_end,
    parse_loop_spec,
)
from ralphproof.fleet.remote import PATIENCE_S, LeaseLost, LoopLease, Mirror, RemoteUnreachable
from ralphproof.landing.landing_items import build_landing_item, landing_item_of_run, rejection_reason
from ralphproof.landing.merge_queue import Lander, MergedCheckRunner
from ralphproof.landing.targets import RemoteBranch
from ralphproof.process.interrupts import take_over_signals
from ralphproof.process.keeper_client import KeeperClient
from ralphproof.process.signals import RunClock, ignore_signals
from ralphproof.runs.children import save_constraints
from ralphproof.runs.context import RunContext
from ralphproof.runs.execute import begin_run, load_resumed_request, resume_run, take_over
from ralphproof.runs.request import EMPTY_REQUEST, RunRequest, parse_request
from ralphproof.runs.spec import RunSpec, prepare_spec
from ralphproof.store.landings import Landed
from ralphproof.store.ledger import SqliteLedger
from ralphproof.store.project import Project
from ralphproof.workspace.git_command import NO_HOOKS_OPTIONS, USER_GIT_TIMEOUT_S, UserGit

# Landing of a completed loop on a branch of the remote: merged, checked as merged, and moved atomically.


LANDING_TRIES, MAX_RETRY_WAIT_S = 12, 20.0  # others may land meanwhile; each attempt merges onto their work


class IsolatedRemote:
    """Runs git commands to the remote in a bare repository of its own that shares the objects of the loop's clone.

    Only the worker's git settings apply: those of the clone can be written by an agent.
    """

    def __init__(self, clone: UserGit, mirror: Mirror, folder: str) -> None:
        self._git, self._folder = clone.git, folder
        self._env = mirror.env | {"GIT_OBJECT_DIRECTORY": os.path.join(clone.folders.common, "objects")}
        self.run("init", "-q", "--bare")
        if head := clone.resolve_commit("HEAD"):
            self.run("update-ref", "refs/have", head)  # so that only what is missing is fetched

    def run(self, *args: str, good: tuple[int, ...] = (0,), timeout_s: float = USER_GIT_TIMEOUT_S) -> ProgramResult:
        """The result of a git command; raises Refused if its exit code is not among the accepted ones."""
        argv = [self._git, "--git-dir", self._folder, *NO_HOOKS_OPTIONS, *args]
        result = run_program(argv, self._env, timeout_s=timeout_s)
        if result.code not in good:
            raise Refused(f"git {' '.join(args)[:200]}: {result.said or result.code}")
        return result


def land_on_remote(spec: LoopSpec, project: Project, mirror: Mirror, clock: RunClock) -> tuple[str, str]:
    """Land the loop's work on its target branch; the commit that the target has now, or the reason why there is none.

    Idempotent: work that the target already has is not merged again. Raises KeyboardInterrupt if interrupted,
    HarnessFailed if the target could not be reached or updated.
    """
    with (
        closing(project.ledger(read_only=False)) as ledger,
        tempfile.TemporaryDirectory(prefix="ralph-land-") as private,
    ):
        row = ledger.row(spec.loop)
        if row is None:
            raise HarnessFailed(f"loop {spec.loop} is not on record here")
        item = build_landing_item(project, ledger, row, os.environ)
        clone = UserGit(project.root, os.environ)
        remote = IsolatedRemote(clone, mirror, os.path.join(private, "git"))
        target = RemoteBranch(clone, spec.repo, spec.target, remote.run)
        _create_target(target, spec, clone, remote)
        with MergedCheckRunner(project, os.environ, clock, _log_line, sandbox=item.sandbox or None) as run_checks:
            for left in range(LANDING_TRIES - 1, -1, -1):
                lander = Lander(
                    project, ledger, target, run_checks, _log_line, environ=os.environ,
                    raise_if_stopped=run_checks.raise_if_stopped,
                )  # fmt: skip
                try:
                    (end,) = lander.land((item,))
                except Refused as error:
                    if not left:
                        raise HarnessFailed(f"{spec.target} could not be moved: {error}") from error
                    _log_line(str(error))
                    run_checks.raise_if_stopped()
                    time.sleep(random.uniform(0.1, 1.0) * MAX_RETRY_WAIT_S / (left + 1))  # noqa: S311 (jitter)
                else:
                    return (end.commit, "") if isinstance(end, Landed) else ("", rejection_reason(end.why))
    raise AssertionError("the last attempt returns or raises")


def _create_target(target: RemoteBranch, spec: LoopSpec, clone: UserGit, remote: IsolatedRemote) -> None:
    """Create the target branch on the remote if it is missing, at the loop's base commit."""
    if target.tip():
        return
    base = RemoteBranch(clone, spec.repo, spec.base, remote.run).tip() or clone.resolve_commit(spec.base)
    if not base:
        raise HarnessFailed(f"there is no branch {spec.target} on the remote, and no {spec.base} to make it of")
    target.move("", base)


def _log_line(line: str) -> None:
    print(f"landing: {line}", file=sys.stderr)


Report = dict[str, Json]


STOP_STEP, CANCEL_STEP, KILL_STEP = "stop", "cancel", "kill"
PATIENCE_VARIABLE = "RALPH_FLEET_PATIENCE_SECONDS"
MAX_NUMBER = 2**53


@value
class StepRequest:
    """One step of a loop. The highest `epoch` has the loop. `allot` is the most that the step's turn may spend.

    `spent` is what the loop had spent when that amount was reserved: an earlier attempt whose report was lost may have
    used some of it. `worker` is the worker's name.
    """

    spec: LoopSpec
    epoch: int
    allot: int | None = None
    worker: str = ""
    spent: int | None = None


def parse_step_request(line: bytes) -> StepRequest:
    """Parse the first input line; raises Refused if it is malformed."""
    if len(line) > MAX_LOOP_SPEC_BYTES:
        raise Refused(f"a loop spec has at most {MAX_LOOP_SPEC_BYTES >> 20} MiB")
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Refused(f"the first line must be one JSON object: {str(error)[:200]}") from error
    if not isinstance(data, dict):
        raise Refused("the first line must be one JSON object")
    worker = data.get("worker", "")
    if not isinstance(worker, str) or not worker.isprintable() or len(worker) > MAX_NAME_CHARS:
        raise Refused(f"worker must be a name of at most {MAX_NAME_CHARS} characters")
    for name in ("epoch", "allot", "spent"):
        number = data.get(name)
        optional = number is None and name != "epoch"
        if not optional and (type(number) is not int or not 0 <= number <= MAX_NUMBER):
            raise Refused(f"{name} must be a whole number from 0 on")
    return StepRequest(parse_loop_spec(data.get("spec")), data["epoch"], data.get("allot"), worker, data.get("spent"))


# The run, from one rest to the next


RESTED_STATUS = "rested"  # note with the number of records when a step ended normally
HOLD_RETRY_S = 30.0  # until a paused run is looked at again
NEXT_ACTIONS = (PickNextJob, WaitForService, HoldPaused, AwaitChildRuns, Finish)


class RunStep:
    """Continues a new or resumed run until it rests. The money in `allot` is counted from `spent` on."""

    def __init__(self, context: RunContext, resumed: bool, halted: Callable[[], bool]) -> None:
        self._context, self._resumed, self._is_halted = context, resumed, halted
        self._spent_before, self._worked = 0, False

    def run(self, allot: int | None, spent: int | None) -> tuple[Action, float | None]:
        """The action before which the run rests, and until when it waits. A wait is recorded; nobody waits here."""
        context = self._context
        loop = self._resume() if self._resumed else begin_run(context)
        self._spent_before = loop.state.spend.micro_usd if spent is None else min(spent, loop.state.spend.micro_usd)
        most = None if allot is None else self._spent_before + allot
        loop.limit_step(most, self._is_halted)
        if allot == 0:  # nothing is left for turns: the run ends as if its own limit were used up
            loop.rules = _rules_with_limit(loop.rules, self._spent_before)
        if self._resumed:
            take_over(context, loop)
        if most is not None:  # for the monitor that watches the turn if this process dies
            rules = _rules_with_limit(loop.rules, most)
            save_constraints(context.folder, rules, context.spec, context.sandbox.name)
        action = loop.until(lambda action: self._rests_before(loop, action))
        if isinstance(action, WaitForService | HoldPaused | AwaitChildRuns):
            loop.perform(replace(action, seconds=0.0))
            loop.flush()
        context.folder.note(RESTED_STATUS, len(context.ledger.records(context.run)))
        return action, _wait_until(loop, action)

    def _resume(self) -> Loop:
        """The loop of a resumed run. After a step that ended normally, only new remarks are issued, not the summary."""
        resumed = resume_run(self._context)
        rested = self._context.folder.noted(RESTED_STATUS) == resumed.records
        for line in (*(() if rested else (resumed.summary,)), *resumed.remarks):
            resumed.loop.notice(line)
        return resumed.loop

    def _rests_before(self, loop: Loop, action: Action) -> bool:
        """Whether the step ends here. What an earlier try of the same step has spent is reported before anything else
        begins.
        """
        state = loop.state
        match action:
            case WaitForService() | HoldPaused() | AwaitChildRuns():
                return True
            case EndRun() | SaveWork():
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


def _wait_until(loop: Loop, action: Action) -> float | None:
    now, state = loop.environment.clock.epoch(), loop.state
    match action:
        case WaitForService():
            ready_at = state.agent.services.ready_at(loop.rules.agent_order(state, state.job))
            return now + HOLD_RETRY_S if ready_at is None else ready_at
        case AwaitChildRuns(seconds=seconds):
            return now + seconds
        case HoldPaused():
            return now + HOLD_RETRY_S
        case _:
            return None


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
            log_line(f"artifacts: {trouble}")


SPEND_REPORT_S = 1.0


class SpendReporter:
    """Reports the cost of the running turn, at most once a second."""

    def __init__(self, tell: Callable[[Report], None]) -> None:
        self._tell, self._at, self._last = tell, 0.0, Spent(0)

    def on_record(self, record: Record) -> None:
        """Ignored: the final report has what all turns cost."""

    def on_events(self, events: list[AgentEvent]) -> None:
        for event in events:
            if type(event) is Spent:
                self._last = event
        self.tick()

    def tick(self) -> None:
        now, spent = time.monotonic(), self._last
        if spent != Spent(0) and now - self._at >= SPEND_REPORT_S:
            self._at, self._last = now, Spent(0)
            tokens = spent.usage.total if spent.usage else 0
            self._tell({"type": "spent", "microUsd": spent.micro_usd, "tokens": tokens})


# The whole step: take over from the remote, run, publish to the remote.


class Step:
    """One step. Commands that arrive meanwhile are passed to the running turn or landing."""

    def __init__(
        self, request: StepRequest, folder: LoopFolder, lease: LoopLease, tell: Callable[[Report], None]
    ) -> None:
        self._request, self._lease, self._tell = request, lease, tell
        self._spec = request.spec
        self._takeover = LoopTakeover(request.spec, folder, lease, os.environ)
        self._clock: RunClock | None = None  # of the run
        self._landing: RunClock | None = None
        self._commands: set[str] = set()

    def handle_command(self, word: str) -> None:
        """Carry out a command of the worker now, or as soon as a run or landing is active."""
        self._commands.add(word)
        if self._landing is not None:
            self._landing.interrupt()
        if self._clock is None:
            return
        if word == CANCEL_STEP:
            self._clock.cancel()
        else:
            self._clock.end_command(now=word == KILL_STEP)

    def _repeat_commands(self) -> None:
        for word in list(self._commands):
            self.handle_command(word)

    def run(self, keeper: KeeperClient) -> Report:
        """Take the loop, take the step, and push everything to the remote; returns the report."""
        self._takeover.take()
        state = build_state(self._records())
        # First push what an earlier step could not push: the run must not continue before.
        self._publish(over=isinstance(state.phase, RunOver))
        action, until = self._continue_run(keeper, state)
        self._publish(over=isinstance(action, Finish))
        records = self._records()
        end = self._land(action) if isinstance(action, Finish) else None
        judged = (one.iteration for one in records if isinstance(one, Judged))
        return {
            "type": "rest",
            "next": (type(action) if isinstance(action, NEXT_ACTIONS) else PickNextJob).__name__,
            "until": until,
            "head": self._lease.head,
            "spend": pack(build_state(records).spend),
            "iterations": action.outcome.iterations if isinstance(action, Finish) else max(judged, default=0),
            "end": pack(end),
        }

    def _land(self, finish: Finish) -> LoopEnd:
        """The end of the loop; a completed run that has a target branch is landed first."""
        end = loop_end(finish.outcome)
        if not self._spec.target or not isinstance(finish.outcome, Completed):
            return end
        self._landing = RunClock(grace_s=0.0)
        try:
            self._repeat_commands()
            commit, why = land_on_remote(self._spec, self._takeover.project(), self._lease.mirror, self._landing)
        except KeyboardInterrupt as error:
            raise HarnessFailed("landing was interrupted; nothing moved") from error
        finally:
            clock, self._landing = self._landing, None
            clock.close()
        return end_after_landing(end, commit, why)

    def give_up(self) -> tuple[str, ...]:
        """Another worker has the loop: end our processes, and save what that worker lacks under lost/."""
        return self._takeover.put_aside()

    def _continue_run(self, keeper: KeeperClient, state: State) -> tuple[Action, float | None]:
        if isinstance(state.phase, RunOver):
            return Finish(state.phase.outcome), None
        project = self._takeover.project()
        with closing(project.ledger(read_only=False)) as ledger:
            ensure_task(ledger, self._spec)
        context = self._create_context(project, keeper, state)
        with BackgroundSync(self._spec, self._lease, project.store, project.root, self._on_moved) as sync, context:
            self._clock = context.clock
            self._repeat_commands()
            if state.turn_running:
                self._tell_begun(state.iteration, state.turn, state.agent.name)
            run = RunStep(context, bool(state.run.id), self._halted)
            action, until = run.run(self._request.allot, self._request.spent)
            if isinstance(action, Finish):
                for trouble in context.notifiers.deliver(action.outcome):
                    log_line(project.mask(trouble))
        self._clock = None
        sync.finish()
        return action, until

    def _create_context(self, project: Project, keeper: KeeperClient, state: State) -> RunContext:
        if not state.run.id:
            spec = prepare_spec(replace(self._load_request(), project_dir=project.root))
            return self._context(spec, keeper, self._spec.loop)
        row, request = load_resumed_request(project, self._spec.loop, EMPTY_REQUEST)
        return self._context(prepare_spec(request), keeper, row.id, row.parent)

    def _context(self, spec: RunSpec, keeper: KeeperClient, run: str, parent: str = "") -> RunContext:
        def create_observers(*_: object) -> tuple[SpendReporter]:
            return (SpendReporter(self._tell),)

        def open_ledger(project: Project) -> SqliteLedger:
            ledger = SqliteLedger.open(project.store, project.mask)
            ledger.on_append = self._on_records  # published before the run continues
            return ledger

        return RunContext(spec, keeper, create_observers, ignore_signals, run, parent, open_ledger)

    def _load_request(self) -> RunRequest:
        request = parse_request(json.dumps(self._spec.request).encode(), os.environ)
        if request is None:
            raise Refused("the request of the loop cannot be read; was it written by another version of ralph?")
        return replace(request, task=replace(request.task, folder=""))

    def _on_records(self, records: tuple[Record, ...]) -> None:
        """Publish records that must be on the remote before the run continues: a turn's start, and the work of an ended
        turn.
        """
        if any(isinstance(record, TurnBegan | Saved) for record in records):
            self._publish()
        for record in records:
            if isinstance(record, TurnBegan):
                self._tell_begun(record.iteration, record.turn, record.agent)

    def _tell_begun(self, iteration: int, turn: int, agent: str) -> None:
        """A turn has started, and the remote has its record."""
        self._tell({"type": "begun", "iteration": iteration, "turn": turn, "agent": agent})

    def _publish(self, over: bool = False) -> None:
        """Push all local records to the remote; if the run is over, together with its result."""
        rows = self._takeover.rows()
        if not rows:
            return
        result = self._result() if over else ""
        also = ((result, self._lease.branch),) if result else ()
        self._lease.publish(rows, self._takeover.notes(), self._takeover.trees(rows), also, result)

    def _result(self) -> str:
        """The commit of a completed run's work; empty if the run was not completed, or if the remote has it."""
        phase = build_state(self._records()).phase
        completed = isinstance(phase, RunOver) and isinstance(phase.outcome, Completed)
        if not completed or (self._lease.record and self._lease.record.meta.result):
            return ""
        return landing_item_of_run(self._takeover.project(), self._spec.loop).commit

    def _records(self) -> tuple[Record, ...]:
        with closing(self._takeover.project().ledger()) as ledger:
            return ledger.records(self._spec.loop)

    def _halted(self) -> bool:
        return bool(self._commands & {STOP_STEP, KILL_STEP})

    def _on_moved(self) -> None:
        """Another worker has the loop: end the agent, because its work would be discarded."""
        self.handle_command(KILL_STEP)


# The process


class WorkerPipe:
    """Connection to the worker by standard input and output. When the worker is gone, this process exits."""

    def __init__(self) -> None:
        self._pending: list[str] = []
        self._rest = b""
        self._writing = Lock()
        self._handler: Callable[[str], None] = self._pending.append

    def read_first_line(self) -> bytes:
        """The first line."""
        while b"\n" not in self._rest and len(self._rest) <= MAX_LOOP_SPEC_BYTES:
            piece = os.read(0, 1 << 16)
            if not piece:
                break
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def listen(self) -> None:
        """Read further commands in a thread. At the end of input, exit at once and leave everything as it is."""
        Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            *lines, self._rest = self._rest.split(b"\n")
            for line in lines:
                word = line.strip().decode("ascii", "replace")
                if word in (STOP_STEP, CANCEL_STEP, KILL_STEP):
                    self._handler(word)
            piece = os.read(0, 1 << 12)
            if not piece:
                kill_self()
            self._rest = (self._rest + piece)[-(1 << 16) :]

    def set_handler(self, handler: Callable[[str], None]) -> None:
        """Pass commands to this handler from now on, starting with those that arrived earlier."""
        self._handler = handler
        while self._pending:
            handler(self._pending.pop(0))

    def send(self, report: Report) -> None:
        """Write a report and flush it."""
        data = json.dumps(report).encode() + b"\n"
        with self._writing:
            try:
                while data:
                    data = data[os.write(1, data) :]
            except BrokenPipeError:
                kill_self()


def kill_self() -> None:
    """Exit like `kill -9`, without cleaning up: the next step finds everything it needs."""
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> NoReturn:
    """Entry point; the argument is the worker's folder."""
    code = take_step(sys.argv[1:])
    sys.stderr.flush()
    os._exit(code)  # a thread may still block on its input or on a store


def take_step(argv: list[str]) -> int:
    """Take one step; the last output line is the final report. The exit code is 0 if it rested or was fenced."""
    reopen_closed_streams()
    worker = WorkerPipe()
    code = 0
    try:
        if len(argv) != 1 or argv[0].startswith("-"):
            raise Refused("say one folder for the worker's own files")
        request = parse_step_request(worker.read_first_line())
        worker.listen()
        report = _run_step(argv[0], request, worker)
    except Exception as error:  # noqa: BLE001 (a fault of our own is a report too; where it lies is in the log)
        message, code = _explain(error)
        masked = mask_text("; ".join(message.splitlines()), find_environment_secrets(os.environ))
        report = {"type": "failed", "message": masked, "exitCode": code}
    worker.send(report)
    return code


def _explain(error: Exception) -> tuple[str, int]:
    """The message and the exit code of an error."""
    error = wrap_os_error(error) if isinstance(error, OSError) else error
    match error:
        case RalphError():
            return str(error), error.exit_code
        case RemoteUnreachable():
            return str(error), HarnessFailed.exit_code
        case _:
            traceback.print_exception(error, file=sys.stderr)
            return f"ralph failed: {type(error).__name__}: {error}", HarnessFailed.exit_code


def _run_step(work: str, request: StepRequest, worker: WorkerPipe) -> Report:
    folder = LoopFolder(work, request.spec)
    folder.lock()
    environ, patience_s = folder.step_environment(os.environ), _patience_s(os.environ)
    os.environ.clear()
    os.environ.update(environ)
    mirror = Mirror(folder.mirror, request.spec.repo, environ, patience_s)
    lease = LoopLease(mirror, request.spec.loop, request.epoch, request.worker, folder.work_folder_id)
    step = Step(request, folder, lease, worker.send)
    keeper = KeeperClient()
    try:
        take_over_signals(lambda times: step.handle_command(STOP_STEP if times == 1 else KILL_STEP))
        worker.set_handler(step.handle_command)
        return step.run(keeper)
    except LeaseLost:
        _put_aside(step)
        return {"type": "fenced"}
    finally:
        keeper.close()


def _patience_s(environ: Mapping[str, str]) -> float:
    """How long an unreachable remote is retried."""
    text = environ.get(PATIENCE_VARIABLE, "")
    return float(text) if text.isascii() and text.isdigit() else PATIENCE_S


def _put_aside(step: Step) -> None:
    """Another worker has the loop: end our processes and save our unpublished work."""
    try:
        for ref in step.give_up():
            log_line(f"fenced; what was done here is kept in {ref}")
    except (RalphError, RemoteUnreachable) as error:
        log_line(f"fenced; what was done here stays here until the next step of the loop on this machine: {error}")


def log_line(line: str) -> None:
    """Write a line to the worker's log."""
    print(collapse_lines(sanitize(line)), file=sys.stderr, flush=True)
