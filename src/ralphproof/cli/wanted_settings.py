"""The settings of one run: those of all files, with what its flags, its skill and `--check auto` say."""

from __future__ import annotations

import os
import sys

from ralphproof.config.agents import find_agent
from ralphproof.config.load import Loaded, load, present
from ralphproof.errors import Refused
from ralphproof.plan import SEMANTIC
from ralphproof.value import TYPE_CHECKING, replace

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.cli.order import Wish
    from ralphproof.skill import Skill

# Settings must name an agent; where one is brought along, theirs is not asked, and none of their models is.
NOT_ASKED: dict[str, Any] = {"command": "scripted -", "model": None, "ladder": [], "rotate": [], "fallbacks": []}

JUDGED = "judged"  # the check that --judge makes


def loaded_for(wish: Wish, skill: Skill | None, root: str, remarks: list[str]) -> Loaded:
    """The settings that hold for what is asked for. What there is to say of them joins the remarks."""
    loaded = _loaded(wish, root, _flags(wish, skill, root, remarks), remarks)
    if not wish.work:
        return loaded
    from ralphproof.config.stages import task_iterations

    return replace(loaded, settings=replace(loaded.settings, maximum_iterations=task_iterations(loaded)))


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
    elif skill is not None and skill.verification:
        flags |= _verified(skill, load(root, os.environ, flags, wish.flags_from), wish, root, remarks)
    if wish.judge:
        checks = flags.get("guardrails") or load(root, os.environ, flags, wish.flags_from).raw["guardrails"]
        judged = {"name": JUDGED, "method": SEMANTIC, "config": {"check_for": list(wish.judge)}}
        flags["guardrails"] = [*checks, judged]
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
    commands = [command for command in given if command != "auto"]
    if "auto" in given:
        from ralphproof.config.discover import propose_checks

        proposals = propose_checks(root)
        if not proposals:
            raise Refused("--check auto found no check in this project's files; name one: --check CMD")
        remarks.extend(f"check found: {item.command} ({item.source})" for item in proposals)
        commands += [item.command for item in proposals]
    return [{"command": command} for command in dict.fromkeys(commands)]


def _loaded(wish: Wish, root: str, flags: dict[str, Any], remarks: list[str]) -> Loaded:
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
    if more:
        loaded = load(root, os.environ, flags | more, wish.flags_from)
    if wish.verbose:
        _say_verbosely(f"Settings: {_in_one_line(loaded.raw)}")
    return loaded


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
