"""RunRequest: what a caller asks for, and its stored form beside the run's logs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from ralphproof.base.errors import Refused
from ralphproof.base.redaction import map_strings, replace_secrets, resolve_secrets
from ralphproof.base.value import Json, pack, replace, unpack, value
from ralphproof.engine.agent import Agent
from ralphproof.engine.check import Check
from ralphproof.engine.environment import Observer
from ralphproof.engine.limits import CONTINUED_REASONS, Breach, NoSharedBudget, SharedBudget
from ralphproof.engine.outcome import Aborted
from ralphproof.engine.records import RunEnded
from ralphproof.engine.state import State
from ralphproof.settings.declarations import Settings
from ralphproof.settings.loader import COMMAND_LINE
from ralphproof.store.ledger import RunRow
from ralphproof.store.project import Project
from ralphproof.store.run_folder import RunFolder

RUN_ID_VARIABLE = "RALPH_RUN_ID"


@value
class RunTarget:
    """A new run, a new run whose id is fixed already (`run`), or the run to resume (`row`)."""

    run: str = ""
    row: RunRow | None = None


FRESH_RUN = RunTarget()


def find_parent_run(project: Project, target: RunTarget) -> str:
    """The run that this one is part of; empty for most. Raises Refused where the parent is over."""
    if target.row:
        return target.row.parent
    return _find_requesting_run(project, target.run) or find_enclosing_run(project)


def find_enclosing_run(project: Project) -> str:
    """The run whose agent started this process, if this repository's ledger has it and it has not ended; else empty."""
    name = os.environ.get(RUN_ID_VARIABLE, "")
    if not name:
        return ""
    ledger = project.ledger()
    try:
        row = ledger.row(name)
        return row.id if row and not row.ended else ""
    finally:
        ledger.close()


def _find_requesting_run(project: Project, run: str) -> str:
    """The run whose agent asked for this one; raises Refused where that is over, unless it only waits."""
    parent = load_requesting_run(RunFolder(project.root, run, project.store)) if run else ""
    if not parent:
        return ""
    ledger = project.ledger()
    try:
        row, end = ledger.row(parent), ledger.run_end(parent)
    finally:
        ledger.close()
    waits = isinstance(end, RunEnded) and isinstance(end.outcome, Aborted) and end.outcome.reason in CONTINUED_REASONS
    if row is None or (end is not None and not waits):
        raise Refused(f"run {parent} asked for this one, and is {'over' if row else 'not on record'}; begin it anew")
    return parent


# RunRequest: what a caller asks for, and its stored form beside the run's logs.


@value
class CustomComponents:
    """An agent that replaces the one of the settings; checks, limits and observers in addition to theirs.

    `shared_budget` is a budget that several runs share.
    """

    agent: Agent | None = None
    checks: tuple[Check, ...] = ()
    limits: tuple[Callable[[State], Breach | None], ...] = ()
    observers: tuple[Observer, ...] = ()
    shared_budget: SharedBudget = NoSharedBudget()


NO_CUSTOM_COMPONENTS = CustomComponents()


@value
class CheckRequest:
    """Checks of a requested run. `commands` may hold the word `auto`; `judge` has criteria for a model to judge.

    `may_change` are files that decide the checks' results, and that the work may change all the same. With `find` the
    checks that the project's files name are used where none is configured; with `allow_missing` a check that cannot be
    run yet is left to the agent to add.
    """

    commands: tuple[str, ...] = ()
    judge: tuple[str, ...] = ()
    may_change: tuple[str, ...] = ()
    find: bool = False
    allow_missing: bool = False


@value
class TaskRequest:
    """The task of a requested run: its id in the ledger, the stages to leave out, the folder of its signal files, and
    the names of project and task that the message bus shows.
    """

    id: str = ""
    skip_stages: tuple[str, ...] = ()
    folder: str = ""
    project: str = ""
    name: str = ""


@value
class FitnessRequest:
    """What the user says about the fitness of a task for a loop; empty: it is guessed where needed."""

    task_type: str = ""
    risk: str = ""
    force: bool = False
    explain: bool = False


@value
class StoriesRequest:
    """The stories of a requested run: their folder, relative to the project's root (empty: `ralph`), and their verify
    commands when the run began, None for a new run.
    """

    folder: str = ""
    verify_commands: tuple[str, ...] | None = None


@value
class RunRequest:
    """A requested run. `flags` are settings that override all files; `flags_source` names their origin in messages.

    `program` is an argument list that is run as the agent, without a prompt. A run that is not `guarded` has no
    sandbox; `allow_hosts` may be reached from one. With `in_worktree` the run has a worktree of its own, which is
    prepared first. `message` is added to the first prompt. With `step` the run stops after one iteration; this is not
    stored.
    """

    prompt: tuple[str | None, str | None]  # a text, or the path of a file
    flags: dict[str, Any]
    project_dir: str | None = None
    flags_source: str = COMMAND_LINE
    checks: CheckRequest = CheckRequest()
    task: TaskRequest = TaskRequest()
    fitness: FitnessRequest = FitnessRequest()
    stories: StoriesRequest = StoriesRequest()
    skill: str = ""
    program: tuple[str, ...] = ()
    custom: CustomComponents = CustomComponents()
    protect: tuple[str, ...] = ()
    guarded: bool = True
    allow_hosts: tuple[str, ...] = ()
    allow_unknown_cost: bool = False
    in_worktree: bool = False
    message: str = ""
    verbose: bool = False
    step: bool = False

    def sandbox_kind(self, settings: Settings) -> str | None:
        """The kind of sandbox for the run; None for none."""
        return settings.sandbox.backend if self.guarded else None


EMPTY_REQUEST = RunRequest(("", None), {})


# Storage, for the process that begins or resumes the run.


REQUEST_NOTE, CONSTRAINTS_NOTE = "request", "limits"


def save_request(folder: RunFolder, request: RunRequest, mask: Callable[[str], str], requesting_run: str = "") -> None:
    """Store a request durably, readable for the user only. Custom components cannot be stored.

    `requesting_run` is the run whose agent asked for this one.
    """
    folder.note(REQUEST_NOTE, _request_json(request, mask) | ({"parent": requesting_run} if requesting_run else {}))


def load_requesting_run(folder: RunFolder) -> str:
    """The run whose agent asked for this one; empty where none did."""
    saved = folder.noted(REQUEST_NOTE)
    parent = saved.get("parent") if isinstance(saved, dict) else None
    return parent if isinstance(parent, str) else ""


def load_request(folder: RunFolder) -> tuple[RunRequest, bool] | None:
    """The stored request of a run, and whether it had custom components, which are lost; None where there is none."""

    saved = resolve_secrets(folder.noted(REQUEST_NOTE), os.environ)
    if not isinstance(saved, dict) or not isinstance(flags := saved.get("flags"), dict):
        return None
    request = unpack(saved.get("request"))
    return (replace(request, flags=flags), bool(saved.get("custom"))) if isinstance(request, RunRequest) else None


def serialize_request(request: RunRequest, mask: Callable[[str], str]) -> bytes:
    """A request as JSON, for a file that another process reads."""
    return json.dumps(_request_json(request, mask)).encode()


def _request_json(request: RunRequest, mask: Callable[[str], str]) -> dict[str, Json]:
    fitness = replace(request.fitness, explain=False)
    storable = replace(request, flags={}, custom=NO_CUSTOM_COMPONENTS, fitness=fitness, step=False)
    data: dict[str, Json] = {"request": pack(storable), "flags": pack(request.flags)}
    masked = {name: replace_secrets(item, os.environ, mask) for name, item in data.items()}
    return masked | {"custom": request.custom != NO_CUSTOM_COMPONENTS}


def parse_request(text: bytes, environ: Mapping[str, str]) -> RunRequest | None:
    """The request in an untrusted file; None where it holds none.

    References to variables are resolved from `environ` only, which has what the writer of the file could know.
    """
    try:
        data: Any = resolve_secrets(map_strings(json.loads(text), _reject_nul), environ)
        request, flags = unpack(data["request"]), data["flags"]
        paths = unpack(flags.pop("protectedPaths", []))  # added to the settings' own, as with flags
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, Refused):
        return None
    if not (
        isinstance(request, RunRequest)
        and isinstance(flags, dict)
        and _has_declared_types(request, EMPTY_REQUEST)
        and _is_prompt(request.prompt)
        and _is_text_tuple(paths)
    ):
        return None
    return replace(
        request,
        flags=flags,
        protect=(*request.protect, *paths),
        stories=replace(request.stories, verify_commands=None),
        fitness=replace(request.fitness, explain=False),
        custom=NO_CUSTOM_COMPONENTS,
        verbose=False,
        in_worktree=False,
        step=False,
    )


def _reject_nul(text: str) -> str:
    """The text; raises ValueError for a NUL, which no argument list and no path can hold."""
    if "\0" in text:
        raise ValueError("NUL in a text")
    return text


def _has_declared_types(item: Any, default: Any) -> bool:
    """Whether every field of a request or a part of it has the type of its default; None: optional text."""
    if isinstance(default, tuple):
        return _is_text_tuple(item)
    if type(item) is not type(default):
        return default is None and isinstance(item, str)
    names = (name for name in getattr(default, "__match_args__", ()) if name not in ("prompt", "custom"))
    return all(_has_declared_types(getattr(item, name), getattr(default, name)) for name in names)


def _is_prompt(item: object) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and all(part is None or isinstance(part, str) for part in item)


def _is_text_tuple(item: object) -> bool:
    return isinstance(item, tuple) and all(isinstance(word, str) for word in item)


def override_request(saved: RunRequest, overrides: RunRequest) -> RunRequest:
    """The saved request with new flags. Prompt, task folder and names stay those of the run."""
    return replace(
        saved,
        flags=_sync_restart_limit(_merge_settings(saved.flags, overrides.flags), overrides.flags),
        checks=_override_checks(saved.checks, overrides.checks, overrides.flags.get("guardrails") == []),
        protect=tuple(dict.fromkeys((*saved.protect, *overrides.protect))),
        guarded=(saved.guarded and overrides.guarded) or "sandbox" in overrides.flags,
        allow_hosts=tuple(dict.fromkeys((*saved.allow_hosts, *overrides.allow_hosts))),
        allow_unknown_cost=saved.allow_unknown_cost or overrides.allow_unknown_cost,
        verbose=overrides.verbose,
        fitness=replace(saved.fitness, force=saved.fitness.force or overrides.fitness.force),
        custom=overrides.custom,
        flags_source=overrides.flags_source,
        step=overrides.step,
    )


def _override_checks(saved: CheckRequest, overrides: CheckRequest, without: bool) -> CheckRequest:
    return replace(
        saved,
        commands=overrides.commands or (() if without else saved.commands),
        judge=overrides.judge or saved.judge,
        may_change=tuple(dict.fromkeys((*saved.may_change, *overrides.may_change))),
        allow_missing=saved.allow_missing or overrides.allow_missing,
    )


def _sync_restart_limit(flags: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """Set a new total under both of its names, where the run had it under both."""
    supervise = flags.get("supervise", {})
    if "maximumIterations" not in overrides or "maxRestarts" not in supervise:
        return flags
    return {**flags, "supervise": {**supervise, "maxRestarts": overrides["maximumIterations"]}}


def _merge_settings(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Both merged: groups recursively, else the value of `new` wins."""
    merged = dict(old)
    for name, setting in new.items():
        before = merged.get(name)
        merged[name] = (
            _merge_settings(before, setting) if isinstance(before, dict) and isinstance(setting, dict) else setting
        )
    return merged


def resolve_task_folder(name: str) -> str:
    """The absolute path of a task folder; raises Refused where it cannot be one."""
    if not name:
        raise Refused("the task folder has an empty name; name a folder, or leave it out")
    path = os.path.abspath(name)
    if os.path.lexists(path) and not os.path.isdir(path):
        raise Refused(f"the task folder {path} is not a directory; name another one")
    return path
