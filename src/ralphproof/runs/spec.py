"""RunSpec: a checked request; everything that a run needs is known, nothing has been touched."""

from __future__ import annotations

import os

from ralphproof.agents.environment import agent_environment, check_environment
from ralphproof.agents.selection import select_agents, select_custom_agent, select_program
from ralphproof.base.errors import Refused, TaskWrong
from ralphproof.base.redaction import find_environment_secrets
from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.engine.plan import PlanSource
from ralphproof.runs import assembly
from ralphproof.runs.open_project import open_project
from ralphproof.runs.pipeline import StagePlan, build_stage_plan, open_plan
from ralphproof.runs.preflight import (
    NO_COMMIT_MESSAGE,
    assess_request_fitness,
    refuse_hosts_without_sandbox,
    refuse_risky_task,
    refuse_unavailable_features,
    refuse_unknown_cost,
    refuse_unknown_risk_or_type,
    warn_about_agents,
    warn_about_git,
    warn_about_install_location,
    warn_about_missing_sandbox,
)
from ralphproof.runs.request import EMPTY_REQUEST, CustomComponents
from ralphproof.runs.run_settings import load_run_settings
from ralphproof.settings.loader import COMMAND_LINE, LoadedSettings, read_preset
from ralphproof.store.project import Project

if TYPE_CHECKING:
    from ralphproof.agents.selection import SelectedAgent
    from ralphproof.engine.actions import RunRules
    from ralphproof.engine.agent import Agent
    from ralphproof.engine.check import Check
    from ralphproof.runs.fitness import Fitness
    from ralphproof.runs.request import RunRequest
    from ralphproof.settings.model import Settings
    from ralphproof.settings.skills import Skill
    from ralphproof.stories.workflow import StoryWorkflow


# From a wish to an order: what somebody asks for, by flags or from Python, checked until a run of it may begin.


DEBUGGING_SKILL = "systematic-debugging"  # the skill that the prompt after a stall tells


@value
class RunSpec:
    """A run that may begin: everything is known, nothing has been touched. `crew` has the usual agent first.

    `asked` is the wish as it came; `wish` has what was found for it.
    """

    project: Project
    loaded: LoadedSettings
    plan: PlanSource
    selected_agents: tuple[SelectedAgent, ...]
    agent_env: tuple[tuple[str, str], ...]  # of the agents; the checks have their own
    check_env: tuple[tuple[str, str], ...]
    remarks: tuple[str, ...]
    fitness: Fitness | None = None
    skill: Skill | None = None
    custom: CustomComponents = CustomComponents()
    prompt_file: str | None = None
    debugging_skill: Skill | None = None
    allow_unknown_cost: bool = False
    request: RunRequest = EMPTY_REQUEST
    stage_plan: StagePlan | None = None
    story_workflow: StoryWorkflow | None = None
    original_request: RunRequest = EMPTY_REQUEST

    @property
    def agents(self) -> tuple[Agent, ...]:
        """The run's own, then those of its stages."""
        return tuple(one.agent for one in (*self.selected_agents, *(self.stage_plan.agents if self.stage_plan else ())))

    @property
    def rules(self) -> RunRules:
        settings = self.loaded.settings
        pipeline = self.stage_plan.pipeline if self.stage_plan else None
        rules = assembly.build_rules(
            settings, self.skill, self.custom, self.debugging_skill, self.allow_unknown_cost, pipeline
        )
        stepping = 0 if self.request.step else None
        return replace(
            rules,
            scm=rules.scm and not self.request.program,
            step_after=stepping,
            allow_missing_check=self.request.allow_missing_check,
        )


def prepare_spec(request: RunRequest) -> RunSpec:
    """Read and check everything that a run needs; raises Refused with what is wrong."""
    refuse_unknown_risk_or_type(request)
    asked = request
    project = open_project(request.project_dir, os.environ)
    remarks: list[str] = []
    skill = _load_skill(request.skill, project.root)
    wanted = load_run_settings(request, skill, project.root, remarks)
    request, loaded = wanted.request, wanted.loaded
    plan, manner, loaded = _load_plan(request, project, loaded, remarks)
    settings = loaded.settings
    fit = None if manner else assess_request_fitness(request, plan.read().tasks[0].prompt, settings, skill)
    if request.explain:
        return RunSpec(project, loaded, plan, (), (), (), (), fit, skill)
    refuse_risky_task(request, fit, remarks)
    crew, custom = _select_agents(request, settings, project.root), _uniquify_check_names(request.custom, settings)
    stage_plan = build_stage_plan(replace(request, custom=custom), plan, loaded, skill, project.root, len(crew))
    remarks += stage_plan.remarks
    if settings.require_proof and not (stage_plan.has_machine_check or request.custom.checks):
        kind = TaskWrong if request.task_id else Refused
        raise kind("requireProof is set and no check is configured; add one with --check")
    if settings.require_proof and request.allow_missing_check:
        raise Refused(
            "requireProof is set, and a check that the agent brings proves nothing; omit --allow-missing-check"
        )
    if wanted.hint and not (stage_plan.has_machine_check or stage_plan.judges):
        remarks.append(wanted.hint)
    refuse_unavailable_features(request, settings, stage_plan, project.root)
    everybody = (*crew, *stage_plan.agents, *stage_plan.judges.values())
    refuse_unknown_cost(settings, everybody, request.allow_unknown_cost)
    remarks += (
        *warn_about_agents(settings, everybody, request.allow_unknown_cost),
        *warn_about_git(project.root, settings),
    )
    refuse_hosts_without_sandbox(request, settings)
    remarks += warn_about_install_location(project.root) if request.sandbox_kind(settings) is not None else []
    if manner and request.guarded and settings.sandbox.backend is None:
        remarks += warn_about_missing_sandbox(everybody, loaded.origins.get("sandbox.backend", ""))
    remarks += [NO_COMMIT_MESSAGE] if request.program and settings.scm is not None else []
    env, check_env = agent_environment(os.environ, settings), check_environment(os.environ)
    own = {name: text for name, text in settings.agent.env if text is not None}
    project = replace(project, secrets=(*project.secrets, *find_environment_secrets(own), *_secret_addresses(settings)))
    debugging = _load_skill(DEBUGGING_SKILL if settings.limits.escalate_to_deep_debug else "", project.root)
    return RunSpec(
        project, loaded, plan, crew, env, check_env, (*loaded.warnings, *remarks), fit, skill,
        custom, request.prompt[1], debugging, request.allow_unknown_cost, request, stage_plan, manner, asked,
    )  # fmt: skip


def _load_plan(
    request: RunRequest, project: Project, loaded: LoadedSettings, remarks: list[str]
) -> tuple[PlanSource, StoryWorkflow | None, LoadedSettings]:
    """What is to be done; where that is by stories, how they are gone through, and the settings with their checks."""
    if not read_preset(loaded.settings.preset).get("stories") or request.task_id:
        if request.story_folder or ("review" in request.flags and request.flags_source == COMMAND_LINE):
            raise Refused("--skip-review, --review-cap and --ralph-dir are for runs by stories: --preset stories")
        return open_plan(request, project, remarks), None, loaded
    from ralphproof.runs.stories import prepare_workflow, read_story_plan, settings_with_verify_commands

    manner = prepare_workflow(request, project, loaded.settings)
    plan, manner = read_story_plan(request, project.root, manner, loaded.settings, remarks)
    return plan, manner, settings_with_verify_commands(loaded, manner.verify, project.root)


def _uniquify_check_names(custom: CustomComponents, settings: Settings) -> CustomComponents:
    """Every check with a name of its own, so that none stands in for another: functions get a number.

    Other checks keep the names that they know themselves by, and are refused where one is taken.
    """
    if not custom.checks:
        return custom
    from ralphproof.checks.function import FunctionCheck

    taken = {guardrail.name for guardrail in settings.guardrails}
    for check in custom.checks:
        if not isinstance(check, FunctionCheck):
            if check.name in taken:
                raise Refused(f"two checks are called {check.name!r}; give one of them another name")
            taken.add(check.name)
    made: list[Check] = []
    for check in custom.checks:
        made.append(check.renamed(_free_name(check.name, taken)) if isinstance(check, FunctionCheck) else check)
        taken.add(made[-1].name)
    return replace(custom, checks=tuple(made))


def _free_name(name: str, taken: set[str]) -> str:
    """The name, with a number where it is taken."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name} ({number})"
    return free


def _secret_addresses(settings: Settings) -> tuple[str, ...]:
    """Addresses that are told of the run: most hold a token."""
    found: tuple[str, ...] = ()
    if settings.notify:
        from ralphproof.settings.validation import url_scheme

        found = tuple(target for target in settings.notify if url_scheme(target))
    if settings.otel:
        from ralphproof.reports.otel_exporter import otel_endpoint_secrets

        found += otel_endpoint_secrets(settings.otel, os.environ)
    return found


def _load_skill(name: str, root: str) -> Skill | None:
    if not name:
        return None
    from ralphproof.settings.skills import load_skill

    return load_skill(root, name)


def _select_agents(request: RunRequest, settings: Settings, root: str) -> tuple[SelectedAgent, ...]:
    if request.custom.agent is not None:
        return (select_custom_agent(request.custom.agent),)
    if request.program:
        return (select_program(request.program, root, os.environ),)
    return select_agents(settings, root, os.environ, request.guarded, request.sandbox_kind(settings) is not None)
