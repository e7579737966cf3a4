"""RunContext: the resources of a run, and the loop environment that is built from them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Self

from ralphproof.agents.cost import savings_calculator
from ralphproof.agents.function import FunctionAgent, RunAccess
from ralphproof.agents.hook_commands import HOOKED_VARIABLE, guard_hook_commands, hook_commands
from ralphproof.base import interpreter
from ralphproof.base.errors import RalphError, Refused
from ralphproof.base.files import make_private_folder
from ralphproof.base.path_patterns import explain_bad_pattern, pattern_covers
from ralphproof.base.text import strip_escapes
from ralphproof.base.value import TYPE_CHECKING, Json, value
from ralphproof.checks.check_plan import CLEAN_CHECKOUT
from ralphproof.checks.command import INTERRUPTED as COMMAND_INTERRUPTED
from ralphproof.checks.command import MAX_INTERRUPTIONS, shell_argv
from ralphproof.checks.parallel import run_checks_in_parallel
from ralphproof.engine.agent import Agent, Event
from ralphproof.engine.check import AlteredCheckInput, CheckPins, NoCheckPins
from ralphproof.engine.claim import Claim
from ralphproof.engine.environment import (
    AgentAccess,
    CheckAccess,
    ChildRuns,
    FixedPlan,
    LoopEnvironment,
    NoChildRuns,
    Observer,
    PlanAccess,
    RunFiles,
    SpendAccess,
    WorkAccess,
)
from ralphproof.engine.limits import CHECKS_WEAKENED, INTERRUPTED
from ralphproof.engine.outcome import Aborted, Completed, Outcome
from ralphproof.engine.plan import ExternalVerification
from ralphproof.engine.records import Record, RunBegan, RunEnded, Saved, TurnBegan
from ralphproof.engine.sandbox import (
    CONTINUE,
    HOOK_STOPPED,
    KILL,
    STOP,
    Command,
    CommandWatcher,
    Exit,
    HookResult,
    Sandbox,
)
from ralphproof.engine.workspace import Scm, Snapshot, Tripwires, Workspace
from ralphproof.process import turn_journal
from ralphproof.process.keeper_client import KeeperClient, KeeperPool
from ralphproof.process.signals import RunClock
from ralphproof.proof.page import ProofWriter
from ralphproof.reports.bus_observer import BusObserver
from ralphproof.reports.metrics import MetricsFolder, MetricsObserver
from ralphproof.reports.notifications import NotificationObserver
from ralphproof.runs.assembly import (
    CleanCheckouts,
    SettingsChangeDetector,
    build_checks,
    build_run_sandbox,
    build_tripwires,
    open_scm,
    open_workspace,
    remove_stale_checkout,
    uncommitted_at_start,
)
from ralphproof.runs.children import LedgerChildRuns
from ralphproof.runs.spec import RunSpec
from ralphproof.runs.stories import open_story_plan
from ralphproof.sandbox.runner import DirectRunner
from ralphproof.sandbox.selection import SANDBOX_VARIABLE
from ralphproof.settings.declarations import Settings
from ralphproof.store.ledger import MemoryLedger, SqliteLedger
from ralphproof.store.locks import WORKTREE_HINT, DirectoryLock, task_folder_lock
from ralphproof.store.message_bus import (
    SPOOL_FILE,
    TASK_BUS_FILE,
    drain_spool,
    find_wait_reason,
    open_project_bus,
    open_task_bus,
    parse_message_type,
    unknown_type_message,
)
from ralphproof.store.project import Project
from ralphproof.store.run_folder import DONE_FILE, NOTE_SUFFIX, WAIT_FILE, RunFolder, SignalFiles, new_run_id
from ralphproof.store.spend import SpendStore
from ralphproof.stories.plan import StoryPlan
from ralphproof.tasks.store import first_run_of_task
from ralphproof.views.snapshots import TREES_NOTE, trees_folder

if TYPE_CHECKING:
    from ralphproof.reports.otel import OtelObserver

CreateObservers = Callable[[RunFolder, Settings], tuple[Observer, ...]]
Listen = Callable[[RunClock], None]  # connects a run's clock to the signals that end the run
OpenLedger = Callable[[Project], SqliteLedger]


def open_project_ledger(project: Project) -> SqliteLedger:
    """The project's ledger, for writing."""
    return project.ledger(read_only=False)


class RunContext:
    """The resources of one run. Leaving the context releases all of them, in reverse order.

    Entering holds the project's directory (and a task folder that the user chose) for this run alone.
    """

    def __init__(
        self,
        spec: RunSpec,
        keeper: KeeperClient,
        create_observers: CreateObservers,
        listen: Listen = RunClock.listen,
        run: str = "",
        parent: str = "",
        open_ledger: OpenLedger = open_project_ledger,
    ) -> None:
        """`run` is the id that another process gave the run; a new one is made where it is empty."""
        self.spec, self.create_observers = spec, create_observers
        self.run, self.parent = run or new_run_id(time.time(), os.urandom(3)), parent
        self.clock = RunClock(self.settings.shutdown_grace_seconds)
        listen(self.clock)
        if parent and spec.story_workflow:
            raise Refused(f"run {parent} is at work here, and stories have one loop at a time; {WORKTREE_HINT}")
        keeper.wake_fd = self.clock.wake_fd
        keeper.options.add_secrets(self.project.secrets)
        self.lock = DirectoryLock(self.project.state_dir, self.project.root, self.run, parent)
        self.lock.take()
        keeper.options.held_descriptors = self.lock.folder.descriptors
        self.cleanup = ExitStack()
        self.cleanup.callback(self.clock.close)
        self.cleanup.callback(self.lock.release)
        self.notifiers = RunNotifiers(self.clock)
        self.turns = TurnDetector()
        self.lock_remarks = [self.lock.folder.remark]  # locks that could not be taken
        try:
            self._open(keeper, open_ledger)
        except BaseException:
            self.cleanup.close()
            raise

    def _open(self, keeper: KeeperClient, open_ledger: OpenLedger) -> None:
        project, request = self.project, self.spec.request
        self.ledger = open_ledger(project)
        self.cleanup.callback(self.ledger.close)
        self.folder = RunFolder(
            project.root, self.run, project.store, project.mask, request.task.folder or None, latest=not self.parent
        )
        self._lock_task_folder(keeper)
        trees = self._trees_folder()
        make_private_folder(trees)
        signals = signal_files(os.path.realpath(request.task.folder)) if request.task.folder else ()
        self.workspace = open_workspace(project.root, trees, os.environ, signals)
        self.cleanup.callback(self.workspace.close)
        if self.spec.custom.agent is not None:
            self._attach_function_agent(self.spec.custom.agent)
        keepers = KeeperPool(keeper)
        self.cleanup.callback(keepers.close)
        self.direct = DirectRunner(keepers)
        read_only = self.fixed_files | ({self.prompt_file: "the prompt"} if self.prompt_file else {})
        self.sandbox = build_run_sandbox(self.spec, self.direct, self.folder, read_only, self.parent)
        keeper.options.stand_in = self._orphan_monitor
        self.spend = SpendStore.open(project.state_dir)
        self.cleanup.callback(self.spend.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.notifiers.close()
        finally:
            self.cleanup.close()

    @property
    def project(self) -> Project:
        return self.spec.project

    @property
    def settings(self) -> Settings:
        return self.spec.loaded.settings

    @property
    def recorded(self) -> bool:
        """Whether the run is in the project's ledger, so that other verbs can find it."""
        return not isinstance(self.ledger, MemoryLedger)

    @property
    def fixed_files(self) -> dict[str, str]:
        """Files of this run that nobody may change, and what each is."""
        return self.spec.story_workflow.fixed if self.spec.story_workflow else {}

    @property
    def prompt_file(self) -> str:
        """The file that the prompt is read from, relative to the project's root; empty for one outside or none."""
        spec = self.spec
        file = spec.prompt_file or (f"{spec.story_workflow.folder}/prompt.md" if spec.story_workflow else "")
        if not file:
            return ""
        folder, name = os.path.split(os.path.join(spec.project.root, file))
        path = os.path.relpath(os.path.join(os.path.realpath(folder), name), os.path.realpath(spec.project.root))
        return "" if path.split("/")[0] == ".." else path

    def _lock_task_folder(self, keeper: KeeperClient) -> None:
        """Take the lock of a task folder that the user chose; the project's own root is locked already."""
        if not self.spec.request.task.folder:
            return
        folder = os.path.realpath(self.folder.task_folder)
        if folder == self.project.root:
            return
        lock = task_folder_lock(self.project.state_dir, folder, self.run)
        lock.take()
        self.cleanup.callback(lock.release)
        self.lock_remarks.append(lock.remark)
        keeper.options.held_descriptors = lambda: (*self.lock.folder.descriptors(), *lock.descriptors())

    def _attach_function_agent(self, agent: Agent) -> None:
        """Give an agent that is a function access to its run: no signal reaches it, and no variable is set for it."""
        if isinstance(agent, FunctionAgent):
            agent.attach(RunAccess(self.clock.stop_reason, self.clock.interrupt, self.project.mask, self._post_message))

    def _post_message(self, kind: str, text: str, iteration: int) -> None:
        """Put a message of the agent's on the bus of its task."""
        if not (message_type := parse_message_type(kind)):
            raise Refused(unknown_type_message(kind))
        request = self.spec.request
        bus = open_task_bus(self.folder.task_folder, self.project.mask)
        bus.post(
            message_type, text, run=self.run, iteration=iteration, project=request.task.project, task=request.task.name
        )

    def _trees_folder(self) -> str:
        """The folder for snapshots; a child run has one of its own, also when it is resumed without its parent."""
        if not self.parent:
            return trees_folder(self.project, self.lock.path)
        noted = self.folder.noted(TREES_NOTE)
        if not isinstance(noted, str):
            noted = self.lock.path
            self.folder.note(TREES_NOTE, noted)
        return trees_folder(self.project, noted)

    def _orphan_monitor(self, command: Command) -> tuple[tuple[str, ...], Mapping[str, str]] | None:
        """The program that watches an agent or a judge if this process dies, because it knows the spending limits.

        None for commands that cost nothing.
        """
        name = command.mark.rpartition("/")[2]
        judge = self.spec.stage_plan.judge_in(name)
        if not judge and (not name.startswith("agent_") or self.spec.custom.agent is not None):
            return None
        watched = (self.project.root, self.run, name, *([judge] if judge else []))
        return interpreter.module_command("ralphproof.runs.orphan_monitor", *watched), os.environ


class TurnDetector:
    """Observer that knows whether a turn has begun: its record is durable, and shown, before the agent is started."""

    begun = False

    def on_record(self, record: Record) -> None:
        self.begun = self.begun or isinstance(record, TurnBegan)

    def on_events(self, events: list[Event]) -> None:
        """Events come after the record."""

    def tick(self) -> None:
        """Nothing happens by time alone."""


# Seconds that notifications may take at the end; after one Ctrl-C; after two.
NOTIFY_PATIENCE_S, NOTIFY_HURRY_S, NOTIFY_AT_ONCE_S = 10.0, 2.0, 0.3


class RunNotifiers:
    """Observers that deliver over the network, and are waited for when the run ends."""

    def __init__(self, clock: RunClock) -> None:
        self._clock = clock
        self._open: list[NotificationObserver | OtelObserver] = []

    def add(self, observer: NotificationObserver | OtelObserver) -> None:
        self._open.append(observer)

    @property
    def observers(self) -> tuple[Observer, ...]:
        return tuple(self._open)

    def deliver(self, outcome: Outcome) -> tuple[str, ...]:
        """Tell every one of them the outcome, and wait for a limited time; what could not be delivered."""
        closing, self._open = self._open, []
        for observer in closing:
            observer.on_record(RunEnded(outcome))  # where the record could not be written, no observer saw it
            self._close(observer, NOTIFY_HURRY_S if outcome.exit_code == 130 else NOTIFY_PATIENCE_S)
        return tuple(failure for observer in closing for failure in observer.failures)

    def close(self) -> None:
        """Close those that `deliver` did not."""
        for observer in self._open:
            self._close(observer, NOTIFY_HURRY_S)

    def _close(self, observer: NotificationObserver | OtelObserver, grace_s: float) -> None:
        """Ctrl-C may come meanwhile. Two of them before this were meant for the agent: still try for a moment."""
        observer.close(grace_s, self._patience_s if self._patience_s() else lambda: NOTIFY_AT_ONCE_S)

    def _patience_s(self) -> float:
        """How much longer to wait: Ctrl-C leaves a little time, the second one none."""
        try:
            pressed = self._clock.stop_reason() == INTERRUPTED
            return 0.0 if self._clock.stop_level() == KILL else NOTIFY_HURRY_S if pressed else NOTIFY_PATIENCE_S
        except RalphError:
            return NOTIFY_PATIENCE_S  # the ledger is broken; the next call sees signals


# The LoopEnvironment of a run, built from its RunContext: checks, observers, child runs, tripwires, hooks.


GUARD_NOTE = "guard"  # the note that holds the rules of the command guard


def open_run_scm(context: RunContext) -> Scm | None:
    """The user's SCM. Hooks of the project that a commit starts run in the sandbox, like its checks."""
    return open_scm(context.settings, context.project.root, context.direct, context.folder, context.sandbox)


def run_tripwires(context: RunContext) -> Tripwires:
    """Tripwires for the protected paths of this run."""
    protected = context.settings.protected_paths
    return build_tripwires(protected, context.workspace, context.folder, context.fixed_files)


def build_environment(
    context: RunContext, scm: Scm | None, tripwires: Tripwires, earlier: tuple[Record, ...] = ()
) -> LoopEnvironment:
    """Everything that the loop acts on. `earlier` are the records of a run that is resumed."""
    spec, folder = context.spec, context.folder
    custom_checks = {check.name: check for check in spec.custom.checks}
    signals = AgentSignals(context.run, folder.task_folder, context.project.root, context.project.mask)
    children, story_plan = _child_runs(context), _open_story_plan(context)
    child_remarks = (children.remarks,) if isinstance(children, LedgerChildRuns) else ()
    checks = build_checks(spec, folder, context.sandbox, context.workspace, _open_clean_checkouts(context))
    hooks = (*(hook_commands() if story_plan else ()), *_guard_hooks(context))
    allowed_commands = spec.story_workflow.may_run if spec.story_workflow else ()
    find_claim = signals if story_plan is None else lambda number: story_plan.claim(number) or signals(number)
    pins = create_check_pins(spec, folder, context.workspace, context.ledger)
    grace_s = context.settings.shutdown_grace_seconds
    savings = savings_calculator(context.settings, spec.selected_agents)
    return LoopEnvironment(
        AgentAccess(spec.agents, context.sandbox, _agent_variables(context), hooks, allowed_commands),
        PlanAccess(story_plan or spec.plan, story_plan or FixedPlan(), find_claim, signals.refuse),
        CheckAccess(checks | custom_checks, run_checks_in_parallel, pins),
        WorkAccess(context.workspace, tripwires, scm, _task_origin(context), context.prompt_file),
        SpendAccess(context.spend, spec.custom.shared_budget, savings),
        context.ledger,
        folder,
        context.clock,
        CommandHooks(context.sandbox, folder, context.project.root, spec.check_env, grace_s),
        (context.turns, *_display_observers(context, earlier), *_recording_observers(context, signals, earlier)),
        children,
        lambda name: _was_started(context, name),
        (SettingsChangeDetector(spec.loaded.files), signals.remarks, *child_remarks),
    )


def _display_observers(context: RunContext, earlier: tuple[Record, ...]) -> tuple[Observer, ...]:
    """The caller's observers; those of a resumed run are given its earlier records."""
    observers = context.create_observers(context.folder, context.settings)
    for observer in observers if earlier else ():
        if catch_up := getattr(observer, "catch_up", None):
            catch_up(earlier, time.time())
    return observers


def _recording_observers(
    context: RunContext, signals: AgentSignals, earlier: tuple[Record, ...]
) -> tuple[Observer, ...]:
    """Observers that write files, messages, metrics, notifications and spans, with or without a display."""
    project, request, settings = context.project, context.spec.request, context.settings
    observers: list[Observer] = [
        *context.spec.custom.observers,
        BusObserver(
            signals.task_bus, signals.project_bus, context.run, request.task.project, request.task.name, earlier
        ),
        ProofWriter(project, context.run, context.ledger, context.workspace, context.folder),
    ]
    if settings.metrics:
        files = MetricsFolder(project.root, project.mask)
        observers.append(MetricsObserver(files, context.ledger.statistics, settings.cost_limit_micro_usd))
    if settings.notify:
        name = os.path.basename(project.root)
        context.notifiers.add(
            NotificationObserver(settings.notify, context.run, name, project.mask, os.environ, project.root)
        )
    if settings.otel:
        from ralphproof.reports.otel import OtelObserver, OtlpExporter

        exporter = OtlpExporter(settings.otel, project.mask, os.environ)
        stamped = context.ledger.timed_records(context.run) if earlier else ()
        context.notifiers.add(OtelObserver(exporter, context.run, stamped))
    return (*observers, *context.notifiers.observers)


def _open_story_plan(context: RunContext) -> StoryPlan | None:
    """The stories, where the run works by stories."""
    if context.spec.story_workflow is None:
        return None
    plan = open_story_plan(context.spec, context.folder, lambda: uncommitted_at_start(context.workspace, context.run))
    context.cleanup.callback(plan.close)  # however the run ends, no turn is open then
    return plan


def _open_clean_checkouts(context: RunContext) -> CleanCheckouts | None:
    """Clean checkouts, where the settings ask for them. What a dead run left of one is removed in any case."""
    project, wanted = context.project, context.settings.verify_in == CLEAN_CHECKOUT
    if not wanted and not os.path.isdir(os.path.join(project.store, CLEAN_CHECKOUT)):
        return None
    remove_stale_checkout(project.store, project.root, context.run)
    if not wanted:
        return None
    checkouts = CleanCheckouts(
        context.spec, context.folder, context.workspace, context.sandbox, context.direct, context.ledger.records,
        context.parent,
    )  # fmt: skip
    context.cleanup.callback(checkouts.close)
    return checkouts


def _guard_hooks(context: RunContext) -> tuple[tuple[str, str], ...]:
    """The command guard, which agents call before every tool, for a run without other protection."""
    if context.spec.request.guarded:
        return ()
    guard, root = context.settings.guard, context.project.root
    fixed = [os.path.relpath(file, root) for file in context.fixed_files]
    protected: list[Json] = [*context.settings.protected_paths, *fixed]
    task_folder = os.path.realpath(context.folder.task_folder) if context.spec.request.task.folder else ""
    rules: dict[str, Json] = {
        "root": root, "allow": list(guard.allow), "deny": list(guard.deny), "protected": protected,
        "taskFolder": task_folder,
    }  # fmt: skip
    context.folder.note(GUARD_NOTE, rules)
    return guard_hook_commands(context.folder.log_base(GUARD_NOTE) + NOTE_SUFFIX)


def _task_origin(context: RunContext) -> Snapshot | None:
    """The tree before the first run of this task, where an earlier run left the task undone."""
    task = context.spec.request.task.id
    if not task:
        return None
    first = first_run_of_task(context.ledger, task, context.run)
    return context.workspace.find_snapshot(first, "0") if first else None


def _agent_variables(context: RunContext) -> tuple[tuple[str, str], ...]:
    """The environment of agents; variables of an enclosing run are replaced by this run's."""
    request, sandbox = context.spec.request, context.sandbox
    own = {
        "TASK_FOLDER": context.folder.task_folder,
        "RALPH_PROJECT": request.task.project,
        "RALPH_TASK": request.task.name,
        HOOKED_VARIABLE: "1",
        SANDBOX_VARIABLE: "" if isinstance(sandbox, DirectRunner) else sandbox.name,
    }
    return tuple((dict(context.spec.agent_env) | {name: text for name, text in own.items() if text}).items())


def _was_started(context: RunContext, name: str) -> bool:
    """Whether a command was started, or is about to be. Functions leave no trace, and count as started."""
    if context.spec.custom.agent is not None:
        return True
    file = context.folder.turn_file(name)
    return turn_journal.is_turn_locked(file) or (os.path.exists(file) and os.path.getsize(file) > 0)


def _child_runs(context: RunContext) -> ChildRuns:
    if isinstance(context.ledger, MemoryLedger):
        return NoChildRuns()
    variables = dict(context.spec.agent_env)
    return LedgerChildRuns(context.folder, context.project, context.ledger, context.spend, variables)


# Signals of the agent: marker files and messages in the task folder.


def signal_files(task_folder: str) -> tuple[str, ...]:
    """The files of a task folder that agent and harness exchange."""
    return tuple(os.path.join(task_folder, name) for name in (DONE_FILE, WAIT_FILE, TASK_BUS_FILE, SPOOL_FILE))


class AgentSignals:
    """The signals in the task folder of one run. Called with an iteration: its claim; with 0: that of files alone."""

    def __init__(self, run: str, task_folder: str, root: str, mask: Callable[[str], str]) -> None:
        self._run, self._folder, self._markers = run, task_folder, SignalFiles(task_folder)
        self.task_bus, self.project_bus = open_task_bus(task_folder, mask), open_project_bus(root, mask)

    def __call__(self, iteration: int) -> Claim | None:
        claim = self._markers.look()
        if not iteration or (claim is not None and claim.waiting):
            return claim
        reason = find_wait_reason(self.task_bus, self._run, iteration)
        return claim if reason is None else Claim(reason, waiting=True, source="bus")

    def refuse(self, stamp: str) -> tuple[str, ...]:
        """Rename the marker with this stamp, because its claim was refused; its new name, if it was still there."""
        now = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        return self._markers.put_away(frozenset((stamp,)), now, "refused")

    def remarks(self) -> tuple[str, ...]:
        """Remarks after a turn. Messages that it left for the project's bus are passed on."""
        problem = drain_spool(self._folder, self.project_bus, self._run).problem
        return (*self._markers.remarks(), *([problem] if problem else []))


MAX_MARKER_RUNS = 50  # searched for judged markers


def put_away_stale_markers(ledger: SqliteLedger, task_folder: str, own_run: str) -> list[str]:
    """Rename the markers in a task folder that an earlier run has judged; remarks about them."""
    markers = SignalFiles(task_folder)
    if markers.look() is None:
        return []
    judged: set[str] = set()
    for row in ledger.runs(MAX_MARKER_RUNS):
        if row.id != own_run:
            judged |= _judged_stamps(ledger, row.id, task_folder)
    names = markers.put_away(frozenset(judged), time.strftime("%Y%m%d-%H%M%S", time.gmtime()))
    return [f"a marker of an earlier run was put away as {name}" for name in names]


def _judged_stamps(ledger: SqliteLedger, run: str, task_folder: str) -> set[str]:
    """The stamps of all markers that a run in this folder has judged."""
    stamps: set[str] = set()
    for record in ledger.records(run):
        match record:
            case RunBegan(facts=facts) if facts.get("taskFolder") != task_folder:
                return set()
            case Saved(heard=heard) if heard.claim is not None and heard.claim.stamp:
                stamps.add(heard.claim.stamp)
            case _:
                pass
    return stamps


# Hooks of a run: the user's own commands around the run and its iterations.


HOOK_TIMEOUT_S = 600.0
TAIL_BYTES = 4096  # read from the end of a log
MAX_TAIL_CHARS = 500  # of them are shown


class CommandHooks:
    """Runs hooks in the project with the environment of the run's start; the whole output is in a log.

    `grace_s` is how long a hook may take after the run was asked to end.
    """

    def __init__(
        self, sandbox: Sandbox, folder: RunFiles, root: str, env: tuple[tuple[str, str], ...], grace_s: float
    ) -> None:
        self._sandbox, self._folder, self._root, self._env, self._grace_s = sandbox, folder, root, env, grace_s

    def run(
        self, name: str, command: str, exports: Mapping[str, str], watch: CommandWatcher, ending: bool = False
    ) -> HookResult:
        """Run a hook, or return the result of the one of this name; one that a crash or an earlier stop interrupted
        runs again.
        """
        if ending and watch.tick() >= KILL:
            return HookResult(command, False, why="no run: the run was to end at once")
        times, result = 1, self._once(name, command, exports, watch, ending)
        while result.why in (COMMAND_INTERRUPTED, HOOK_STOPPED) and watch.tick() < STOP and times < MAX_INTERRUPTIONS:
            times += 1
            result = self._once(f"{name}-run{times}", command, exports, watch, ending)
        return result

    def _once(
        self, name: str, command: str, exports: Mapping[str, str], watch: CommandWatcher, ending: bool
    ) -> HookResult:
        log, shown = self._folder.log_base(name) + ".log", self._folder.published_path(name) + ".log"
        env = {**dict(self._env), **exports, "RALPH_RUN_DIR": os.path.dirname(shown)}
        env |= {"PWD": self._root} if "PWD" in env else {}
        timeout_s = max(min(HOOK_TIMEOUT_S, self._grace_s), 0.1) if ending else HOOK_TIMEOUT_S
        end = self._sandbox.run(
            Command(
                shell_argv(command), self._root, tuple(env.items()), out=log,
                turn_file=self._folder.turn_file(name), mark=f"{self._folder.run}/{name}", timeout_s=timeout_s,
            ),
            _KillOnlyWatch(watch) if ending else watch,
        )  # fmt: skip
        self._folder.publish(name)
        passed = end.why == "exit" and end.code == 0 and not end.survivors
        why = "" if passed else _failure_reason(end, timeout_s)
        tail = "" if passed else _log_tail(log)
        return HookResult(command, passed, end.code, why, end.seconds, os.path.relpath(shown, self._root), tail)


class _KillOnlyWatch:
    """Lets a hook finish although the run was asked to end; only a second request kills it."""

    def __init__(self, watch: CommandWatcher) -> None:
        self._watch = watch

    def output(self, chunk: bytes) -> None:
        self._watch.output(chunk)

    def tick(self) -> int:
        return KILL if self._watch.tick() >= KILL else CONTINUE


def _failure_reason(end: Exit, timeout_s: float) -> str:
    """Why a hook failed, in the words that follow "failed with"."""
    if end.survivors:
        return f"processes that could not be ended: {', '.join(map(str, end.survivors))}"
    match end.why:
        case "exit":
            return f"exit code {end.code}" if end.signal is None else f"signal {end.signal}"
        case "timeout":
            return f"a timeout after {timeout_s:g} s"
        case "stopped" | "killed":
            return HOOK_STOPPED
        case _:
            return COMMAND_INTERRUPTED if end.why == COMMAND_INTERRUPTED else end.error or end.why


def _log_tail(log: str) -> str:
    """The end of a log in one line."""
    try:
        file = os.open(log, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""  # a command that could not be started has no log
    try:
        os.lseek(file, max(0, os.fstat(file).st_size - TAIL_BYTES), os.SEEK_SET)
        text = strip_escapes(os.read(file, TAIL_BYTES).decode("utf-8", "replace"))
    except OSError:
        return ""
    finally:
        os.close(file)
    words = " ".join(text.split())
    return words if len(words) <= MAX_TAIL_CHARS else "... " + words[-MAX_TAIL_CHARS:]


# Pins of a run: the files that decide its checks' results, and those that stopped earlier runs.


def create_check_pins(spec: RunSpec, folder: RunFolder, workspace: Workspace, ledger: SqliteLedger) -> CheckPins:
    """The pins of a run with this spec; raises Refused for a bad --may-change pattern."""
    pins = _build_pins(spec, folder, workspace)
    if isinstance(ledger, MemoryLedger):
        return pins

    before = find_weakened_files(ledger, workspace, spec.project.root, folder.run)
    return (
        PinsWithWeakenedFiles(pins, workspace, before, _allowed_paths(spec.request.checks.may_change))
        if before
        else pins
    )


def _build_pins(spec: RunSpec, folder: RunFolder, workspace: Workspace) -> CheckPins:
    allowed, settings = _allowed_paths(spec.request.checks.may_change), spec.loaded.settings
    leaves = spec.stage_plan.leaves.values()
    commands = [
        (leaf.verification.command, leaf.verification.folder)
        for leaf in leaves
        if isinstance(leaf.verification, ExternalVerification)
    ]
    commands += [(command, ".") for command in settings.setup]
    if not commands and not settings.protect_tests:
        return NoCheckPins()
    from ralphproof.evidence.pins import CheckPins

    distinct = tuple(dict.fromkeys(commands))
    return CheckPins(
        spec.project.root, distinct, spec.check_env, folder, workspace, allowed, settings.protect_tests
    )  # fmt: skip


def _allowed_paths(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """A predicate: whether the user lets the work change a path."""
    if not patterns:
        return lambda _: False
    for pattern in patterns:
        problem = explain_bad_pattern(pattern)
        if problem and "would protect every file" not in problem:
            raise Refused(f"--may-change {pattern!r} {problem}")
    return lambda path: any(_matches(pattern, path, pattern_covers) for pattern in patterns)


def _matches(pattern: str, path: str, protects: Callable[[str, str], bool]) -> bool:
    return pattern.strip("/") in ("*", "**") or protects(pattern, path)


# Files that an earlier run weakened and that are still so: the next run must not take them for the user's own.


MAX_WEAKENED_RUNS = 20  # earlier runs that are searched


@value
class WeakenedFile:
    """A file that an earlier run was stopped for, with its content when that run began; None where it did not exist."""

    run: str
    path: str
    content: bytes | None


def find_weakened_files(ledger: SqliteLedger, workspace: Workspace, root: str, run: str) -> tuple[WeakenedFile, ...]:
    """Files for which runs in this directory were stopped since the last completed run."""
    weakened: list[WeakenedFile] = []
    rows = [row for row in ledger.runs() if row.directory == root and row.id != run]
    for row in rows[:MAX_WEAKENED_RUNS]:
        end = ledger.run_end(row.id)
        outcome = end.outcome if isinstance(end, RunEnded) else None
        if isinstance(outcome, Completed):
            break
        if isinstance(outcome, Aborted) and outcome.reason == CHECKS_WEAKENED:
            start = workspace.find_snapshot(row.id, "0-checked") or workspace.find_snapshot(row.id, "0")
            paths = outcome.breach.paths if start else ()
            weakened += (WeakenedFile(row.id, path, workspace.content(start, path)) for path in paths if start)
    return tuple(
        {file.path: file for file in weakened}.values()
    )  # for each path the earliest run, which saw the original


class PinsWithWeakenedFiles:
    """Pins that also report the files that earlier runs were stopped for, until they are restored."""

    def __init__(
        self, pins: CheckPins, workspace: Workspace, before: tuple[WeakenedFile, ...], allowed: Callable[[str], bool]
    ) -> None:
        self._pins, self._workspace, self._weakened, self._allowed = pins, workspace, before, allowed

    def begin(self) -> None:
        self._pins.begin()

    def accept_user_changes(self, paths: tuple[str, ...]) -> None:
        self._pins.accept_user_changes(paths)

    def find_altered(self, began: Snapshot, now: Snapshot, theirs: frozenset[str]) -> tuple[AlteredCheckInput, ...]:
        """What this run altered, and what earlier runs were stopped for and is still altered."""
        altered = self._pins.find_altered(began, now, theirs)
        reported = {file.path for file in altered}
        still_weakened = (
            AlteredCheckInput(file.path, f"still as run {file.run} left it, which was stopped for that")
            for file in self._weakened
            if file.path not in reported and not self._allowed(file.path)
            and self._workspace.content(now, file.path) != file.content
        )  # fmt: skip
        return (*altered, *still_weakened)
