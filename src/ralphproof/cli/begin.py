"""The beginning of a run: the directory's lock, what an earlier run left, and then the loop."""

from __future__ import annotations

import os
import time

from ralphproof import __version__
from ralphproof.agents.versions import version_of
from ralphproof.cli.order import Order
from ralphproof.cli.signals import Present
from ralphproof.config import build
from ralphproof.config.savings import savings_of
from ralphproof.errors import HarnessFailed, RalphError
from ralphproof.keeper.client import Keeper
from ralphproof.ledgers.files import private_folder
from ralphproof.ledgers.folder import RunFolder, new_run_id
from ralphproof.ledgers.lock import DirectoryLock
from ralphproof.ledgers.process import this_process
from ralphproof.ledgers.spend import SpendBook
from ralphproof.ledgers.sqlite import Sqlite
from ralphproof.limit import INTERRUPTED
from ralphproof.loop import Loop
from ralphproof.record import RunEnded, TurnBegan
from ralphproof.sandbox import KILL
from ralphproof.sandboxes.direct import Direct
from ralphproof.value import TYPE_CHECKING
from ralphproof.verdict import Failed, Outcome
from ralphproof.world import World

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from ralphproof.action import Rules
    from ralphproof.config.agents import Chosen
    from ralphproof.config.settings import Settings
    from ralphproof.event import Event
    from ralphproof.ledger import Observer
    from ralphproof.ledgers.memory import Memory
    from ralphproof.observers.notify import Notify
    from ralphproof.record import Record
    from ralphproof.value import Json
    from ralphproof.workspace import Scm, Tripwires

    Watching = Callable[[RunFolder, Settings], tuple[Observer, ...]]


PATIENCE_S, HURRY_S = 10.0, 2.0  # for notifications at the end; somebody who pressed Ctrl-C is in a hurry


class Seen:
    """Sees whether a turn has begun: its record is durable before the agent is asked, and is shown only then."""

    turn = False

    def saw(self, record: Record) -> None:
        self.turn = self.turn or isinstance(record, TurnBegan)

    def heard(self, events: list[Event]) -> None:
        """Too late to matter."""

    def tick(self) -> None:
        """Time tells nothing."""


class Begun:
    """A run that holds its directory. However it is left, lock and helper processes are let go."""

    recorded = True  # other verbs can tell of it

    def __init__(self, order: Order, keeper: Keeper, watching: Watching, signals: bool = True) -> None:
        project, self._settings, self._order, self._watching = order.project, order.loaded.settings, order, watching
        self.run = new_run_id(time.time(), os.urandom(3))
        self.present = Present(self._settings.shutdown_grace_s)
        if signals:
            self.present.listen()
        keeper.wake_fd = self.present.wake_fd
        keeper.hide(project.secrets)
        self._lock = DirectoryLock(project.state_dir, project.root, self.run)
        self._lock.take()
        self._held: list[Callable[[], None]] = [self._lock.release]  # what is let go at the end, the last one first
        self._closing: list[Notify] = []
        self._seen = Seen()
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
        self._folder = RunFolder(project.root, self.run, project.store, project.mask)
        private = os.path.join(project.store, "trees", os.path.basename(self._lock.path).removesuffix(".lock"))
        private_folder(private)
        self._workspace = build.workspace_of(project.root, private, os.environ)
        self._held.append(self._workspace.close)
        self._sandbox = Direct(keeper)
        self._purse = SpendBook.open(project.state_dir)
        self._held.append(self._purse.close)

    def _record(self) -> Sqlite | Memory:
        return self._order.project.ledger(read_only=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for told in self._closing:
                self._close(told, HURRY_S)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Close everything, whatever fails in between."""
        if self._held:
            try:
                self._held.pop()()
            finally:
                self._let_go()

    def go(self) -> Outcome:
        """Run the loop to its end."""
        root = self._order.project.root
        told = self._left_behind()
        scm = build.scm_of(self._settings, root, self._sandbox, self._folder)
        self._folder.begin()
        world = self._world(scm)
        self._ledger.begin_run(self.run, root, time.time(), this_process())  # from here on a refusal too is on record
        self.present.follow(self._ledger, self.run)
        loop = Loop(self.run, self._rules(), world, self._facts())
        unclosed = "" if told else self._lock.reclaimed  # else it is told already
        for remark in (*self._order.remarks, *told, *filter(None, (unclosed, self._ledger.repaired, self._expected()))):
            loop.notice(remark)
        outcome = loop.run()
        if isinstance(outcome, Failed) and outcome.exit_code == HarnessFailed.exit_code and not self.asked:
            self.broken = outcome.error
        return outcome

    @property
    def asked(self) -> bool:
        """Whether an agent was asked, or is about to be."""
        return self._seen.turn

    def _rules(self) -> Rules:
        return self._order.rules

    def _left_behind(self) -> list[str]:
        """Close what dead runs left in this directory; what there is to say of it."""
        from ralphproof.cli.leftover import close_dead_runs

        return close_dead_runs(self._ledger, self._order.project, self.run) if isinstance(self._ledger, Sqlite) else []

    def tell(self, outcome: Outcome) -> tuple[str, ...]:
        """Wait until those who are notified know the end, not for long; what could not be delivered."""
        closing, self._closing = self._closing, []
        for told in closing:
            told.saw(RunEnded(outcome))  # where the record could not be written, nobody saw it
            self._close(told, HURRY_S if outcome.exit_code == 130 else PATIENCE_S)
        return tuple(failure for told in closing for failure in told.failures)

    def _close(self, told: Notify, grace_s: float) -> None:
        """Somebody may press Ctrl-C meanwhile. Who pressed it twice before wanted the agent's end, not the silence."""
        told.close(grace_s, self._patience_s if self._patience_s() else lambda: HURRY_S)

    def _patience_s(self) -> float:
        """How much longer notifications are waited for: Ctrl-C leaves them a little, the second one nothing."""
        try:
            pressed = self.present.wish() == INTERRUPTED
            return 0.0 if self.present.urgency() == KILL else HURRY_S if pressed else PATIENCE_S
        except RalphError:
            return PATIENCE_S  # the ledger is broken, and is not asked again at once: then signals are seen

    def _world(self, scm: Scm | None) -> World:
        order, root, checks = self._order, self._order.project.root, self._order.brought.checks
        env = (*order.env, ("TASK_FOLDER", self._folder.task_folder))
        own = {check.name: check for check in checks}
        return World(
            order.plan, order.agents, self._sandbox, self._workspace,
            build.checks_of(self._settings, self._sandbox, self._folder, root, order.check_env) | own, self._ledger,
            self._folder, self.present, self._purse, env, scm,
            (self._seen, *self._watching(self._folder, self._settings), *self._recorders()),
            wires=self._wires(), saved=savings_of(self._settings, order.crew),
            lookouts=(build.SettingsLookout(order.loaded.files),),
        )  # fmt: skip

    def _wires(self) -> Tripwires:
        prompt_file = self._order.prompt_file
        return build.tripwires_of(self._settings.protected_paths, self._workspace, self._folder, prompt_file)

    def _recorders(self) -> tuple[Observer, ...]:
        """Those who write down or pass on how the run goes, whoever looks at it."""
        made: list[Observer] = [*self._order.brought.observers]
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
            told = Notify(self._settings.notify, self.run, name, project.mask, os.environ, project.root)
            self._closing.append(told)
            made.append(told)
        return tuple(made)

    def _expected(self) -> str:
        """What the past of this repository says that such a run takes."""
        from ralphproof.expectation import expected, sentence

        skill = self._order.skill.name if self._order.skill else ""
        expectation = expected(self._ledger.past(), skill)
        return sentence(expectation) if expectation else ""

    def _facts(self) -> dict[str, Json]:
        order, settings = self._order, self._settings
        usual, places = order.crew[0], len(order.crew) - len(settings.agent.fallbacks)
        fallbacks = [_told(one) for one in order.crew[places:]]
        return {
            "version": __version__,
            "preset": settings.preset,
            **_told(usual),
            "model": usual.model or "",
            "ladder": list(settings.agent.ladder),
            "rotate": list(settings.agent.rotate),
            "fallbacks": [*fallbacks],
            "checks": [
                *(guardrail.command for guardrail in settings.guardrails),
                *(own.name for own in order.brought.checks),
            ],
            "skill": order.skill.name if order.skill else "",
            "taskType": order.fitness.type if order.fitness else "",
            "sandbox": {"name": self._sandbox.name, "strength": self._sandbox.strength},
            "workspace": self._workspace.kind,
            "maximumIterations": settings.maximum_iterations,
            "maxCostUsd": settings.cost_limit_micro_usd / 1_000_000,
            "protectedPaths": list(settings.protected_paths),
            "promptFile": order.prompt_file,
            "settingsDigest": order.loaded.digest,
            "directory": order.project.root,
        }


def _told(one: Chosen) -> dict[str, Json]:
    """What the record says of an agent."""
    return {
        "agent": one.agent.name,
        "agentVersion": version_of(one.program) if one.program else None,
        "permissions": one.permissions,
    }
