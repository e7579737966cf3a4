"""The settings of one run: those of all files, with what its flags and its skill say, and the checks that are found."""

from __future__ import annotations

import os
import sys

from ralphproof.config.agents import find_agent
from ralphproof.config.load import Loaded, load, present
from ralphproof.config.presets import read_preset
from ralphproof.errors import Refused
from ralphproof.plan import SEMANTIC
from ralphproof.value import TYPE_CHECKING, replace, value

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.cli.order import Wish
    from ralphproof.skill import Skill

# Settings must name an agent; where one is brought along, theirs is not asked, and none of their models is.
NOT_ASKED: dict[str, Any] = {"command": "scripted -", "model": None, "ladder": [], "rotate": [], "fallbacks": []}

AUTO = "auto"  # stands for the checks that the project's files name
JUDGED = "judged"  # the check that --judge makes
NOTHING_FOUND = "no check was found in the project's top folder, so the work can only be claimed; name one: --check CMD"
EMPTY_LIST = "guardrails is an empty list ({}), so the work can only be claimed; to take what is found: --check auto"


@value
class WantedSettings:
    """The settings of one run. `wish` has the checks that were found by their commands: what a later search finds may
    be an agent's doing. `hint` is what to say where nothing verifies the work.
    """

    wish: Wish
    loaded: Loaded
    hint: str = ""


def settings_for_run(wish: Wish, skill: Skill | None, root: str, remarks: list[str]) -> WantedSettings:
    """The settings that hold for what is asked for. What there is to say of them joins the remarks."""
    wanted = _loaded(wish, root, _flags(wish, skill, root, remarks), remarks)
    if not wish.work:
        return wanted
    from ralphproof.config.stages import task_iterations

    settings = replace(wanted.loaded.settings, maximum_iterations=task_iterations(wanted.loaded))
    return replace(wanted, loaded=replace(wanted.loaded, settings=settings))


def _flags(wish: Wish, skill: Skill | None, root: str, remarks: list[str]) -> dict[str, Any]:
    """The settings of this run alone: flags, and what a skill says where they are silent."""
    flags = dict(wish.flags)
    if wish.brought.agent is not None and isinstance(given := flags.get("agent", {}), dict):
        flags["agent"] = {**given, **NOT_ASKED}
    if wish.plain:
        flags["agent"] = {**flags.get("agent", {}), **NOT_ASKED}
    if skill is not None and skill.promise:
        flags.setdefault("completionResponse", skill.promise)
    if wish.checks:
        flags["guardrails"] = _checks(root, wish.checks, remarks)
    elif skill is not None and skill.verification and flags.get("guardrails") != []:
        flags |= _verified(skill, load(root, os.environ, flags, wish.flags_from), wish, root, remarks)
    return flags


def _verified(skill: Skill, loaded: Loaded, wish: Wish, root: str, remarks: list[str]) -> dict[str, Any]:
    """The settings' own checks, and those that a skill needs beside them."""
    from ralphproof.config.skills import verification_of

    own = tuple(guardrail.command for guardrail in loaded.settings.guardrails)
    wanted = verification_of(skill, root, own)
    if wanted.missing and not wish.explain and not wish.brought.checks:
        raise Refused("; ".join(wanted.missing))
    more = [command for command in wanted.commands if command not in own]
    remarks += [f"check of skill {skill.name}: {command}" for command in more]
    return {"guardrails": [*loaded.raw["guardrails"], *({"command": command} for command in more)]} if more else {}


def _checks(root: str, given: tuple[str, ...], remarks: list[str]) -> list[dict[str, str]]:
    """Checks by their commands; `auto` stands for those that the project's files name."""
    commands = [command for command in given if command != AUTO]
    if AUTO in given:
        found = _found(root, remarks)
        if not found:
            raise Refused("--check auto found no check in the project's top folder; name one: --check CMD")
        commands += found
    return [{"command": command} for command in dict.fromkeys(commands)]


def _found(root: str, remarks: list[str]) -> list[str]:
    """The checks that the project's files name; said in one line."""
    from ralphproof.config.discover import propose_checks

    proposals = propose_checks(root)
    if proposals:
        named = ", ".join(f"{item.command} ({item.source})" for item in proposals)
        remarks.append(f"checks found: {named}; --check CMD names others, --no-check runs without")
    return [item.command for item in proposals]


def _unnamed(wish: Wish, loaded: Loaded, root: str, remarks: list[str]) -> tuple[list[str], str]:
    """The checks to take where nobody named any; else a hint that nothing verifies the work."""
    if not wish.find_checks or wish.brought.checks or "guardrails" in wish.flags:
        return [], ""
    preset = read_preset(loaded.settings.preset)
    if preset.get("restarts") or (preset.get("stories") and not wish.work):  # these say themselves how they are checked
        return [], ""
    if not loaded.chosen("guardrails"):
        return (found, "") if (found := _found(root, remarks)) else ([], NOTHING_FOUND)
    return [], "" if loaded.settings.guardrails else EMPTY_LIST.format(loaded.origins["guardrails"])


def _loaded(wish: Wish, root: str, flags: dict[str, Any], remarks: list[str]) -> WantedSettings:
    """The settings; an agent that nobody named is looked for on PATH, paths to protect join those of the settings."""
    if wish.verbose:
        _say_verbosely(*(f"Loading settings from {name}" for name in present(root, os.environ)))
    loaded = load(root, os.environ, flags, wish.flags_from)
    more: dict[str, Any] = {}
    if loaded.settings.agent.command is None and (found := find_agent(os.environ, root)):
        remarks.append(f"agent found on PATH: {found}")
        more["agent"] = {**flags.get("agent", {}), "command": found}
    if wish.protect:
        more["protectedPaths"] = list(dict.fromkeys((*loaded.settings.protected_paths, *wish.protect)))
    if box := _box(wish, loaded, root, flags, remarks):
        more["sandbox"] = {**flags.get("sandbox", {}), **box}
    checks, hint = _unnamed(wish, loaded, root, remarks)
    rails = [{"command": command} for command in checks] or loaded.raw["guardrails"]
    judged = [{"name": JUDGED, "method": SEMANTIC, "config": {"check_for": list(wish.judge)}}] if wish.judge else []
    if checks or judged:
        more["guardrails"] = [*rails, *judged]
    if more:
        loaded = load(root, os.environ, flags | more, wish.flags_from)
    if wish.verbose:
        _say_verbosely(f"Settings: {_in_one_line(loaded.raw)}")
    if AUTO in wish.checks:
        checks = [rail["command"] for rail in flags["guardrails"]]
    return WantedSettings(replace(wish, checks=tuple(checks) or wish.checks, find_checks=False), loaded, hint)


def _box(wish: Wish, loaded: Loaded, root: str, flags: dict[str, Any], remarks: list[str]) -> dict[str, Any]:
    """What holds of the sandbox in the place of the settings: nothing opens it that may not, hosts join the list."""
    if not wish.guarded:
        return {}
    if wish.brought.agent is not None and loaded.settings.sandbox.backend:
        return _unboxed(loaded)
    from ralphproof.cli.openings import held_open, told

    box = held_open(loaded, root, os.environ, flags)
    remarks += told(loaded, box)
    if wish.hosts:
        own = box.get("allowHosts", loaded.settings.sandbox.allow_hosts)
        box["allowHosts"] = list(dict.fromkeys((*own, *wish.hosts)))
    return box


def _unboxed(loaded: Loaded) -> dict[str, Any]:
    """No sandbox: an agent that is a function runs in this process. Raises Refused where somebody asked for one."""
    if not loaded.origins.get("sandbox.backend", "").startswith("preset "):
        raise Refused("an agent that is a function runs in this process, where no sandbox can hold it; name a program")
    return {"backend": None}


def _say_verbosely(*lines: str) -> None:
    from ralphproof.display.verbose import say

    for line in lines:
        say(sys.stderr, line)


def _in_one_line(raw: dict[str, Any]) -> str:
    import json

    from ralphproof.cli.config import hidden

    return json.dumps(hidden(raw), ensure_ascii=False)
