"""The beginning of a run: settings into parts, the directory's lock, what an earlier run left, and then the loop."""

from __future__ import annotations

import os
import sys
import time

from ralphproof import __version__
from ralphproof.agents.dialect import COMPUTED, UNKNOWN
from ralphproof.agents.versions import version_of
from ralphproof.cli.out import let_go
from ralphproof.cli.project import Project
from ralphproof.cli.signals import Present
from ralphproof.config import build
from ralphproof.config.agents import UNGUARDED, agents_of, find_agent
from ralphproof.config.load import Loaded, load, present
from ralphproof.display import words
from ralphproof.errors import Refused
from ralphproof.keeper.client import Keeper
from ralphproof.ledgers.files import private_folder
from ralphproof.ledgers.folder import RunFolder, new_run_id
from ralphproof.ledgers.lock import DirectoryLock
from ralphproof.ledgers.process import this_process
from ralphproof.loop import Loop
from ralphproof.plan import PlanSource
from ralphproof.plans.inline import Inline
from ralphproof.sandboxes.direct import Direct
from ralphproof.secret import secrets_in
from ralphproof.value import TYPE_CHECKING, replace, value
from ralphproof.verdict import Outcome
from ralphproof.workspaces.identity import repository_around
from ralphproof.world import World

if TYPE_CHECKING:
    from argparse import Namespace
    from typing import Any, Self

    from ralphproof.agent import Agent
    from ralphproof.config.agents import Chosen
    from ralphproof.config.settings import Settings
    from ralphproof.ledger import Observer
    from ralphproof.value import Json
    from ralphproof.workspace import Scm


@value
class Order:
    """A run that may begin: everything is known, nothing has been touched. `crew` has the usual agent first."""

    project: Project
    loaded: Loaded
    plan: PlanSource
    crew: tuple[Chosen, ...]
    env: tuple[tuple[str, str], ...]  # of the agents; the checks have their own
    check_env: tuple[tuple[str, str], ...]
    remarks: tuple[str, ...]

    @property
    def agents(self) -> tuple[Agent, ...]:
        return tuple(one.agent for one in self.crew)


def prepare(args: Namespace, flags: dict[str, Any], prompt: tuple[str | None, str | None]) -> Order:
    """Read and check everything that a run needs; raises Refused with what is wrong."""
    project = Project.at(args.project_dir, os.environ)
    plan = Inline(*prompt)
    plan.read()
    remarks: list[str] = []
    if args.check and "auto" in args.check:
        flags |= {"guardrails": _found_checks(project.root, args.check, remarks)}
    loaded = _loaded(args, project.root, flags, remarks)
    settings = loaded.settings
    crew = agents_of(settings, project.root, os.environ, guarded=not args.no_sandbox)
    _refuse_impossible(settings, crew, args)
    remarks += (*_about_agents(settings, crew, args), *_about_git(project.root, settings))
    env, check_env = build.agent_environment(os.environ, settings), build.check_environment(os.environ)
    own = {name: text for name, text in settings.agent.env if text is not None}
    project = replace(project, secrets=(*project.secrets, *secrets_in(own)))
    return Order(project, loaded, plan, crew, env, check_env, (*loaded.warnings, *remarks))


def _loaded(args: Namespace, root: str, flags: dict[str, Any], remarks: list[str]) -> Loaded:
    """The settings; an agent that nobody named is looked for on PATH."""
    if args.verbose:
        _say_verbosely(*(f"Loading settings from {name}" for name in present(root, os.environ)))
    loaded = load(root, os.environ, flags)
    if loaded.settings.agent.command is None and (found := find_agent(os.environ, root)):
        remarks.append(f"agent found on PATH: {found}")
        loaded = load(root, os.environ, flags | {"agent": {**flags.get("agent", {}), "command": found}})
    if args.verbose:
        _say_verbosely(f"Settings: {_in_one_line(loaded.raw)}")
    return loaded


def _say_verbosely(*lines: str) -> None:
    from ralphproof.display.verbose import say

    for line in lines:
        say(sys.stderr, line)


def _in_one_line(raw: dict[str, Any]) -> str:
    import json

    from ralphproof.cli.config import hidden

    return json.dumps(hidden(raw), ensure_ascii=False)


def _refuse_impossible(settings: Settings, crew: tuple[Chosen, ...], args: Namespace) -> None:
    """Raise Refused for what is asked for and cannot be held."""
    if settings.require_proof and not settings.guardrails:
        raise Refused("requireProof is set and no check is configured; add one with --check")
    if settings.limits.max_cost_micro_usd is None or args.allow_unknown_cost:
        return
    for one in crew:
        if not one.agent.reports_cost:
            why = UNPRICED if one.cost == COMPUTED else UNREPORTED
            raise Refused(f"agent {one.agent.name} {why}, or say --allow-unknown-cost")


UNREPORTED = "cannot report its cost, so maxCostUsd could not be held; drop the limit, use --max-minutes"
UNPRICED = (
    "reports tokens alone, and the price of its model is not known, so maxCostUsd could not be held; name the model "
    "with --model, or its price in prices of your own settings, or limit --max-tokens instead"
)


def _about_agents(settings: Settings, crew: tuple[Chosen, ...], args: Namespace) -> list[str]:
    """What to say of agents that may do anything, or cost anything."""
    remarks = [
        f"agent {one.agent.name} runs without a guard, as --no-sandbox says: it may do all that you may do"
        for one in crew
        if one.permissions == UNGUARDED
    ]
    remarks += [
        f"agent {one.agent.name}: its own flags decide what it may do ({one.decided})" for one in crew if one.decided
    ]
    if args.allow_unknown_cost:
        return remarks
    cap = f"caps.costUsd ({settings.caps.cost_micro_usd / 1_000_000:g})"
    return remarks + [doubt for one in crew if (doubt := _about_cost(one, cap))]


def _about_cost(one: Chosen, cap: str) -> str:
    """Why its cost may stay unknown, as far as that can be told without the list of prices, which takes its time."""
    if one.cost == UNKNOWN:
        return f"agent {one.agent.name} cannot report its cost, so {cap} cannot be held"
    if one.cost == COMPUTED and one.model is None:
        return (
            f"agent {one.agent.name}: its model is not named, so its cost may stay unknown and {cap} could not be "
            "held; name one with --model"
        )
    return ""


def _about_git(root: str, settings: Settings) -> list[str]:
    """What to say where work cannot be kept in git; raises Refused where the user wants it committed all the same."""
    if build.lacks_git(root, os.environ):
        return ["git was not found on PATH; what changes is seen by comparing files, and history is not watched"]
    around = repository_around(root)
    if around is None:
        return []
    plain = (
        f"{root} is a folder of the repository at {around}: work is saved by comparing files, in the state folder, "
        "and not under refs; .ralph/ at the top of the repository changes that"
    )
    if settings.scm is not None and os.path.basename(settings.scm.command) == "git":
        raise Refused(f"scm git: {plain}")
    return [plain]


def _found_checks(root: str, given: list[str], remarks: list[str]) -> list[dict[str, str]]:
    from ralphproof.config.discover import propose_checks

    proposals = propose_checks(root)
    if not proposals:
        raise Refused("--check auto found no check in this project's files; name one: --check CMD")
    remarks.extend(f"check found: {item.command} ({item.source})" for item in proposals)
    commands = [command for command in given if command != "auto"] + [item.command for item in proposals]
    return [{"command": command} for command in dict.fromkeys(commands)]


class Begun:
    """A run that holds its directory. However it is left, lock and helper processes are let go."""

    def __init__(self, order: Order, keeper: Keeper, args: Namespace) -> None:
        project, self._settings, self._args, self._order = order.project, order.loaded.settings, args, order
        self.run = new_run_id(time.time(), os.urandom(3))
        self.present = Present(self._settings.shutdown_grace_s)
        self.present.listen()
        keeper.wake_fd = self.present.wake_fd
        keeper.hide(project.secrets)
        self._lock = DirectoryLock(project.state_dir, project.root, self.run)
        self._lock.take()
        self._ledger = project.ledger(read_only=False)
        self._folder = RunFolder(project.root, self.run, project.store, project.mask)
        private = os.path.join(project.store, "trees", os.path.basename(self._lock.path).removesuffix(".lock"))
        private_folder(private)
        self._workspace = build.workspace_of(project.root, private, os.environ)
        self._sandbox = Direct(keeper)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._workspace.close()
        self._ledger.close()
        self._lock.release()

    def go(self) -> int:
        """Run the loop, tell how it ended; the exit code."""
        from ralphproof.cli.leftover import close_dead_runs

        root = self._order.project.root
        told = close_dead_runs(self._ledger, self._order.project, self.run)
        scm = build.scm_of(self._settings, root, self._sandbox, self._folder)
        self._folder.begin()
        world = self._world(scm)
        self._ledger.begin_run(self.run, root, time.time(), this_process())  # from here on a refusal too is on record
        self.present.follow(self._ledger, self.run)
        loop = Loop(self.run, build.rules_of(self._settings), world, self._facts())
        unclosed = "" if told else self._lock.reclaimed  # else it is told already
        for remark in (*self._order.remarks, *told, *filter(None, (unclosed, self._ledger.repaired))):
            loop.notice(remark)
        outcome = loop.run()
        try:
            self._say(outcome)
        except OSError:
            pass  # nobody reads it; the record says it too, and the exit code
        let_go()
        return outcome.exit_code

    def _world(self, scm: Scm | None) -> World:
        order, root = self._order, self._order.project.root
        env = (*order.env, ("TASK_FOLDER", self._folder.task_folder))
        return World(
            order.plan, order.agents, self._sandbox, self._workspace,
            build.checks_of(self._settings, self._sandbox, self._folder, root, order.check_env), self._ledger,
            self._folder, self.present, env, scm, self._observers(),
            lookouts=(build.SettingsLookout(order.loaded.files),),
        )  # fmt: skip

    def _facts(self) -> dict[str, Json]:
        order, settings = self._order, self._settings
        usual, *fallbacks = order.crew
        return {
            "version": __version__,
            "preset": settings.preset,
            **_told(usual),
            "fallbacks": [_told(one) for one in fallbacks],
            "checks": [guardrail.command for guardrail in settings.guardrails],
            "sandbox": {"name": self._sandbox.name, "strength": self._sandbox.strength},
            "workspace": self._workspace.kind,
            "maximumIterations": settings.maximum_iterations,
            "settingsDigest": order.loaded.digest,
            "directory": order.project.root,
        }

    def _observers(self) -> tuple[Observer, ...]:
        from ralphproof.cli.view import observers

        return observers(self._folder, self._args, self._settings, self._order.project.mask)

    def _say(self, outcome: Outcome) -> None:
        if self._args.json:
            return
        from ralphproof.display.clean import clean, flat

        if not self._args.quiet:
            print(f"run {self.run} is over; ralph status, logs and diff say more", file=sys.stderr)
        for line in words.outcome(outcome):
            print(flat(clean(self._order.project.mask(line))), flush=True)


def _told(one: Chosen) -> dict[str, Json]:
    """What the record says of an agent."""
    return {"agent": one.agent.name, "agentVersion": version_of(one.program), "permissions": one.permissions}
