"""RunContext: what a run holds while it lasts (lock, ledger, folder, world), and a new run of it."""

from __future__ import annotations

import os
import sys
import time

from ralphproof import __version__
from ralphproof.agents.hook_commands import HOOKED_VARIABLE, hook_commands
from ralphproof.agents.savings import savings_calculator
from ralphproof.agents.selection import installed_version
from ralphproof.base import interpreter
from ralphproof.base.errors import HarnessFailed, RalphError, Refused
from ralphproof.base.files import make_private_folder
from ralphproof.base.process_identity import current_process
from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.checks.check_plan import CLEAN_CHECKOUT
from ralphproof.checks.parallel import run_checks_in_parallel
from ralphproof.engine.environment import FixedPlan, LoopEnvironment, NoChildRuns
from ralphproof.engine.limits import INTERRUPTED
from ralphproof.engine.loop import NEW_STATE, Loop
from ralphproof.engine.outcome import Failed, Outcome
from ralphproof.engine.records import RunEnded, TurnBegan
from ralphproof.engine.run_hooks import NoHooks
from ralphproof.engine.sandbox import KILL
from ralphproof.process.client import Keeper, KeeperPool
from ralphproof.process.signals import RunClock
from ralphproof.proof.publish import make_proof_writer
from ralphproof.runs import assembly
from ralphproof.runs.agent_signals import AgentSignals, signal_files
from ralphproof.runs.assembly import build_checks, build_run_sandbox
from ralphproof.runs.children import LedgerChildRuns
from ralphproof.runs.constraints import save_constraints
from ralphproof.runs.pins import pins_of
from ralphproof.runs.request import save_request
from ralphproof.runs.spec import RunSpec
from ralphproof.sandbox.runner import DirectRunner
from ralphproof.sandbox.selection import SANDBOX_VARIABLE
from ralphproof.store.bus_observer import BusObserver
from ralphproof.store.locks import WORKTREE_HINT, DirectoryLock, task_folder_lock
from ralphproof.store.memory_ledger import MemoryLedger
from ralphproof.store.run_folder import NOTE_SUFFIX, RunFolder, new_run_id
from ralphproof.store.spend import SpendStore
from ralphproof.store.sqlite_ledger import SqliteLedger
from ralphproof.views.snapshots import TREES_NOTE, trees_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from ralphproof.agents.selection import SelectedAgent
    from ralphproof.base.value import Json
    from ralphproof.engine.actions import RunRules
    from ralphproof.engine.agent import Agent
    from ralphproof.engine.environment import ChildRuns, Observer
    from ralphproof.engine.events import Event
    from ralphproof.engine.records import Record
    from ralphproof.engine.run_hooks import HookRunner
    from ralphproof.engine.sandbox import Command, Sandbox
    from ralphproof.engine.state import State
    from ralphproof.engine.workspace import Scm, Snapshot, Tripwires
    from ralphproof.reports.notifications import NotificationObserver
    from ralphproof.reports.otel_spans import OtelObserver
    from ralphproof.runs.checkouts import CleanCheckouts
    from ralphproof.runs.request import RunRequest
    from ralphproof.settings.model import Settings
    from ralphproof.stories.plan import StoryPlan
    from ralphproof.stories.workflow import StoryWorkflow

    Watching = Callable[[RunFolder, Settings], tuple[Observer, ...]]
    Hearing = Callable[[RunClock], None]  # how a run comes to hear signals


# What the record says of a run at its beginning, for readers.


MAX_TITLE_CHARS = 120


def build_run_facts(spec: RunSpec, sandbox: Sandbox, workspace: str, task_folder: str, parent: str) -> dict[str, Json]:
    """The facts of a run of this order."""
    settings = spec.loaded.settings
    usual, places = spec.selected_agents[0], len(spec.selected_agents) - len(settings.agent.fallbacks)
    fallbacks = [_agent_facts(one) for one in spec.selected_agents[places:]]
    return {
        "title": _prompt_title(spec.request.prompt[0] or _shell_text(spec.request.program)),
        "version": __version__,
        "python": ".".join(map(str, sys.version_info[:3])),
        "system": " ".join(os.uname()[::2]) if hasattr(os, "uname") else sys.platform,
        "preset": settings.preset,
        **_agent_facts(usual),
        "model": usual.model or "",
        "ladder": list(settings.agent.ladder),
        "rotate": list(settings.agent.rotate),
        "fallbacks": [*fallbacks],
        "checks": [
            *(spec.stage_plan.check_labels if spec.stage_plan else ()),
            *(own.name for own in spec.custom.checks),
        ],
        "skill": spec.skill.name if spec.skill else "",
        "taskType": spec.fitness.type if spec.fitness else "",
        "sandbox": _sandbox_facts(sandbox, spec),
        "workspace": workspace,
        "maximumIterations": settings.maximum_iterations,
        "maxCostUsd": settings.cost_limit_micro_usd / 1_000_000,
        "maxTokens": settings.limits.max_tokens,
        "maxSeconds": settings.limits.max_seconds,
        "dailyCostUsd": settings.daily_limit_micro_usd / 1_000_000,
        "protectedPaths": list(settings.protected_paths),
        "promptFile": spec.prompt_file,
        "settingsDigest": spec.loaded.digest,
        "mustFailFirst": settings.must_fail_first,
        "protectTests": settings.protect_tests,
        "verifyIn": settings.verify_in,
        "setup": list(settings.setup),
        "mayChange": list(spec.request.may_change),
        "directory": spec.project.root,
        "taskFolder": task_folder,
        "project": spec.request.project,
        "task": spec.request.task,
        "parent": parent,
        "work": spec.request.task_id,
        "stages": _stage_facts(spec),
        **({"stories": _story_facts(spec.story_workflow)} if spec.story_workflow else {}),
    }


def _shell_text(words: tuple[str, ...]) -> str:
    """A program that is restarted, as somebody would type it; empty where it is none."""
    if not words:
        return ""
    import shlex

    return shlex.join(words)


def _prompt_title(prompt: str) -> str:
    """A prompt in one line, for lists; empty where it is a file's, or a task's."""
    first = next((line.strip() for line in prompt.splitlines() if line.strip()), "")
    return first if len(first) <= MAX_TITLE_CHARS else first[: MAX_TITLE_CHARS - 1] + "…"


def _sandbox_facts(sandbox: Sandbox, spec: RunSpec) -> dict[str, Json]:
    """What the record says of the sandbox: which, how strong, what it does not hold, and what it lets be reached."""
    told: dict[str, Json] = {"name": sandbox.name, "strength": sandbox.strength}
    if sandbox.strength == "none":
        return told
    box = spec.loaded.settings.sandbox
    weak, limits = getattr(sandbox, "weak", ()), getattr(sandbox, "limits", "")
    return told | {
        "weak": list(weak), "limits": limits, "allowHosts": list(box.allow_hosts),
        "allowLocalPorts": list(box.allow_local_ports), "readPaths": list(box.read_paths),
    }  # fmt: skip


def _stage_facts(spec: RunSpec) -> list[Json]:
    """What the record says of the stages, where there are several."""
    stages = spec.stage_plan.pipeline.stages if spec.stage_plan else ()
    return [
        {
            "name": one.name,
            "agent": spec.agents[one.place or 0].name,
            "maxIterations": one.max_iterations,
            "promise": one.claim.word,
            "verification": one.method,
        }
        for one in (stages if len(stages) > 1 else ())
    ]


def _story_facts(manner: StoryWorkflow) -> dict[str, Json]:
    """How stories are gone through, for whoever has to put them in order when the run is dead."""
    return {
        "folder": manner.folder,
        "cap": manner.cap,
        "skipReview": manner.skip_review,
        "capIsFailure": manner.cap_is_failure,
    }


def _agent_facts(one: SelectedAgent) -> dict[str, Json]:
    """What the record says of an agent."""
    return {
        "agent": one.agent.name,
        "agentVersion": installed_version(one.program) if one.program else None,
        "permissions": one.permissions,
    }


# What a run holds while it lasts: its directory, its record, its folder, and the world that its loop touches.


GUARD_NOTE = "guard"  # the note of the rules that the command guard goes by


class TurnDetector:
    """Sees whether a turn has begun: its record is durable before the agent is asked, and is shown only then."""

    turn = False

    def on_record(self, record: Record) -> None:
        self.turn = self.turn or isinstance(record, TurnBegan)

    def on_events(self, events: list[Event]) -> None:
        """Too late to matter."""

    def tick(self) -> None:
        """Time tells nothing."""


class RunContext:
    """A run that holds its directory. However it is left, lock and helper processes are let go."""

    def __init__(
        self, spec: RunSpec, keeper: Keeper, watching: Watching, hear: Hearing = RunClock.listen, run: str = "",
        parent: str = "",
    ) -> None:  # fmt: skip
        """`run` is the id of a run that was ordered, or begun, by another process; else it gets one here."""
        project, self._settings, self._spec, self._watching = spec.project, spec.loaded.settings, spec, watching
        self.run, self.parent = run or new_run_id(time.time(), os.urandom(3)), parent
        self.present = RunClock(self._settings.shutdown_grace_s)
        hear(self.present)
        if parent and spec.story_workflow:
            raise Refused(f"run {parent} is at work here, and stories have one loop at a time; {WORKTREE_HINT}")
        keeper.wake_fd = self.present.wake_fd
        keeper.hide(project.secrets)
        self._lock = DirectoryLock(project.state_dir, project.root, self.run, parent)
        self._lock.take()
        keeper.holding = self._lock.folder.descriptors
        # What is let go at the end, the last one first.
        self._held: list[Callable[[], None]] = [self.present.close, self._lock.release]
        self._closing: list[NotificationObserver | OtelObserver] = []
        self._seen = TurnDetector()
        self._lock_remarks = [self._lock.folder.remark]  # what could not be had
        self._earlier: tuple[Record, ...] = ()  # what is on record of a run that is taken up
        self.broken = ""  # why the loop failed by itself before any agent was asked
        try:
            self._open(keeper)
        except BaseException:
            self._let_go()
            raise

    def _open(self, keeper: Keeper) -> None:
        project = self._spec.project
        self._ledger = self._record()
        self._held.append(self._ledger.close)
        request = self._spec.request
        self._folder = RunFolder(
            project.root, self.run, project.store, project.mask, request.task_folder or None, latest=not self.parent
        )
        self._hold_task_folder(keeper)
        private = self._private()
        make_private_folder(private)
        signs = signal_files(os.path.realpath(request.task_folder)) if request.task_folder else ()
        self._workspace = assembly.open_workspace(project.root, private, os.environ, signs)
        self._held.append(self._workspace.close)
        if self._spec.custom.agent is not None:
            self._give_access(self._spec.custom.agent)
        self._direct = DirectRunner(self._keepers(keeper))
        read_only = self._fixed() | ({self._prompt_file: "the prompt"} if self._prompt_file else {})
        self._sandbox = build_run_sandbox(self._spec, self._direct, self._folder, read_only, self.parent)
        keeper.stand_in = self._stand_in
        self._spend = SpendStore.open(project.state_dir)
        self._held.append(self._spend.close)

    def _hold_task_folder(self, keeper: Keeper) -> None:
        """Have a task folder that the user chose for this run alone."""
        if not self._spec.request.task_folder:
            return
        project, folder = self._spec.project, os.path.realpath(self._folder.task_folder)
        if folder == project.root:
            return  # that is held already
        lock = task_folder_lock(project.state_dir, folder, self.run)
        lock.take()
        self._held.append(lock.release)
        self._lock_remarks.append(lock.remark)
        keeper.holding = lambda: (*self._lock.folder.descriptors(), *lock.descriptors())

    def _give_access(self, agent: Agent) -> None:
        """Let an agent that is a function know its run: no signal reaches it, and no variable is set for it."""
        from ralphproof.agents.function import FunctionAgent, RunAccess

        if isinstance(agent, FunctionAgent):
            agent.attach(RunAccess(self.present.stop_reason, self.present.ring, self._spec.project.mask, self._post))

    def _post(self, kind: str, text: str, iteration: int) -> None:
        """Put a message of the agent's on the bus of its task."""
        from ralphproof.store.message_bus import open_task_bus, parse_message_type, unknown_type_message

        if not (known := parse_message_type(kind)):
            raise Refused(unknown_type_message(kind))
        request, folder = self._spec.request, self._folder.task_folder
        bus = open_task_bus(folder, self._spec.project.mask)
        bus.post(known, text, run=self.run, iteration=iteration, project=request.project, task=request.task)

    def _keepers(self, keeper: Keeper) -> KeeperPool:
        """The keeper, and others beside it where commands run at the same time."""
        pool = KeeperPool(keeper)
        self._held.append(pool.close)
        return pool

    def _private(self) -> str:
        """The folder for the trees; a run beside its parent has one of its own, also when it goes on alone."""
        if not self.parent:
            return trees_folder(self._spec.project, self._lock.path)
        noted = self._folder.noted(TREES_NOTE)
        if not isinstance(noted, str):
            noted = self._lock.path
            self._folder.note(TREES_NOTE, noted)
        return trees_folder(self._spec.project, noted)

    def _stand_in(self, command: Command) -> tuple[tuple[str, ...], Mapping[str, str]] | None:
        """What looks on at an agent or a judge if we die: it knows what may be spent. Others cost nothing."""
        name = command.mark.rpartition("/")[2]
        judge = self._spec.stage_plan.judge_in(name) if self._spec.stage_plan else ""
        if not judge and (not name.startswith("agent_") or self._spec.custom.agent is not None):
            return None
        watched = (self._spec.project.root, self.run, name, *([judge] if judge else []))
        return interpreter.module_command("ralphproof.runs.orphan_monitor", *watched), os.environ

    def _record(self) -> SqliteLedger | MemoryLedger:
        return self._spec.project.ledger(read_only=False)

    def _let_go(self) -> None:
        """Close everything, whatever fails in between."""
        if self._held:
            try:
                self._held.pop()()
            finally:
                self._let_go()

    def _world(self, scm: Scm | None) -> LoopEnvironment:
        spec, root, checks = self._spec, self._spec.project.root, self._spec.custom.checks
        own = {check.name: check for check in checks}
        signs = AgentSignals(self.run, self._folder.task_folder, root, spec.project.mask)
        family, book = self._family(), self._book()
        asked = (family.remarks,) if isinstance(family, LedgerChildRuns) else ()
        return LoopEnvironment(
            book or spec.plan, spec.agents, self._sandbox, self._workspace,
            build_checks(spec, self._folder, self._sandbox, self._workspace, self._room()) | own, self._ledger,
            self._folder, self.present, self._spend, self._environment(), scm,
            (self._seen, *self._onlookers(), *self._recorders(signs)),
            marker=signs if book is None else lambda iteration: book.claim(iteration) or signs(iteration),
            refuse=signs.refuse, notebook=book or FixedPlan(), family=family, started=self._started, wires=self._wires(),
            kitty=spec.custom.shared_budget,
            pins=pins_of(spec, self._folder, self._workspace, self._ledger),
            saved=savings_calculator(self._settings, spec.selected_agents),
            lookouts=(assembly.SettingsChangeDetector(spec.loaded.files), signs.remarks, *asked), together=run_checks_in_parallel,
            origin=self._origin(), hooks=(*(hook_commands() if book else ()), *self._guard()),
            may_run=spec.story_workflow.may_run if spec.story_workflow else (), hook_runner=self._hook_runner(),
            prompt_file=self._prompt_file,
        )  # fmt: skip

    def _onlookers(self) -> tuple[Observer, ...]:
        """Those whom the caller brings; of a run that is taken up they know what was before."""
        found = self._watching(self._folder, self._settings)
        for one in found if self._earlier else ():
            if catch_up := getattr(one, "catch_up", None):
                catch_up(self._earlier, time.time())
        return found

    def _book(self) -> StoryPlan | None:
        """The stories, where the run goes by them."""
        if self._spec.story_workflow is None:
            return None
        from ralphproof.runs.stories import open_story_plan

        book = open_story_plan(
            self._spec, self._folder, lambda: assembly.uncommitted_at_start(self._workspace, self.run)
        )
        self._held.append(book.close)  # however the run is left, nobody is inside a turn then
        return book

    def _room(self) -> CleanCheckouts | None:
        """Where clean checkouts are laid, where the run wants any. What a dead run left of one is removed."""
        project, wanted = self._spec.project, self._settings.verify_in == CLEAN_CHECKOUT
        if not wanted and not os.path.isdir(os.path.join(project.store, CLEAN_CHECKOUT)):
            return None
        from ralphproof.runs.checkouts import CleanCheckouts, remove_stale_checkout

        remove_stale_checkout(project.store, project.root, self.run)
        if not wanted:
            return None
        held = (self._sandbox, self._direct, self._ledger.records, self.parent)
        room = CleanCheckouts(self._spec, self._folder, self._workspace, *held)
        self._held.append(room.close)
        return room

    def _guard(self) -> tuple[tuple[str, str], ...]:
        """What agents call before every tool, where nothing else holds them."""
        if self._spec.request.guarded:
            return ()
        from ralphproof.agents.hook_commands import guard_hook_commands

        own, root = self._settings.guard, self._spec.project.root
        fixed = [os.path.relpath(file, root) for file in self._fixed()]
        protected: list[Json] = [*self._settings.protected_paths, *fixed]
        rules: dict[str, Json] = {
            "root": root, "allow": list(own.allow), "deny": list(own.deny), "protected": protected,
            "taskFolder": os.path.realpath(self._folder.task_folder) if self._spec.request.task_folder else "",
        }  # fmt: skip
        self._folder.note(GUARD_NOTE, rules)
        return guard_hook_commands(self._folder.log_base(GUARD_NOTE) + NOTE_SUFFIX)

    def _hook_runner(self) -> HookRunner:
        """Runs the user's own commands around the run, where there are any."""
        if not self._settings.on.by_name:
            return NoHooks()
        from ralphproof.runs.run_hooks import CommandHooks

        spec, grace_s = self._spec, self._settings.shutdown_grace_s
        return CommandHooks(self._sandbox, self._folder, spec.project.root, spec.check_env, grace_s)

    def _origin(self) -> Snapshot | None:
        """The tree that a task's work began on, where an earlier run was at it and left it undone."""
        if not self._spec.request.task_id or isinstance(self._ledger, MemoryLedger):
            return None
        from ralphproof.tasks.store import first_run_of_task

        first = first_run_of_task(self._ledger, self._spec.request.task_id, self.run)
        return self._workspace.saved(first, "0") if first else None

    def _environment(self) -> tuple[tuple[str, str], ...]:
        """What agents are started with; those of a run inside another one belong to theirs."""
        request = self._spec.request
        named = {"TASK_FOLDER": self._folder.task_folder, "RALPH_PROJECT": request.project, "RALPH_TASK": request.task}
        named |= {
            HOOKED_VARIABLE: "1",
            SANDBOX_VARIABLE: "" if isinstance(self._sandbox, DirectRunner) else self._sandbox.name,
        }
        own = {name: text for name, text in named.items() if text}
        return tuple((dict(self._spec.agent_env) | own).items())

    def _started(self, name: str) -> bool:
        """Whether a command was started, or somebody is about to. Functions leave no trace, and count as started."""
        if self._spec.custom.agent is not None:
            return True
        from ralphproof.process import turn_journal

        file = self._folder.turn_file(name)
        return turn_journal.is_turn_locked(file) or (os.path.exists(file) and os.path.getsize(file) > 0)

    def _family(self) -> ChildRuns:
        if isinstance(self._ledger, MemoryLedger):
            return NoChildRuns()
        return LedgerChildRuns(self._folder, self._spec.project, self._ledger, self._spend, dict(self._spec.agent_env))

    def _wires(self) -> Tripwires:
        return assembly.build_tripwires(self._settings.protected_paths, self._workspace, self._folder, self._fixed())

    def _fixed(self) -> dict[str, str]:
        """Files of this run that nobody may change, and what each is."""
        return self._spec.story_workflow.fixed if self._spec.story_workflow else {}

    @property
    def _prompt_file(self) -> str:
        """The file that the prompt is read from, from the project's root; empty where there is none in the project."""
        spec = self._spec
        file = spec.prompt_file or (f"{spec.story_workflow.folder}/prompt.md" if spec.story_workflow else "")
        if not file:
            return ""
        folder, name = os.path.split(os.path.join(spec.project.root, file))
        path = os.path.relpath(os.path.join(os.path.realpath(folder), name), os.path.realpath(spec.project.root))
        return "" if path.split("/")[0] == ".." else path

    def _scm(self) -> Scm | None:
        """Where passed work is kept. What a commit runs of the project's own runs where its checks do."""
        return assembly.open_scm(self._settings, self._spec.project.root, self._direct, self._folder, self._sandbox)

    def _recorders(self, signs: AgentSignals) -> tuple[Observer, ...]:
        """Those who write down or pass on how the run goes, whoever looks at it."""
        request = self._spec.request
        made: list[Observer] = [*self._spec.custom.observers]
        made.append(
            BusObserver(signs.task_bus, signs.project_bus, self.run, request.project, request.task, self._earlier)
        )
        made.append(make_proof_writer(self._spec.project, self.run, self._ledger, self._workspace, self._folder))
        if self._settings.metrics:
            from ralphproof.reports.metrics import MetricsFolder, MetricsObserver

            files = MetricsFolder(self._spec.project.root, self._spec.project.mask)
            limit = self._settings.cost_limit_micro_usd
            made.append(MetricsObserver(files, self._ledger.figures, limit))
        if self._settings.notify:
            from ralphproof.reports.notifications import NotificationObserver

            project = self._spec.project
            name = os.path.basename(project.root)
            self._closing.append(
                NotificationObserver(self._settings.notify, self.run, name, project.mask, os.environ, project.root)
            )
        if self._settings.otel:
            from ralphproof.reports.otel_exporter import OtlpExporter
            from ralphproof.reports.otel_spans import OtelObserver

            sender = OtlpExporter(self._settings.otel, self._spec.project.mask, os.environ)
            self._closing.append(
                OtelObserver(sender, self.run, self._ledger.stamped(self.run) if self._earlier else ())
            )
        return (*made, *self._closing)

    def _facts(self) -> dict[str, Json]:
        return build_run_facts(self._spec, self._sandbox, self._workspace.kind, self._folder.task_folder, self.parent)


# A run from the directory's lock to the end of its loop: begun anew, or taken up where its records say it stands.


NOTIFY_PATIENCE_S, NOTIFY_HURRY_S, NOTIFY_AT_ONCE_S = (
    10.0,
    2.0,
    0.3,
)  # for notifications at the end; after one, or two Ctrl-C


class NewRun(RunContext):
    """A run that is begun, and goes to its end."""

    recorded = True  # other verbs can tell of it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for told in self._closing:
                self._close(told, NOTIFY_HURRY_S)
        finally:
            self._let_go()

    def go(self) -> Outcome:
        """Run the loop to its end."""
        return self._through(self.loop())

    def loop(self) -> Loop:
        """The loop, which has done nothing yet; the run is on record."""
        root = self._spec.project.root
        told = self._left_behind()
        scm = self._scm()
        self._folder.begin()
        told += self._stale_markers()
        world, rules = self._world(scm), self._rules()
        if self.recorded:
            save_constraints(self._folder, rules, self._spec, self._sandbox.name)
            save_request(self._folder, replace(self._asked_for(), project_dir=root), self._spec.project.mask)
        request, process = self._spec.request, current_process()
        self._prepare(world)
        self._ledger.begin_run(
            self.run, root, time.time(), process, self.parent, request.task_id
        )  # a refusal is on record
        if request.message and isinstance(self._ledger, SqliteLedger):
            self._ledger.say(self.run, request.message)
        self.present.follow(self._ledger, self.run)
        loop = self._made(rules, world)
        unclosed = "" if told else self._lock.reclaimed  # else it is told already
        more = (unclosed, *self._lock_remarks, self._ledger.repaired, self._expected())
        for remark in (*self._spec.remarks, *told, *filter(None, more)):
            loop.notice(remark)
        return loop

    def _made(self, rules: RunRules, world: LoopEnvironment, state: State = NEW_STATE) -> Loop:
        return Loop(self.run, rules, world, self._facts(), state)

    def _prepare(self, world: LoopEnvironment) -> None:
        """See that a work tree of its own is as the user wants one to be."""
        if self._spec.request.in_worktree:
            from ralphproof.runs.checkouts import prepare_worktree

            prepare_worktree(self._spec, self._folder, world)

    def _asked_for(self) -> RunRequest:
        """The wish, with the verify commands of stories as they were when the run began."""
        request = self._spec.request
        return (
            replace(request, verify_commands=self._spec.story_workflow.verify) if self._spec.story_workflow else request
        )

    def _through(self, loop: Loop) -> Outcome:
        outcome = loop.run()
        if isinstance(outcome, Failed) and outcome.exit_code == HarnessFailed.exit_code and not self.asked:
            self.broken = outcome.error
        return outcome

    @property
    def asked(self) -> bool:
        """Whether an agent was asked, or is about to be."""
        return self._seen.turn

    def _rules(self) -> RunRules:
        """The order's; a run inside another one may use no more than that has left."""
        rules = self._spec.rules
        if not self.parent or isinstance(self._ledger, MemoryLedger):
            return rules
        rules = replace(rules, hooks=())  # they are around the run that it is part of
        from ralphproof.runs.constraints import cap_budget_by_ancestors

        project, limits = self._spec.project, rules.limits
        budget = cap_budget_by_ancestors(limits.budget, self.run, project, self._ledger, self._spend, self.parent)
        return replace(rules, limits=replace(limits, budget=budget))

    def _stale_markers(self) -> list[str]:
        """Put away what an earlier run left, or has seen, of markers; what there is to say of it."""
        if self._spec.story_workflow:
            from ralphproof.runs.stories import prepare_marker

            return prepare_marker(self._spec.project.root, self.run)
        if not self._spec.request.task_folder or isinstance(self._ledger, MemoryLedger):
            return []
        from ralphproof.runs.agent_signals import put_away_stale_markers

        return put_away_stale_markers(self._ledger, self._folder.task_folder, self.run)

    def _left_behind(self) -> list[str]:
        """Close what dead runs left in this directory; what there is to say of it."""
        from ralphproof.runs.recovery import close_dead_runs

        if isinstance(self._ledger, MemoryLedger):
            return []
        return close_dead_runs(self._ledger, self._spec.project, self.run, self.parent)

    def tell(self, outcome: Outcome) -> tuple[str, ...]:
        """Wait until those who are notified know the end, not for long; what could not be delivered."""
        closing, self._closing = self._closing, []
        for told in closing:
            told.on_record(RunEnded(outcome))  # where the record could not be written, nobody saw it
            self._close(told, NOTIFY_HURRY_S if outcome.exit_code == 130 else NOTIFY_PATIENCE_S)
        return tuple(failure for told in closing for failure in told.failures)

    def _close(self, told: NotificationObserver | OtelObserver, grace_s: float) -> None:
        """Somebody may press Ctrl-C meanwhile. Who pressed it twice before wanted the agent's end, not the silence."""
        told.close(grace_s, self._patience_s if self._patience_s() else lambda: NOTIFY_AT_ONCE_S)

    def _patience_s(self) -> float:
        """How much longer notifications are waited for: Ctrl-C leaves them a little, the second one nothing."""
        try:
            pressed = self.present.stop_reason() == INTERRUPTED
            return 0.0 if self.present.stop_level() == KILL else NOTIFY_HURRY_S if pressed else NOTIFY_PATIENCE_S
        except RalphError:
            return NOTIFY_PATIENCE_S  # the ledger is broken, and is not asked again at once: then signals are seen

    def _expected(self) -> str:
        """What the past of this repository says that such a run takes."""
        from ralphproof.store.statistics import describe_estimate, estimate_run

        skill = self._spec.skill.name if self._spec.skill else ""
        expectation = estimate_run(self._ledger.past(), skill)
        return describe_estimate(expectation) if expectation else ""
