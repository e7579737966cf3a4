"""The settings of one run: all files, flags, skill, discovered checks, and what a repository may not open."""

from __future__ import annotations

import os
import sys

from ralphproof.agents.selection import find_installed_agent
from ralphproof.base.errors import Refused
from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.engine.plan import SEMANTIC
from ralphproof.settings.loader import (
    ENVIRONMENT_PREFIX,
    LoadedSettings,
    list_settings_files,
    load_settings,
    read_preset,
    read_settings_files,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ralphproof.runs.request import RunRequest
    from ralphproof.settings.skills import Skill


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


@value
class RunSettings:
    """The settings of one run. `request` has the discovered checks by their commands: a later search may find what an
    agent wrote.

    `hint` is the remark for a run that no check verifies.
    """

    request: RunRequest
    loaded: LoadedSettings
    hint: str = ""


def load_run_settings(request: RunRequest, skill: Skill | None, root: str, remarks: list[str]) -> RunSettings:
    """The settings for a request; notes about them are added to `remarks`."""
    run_settings = _load_settings(request, root, _flag_settings(request, skill, root, remarks), remarks)
    if not request.task_id:
        return run_settings
    from ralphproof.tasks.pipeline import max_task_iterations

    settings = replace(run_settings.loaded.settings, maximum_iterations=max_task_iterations(run_settings.loaded))
    return replace(run_settings, loaded=replace(run_settings.loaded, settings=settings))


def _flag_settings(request: RunRequest, skill: Skill | None, root: str, remarks: list[str]) -> dict[str, Any]:
    """The settings of this run alone: flags, and those of the skill where no flag is given."""
    flags = dict(request.flags)
    if request.custom.agent is not None and isinstance(agent := flags.get("agent", {}), dict):
        flags["agent"] = {**agent, **UNUSED_AGENT_SETTINGS}
    if request.program:
        flags["agent"] = {**flags.get("agent", {}), **UNUSED_AGENT_SETTINGS}
    if skill is not None and skill.promise:
        flags.setdefault("completionResponse", skill.promise)
    if request.checks:
        flags["guardrails"] = _check_settings(root, request.checks, remarks)
    elif skill is not None and skill.verification and flags.get("guardrails") != []:
        flags |= _add_skill_checks(
            skill, load_settings(root, os.environ, flags, request.flags_source), request, root, remarks
        )
    return flags


def _add_skill_checks(
    skill: Skill, loaded: LoadedSettings, request: RunRequest, root: str, remarks: list[str]
) -> dict[str, Any]:
    """The settings' own checks, and those that the skill needs."""
    from ralphproof.checks.discovery import resolve_skill_checks

    own = tuple(guardrail.command for guardrail in loaded.settings.guardrails)
    resolved = resolve_skill_checks(skill, root, own)
    if resolved.missing and not request.explain and not request.custom.checks:
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
    from ralphproof.checks.discovery import propose_checks

    proposals = propose_checks(root)
    if proposals:
        named = ", ".join(f"{item.command} ({item.source})" for item in proposals)
        remarks.append(f"checks found: {named}; --check CMD names others, --no-check runs without")
    return [item.command for item in proposals]


def _default_checks(
    request: RunRequest, loaded: LoadedSettings, root: str, remarks: list[str]
) -> tuple[list[str], str]:
    """The discovered checks where none is configured; else a hint that nothing verifies the work."""
    if not request.find_checks or request.custom.checks or "guardrails" in request.flags:
        return [], ""
    preset = read_preset(loaded.settings.preset)
    if preset.get("restarts") or (
        preset.get("stories") and not request.task_id
    ):  # these say themselves how they are checked
        return [], ""
    if not loaded.chosen("guardrails"):
        return (discovered, "") if (discovered := _discover_checks(root, remarks)) else ([], NO_CHECK_FOUND)
    return [], "" if loaded.settings.guardrails else EMPTY_GUARDRAILS.format(loaded.origins["guardrails"])


def _load_settings(request: RunRequest, root: str, flags: dict[str, Any], remarks: list[str]) -> RunSettings:
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
        [{"name": JUDGED_CHECK, "method": SEMANTIC, "config": {"check_for": list(request.judge)}}]
        if request.judge
        else []
    )
    if checks or judged:
        additions["guardrails"] = [*guardrails, *judged]
    if additions:
        loaded = load_settings(root, os.environ, flags | additions, request.flags_source)
    if request.verbose:
        _print_verbose(f"Settings: {_compact_json(loaded.raw)}")
    if AUTO_CHECKS in request.checks:
        checks = [guardrail["command"] for guardrail in flags["guardrails"]]
    return RunSettings(replace(request, checks=tuple(checks) or request.checks, find_checks=False), loaded, hint)


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
    from ralphproof.display.verbose import write_debug_line

    for line in lines:
        write_debug_line(sys.stderr, line)


def _compact_json(raw: dict[str, Any]) -> str:
    import json

    from ralphproof.settings.loader import mask_settings

    return json.dumps(mask_settings(raw), ensure_ascii=False)


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
    from ralphproof.base.run_program import find_program, run_program
    from ralphproof.workspace.git_command import user_git_environment

    git = find_program("git", environ.get("PATH", os.defpath), outside=root)
    words = [git or "", "-c", "core.fsmonitor=false", "-C", root, "ls-files", "--error-unmatch", "--", path]
    return bool(git) and run_program(words, user_git_environment(environ)).code == 0


def _user_sandbox_settings(root: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """The sandbox settings of the user's own file."""
    data = read_settings_files(root, environ)[0].data
    sandbox = data.get("sandbox") if isinstance(data, dict) else None
    return sandbox if isinstance(sandbox, dict) else {}
