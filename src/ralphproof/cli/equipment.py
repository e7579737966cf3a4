"""What a run holds while it lasts: its directory, its record, its folder, and the world that its loop touches."""

from __future__ import annotations

import os
import time

from ralphproof import interpreter
from ralphproof.checks.together import ask_together
from ralphproof.cli.asked import checks_of
from ralphproof.cli.boxing import BOXED, sandbox_of
from ralphproof.cli.family import Kin
from ralphproof.cli.hook import OWN, commands
from ralphproof.cli.order import Order
from ralphproof.cli.pinning import pins_of
from ralphproof.cli.proof_folder import proof_writer
from ralphproof.cli.run_facts import facts_of
from ralphproof.cli.signals import Present
from ralphproof.cli.signs import Signs, files_in
from ralphproof.config import build
from ralphproof.config.savings import savings_of
from ralphproof.config.stage_final import CLEAN
from ralphproof.errors import Refused
from ralphproof.keeper.client import Keeper
from ralphproof.keeper.pool import Pool
from ralphproof.ledgers.files import private_folder
from ralphproof.ledgers.folder import NOTE, RunFolder, new_run_id
from ralphproof.ledgers.folder_lock import task_folder_lock
from ralphproof.ledgers.lock import WORKTREE, DirectoryLock
from ralphproof.ledgers.memory import Memory
from ralphproof.ledgers.spend import SpendBook
from ralphproof.notebook import Blank
from ralphproof.observers.bus import BusPoster
from ralphproof.record import TurnBegan
from ralphproof.run_hook import NoHooks
from ralphproof.sandboxes.direct import Direct
from ralphproof.value import TYPE_CHECKING
from ralphproof.views.kept import TREES, trees_folder
from ralphproof.world import Childless, World

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ralphproof.agent import Agent
    from ralphproof.cli.clean_room import CleanRoom
    from ralphproof.config.settings import Settings
    from ralphproof.event import Event
    from ralphproof.ledger import Observer
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.observers.notify import Notify
    from ralphproof.observers.otel import Otel
    from ralphproof.plans.story_book import StoryBook
    from ralphproof.record import Record
    from ralphproof.run_hook import HookRunner
    from ralphproof.sandbox import Command
    from ralphproof.value import Json
    from ralphproof.workspace import Scm, Snapshot, Tripwires
    from ralphproof.world import Family

    Watching = Callable[[RunFolder, Settings], tuple[Observer, ...]]
    Hearing = Callable[[Present], None]  # how a run comes to hear signals

GUARD = "guard"  # the note of the rules that the command guard goes by


class Seen:
    """Sees whether a turn has begun: its record is durable before the agent is asked, and is shown only then."""

    turn = False

    def saw(self, record: Record) -> None:
        self.turn = self.turn or isinstance(record, TurnBegan)

    def heard(self, events: list[Event]) -> None:
        """Too late to matter."""

    def tick(self) -> None:
        """Time tells nothing."""


class Equipped:
    """A run that holds its directory. However it is left, lock and helper processes are let go."""

    def __init__(
        self, order: Order, keeper: Keeper, watching: Watching, hear: Hearing = Present.listen, run: str = "",
        parent: str = "",
    ) -> None:  # fmt: skip
        """`run` is the id of a run that was ordered, or begun, by another process; else it gets one here."""
        project, self._settings, self._order, self._watching = order.project, order.loaded.settings, order, watching
        self.run, self.parent = run or new_run_id(time.time(), os.urandom(3)), parent
        self.present = Present(self._settings.shutdown_grace_s)
        hear(self.present)
        if parent and order.stories:
            raise Refused(f"run {parent} is at work here, and stories have one loop at a time; {WORKTREE}")
        keeper.wake_fd = self.present.wake_fd
        keeper.hide(project.secrets)
        self._lock = DirectoryLock(project.state_dir, project.root, self.run, parent)
        self._lock.take()
        keeper.holding = self._lock.folder.descriptors
        # What is let go at the end, the last one first.
        self._held: list[Callable[[], None]] = [self.present.close, self._lock.release]
        self._closing: list[Notify | Otel] = []
        self._seen = Seen()
        self._lock_remarks = [self._lock.folder.remark]  # what could not be had
        self._earlier: tuple[Record, ...] = ()  # what is on record of a run that is taken up
        self.broken = ""  # why the loop failed by itself before any agent was asked
        try:
            self._open(keeper)
        except BaseException:
            self._let_go()
            raise

    def _open(self, keeper: Keeper) -> None:
        project = self._order.project
        self._ledger = self._record()
        self._held.append(self._ledger.close)
        wish = self._order.wish
        self._folder = RunFolder(
            project.root, self.run, project.store, project.mask, wish.task_folder or None, latest=not self.parent
        )
        self._hold_task_folder(keeper)
        private = self._private()
        private_folder(private)
        signs = files_in(os.path.realpath(wish.task_folder)) if wish.task_folder else ()
        self._workspace = build.workspace_of(project.root, private, os.environ, signs)
        self._held.append(self._workspace.close)
        if self._order.brought.agent is not None:
            self._give_access(self._order.brought.agent)
        self._direct = Direct(self._keepers(keeper))
        read_only = self._fixed() | ({self._prompt_file: "the prompt"} if self._prompt_file else {})
        self._sandbox = sandbox_of(self._order, self._direct, self._folder, read_only, self.parent)
        keeper.stand_in = self._stand_in
        self._purse = SpendBook.open(project.state_dir)
        self._held.append(self._purse.close)

    def _hold_task_folder(self, keeper: Keeper) -> None:
        """Have a task folder that the user chose for this run alone."""
        if not self._order.wish.task_folder:
            return
        project, folder = self._order.project, os.path.realpath(self._folder.task_folder)
        if folder == project.root:
            return  # that is held already
        lock = task_folder_lock(project.state_dir, folder, self.run)
        lock.take()
        self._held.append(lock.release)
        self._lock_remarks.append(lock.remark)
        keeper.holding = lambda: (*self._lock.folder.descriptors(), *lock.descriptors())

    def _give_access(self, agent: Agent) -> None:
        """Let an agent that is a function know its run: no signal reaches it, and no variable is set for it."""
        from ralphproof.agents.callable import FunctionAgent, RunAccess

        if isinstance(agent, FunctionAgent):
            agent.attend(RunAccess(self.present.wish, self.present.ring, self._order.project.mask, self._post))

    def _post(self, kind: str, text: str, iteration: int) -> None:
        """Put a message of the agent's on the bus of its task."""
        from ralphproof.ledgers.bus import task_bus
        from ralphproof.message import type_of, unknown_type

        if not (known := type_of(kind)):
            raise Refused(unknown_type(kind))
        wish, folder = self._order.wish, self._folder.task_folder
        bus = task_bus(folder, self._order.project.mask)
        bus.post(known, text, run=self.run, iteration=iteration, project=wish.project, task=wish.task)

    def _keepers(self, keeper: Keeper) -> Pool:
        """The keeper, and others beside it where commands run at the same time."""
        pool = Pool(keeper)
        self._held.append(pool.close)
        return pool

    def _private(self) -> str:
        """The folder for the trees; a run beside its parent has one of its own, also when it goes on alone."""
        if not self.parent:
            return trees_folder(self._order.project, self._lock.path)
        noted = self._folder.noted(TREES)
        if not isinstance(noted, str):
            noted = self._lock.path
            self._folder.note(TREES, noted)
        return trees_folder(self._order.project, noted)

    def _stand_in(self, command: Command) -> tuple[tuple[str, ...], Mapping[str, str]] | None:
        """What looks on at an agent or a judge if we die: it knows what may be spent. Others cost nothing."""
        name = command.mark.rpartition("/")[2]
        judge = self._order.course.judge_in(name) if self._order.course else ""
        if not judge and (not name.startswith("agent_") or self._order.brought.agent is not None):
            return None
        watched = (self._order.project.root, self.run, name, *([judge] if judge else []))
        return interpreter.module("ralphproof.cli.stand_in", *watched), os.environ

    def _record(self) -> Sqlite | Memory:
        return self._order.project.ledger(read_only=False)

    def _let_go(self) -> None:
        """Close everything, whatever fails in between."""
        if self._held:
            try:
                self._held.pop()()
            finally:
                self._let_go()

    def _world(self, scm: Scm | None) -> World:
        order, root, checks = self._order, self._order.project.root, self._order.brought.checks
        own = {check.name: check for check in checks}
        signs = Signs(self.run, self._folder.task_folder, root, order.project.mask)
        family, book = self._family(), self._book()
        asked = (family.remarks,) if isinstance(family, Kin) else ()
        return World(
            book or order.plan, order.agents, self._sandbox, self._workspace,
            checks_of(order, self._folder, self._sandbox, self._workspace, self._room()) | own, self._ledger,
            self._folder, self.present, self._purse, self._environment(), scm,
            (self._seen, *self._onlookers(), *self._recorders(signs)),
            marker=signs if book is None else lambda iteration: book.claim(iteration) or signs(iteration),
            refuse=signs.refuse, notebook=book or Blank(), family=family, started=self._started, wires=self._wires(),
            kitty=order.brought.kitty,
            pins=pins_of(order, self._folder, self._workspace, self._ledger),
            saved=savings_of(self._settings, order.crew),
            lookouts=(build.SettingsLookout(order.loaded.files), signs.remarks, *asked), together=ask_together,
            origin=self._origin(), hooks=(*(commands() if book else ()), *self._guard()),
            may_run=order.stories.may_run if order.stories else (), hook_runner=self._hook_runner(),
            prompt_file=self._prompt_file,
        )  # fmt: skip

    def _onlookers(self) -> tuple[Observer, ...]:
        """Those whom the caller brings; of a run that is taken up they know what was before."""
        found = self._watching(self._folder, self._settings)
        for one in found if self._earlier else ():
            if catch_up := getattr(one, "catch_up", None):
                catch_up(self._earlier, time.time())
        return found

    def _book(self) -> StoryBook | None:
        """The stories, where the run goes by them."""
        if self._order.stories is None:
            return None
        from ralphproof.cli.stories import book_of

        book = book_of(self._order, self._folder, lambda: build.dirty_before(self._workspace, self.run))
        self._held.append(book.close)  # however the run is left, nobody is inside a turn then
        return book

    def _room(self) -> CleanRoom | None:
        """Where clean checkouts are laid, where the run wants any. What a dead run left of one is removed."""
        project, wanted = self._order.project, self._settings.verify_in == CLEAN
        if not wanted and not os.path.isdir(os.path.join(project.store, CLEAN)):
            return None
        from ralphproof.cli.clean_room import CleanRoom, clear_stale

        clear_stale(project.store, project.root, self.run)
        if not wanted:
            return None
        held = (self._sandbox, self._direct, self._ledger.records, self.parent)
        room = CleanRoom(self._order, self._folder, self._workspace, *held)
        self._held.append(room.close)
        return room

    def _guard(self) -> tuple[tuple[str, str], ...]:
        """What agents call before every tool, where nothing else holds them."""
        if self._order.wish.guarded:
            return ()
        from ralphproof.cli.hook import guard_commands

        own, root = self._settings.guard, self._order.project.root
        fixed = [os.path.relpath(file, root) for file in self._fixed()]
        protected: list[Json] = [*self._settings.protected_paths, *fixed]
        rules: dict[str, Json] = {
            "root": root, "allow": list(own.allow), "deny": list(own.deny), "protected": protected,
            "taskFolder": os.path.realpath(self._folder.task_folder) if self._order.wish.task_folder else "",
        }  # fmt: skip
        self._folder.note(GUARD, rules)
        return guard_commands(self._folder.base(GUARD) + NOTE)

    def _hook_runner(self) -> HookRunner:
        """Runs the user's own commands around the run, where there are any."""
        if not self._settings.on.by_name:
            return NoHooks()
        from ralphproof.checks.run_hooks import CommandHooks

        order, grace_s = self._order, self._settings.shutdown_grace_s
        return CommandHooks(self._sandbox, self._folder, order.project.root, order.check_env, grace_s)

    def _origin(self) -> Snapshot | None:
        """The tree that a task's work began on, where an earlier run was at it and left it undone."""
        if not self._order.wish.work or isinstance(self._ledger, Memory):
            return None
        from ralphproof.cli.task_origin import first_run

        first = first_run(self._ledger, self._order.wish.work, self.run)
        return self._workspace.saved(first, "0") if first else None

    def _environment(self) -> tuple[tuple[str, str], ...]:
        """What agents are started with; those of a run inside another one belong to theirs."""
        wish = self._order.wish
        named = {"TASK_FOLDER": self._folder.task_folder, "RALPH_PROJECT": wish.project, "RALPH_TASK": wish.task}
        named |= {OWN: "1", BOXED: "" if isinstance(self._sandbox, Direct) else self._sandbox.name}
        own = {name: text for name, text in named.items() if text}
        return tuple((dict(self._order.env) | own).items())

    def _started(self, name: str) -> bool:
        """Whether a command was started, or somebody is about to. Functions leave no trace, and count as started."""
        if self._order.brought.agent is not None:
            return True
        from ralphproof.keeper import journal

        file = self._folder.turn_file(name)
        return journal.held(file) or (os.path.exists(file) and os.path.getsize(file) > 0)

    def _family(self) -> Family:
        if isinstance(self._ledger, Memory):
            return Childless()
        return Kin(self._folder, self._order.project, self._ledger, self._purse, dict(self._order.env))

    def _wires(self) -> Tripwires:
        return build.tripwires_of(self._settings.protected_paths, self._workspace, self._folder, self._fixed())

    def _fixed(self) -> dict[str, str]:
        """Files of this run that nobody may change, and what each is."""
        return self._order.stories.fixed if self._order.stories else {}

    @property
    def _prompt_file(self) -> str:
        """The file that the prompt is read from, from the project's root; empty where there is none in the project."""
        order = self._order
        file = order.prompt_file or (f"{order.stories.folder}/prompt.md" if order.stories else "")
        if not file:
            return ""
        folder, name = os.path.split(os.path.join(order.project.root, file))
        path = os.path.relpath(os.path.join(os.path.realpath(folder), name), os.path.realpath(order.project.root))
        return "" if path.split("/")[0] == ".." else path

    def _scm(self) -> Scm | None:
        """Where passed work is kept. What a commit runs of the project's own runs where its checks do."""
        return build.scm_of(self._settings, self._order.project.root, self._direct, self._folder, self._sandbox)

    def _recorders(self, signs: Signs) -> tuple[Observer, ...]:
        """Those who write down or pass on how the run goes, whoever looks at it."""
        wish = self._order.wish
        made: list[Observer] = [*self._order.brought.observers]
        made.append(BusPoster(signs.task_bus, signs.project_bus, self.run, wish.project, wish.task, self._earlier))
        made.append(proof_writer(self._order.project, self.run, self._ledger, self._workspace, self._folder))
        if self._settings.metrics:
            from ralphproof.ledgers.metrics import MetricsFolder
            from ralphproof.observers.metrics import MetricsLog

            files = MetricsFolder(self._order.project.root, self._order.project.mask)
            limit = self._settings.cost_limit_micro_usd
            made.append(MetricsLog(files, self._ledger.figures, limit))
        if self._settings.notify:
            from ralphproof.observers.notify import Notify

            project = self._order.project
            name = os.path.basename(project.root)
            self._closing.append(Notify(self._settings.notify, self.run, name, project.mask, os.environ, project.root))
        if self._settings.otel:
            from ralphproof.observers.otel import Otel
            from ralphproof.observers.otel_send import Sender

            sender = Sender(self._settings.otel, self._order.project.mask, os.environ)
            self._closing.append(Otel(sender, self.run, self._ledger.stamped(self.run) if self._earlier else ()))
        return (*made, *self._closing)

    def _facts(self) -> dict[str, Json]:
        return facts_of(self._order, self._sandbox, self._workspace.kind, self._folder.task_folder, self.parent)
