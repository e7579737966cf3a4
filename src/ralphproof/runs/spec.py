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
    from ralphproof.settings.skills import Skill
    from ralphproof.settings.typed_settings import Settings
    from ralphproof.stories.workflow import StoryWorkflow


DEBUGGING_SKILL = "systematic-debugging"  # added to the prompt after a stall


@value
class RunSpec:
    """A run that may begin: everything is known, nothing has been touched.

    `selected_agents` has the default agent first. `original_request` is the request as it came; `request` has the
    discovered checks too.
    """

    project: Project
    loaded: LoadedSettings
    plan: PlanSource
    selected_agents: tuple[SelectedAgent, ...]
    agent_env: tuple[tuple[str, str], ...]  # checks have their own
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
        """The run's own agents, then those of its stages."""
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
    original = request
    project = open_project(request.project_dir, os.environ)
    remarks: list[str] = []
    skill = _load_skill(request.skill, project.root)
    run_settings = load_run_settings(request, skill, project.root, remarks)
    request, loaded = run_settings.request, run_settings.loaded
    plan, workflow, loaded = _load_plan(request, project, loaded, remarks)
    settings = loaded.settings
    fitness = None if workflow else assess_request_fitness(request, plan.read().tasks[0].prompt, settings, skill)
    if request.explain:
        return RunSpec(project, loaded, plan, (), (), (), (), fitness, skill)
    refuse_risky_task(request, fitness, remarks)
    selected, custom = _select_agents(request, settings, project.root), _uniquify_check_names(request.custom, settings)
    stage_plan = build_stage_plan(replace(request, custom=custom), plan, loaded, skill, project.root, len(selected))
    remarks += stage_plan.remarks
    if settings.require_proof and not (stage_plan.has_machine_check or request.custom.checks):
        kind = TaskWrong if request.task_id else Refused
        raise kind("requireProof is set and no check is configured; add one with --check")
    if settings.require_proof and request.allow_missing_check:
        raise Refused(
            "requireProof is set, and a check that the agent brings proves nothing; omit --allow-missing-check"
        )
    if run_settings.hint and not (stage_plan.has_machine_check or stage_plan.judges):
        remarks.append(run_settings.hint)
    refuse_unavailable_features(request, settings, stage_plan, project.root)
    all_agents = (*selected, *stage_plan.agents, *stage_plan.judges.values())
    refuse_unknown_cost(settings, all_agents, request.allow_unknown_cost)
    remarks += (
        *warn_about_agents(settings, all_agents, request.allow_unknown_cost),
        *warn_about_git(project.root, settings),
    )
    refuse_hosts_without_sandbox(request, settings)
    remarks += warn_about_install_location(project.root) if request.sandbox_kind(settings) is not None else []
    if workflow and request.guarded and settings.sandbox.backend is None:
        remarks += warn_about_missing_sandbox(all_agents, loaded.origins.get("sandbox.backend", ""))
    remarks += [NO_COMMIT_MESSAGE] if request.program and settings.scm is not None else []
    env, check_env = agent_environment(os.environ, settings), check_environment(os.environ)
    agent_variables = {name: text for name, text in settings.agent.env if text is not None}
    project = replace(
        project, secrets=(*project.secrets, *find_environment_secrets(agent_variables), *_secret_addresses(settings))
    )
    debugging = _load_skill(DEBUGGING_SKILL if settings.limits.escalate_to_deep_debug else "", project.root)
    return RunSpec(
        project, loaded, plan, selected, env, check_env, (*loaded.warnings, *remarks), fitness, skill,
        custom, request.prompt[1], debugging, request.allow_unknown_cost, request, stage_plan, workflow, original,
    )  # fmt: skip


def _load_plan(
    request: RunRequest, project: Project, loaded: LoadedSettings, remarks: list[str]
) -> tuple[PlanSource, StoryWorkflow | None, LoadedSettings]:
    """The plan; for a story run also its workflow, and the settings with its verify commands."""
    if not read_preset(loaded.settings.preset).get("stories") or request.task_id:
        if request.story_folder or ("review" in request.flags and request.flags_source == COMMAND_LINE):
            raise Refused("--skip-review, --review-cap and --ralph-dir are for runs by stories: --preset stories")
        return open_plan(request, project, remarks), None, loaded
    from ralphproof.runs.stories import prepare_workflow, read_story_plan, settings_with_verify_commands

    workflow = prepare_workflow(request, project, loaded.settings)
    plan, workflow = read_story_plan(request, project.root, workflow, loaded.settings, remarks)
    return plan, workflow, settings_with_verify_commands(loaded, workflow.verify, project.root)


def _uniquify_check_names(custom: CustomComponents, settings: Settings) -> CustomComponents:
    """Custom checks with unique names: functions with the same name get a number.

    Other checks cannot be renamed, and are refused where their name is taken.
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
    renamed: list[Check] = []
    for check in custom.checks:
        renamed.append(check.renamed(_free_name(check.name, taken)) if isinstance(check, FunctionCheck) else check)
        taken.add(renamed[-1].name)
    return replace(custom, checks=tuple(renamed))


def _free_name(name: str, taken: set[str]) -> str:
    """The name, with a number where it is taken."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name} ({number})"
    return free


def _secret_addresses(settings: Settings) -> tuple[str, ...]:
    """Addresses of notifications and telemetry: most contain a token."""
    addresses: tuple[str, ...] = ()
    if settings.notify:
        from ralphproof.settings.validation import url_scheme

        addresses = tuple(target for target in settings.notify if url_scheme(target))
    if settings.otel:
        from ralphproof.reports.otel_exporter import otel_endpoint_secrets

        addresses += otel_endpoint_secrets(settings.otel, os.environ)
    return addresses


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
