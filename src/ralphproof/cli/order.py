"""From a wish to an order: what somebody asks for, by flags or from Python, checked until a run of it may begin."""

from __future__ import annotations

import os

from ralphproof.cli.course import Course, course_of, plan_for
from ralphproof.cli.remarks import (
    NO_MESSAGE,
    about_agents,
    about_git,
    about_own_place,
    about_sandbox,
    refuse_unknown_cost,
)
from ralphproof.cli.wanted_settings import settings_for_run
from ralphproof.config import build
from ralphproof.config.agents import agents_of, brought_agent, plain_agent
from ralphproof.config.brought import Brought
from ralphproof.config.load import FLAGS, Loaded
from ralphproof.config.presets import read_preset
from ralphproof.config.stage_final import CLEAN
from ralphproof.errors import Refused, TaskWrong
from ralphproof.plan import PlanSource
from ralphproof.secret import secrets_in
from ralphproof.value import TYPE_CHECKING, replace, value
from ralphproof.views.project import Project

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.action import Rules
    from ralphproof.agent import Agent
    from ralphproof.check import Check
    from ralphproof.config.agents import Chosen
    from ralphproof.config.settings import Settings
    from ralphproof.fitness import Fitness
    from ralphproof.plans.story_tasks import Manner
    from ralphproof.skill import Skill


DEBUGGING = "systematic-debugging"  # the skill that the prompt after a stall tells


@value
class Wish:
    """What somebody asks for. `flags` are settings that beat all files; `checks` may hold the word `auto`.

    `type` and `risk` are what the user says of the task; empty: they are guessed where it matters. `flags_from` is
    how messages name the place that the flags come from. `plain` is an argument list that is the agent, as it stands,
    and needs no prompt. `project` and `task` are names for others who read the bus. `work` is the task of the ledger
    that is to be worked on, without the stages that are to be skipped. `judge` has criteria for a model to judge.
    `stories` is the folder of the stories, from the project's root (empty: `ralph`), and `verify` their commands as
    they were when the run began; None: it begins now. One that is not `guarded` has no sandbox either; `hosts` may be
    reached from one. `may_change` is what decides over the checks and the work may change all the same. One that is
    `apart` has a work tree for itself, which is prepared first. `words` are told to the agent with its first prompt.
    With `step` it stops after one iteration; that is no part of what is kept of a wish.
    With `find_checks` it takes those that the project's files name, where nobody named any; with `allow_missing_check`
    one that cannot be run is the agent's to bring.
    """

    prompt: tuple[str | None, str | None]  # a text, or the path of a file
    flags: dict[str, Any]
    folder: str | None = None
    checks: tuple[str, ...] = ()
    protect: tuple[str, ...] = ()
    guarded: bool = True
    allow_unknown_cost: bool = False
    verbose: bool = False
    skill: str = ""
    type: str = ""
    risk: str = ""
    force: bool = False
    explain: bool = False
    brought: Brought = Brought()
    flags_from: str = FLAGS
    plain: tuple[str, ...] = ()
    task_folder: str = ""
    project: str = ""
    task: str = ""
    work: str = ""
    skip: tuple[str, ...] = ()
    judge: tuple[str, ...] = ()
    stories: str = ""
    verify: tuple[str, ...] | None = None
    hosts: tuple[str, ...] = ()
    may_change: tuple[str, ...] = ()
    apart: bool = False
    words: str = ""
    step: bool = False
    find_checks: bool = False
    allow_missing_check: bool = False

    def boxed_by(self, settings: Settings) -> str | None:
        """The kind of sandbox that the run is to have; None for none."""
        return settings.sandbox.backend if self.guarded else None


NO_WISH = Wish(("", None), {})


@value
class Order:
    """A run that may begin: everything is known, nothing has been touched. `crew` has the usual agent first.

    `asked` is the wish as it came; `wish` has what was found for it.
    """

    project: Project
    loaded: Loaded
    plan: PlanSource
    crew: tuple[Chosen, ...]
    env: tuple[tuple[str, str], ...]  # of the agents; the checks have their own
    check_env: tuple[tuple[str, str], ...]
    remarks: tuple[str, ...]
    fitness: Fitness | None = None
    skill: Skill | None = None
    brought: Brought = Brought()
    prompt_file: str | None = None
    debugging: Skill | None = None
    allow_unknown_cost: bool = False
    wish: Wish = NO_WISH
    course: Course | None = None
    stories: Manner | None = None
    asked: Wish = NO_WISH

    @property
    def agents(self) -> tuple[Agent, ...]:
        """The run's own, then those of its stages."""
        return tuple(one.agent for one in (*self.crew, *(self.course.crew if self.course else ())))

    @property
    def rules(self) -> Rules:
        settings = self.loaded.settings
        pipeline = self.course.pipeline if self.course else None
        rules = build.rules_of(settings, self.skill, self.brought, self.debugging, self.allow_unknown_cost, pipeline)
        stepping = 0 if self.wish.step else None
        return replace(
            rules,
            scm=rules.scm and not self.wish.plain,
            step_after=stepping,
            allow_missing_check=self.wish.allow_missing_check,
        )


def prepare(wish: Wish) -> Order:
    """Read and check everything that a run needs; raises Refused with what is wrong."""
    _refuse_unknown_words(wish)
    asked = wish
    project = Project.at(wish.folder, os.environ)
    remarks: list[str] = []
    skill = _skill(wish.skill, project.root)
    wanted = settings_for_run(wish, skill, project.root, remarks)
    wish, loaded = wanted.wish, wanted.loaded
    plan, manner, loaded = _plan(wish, project, loaded, remarks)
    settings = loaded.settings
    fit = None if manner else _fitness(wish, plan.read().tasks[0].prompt, settings, skill)
    if wish.explain:
        return Order(project, loaded, plan, (), (), (), (), fit, skill)
    _refuse_risk(wish, fit, remarks)
    crew, brought = _crew(wish, settings, project.root), _told_apart(wish.brought, settings)
    course = course_of(replace(wish, brought=brought), plan, loaded, skill, project.root, len(crew))
    remarks += course.remarks
    if settings.require_proof and not (course.machine or wish.brought.checks):
        kind = TaskWrong if wish.work else Refused
        raise kind("requireProof is set and no check is configured; add one with --check")
    if settings.require_proof and wish.allow_missing_check:
        raise Refused(
            "requireProof is set, and a check that the agent brings proves nothing; omit --allow-missing-check"
        )
    if wanted.hint and not (course.machine or course.judges):
        remarks.append(wanted.hint)
    _refuse_last_things(wish, settings, course, project.root)
    everybody = (*crew, *course.crew, *course.judges.values())
    refuse_unknown_cost(settings, everybody, wish.allow_unknown_cost)
    remarks += (*about_agents(settings, everybody, wish.allow_unknown_cost), *about_git(project.root, settings))
    _refuse_hosts(wish, settings)
    remarks += about_own_place(project.root) if wish.boxed_by(settings) is not None else []
    if manner and wish.guarded and settings.sandbox.backend is None:
        remarks += about_sandbox(everybody, loaded.origins.get("sandbox.backend", ""))
    remarks += [NO_MESSAGE] if wish.plain and settings.scm is not None else []
    env, check_env = build.agent_environment(os.environ, settings), build.check_environment(os.environ)
    own = {name: text for name, text in settings.agent.env if text is not None}
    project = replace(project, secrets=(*project.secrets, *secrets_in(own), *_addresses(settings)))
    debugging = _skill(DEBUGGING if settings.limits.escalate_to_deep_debug else "", project.root)
    return Order(
        project, loaded, plan, crew, env, check_env, (*loaded.warnings, *remarks), fit, skill,
        brought, wish.prompt[1], debugging, wish.allow_unknown_cost, wish, course, manner, asked,
    )  # fmt: skip


def _plan(wish: Wish, project: Project, loaded: Loaded, remarks: list[str]) -> tuple[PlanSource, Manner | None, Loaded]:
    """What is to be done; where that is by stories, how they are gone through, and the settings with their checks."""
    if not read_preset(loaded.settings.preset).get("stories") or wish.work:
        if wish.stories or ("review" in wish.flags and wish.flags_from == FLAGS):
            raise Refused("--skip-review, --review-cap and --ralph-dir are for runs by stories: --preset stories")
        return plan_for(wish, project, remarks), None, loaded
    from ralphproof.cli.stories import begun, manner_of, settings_for

    manner = manner_of(wish, project, loaded.settings)
    plan, manner = begun(wish, project.root, manner, loaded.settings, remarks)
    return plan, manner, settings_for(loaded, manner.verify, project.root)


def _refuse_last_things(wish: Wish, settings: Settings, course: Course, root: str) -> None:
    """Settings that ask for what cannot be had here."""
    if settings.must_fail_first and not any(leaf.required and not leaf.late for leaf in course.leaves.values()):
        raise Refused("mustFailFirst is set and there is no check that could fail first; add one with --check")
    if settings.verify_in == CLEAN and not os.path.lexists(os.path.join(root, ".git")):
        raise Refused("verifyIn is clean, and that needs a git repository at the project's top; run git init")
    if settings.setup and settings.verify_in != CLEAN and not wish.apart:
        raise Refused('setup prepares clean checkouts and worktrees, and there are none; set "verifyIn": "clean"')
    if settings.otel:
        from ralphproof.observers.otel_address import MISSING, installed

        if not installed():
            raise Refused(MISSING)


def _refuse_unknown_words(wish: Wish) -> None:
    """The command line knows its own words; from Python anything may come."""
    if not (wish.risk or wish.type):
        return
    from ralphproof.fitness import RISKS, TYPES

    for what, said, known in (("risk", wish.risk, RISKS), ("type", wish.type, TYPES)):
        if said and said not in known:
            raise Refused(f"the {what} of a task is one of {', '.join(known)}, not {said!r}")


def _told_apart(brought: Brought, settings: Settings) -> Brought:
    """Every check with a name of its own, so that none stands in for another: functions get a number.

    Other checks keep the names that they know themselves by, and are refused where one is taken.
    """
    if not brought.checks:
        return brought
    from ralphproof.checks.callable import CallableCheck

    taken = {guardrail.name for guardrail in settings.guardrails}
    for check in brought.checks:
        if not isinstance(check, CallableCheck):
            if check.name in taken:
                raise Refused(f"two checks are called {check.name!r}; give one of them another name")
            taken.add(check.name)
    made: list[Check] = []
    for check in brought.checks:
        made.append(check.renamed(_free(check.name, taken)) if isinstance(check, CallableCheck) else check)
        taken.add(made[-1].name)
    return replace(brought, checks=tuple(made))


def _free(name: str, taken: set[str]) -> str:
    """The name, with a number where it is taken."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name} ({number})"
    return free


def _addresses(settings: Settings) -> tuple[str, ...]:
    """Addresses that are told of the run: most hold a token."""
    found: tuple[str, ...] = ()
    if settings.notify:
        from ralphproof.observers.target import scheme_of

        found = tuple(target for target in settings.notify if scheme_of(target))
    if settings.otel:
        from ralphproof.observers.otel_address import secrets_of

        found += secrets_of(settings.otel, os.environ)
    return found


def _skill(name: str, root: str) -> Skill | None:
    if not name:
        return None
    from ralphproof.config.skills import skill_named

    return skill_named(root, name)


def _crew(wish: Wish, settings: Settings, root: str) -> tuple[Chosen, ...]:
    if wish.brought.agent is not None:
        return (brought_agent(wish.brought.agent),)
    if wish.plain:
        return (plain_agent(wish.plain, root, os.environ),)
    return agents_of(settings, root, os.environ, wish.guarded, wish.boxed_by(settings) is not None)


def _refuse_hosts(wish: Wish, settings: Settings) -> None:
    if wish.hosts and wish.boxed_by(settings) is None:
        raise Refused("--allow-host says what may be reached from a sandbox, and there is none; add --sandbox")


def _fitness(wish: Wish, prompt: str, settings: Settings, skill: Skill | None) -> Fitness | None:
    """Whether this is work for a loop, where somebody asks; to guess it takes its time."""
    if not (wish.skill or wish.risk or wish.type or wish.explain):
        return None
    from ralphproof.fitness import Intent, fitness

    checks = (*(guardrail.shown for guardrail in settings.guardrails), *(check.name for check in wish.brought.checks))
    return fitness(Intent(prompt, wish.type, wish.risk, checks, settings.protected_paths), skill)


def _refuse_risk(wish: Wish, fit: Fitness | None, remarks: list[str]) -> None:
    """Work that needs a person's eyes is not begun without a person's word."""
    if fit is None or not fit.risky:
        return
    why = next(condition.reason for condition in fit.conditions if condition.name == "risk")
    if not wish.force:
        raise Refused(f"this is no work for a loop: {why}; --explain says more, --force runs it all the same")
    remarks.append(f"run all the same, as --force says: {why}")
