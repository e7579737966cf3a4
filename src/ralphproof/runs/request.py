"""A request for a run (RunRequest), and its saved form beside the run's logs."""

from __future__ import annotations

import os

from ralphproof.base.errors import Refused
from ralphproof.base.secret_references import map_strings, replace_secrets, resolve_secrets
from ralphproof.base.value import TYPE_CHECKING, pack, replace, unpack, value
from ralphproof.engine.budget import NoSharedBudget
from ralphproof.settings.loader import COMMAND_LINE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from ralphproof.base.value import Json
    from ralphproof.engine.agent import Agent
    from ralphproof.engine.budget import SharedBudget
    from ralphproof.engine.check import Check
    from ralphproof.engine.environment import Observer
    from ralphproof.engine.limits import Breach
    from ralphproof.engine.state import State
    from ralphproof.settings.model import Settings
    from ralphproof.store.run_folder import RunFolder


# Parts of a run that its caller brings along, beside those that settings name.


@value
class CustomComponents:
    """An agent in place of the settings' own; checks, limits and observers beside theirs.

    `kitty` is a budget that it shares with other runs.
    """

    agent: Agent | None = None
    checks: tuple[Check, ...] = ()
    limits: tuple[Callable[[State], Breach | None], ...] = ()
    observers: tuple[Observer, ...] = ()
    shared_budget: SharedBudget = NoSharedBudget()


NO_CUSTOM_COMPONENTS = CustomComponents()


@value
class RunRequest:
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
    project_dir: str | None = None
    checks: tuple[str, ...] = ()
    protect: tuple[str, ...] = ()
    guarded: bool = True
    allow_unknown_cost: bool = False
    verbose: bool = False
    skill: str = ""
    task_type: str = ""
    risk: str = ""
    force: bool = False
    explain: bool = False
    custom: CustomComponents = CustomComponents()
    flags_source: str = COMMAND_LINE
    program: tuple[str, ...] = ()
    task_folder: str = ""
    project: str = ""
    task: str = ""
    task_id: str = ""
    skip_stages: tuple[str, ...] = ()
    judge: tuple[str, ...] = ()
    story_folder: str = ""
    verify_commands: tuple[str, ...] | None = None
    allow_hosts: tuple[str, ...] = ()
    may_change: tuple[str, ...] = ()
    in_worktree: bool = False
    message: str = ""
    step: bool = False
    find_checks: bool = False
    allow_missing_check: bool = False

    def sandbox_kind(self, settings: Settings) -> str | None:
        """The kind of sandbox that the run is to have; None for none."""
        return settings.sandbox.backend if self.guarded else None


EMPTY_REQUEST = RunRequest(("", None), {})


# What a run was asked to do, kept beside its logs: whoever begins or resumes it later reads it there.


REQUEST_NOTE, CONSTRAINTS_NOTE = "wish", "limits"


def save_request(folder: RunFolder, request: RunRequest, mask: Callable[[str], str], parent: str = "") -> None:
    """Write a wish down, durably, for the user's eyes alone. What a program brought along cannot be written.

    `parent` is the run whose agent asked for this one.
    """
    folder.note(REQUEST_NOTE, _request_json(request, mask) | ({"parent": parent} if parent else {}))


def load_requesting_run(folder: RunFolder) -> str:
    """The run whose agent asked for this one; empty where none did."""
    noted = folder.noted(REQUEST_NOTE)
    parent = noted.get("parent") if isinstance(noted, dict) else None
    return parent if isinstance(parent, str) else ""


def load_request(folder: RunFolder) -> tuple[RunRequest, bool] | None:
    """The wish of a run, and whether a program had brought parts of it along; None where there is none to read."""

    noted = resolve_secrets(folder.noted(REQUEST_NOTE), os.environ)
    if not isinstance(noted, dict) or not isinstance(flags := noted.get("flags"), dict):
        return None
    request = unpack(noted.get("wish"))
    return (replace(request, flags=flags), bool(noted.get("brought"))) if isinstance(request, RunRequest) else None


def serialize_request(request: RunRequest, mask: Callable[[str], str]) -> bytes:
    """A wish in words, for a file that somebody else reads."""
    import json

    return json.dumps(_request_json(request, mask)).encode()


def _request_json(request: RunRequest, mask: Callable[[str], str]) -> dict[str, Json]:
    bare = replace(request, flags={}, custom=NO_CUSTOM_COMPONENTS, explain=False, step=False)
    noted: dict[str, Json] = {"wish": pack(bare), "flags": pack(request.flags)}
    hide = {name: replace_secrets(item, os.environ, mask) for name, item in noted.items()}
    return hide | {"brought": request.custom != NO_CUSTOM_COMPONENTS}


def parse_request(text: bytes, environ: Mapping[str, str]) -> RunRequest | None:
    """The wish in a file that anybody may have written; None where it holds none.

    `environ` is what its writer knows of variables: no other one is put in the place of its name.
    """
    import json

    try:
        said: Any = resolve_secrets(map_strings(json.loads(text), _reject_nul), environ)
        request, flags = unpack(said["wish"]), said["flags"]
        paths = unpack(flags.pop("protectedPaths", []))  # they only join those of the settings, as flags' do
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, Refused):
        return None
    if not (
        isinstance(request, RunRequest)
        and isinstance(flags, dict)
        and _has_valid_types(request)
        and _is_text_tuple(paths)
    ):
        return None
    request = replace(request, protect=(*request.protect, *paths), verify_commands=None)
    return replace(
        request, flags=flags, custom=NO_CUSTOM_COMPONENTS, explain=False, verbose=False, in_worktree=False, step=False
    )


def _reject_nul(text: str) -> str:
    """The text; raises ValueError for one that no argument list and no path can hold."""
    if "\0" in text:
        raise ValueError("NUL in a text")
    return text


def _has_valid_types(request: RunRequest) -> bool:
    """Whether every field is of the kind that it should be."""
    text, file = request.prompt if isinstance(request.prompt, tuple) and len(request.prompt) == 2 else (0, 0)
    lists = (
        request.checks,
        request.protect,
        request.program,
        request.skip_stages,
        request.judge,
        request.allow_hosts,
        request.may_change,
    )
    bools = (
        request.guarded,
        request.allow_unknown_cost,
        request.force,
        request.in_worktree,
        request.find_checks,
        request.allow_missing_check,
    )
    words = (
        request.skill,
        request.task_type,
        request.risk,
        request.task_folder,
        request.project,
        request.task,
        request.task_id,
        request.flags_source,
    )
    return (
        all(part is None or isinstance(part, str) for part in (text, file, request.project_dir))
        and all(map(_is_text_tuple, lists))
        and all(isinstance(word, str) for word in (*words, request.message))
        and all(isinstance(said, bool) for said in bools)
    )


def _is_text_tuple(item: object) -> bool:
    return isinstance(item, tuple) and all(isinstance(word, str) for word in item)


def override_request(kept: RunRequest, given: RunRequest) -> RunRequest:
    """The kept wish with what was given anew. Prompt, task folder and names stay those of the run."""
    return replace(
        kept,
        flags=_sync_restart_limit(_merge_settings(kept.flags, given.flags), given.flags),
        checks=given.checks or (() if given.flags.get("guardrails") == [] else kept.checks),
        judge=given.judge or kept.judge,
        protect=tuple(dict.fromkeys((*kept.protect, *given.protect))),
        may_change=tuple(dict.fromkeys((*kept.may_change, *given.may_change))),
        guarded=(kept.guarded and given.guarded) or "sandbox" in given.flags,
        allow_hosts=tuple(dict.fromkeys((*kept.allow_hosts, *given.allow_hosts))),
        allow_unknown_cost=kept.allow_unknown_cost or given.allow_unknown_cost,
        allow_missing_check=kept.allow_missing_check or given.allow_missing_check,
        verbose=given.verbose,
        force=kept.force or given.force,
        custom=given.custom,
        flags_source=given.flags_source,
        step=given.step,
    )


def _sync_restart_limit(flags: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """A new total holds under both of its names where the run had it under both."""
    group = flags.get("supervise", {})
    if "maximumIterations" not in given or "maxRestarts" not in group:
        return flags
    return {**flags, "supervise": {**group, "maxRestarts": given["maximumIterations"]}}


def _merge_settings(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Both; groups are merged, anything else in `new` wins."""
    merged = dict(old)
    for name, item in new.items():
        before = merged.get(name)
        merged[name] = _merge_settings(before, item) if isinstance(before, dict) and isinstance(item, dict) else item
    return merged


def resolve_task_folder(given: str) -> str:
    """The full path of a task folder; raises Refused where it can be none."""
    if not given:
        raise Refused("the task folder has an empty name; name a folder, or leave it out")
    path = os.path.abspath(given)
    if os.path.lexists(path) and not os.path.isdir(path):
        raise Refused(f"the task folder {path} is not a directory; name another one")
    return path
