"""RunContext: the resources of a run: lock, ledger, run folder, workspace, sandbox, spend store."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack

from ralphproof.base import interpreter
from ralphproof.base.errors import RalphError, Refused
from ralphproof.base.files import make_private_folder
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.limits import INTERRUPTED
from ralphproof.engine.records import RunEnded, TurnBegan
from ralphproof.engine.sandbox import KILL
from ralphproof.process.keeper_client import KeeperClient, KeeperPool
from ralphproof.process.signals import RunClock
from ralphproof.runs.assembly import build_run_sandbox, open_workspace
from ralphproof.runs.environment import signal_files
from ralphproof.sandbox.runner import DirectRunner
from ralphproof.store.ledger import MemoryLedger, SqliteLedger
from ralphproof.store.locks import WORKTREE_HINT, DirectoryLock, task_folder_lock
from ralphproof.store.run_folder import RunFolder, new_run_id
from ralphproof.store.spend import SpendStore
from ralphproof.views.snapshots import TREES_NOTE, trees_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from ralphproof.engine.agent import Agent
    from ralphproof.engine.environment import Observer
    from ralphproof.engine.events import Event
    from ralphproof.engine.outcome import Outcome
    from ralphproof.engine.records import Record
    from ralphproof.engine.sandbox import Command
    from ralphproof.reports.notifications import NotificationObserver
    from ralphproof.reports.otel import OtelObserver
    from ralphproof.runs.spec import RunSpec
    from ralphproof.settings.keys import Settings
    from ralphproof.store.project import Project

    CreateObservers = Callable[[RunFolder, Settings], tuple[Observer, ...]]
    Listen = Callable[[RunClock], None]  # connects a run's clock to the signals that end the run
    OpenLedger = Callable[[Project], SqliteLedger | MemoryLedger]


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
            project.root, self.run, project.store, project.mask, request.task_folder or None, latest=not self.parent
        )
        self._lock_task_folder(keeper)
        trees = self._trees_folder()
        make_private_folder(trees)
        signals = signal_files(os.path.realpath(request.task_folder)) if request.task_folder else ()
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
        if not self.spec.request.task_folder:
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
        from ralphproof.agents.function import FunctionAgent, RunAccess

        if isinstance(agent, FunctionAgent):
            agent.attach(RunAccess(self.clock.stop_reason, self.clock.interrupt, self.project.mask, self._post_message))

    def _post_message(self, kind: str, text: str, iteration: int) -> None:
        """Put a message of the agent's on the bus of its task."""
        from ralphproof.store.message_bus import open_task_bus, parse_message_type, unknown_type_message

        if not (message_type := parse_message_type(kind)):
            raise Refused(unknown_type_message(kind))
        request = self.spec.request
        bus = open_task_bus(self.folder.task_folder, self.project.mask)
        bus.post(message_type, text, run=self.run, iteration=iteration, project=request.project, task=request.task)

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
        judge = self.spec.stage_plan.judge_in(name) if self.spec.stage_plan else ""
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
