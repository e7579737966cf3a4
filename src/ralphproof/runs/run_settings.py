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


# The settings of one run: those of all files, with what its flags and its skill say, and the checks that are found.


# Settings must name an agent; where one is brought along, theirs is not asked, and none of their models is.
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
    """The settings of one run. `wish` has the checks that were found by their commands: what a later search finds may
    be an agent's doing. `hint` is what to say where nothing verifies the work.
    """

    request: RunRequest
    loaded: LoadedSettings
    hint: str = ""


def load_run_settings(request: RunRequest, skill: Skill | None, root: str, remarks: list[str]) -> RunSettings:
    """The settings that hold for what is asked for. What there is to say of them joins the remarks."""
    wanted = _load_settings(request, root, _flag_settings(request, skill, root, remarks), remarks)
    if not request.task_id:
        return wanted
    from ralphproof.tasks.pipeline import max_task_iterations

    settings = replace(wanted.loaded.settings, maximum_iterations=max_task_iterations(wanted.loaded))
    return replace(wanted, loaded=replace(wanted.loaded, settings=settings))


def _flag_settings(request: RunRequest, skill: Skill | None, root: str, remarks: list[str]) -> dict[str, Any]:
    """The settings of this run alone: flags, and what a skill says where they are silent."""
    flags = dict(request.flags)
    if request.custom.agent is not None and isinstance(given := flags.get("agent", {}), dict):
        flags["agent"] = {**given, **UNUSED_AGENT_SETTINGS}
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
    """The settings' own checks, and those that a skill needs beside them."""
    from ralphproof.checks.discovery import resolve_skill_checks

    own = tuple(guardrail.command for guardrail in loaded.settings.guardrails)
    wanted = resolve_skill_checks(skill, root, own)
    if wanted.missing and not request.explain and not request.custom.checks:
        raise Refused("; ".join(wanted.missing))
    more = [command for command in wanted.commands if command not in own]
    remarks += [f"check of skill {skill.name}: {command}" for command in more]
    return {"guardrails": [*loaded.raw["guardrails"], *({"command": command} for command in more)]} if more else {}


def _check_settings(root: str, given: tuple[str, ...], remarks: list[str]) -> list[dict[str, str]]:
    """Checks by their commands; `auto` stands for those that the project's files name."""
    commands = [command for command in given if command != AUTO_CHECKS]
    if AUTO_CHECKS in given:
        found = _discover_checks(root, remarks)
        if not found:
            raise Refused("--check auto found no check in the project's top folder; name one: --check CMD")
        commands += found
    return [{"command": command} for command in dict.fromkeys(commands)]


def _discover_checks(root: str, remarks: list[str]) -> list[str]:
    """The checks that the project's files name; said in one line."""
    from ralphproof.checks.discovery import propose_checks

    proposals = propose_checks(root)
    if proposals:
        named = ", ".join(f"{item.command} ({item.source})" for item in proposals)
        remarks.append(f"checks found: {named}; --check CMD names others, --no-check runs without")
    return [item.command for item in proposals]


def _default_checks(
    request: RunRequest, loaded: LoadedSettings, root: str, remarks: list[str]
) -> tuple[list[str], str]:
    """The checks to take where nobody named any; else a hint that nothing verifies the work."""
    if not request.find_checks or request.custom.checks or "guardrails" in request.flags:
        return [], ""
    preset = read_preset(loaded.settings.preset)
    if preset.get("restarts") or (
        preset.get("stories") and not request.task_id
    ):  # these say themselves how they are checked
        return [], ""
    if not loaded.chosen("guardrails"):
        return (found, "") if (found := _discover_checks(root, remarks)) else ([], NO_CHECK_FOUND)
    return [], "" if loaded.settings.guardrails else EMPTY_GUARDRAILS.format(loaded.origins["guardrails"])


def _load_settings(request: RunRequest, root: str, flags: dict[str, Any], remarks: list[str]) -> RunSettings:
    """The settings; an agent that nobody named is looked for on PATH, paths to protect join those of the settings."""
    if request.verbose:
        _print_verbose(*(f"Loading settings from {name}" for name in list_settings_files(root, os.environ)))
    loaded = load_settings(root, os.environ, flags, request.flags_source)
    more: dict[str, Any] = {}
    if loaded.settings.agent.command is None and (found := find_installed_agent(os.environ, root)):
        remarks.append(f"agent found on PATH: {found}")
        more["agent"] = {**flags.get("agent", {}), "command": found}
    if request.protect:
        more["protectedPaths"] = list(dict.fromkeys((*loaded.settings.protected_paths, *request.protect)))
    if box := _sandbox_settings(request, loaded, root, flags, remarks):
        more["sandbox"] = {**flags.get("sandbox", {}), **box}
    checks, hint = _default_checks(request, loaded, root, remarks)
    rails = [{"command": command} for command in checks] or loaded.raw["guardrails"]
    judged = (
        [{"name": JUDGED_CHECK, "method": SEMANTIC, "config": {"check_for": list(request.judge)}}]
        if request.judge
        else []
    )
    if checks or judged:
        more["guardrails"] = [*rails, *judged]
    if more:
        loaded = load_settings(root, os.environ, flags | more, request.flags_source)
    if request.verbose:
        _print_verbose(f"Settings: {_compact_json(loaded.raw)}")
    if AUTO_CHECKS in request.checks:
        checks = [rail["command"] for rail in flags["guardrails"]]
    return RunSettings(replace(request, checks=tuple(checks) or request.checks, find_checks=False), loaded, hint)


def _sandbox_settings(
    request: RunRequest, loaded: LoadedSettings, root: str, flags: dict[str, Any], remarks: list[str]
) -> dict[str, Any]:
    """What holds of the sandbox in the place of the settings: nothing opens it that may not, hosts join the list."""
    if not request.guarded:
        return {}
    if request.custom.agent is not None and loaded.settings.sandbox.backend:
        return _disable_sandbox(loaded)

    box = override_committed_sandbox(loaded, root, os.environ, flags)
    remarks += describe_sandbox_overrides(loaded, box)
    if request.allow_hosts:
        own = box.get("allowHosts", loaded.settings.sandbox.allow_hosts)
        box["allowHosts"] = list(dict.fromkeys((*own, *request.allow_hosts)))
    return box


def _disable_sandbox(loaded: LoadedSettings) -> dict[str, Any]:
    """No sandbox: an agent that is a function runs in this process. Raises Refused where somebody asked for one."""
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


# What a repository may not do to a sandbox that its user asked for: turn it off, or open it.


COMMITTED_SETTINGS, LOCAL_SETTINGS = ".ralph/settings.json", ".ralph/settings.local.json"
SANDBOX_ALLOW_LISTS = {
    "allowHosts": "--allow-host",
    "allowLocalPorts": "your own settings",
    "readPaths": "your own settings",
}  # what opens a sandbox, and where the user may say the same


def override_committed_sandbox(
    loaded: LoadedSettings, root: str, environ: Mapping[str, str], flags: dict[str, Any]
) -> dict[str, Any]:
    """Settings of the sandbox that hold in the place of those that are committed; nothing where all of them hold.

    Whoever asks for a sandbox, by a flag or in settings of their own, gets it as they say it: only where the repository
    itself asks for one is it the repository's to say what can be reached from it.
    """
    own, by = _user_sandbox_settings(root, environ), loaded.origins.get("sandbox.backend", "")
    by_variable = by.startswith(ENVIRONMENT_PREFIX) and loaded.settings.sandbox.backend
    if not (flags.get("sandbox", {}).get("backend") or own.get("backend") or by_variable):
        return {}
    named = (*(["backend"] if own.get("backend") else []), *SANDBOX_ALLOW_LISTS)
    origins = {name: loaded.origins.get(f"sandbox.{name}", "") for name in named}
    theirs = {
        COMMITTED_SETTINGS,
        *(
            [LOCAL_SETTINGS]
            if LOCAL_SETTINGS in origins.values() and _is_tracked(LOCAL_SETTINGS, root, environ)
            else []
        ),
    }
    return {name: own.get(name, []) for name, origin in origins.items() if origin in theirs}


def describe_sandbox_overrides(loaded: LoadedSettings, instead: dict[str, Any]) -> list[str]:
    """What to say of that, in sentences."""
    said = loaded.raw["sandbox"]
    lines: list[str] = []
    for name, here in instead.items():
        if said[name] == here:
            continue
        if name == "backend":
            lines.append(
                f"{COMMITTED_SETTINGS} asks for sandbox {said[name] or 'none'}; "
                f"your own settings say {here}, which holds"
            )
        else:
            entries, file = ", ".join(map(str, said[name])), loaded.origins[f"sandbox.{name}"]
            way = (
                f"{SANDBOX_ALLOW_LISTS[name]} can"
                if file == LOCAL_SETTINGS
                else f"{SANDBOX_ALLOW_LISTS[name]} or {LOCAL_SETTINGS} can"
            )
            lines.append(f"{file} may not open a sandbox that you asked for ({name}: {entries}); {way}")
    return lines


def _is_tracked(path: str, root: str, environ: Mapping[str, str]) -> bool:
    """Whether a repository brings a file that should be its user's own."""
    from ralphproof.base.run_program import find_program, run_program
    from ralphproof.workspace.git_command import user_git_environment

    git = find_program("git", environ.get("PATH", os.defpath), outside=root)
    words = [git or "", "-c", "core.fsmonitor=false", "-C", root, "ls-files", "--error-unmatch", "--", path]
    return bool(git) and run_program(words, user_git_environment(environ)).code == 0


def _user_sandbox_settings(root: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """What the user's own file says of sandboxes."""
    data = read_settings_files(root, environ)[0].data
    found = data.get("sandbox") if isinstance(data, dict) else None
    return found if isinstance(found, dict) else {}
