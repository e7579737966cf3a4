"""RunSpec: a checked request; everything that a run needs is known, nothing has been touched."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from ralphproof.agents.environment import agent_environment, check_environment
from ralphproof.agents.selection import (
    SelectedAgent,
    find_installed_agent,
    select_agents,
    select_custom_agent,
    select_program,
)
from ralphproof.base.errors import Refused, TaskWrong
from ralphproof.base.programs import find_program, run_program
from ralphproof.base.redaction import find_environment_secrets
from ralphproof.base.value import replace, value
from ralphproof.checks.discovery import propose_checks, resolve_skill_checks
from ralphproof.checks.function import FunctionCheck
from ralphproof.display.console import write_debug_line
from ralphproof.engine.agent import Agent
from ralphproof.engine.check import Check
from ralphproof.engine.next_action import RunRules
from ralphproof.engine.plan import SEMANTIC, PlanSource
from ralphproof.reports.addresses import url_scheme
from ralphproof.runs.assembly import NO_STAGES, StagePlan, build_rules, build_stage_plan, open_plan
from ralphproof.runs.open_project import open_project
from ralphproof.runs.preflight import (
    NO_COMMIT_MESSAGE,
    Fitness,
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
from ralphproof.runs.request import EMPTY_REQUEST, CustomComponents, RunRequest
from ralphproof.runs.stories import prepare_workflow, read_story_plan, settings_with_verify_commands
from ralphproof.settings.declarations import Settings
from ralphproof.settings.loader import (
    COMMAND_LINE,
    ENVIRONMENT_PREFIX,
    LoadedSettings,
    list_settings_files,
    load_settings,
    mask_settings,
    read_preset,
    read_settings_files,
)
from ralphproof.settings.skills import Skill, load_skill
from ralphproof.store.project import Project
from ralphproof.stories.workflow import StoryWorkflow
from ralphproof.tasks.pipeline import max_task_iterations
from ralphproof.workspace.git_command import user_git_environment

# Settings must name an agent; with a custom agent these values stand in, and are not used.
UNUSED_AGENT_SETTINGS: dict[str, Any] = {
    "command": "scripted -",
    "model": None,
    "ladder": [],
    "rotate": [],
    "fallbacks": [],
}

AUTO_CHECKS = "auto"  # stands for the checks that the project's files name
JUDGED_CHECK = "judged"  # the check that --judge makes
NO_CHECK_FOUND = (
    "no check was found in the project's top folder, so the work can only be claimed; name one: --check CMD"
)
EMPTY_GUARDRAILS = (
    "guardrails is an empty list ({}), so the work can only be claimed; to take what is found: --check auto"
)


def load_run_settings(
    request: RunRequest, skill: Skill | None, root: str, remarks: list[str]
) -> tuple[RunRequest, LoadedSettings, str]:
    """The settings for a request; notes about them are added to `remarks`.

    The returned request has the discovered checks by their commands: a later search may find what an agent wrote. The
    text is the remark for a run that no check verifies.
    """
    flags = _flag_settings(request, skill, root, remarks)
    request, loaded, hint = _load_settings(request, root, flags, remarks)
    if request.task.id:
        settings = replace(loaded.settings, maximum_iterations=max_task_iterations(loaded))
        loaded = replace(loaded, settings=settings)
    return request, loaded, hint


def _flag_settings(request: RunRequest, skill: Skill | None, root: str, remarks: list[str]) -> dict[str, Any]:
    """The settings of this run alone: flags, and those of the skill where no flag is given."""
    flags = dict(request.flags)
    if request.custom.agent is not None and isinstance(agent := flags.get("agent", {}), dict):
        flags["agent"] = {**agent, **UNUSED_AGENT_SETTINGS}
    if request.program:
        flags["agent"] = {**flags.get("agent", {}), **UNUSED_AGENT_SETTINGS}
    if skill is not None and skill.promise:
        flags.setdefault("completionResponse", skill.promise)
    if request.checks.commands:
        flags["guardrails"] = _check_settings(root, request.checks.commands, remarks)
    elif skill is not None and skill.verification and flags.get("guardrails") != []:
        flags |= _add_skill_checks(
            skill, load_settings(root, os.environ, flags, request.flags_source), request, root, remarks
        )
    return flags


def _add_skill_checks(
    skill: Skill, loaded: LoadedSettings, request: RunRequest, root: str, remarks: list[str]
) -> dict[str, Any]:
    """The settings' own checks, and those that the skill needs."""
    own = tuple(guardrail.command for guardrail in loaded.settings.guardrails)
    resolved = resolve_skill_checks(skill, root, own)
    if resolved.missing and not request.fitness.explain and not request.custom.checks:
        raise Refused("; ".join(resolved.missing))
    added = [command for command in resolved.commands if command not in own]
    remarks += [f"check of skill {skill.name}: {command}" for command in added]
    return {"guardrails": [*loaded.raw["guardrails"], *({"command": command} for command in added)]} if added else {}


def _check_settings(root: str, checks: tuple[str, ...], remarks: list[str]) -> list[dict[str, str]]:
    """Checks by their commands; `auto` stands for those that the project's files name."""
    commands = [command for command in checks if command != AUTO_CHECKS]
    if AUTO_CHECKS in checks:
        discovered = _discover_checks(root, remarks)
        if not discovered:
            raise Refused("--check auto found no check in the project's top folder; name one: --check CMD")
        commands += discovered
    return [{"command": command} for command in dict.fromkeys(commands)]


def _discover_checks(root: str, remarks: list[str]) -> list[str]:
    """The checks that the project's files name; a remark lists them."""
    proposals = propose_checks(root)
    if proposals:
        named = ", ".join(f"{item.command} ({item.source})" for item in proposals)
        remarks.append(f"checks found: {named}; --check CMD names others, --no-check runs without")
    return [item.command for item in proposals]


def _default_checks(
    request: RunRequest, loaded: LoadedSettings, root: str, remarks: list[str]
) -> tuple[list[str], str]:
    """The discovered checks where none is configured; else a hint that nothing verifies the work."""
    if not request.checks.find or request.custom.checks or "guardrails" in request.flags:
        return [], ""
    preset = read_preset(loaded.settings.preset)
    if preset.get("restarts") or (
        preset.get("stories") and not request.task.id
    ):  # these say themselves how they are checked
        return [], ""
    if not loaded.chosen("guardrails"):
        return (discovered, "") if (discovered := _discover_checks(root, remarks)) else ([], NO_CHECK_FOUND)
    return [], "" if loaded.settings.guardrails else EMPTY_GUARDRAILS.format(loaded.origins["guardrails"])


def _load_settings(
    request: RunRequest, root: str, flags: dict[str, Any], remarks: list[str]
) -> tuple[RunRequest, LoadedSettings, str]:
    """The settings. An agent that is not configured is searched on PATH; paths to protect are added to the settings'
    own.
    """
    if request.verbose:
        _print_verbose(*(f"Loading settings from {name}" for name in list_settings_files(root, os.environ)))
    loaded = load_settings(root, os.environ, flags, request.flags_source)
    additions: dict[str, Any] = {}
    if loaded.settings.agent.command is None and (agent := find_installed_agent(os.environ, root)):
        remarks.append(f"agent found on PATH: {agent}")
        additions["agent"] = {**flags.get("agent", {}), "command": agent}
    if request.protect:
        additions["protectedPaths"] = list(dict.fromkeys((*loaded.settings.protected_paths, *request.protect)))
    if sandbox := _sandbox_settings(request, loaded, root, flags, remarks):
        additions["sandbox"] = {**flags.get("sandbox", {}), **sandbox}
    checks, hint = _default_checks(request, loaded, root, remarks)
    guardrails = [{"command": command} for command in checks] or loaded.raw["guardrails"]
    judged = (
        [{"name": JUDGED_CHECK, "method": SEMANTIC, "config": {"check_for": list(request.checks.judge)}}]
        if request.checks.judge
        else []
    )
    if checks or judged:
        additions["guardrails"] = [*guardrails, *judged]
    if additions:
        loaded = load_settings(root, os.environ, flags | additions, request.flags_source)
    if request.verbose:
        _print_verbose(f"Settings: {json.dumps(mask_settings(loaded.raw), ensure_ascii=False)}")
    if AUTO_CHECKS in request.checks.commands:
        checks = [guardrail["command"] for guardrail in flags["guardrails"]]
    found = replace(request.checks, commands=tuple(checks) or request.checks.commands, find=False)
    return replace(request, checks=found), loaded, hint


def _sandbox_settings(
    request: RunRequest, loaded: LoadedSettings, root: str, flags: dict[str, Any], remarks: list[str]
) -> dict[str, Any]:
    """Sandbox settings that override the files: without what a repository may not allow, and with the hosts of the
    flags.
    """
    if not request.guarded:
        return {}
    if request.custom.agent is not None and loaded.settings.sandbox.backend:
        return _disable_sandbox(loaded)

    sandbox = override_committed_sandbox(loaded, root, os.environ, flags)
    remarks += describe_sandbox_overrides(loaded, sandbox)
    if request.allow_hosts:
        own = sandbox.get("allowHosts", loaded.settings.sandbox.allow_hosts)
        sandbox["allowHosts"] = list(dict.fromkeys((*own, *request.allow_hosts)))
    return sandbox


def _disable_sandbox(loaded: LoadedSettings) -> dict[str, Any]:
    """No sandbox, because a function agent runs in this process. Raises Refused where the user asked for one."""
    if not loaded.origins.get("sandbox.backend", "").startswith("preset "):
        raise Refused("an agent that is a function runs in this process, where no sandbox can hold it; name a program")
    return {"backend": None}


def _print_verbose(*lines: str) -> None:
    for line in lines:
        write_debug_line(sys.stderr, line)


# A repository may not turn off or open a sandbox that its user asked for.


COMMITTED_SETTINGS, LOCAL_SETTINGS = ".ralph/settings.json", ".ralph/settings.local.json"
SANDBOX_ALLOW_LISTS = {
    "allowHosts": "--allow-host",
    "allowLocalPorts": "your own settings",
    "readPaths": "your own settings",
}  # what opens a sandbox, and where the user may say the same


def override_committed_sandbox(
    loaded: LoadedSettings, root: str, environ: Mapping[str, str], flags: dict[str, Any]
) -> dict[str, Any]:
    """Sandbox settings that replace the committed ones; empty where all of these hold.

    Users who ask for a sandbox, by a flag or in their own settings, get it as they configure it. Only a sandbox that
    the repository itself asks for is configured by the repository.
    """
    own, backend_origin = _user_sandbox_settings(root, environ), loaded.origins.get("sandbox.backend", "")
    by_variable = backend_origin.startswith(ENVIRONMENT_PREFIX) and loaded.settings.sandbox.backend
    if not (flags.get("sandbox", {}).get("backend") or own.get("backend") or by_variable):
        return {}
    names = (*(["backend"] if own.get("backend") else []), *SANDBOX_ALLOW_LISTS)
    origins = {name: loaded.origins.get(f"sandbox.{name}", "") for name in names}
    repository_files = {
        COMMITTED_SETTINGS,
        *(
            [LOCAL_SETTINGS]
            if LOCAL_SETTINGS in origins.values() and _is_tracked(LOCAL_SETTINGS, root, environ)
            else []
        ),
    }
    return {name: own.get(name, []) for name, origin in origins.items() if origin in repository_files}


def describe_sandbox_overrides(loaded: LoadedSettings, overrides: dict[str, Any]) -> list[str]:
    """The overrides in sentences."""
    committed = loaded.raw["sandbox"]
    lines: list[str] = []
    for name, override in overrides.items():
        if committed[name] == override:
            continue
        if name == "backend":
            lines.append(
                f"{COMMITTED_SETTINGS} asks for sandbox {committed[name] or 'none'}; "
                f"your own settings say {override}, which holds"
            )
        else:
            entries, file = ", ".join(map(str, committed[name])), loaded.origins[f"sandbox.{name}"]
            alternative = (
                f"{SANDBOX_ALLOW_LISTS[name]} can"
                if file == LOCAL_SETTINGS
                else f"{SANDBOX_ALLOW_LISTS[name]} or {LOCAL_SETTINGS} can"
            )
            lines.append(f"{file} may not open a sandbox that you asked for ({name}: {entries}); {alternative}")
    return lines


def _is_tracked(path: str, root: str, environ: Mapping[str, str]) -> bool:
    """Whether the repository tracks a file that should be the user's own."""
    git = find_program("git", environ.get("PATH", os.defpath), outside=root)
    words = [git or "", "-c", "core.fsmonitor=false", "-C", root, "ls-files", "--error-unmatch", "--", path]
    return bool(git) and run_program(words, user_git_environment(environ)).code == 0


def _user_sandbox_settings(root: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """The sandbox settings of the user's own file."""
    data = read_settings_files(root, environ)[0].data
    sandbox = data.get("sandbox") if isinstance(data, dict) else None
    return sandbox if isinstance(sandbox, dict) else {}


# RunSpec: a checked request; everything that a run needs is known, nothing has been touched.


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
    debugging_skill: Skill | None = None
    request: RunRequest = EMPTY_REQUEST
    stage_plan: StagePlan = NO_STAGES
    story_workflow: StoryWorkflow | None = None
    original_request: RunRequest = EMPTY_REQUEST

    @property
    def agents(self) -> tuple[Agent, ...]:
        """The run's own agents, then those of its stages."""
        return tuple(one.agent for one in (*self.selected_agents, *self.stage_plan.agents))

    @property
    def prompt_file(self) -> str | None:
        return self.request.prompt[1]

    @property
    def rules(self) -> RunRules:
        rules = build_rules(self.loaded.settings, self.stage_plan.pipeline, self.debugging_skill)
        return replace(
            rules,
            scm=rules.scm and not self.request.program,
            custom_limits=self.custom.limits,
            warn_unknown_cost=rules.warn_unknown_cost and not self.request.allow_unknown_cost,
            step_after=0 if self.request.step else None,
            checks=replace(rules.checks, allow_missing=self.request.checks.allow_missing),
        )


def prepare_spec(request: RunRequest) -> RunSpec:
    """Read and check everything that a run needs; raises Refused with what is wrong."""
    refuse_unknown_risk_or_type(request)
    original = request
    project = open_project(request.project_dir, os.environ)
    remarks: list[str] = []
    skill = _load_skill(request.skill, project.root)
    request, loaded, hint = load_run_settings(request, skill, project.root, remarks)
    plan, workflow, loaded = _load_plan(request, project, loaded, remarks)
    settings = loaded.settings
    fitness = None if workflow else assess_request_fitness(request, plan.read().tasks[0].prompt, settings, skill)
    if request.fitness.explain:
        return RunSpec(project, loaded, plan, (), (), (), (), fitness, skill)
    refuse_risky_task(request, fitness, remarks)
    selected, custom = _select_agents(request, settings, project.root), _uniquify_check_names(request.custom, settings)
    stage_plan = build_stage_plan(replace(request, custom=custom), plan, loaded, skill, project.root, len(selected))
    remarks += stage_plan.remarks
    if settings.require_proof and not (stage_plan.has_machine_check or request.custom.checks):
        kind = TaskWrong if request.task.id else Refused
        raise kind("requireProof is set and no check is configured; add one with --check")
    if settings.require_proof and request.checks.allow_missing:
        raise Refused(
            "requireProof is set, and a check that the agent brings proves nothing; omit --allow-missing-check"
        )
    if hint and not (stage_plan.has_machine_check or stage_plan.judges):
        remarks.append(hint)
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
        custom, debugging, request, stage_plan, workflow, original,
    )  # fmt: skip


def _load_plan(
    request: RunRequest, project: Project, loaded: LoadedSettings, remarks: list[str]
) -> tuple[PlanSource, StoryWorkflow | None, LoadedSettings]:
    """The plan; for a story run also its workflow, and the settings with its verify commands."""
    if not read_preset(loaded.settings.preset).get("stories") or request.task.id:
        if request.stories.folder or ("review" in request.flags and request.flags_source == COMMAND_LINE):
            raise Refused("--skip-review, --review-cap and --ralph-dir are for runs by stories: --preset stories")
        return open_plan(request, project, remarks), None, loaded
    workflow = prepare_workflow(request, project, loaded.settings)
    plan, workflow = read_story_plan(request, project.root, workflow, loaded.settings, remarks)
    return plan, workflow, settings_with_verify_commands(loaded, workflow.verify, project.root)


def _uniquify_check_names(custom: CustomComponents, settings: Settings) -> CustomComponents:
    """Custom checks with unique names: functions with the same name get a number.

    Other checks cannot be renamed, and are refused where their name is taken.
    """
    if not custom.checks:
        return custom
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
        addresses = tuple(target for target in settings.notify if url_scheme(target))
    if settings.otel:
        from ralphproof.reports.otel import otel_endpoint_secrets

        addresses += otel_endpoint_secrets(settings.otel, os.environ)
    return addresses


def _load_skill(name: str, root: str) -> Skill | None:
    if not name:
        return None
    return load_skill(root, name)


def _select_agents(request: RunRequest, settings: Settings, root: str) -> tuple[SelectedAgent, ...]:
    if request.custom.agent is not None:
        return (select_custom_agent(request.custom.agent),)
    if request.program:
        return (select_program(request.program, root, os.environ),)
    return select_agents(settings, root, os.environ, request.guarded, request.sandbox_kind(settings) is not None)
