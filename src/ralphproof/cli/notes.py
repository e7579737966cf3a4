"""What a run was asked to do, kept beside its logs: whoever begins or resumes it later reads it there."""

from __future__ import annotations

import os

from ralphproof.budget import Budget
from ralphproof.cli.hidden import each, hidden, revealed
from ralphproof.config.brought import NOTHING_BROUGHT
from ralphproof.config.settings import SandboxSettings
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING, pack, replace, unpack, value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from ralphproof.action import Rules
    from ralphproof.cli.order import Order, Wish
    from ralphproof.ledgers.folder import RunFolder
    from ralphproof.value import Json

WISH, LIMITS = "wish", "limits"


@value
class Bounds:
    """What a run is held to since it was last begun or taken up. Those that its agent begins are held no less."""

    budget: Budget
    protected: tuple[str, ...] = ()
    guarded: bool = True
    allow_unknown_cost: bool = False
    force: bool = False
    cost_matters: bool = False  # the user set a limit on cost, and wants it to hold
    sandbox: SandboxSettings | None = None  # with the kind that it really has


def keep_limits(folder: RunFolder, rules: Rules, order: Order, held_by: str) -> None:
    """Write down, durably, what a run may use, all told, and what else holds for it; `held_by` names its sandbox."""
    wish, settings, lax = order.wish, order.loaded.settings, order.wish.allow_unknown_cost
    kind = wish.boxed_by(settings)
    box = replace(settings.sandbox, backend=held_by if kind == "auto" else kind) if kind else None
    bounds = Bounds(
        rules.limits.budget, settings.protected_paths, wish.guarded, lax, wish.force, rules.cost_matters, box
    )
    folder.note(LIMITS, pack(bounds))


def same_box(box: SandboxSettings | None) -> dict[str, Any]:
    """The sandbox of a run as settings for another one, or for itself later."""
    if box is None:
        return {"backend": None}
    return {
        "backend": box.backend,
        "allowHosts": list(box.allow_hosts),
        "allowLocalPorts": list(box.allow_local_ports),
        "readPaths": list(box.read_paths),
    }


def kept_bounds(folder: RunFolder) -> Bounds | None:
    """What a run is held to; None where that is not written down."""
    noted = folder.noted(LIMITS)
    try:
        bounds = unpack(noted)
    except TypeError:
        return None
    return bounds if isinstance(bounds, Bounds) and isinstance(bounds.budget, Budget) else None


def kept_limits(folder: RunFolder) -> Budget | None:
    """What a run may use, all told; None where that is not written down."""
    bounds = kept_bounds(folder)
    return bounds.budget if bounds else None


def keep_wish(folder: RunFolder, wish: Wish, mask: Callable[[str], str], parent: str = "") -> None:
    """Write a wish down, durably, for the user's eyes alone. What a program brought along cannot be written.

    `parent` is the run whose agent asked for this one.
    """
    folder.note(WISH, _plain(wish, mask) | ({"parent": parent} if parent else {}))


def kept_parent(folder: RunFolder) -> str:
    """The run whose agent asked for this one; empty where none did."""
    noted = folder.noted(WISH)
    parent = noted.get("parent") if isinstance(noted, dict) else None
    return parent if isinstance(parent, str) else ""


def kept_wish(folder: RunFolder) -> tuple[Wish, bool] | None:
    """The wish of a run, and whether a program had brought parts of it along; None where there is none to read."""
    from ralphproof.cli.order import Wish

    noted = revealed(folder.noted(WISH), os.environ)
    if not isinstance(noted, dict) or not isinstance(flags := noted.get("flags"), dict):
        return None
    wish = unpack(noted.get("wish"))
    return (replace(wish, flags=flags), bool(noted.get("brought"))) if isinstance(wish, Wish) else None


def wish_text(wish: Wish, mask: Callable[[str], str]) -> bytes:
    """A wish in words, for a file that somebody else reads."""
    import json

    return json.dumps(_plain(wish, mask)).encode()


def _plain(wish: Wish, mask: Callable[[str], str]) -> dict[str, Json]:
    bare = replace(wish, flags={}, brought=NOTHING_BROUGHT, explain=False, step=False)
    noted: dict[str, Json] = {"wish": pack(bare), "flags": pack(wish.flags)}
    hide = {name: hidden(item, os.environ, mask) for name, item in noted.items()}
    return hide | {"brought": wish.brought != NOTHING_BROUGHT}


def wish_in(text: bytes, environ: Mapping[str, str]) -> Wish | None:
    """The wish in a file that anybody may have written; None where it holds none.

    `environ` is what its writer knows of variables: no other one is put in the place of its name.
    """
    import json

    from ralphproof.cli.order import Wish

    try:
        said: Any = revealed(each(json.loads(text), _sayable), environ)
        wish, flags = unpack(said["wish"]), said["flags"]
        paths = unpack(flags.pop("protectedPaths", []))  # they only join those of the settings, as flags' do
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, Refused):
        return None
    if not (isinstance(wish, Wish) and isinstance(flags, dict) and _sound(wish) and _texts(paths)):
        return None
    wish = replace(wish, protect=(*wish.protect, *paths), verify=None)
    return replace(wish, flags=flags, brought=NOTHING_BROUGHT, explain=False, verbose=False, apart=False, step=False)


def _sayable(text: str) -> str:
    """The text; raises ValueError for one that no argument list and no path can hold."""
    if "\0" in text:
        raise ValueError("NUL in a text")
    return text


def _sound(wish: Wish) -> bool:
    """Whether every field is of the kind that it should be."""
    text, file = wish.prompt if isinstance(wish.prompt, tuple) and len(wish.prompt) == 2 else (0, 0)
    lists = (wish.checks, wish.protect, wish.plain, wish.skip, wish.judge, wish.hosts, wish.may_change)
    bools = (wish.guarded, wish.allow_unknown_cost, wish.force, wish.apart, wish.find_checks, wish.allow_missing_check)
    words = (wish.skill, wish.type, wish.risk, wish.task_folder, wish.project, wish.task, wish.work, wish.flags_from)
    return (
        all(part is None or isinstance(part, str) for part in (text, file, wish.folder))
        and all(map(_texts, lists))
        and all(isinstance(word, str) for word in (*words, wish.words))
        and all(isinstance(said, bool) for said in bools)
    )


def _texts(item: object) -> bool:
    return isinstance(item, tuple) and all(isinstance(word, str) for word in item)


def overlaid(kept: Wish, given: Wish) -> Wish:
    """The kept wish with what was given anew. Prompt, task folder and names stay those of the run."""
    return replace(
        kept,
        flags=_one_total(_merged(kept.flags, given.flags), given.flags),
        checks=given.checks or (() if given.flags.get("guardrails") == [] else kept.checks),
        judge=given.judge or kept.judge,
        protect=tuple(dict.fromkeys((*kept.protect, *given.protect))),
        may_change=tuple(dict.fromkeys((*kept.may_change, *given.may_change))),
        guarded=(kept.guarded and given.guarded) or "sandbox" in given.flags,
        hosts=tuple(dict.fromkeys((*kept.hosts, *given.hosts))),
        allow_unknown_cost=kept.allow_unknown_cost or given.allow_unknown_cost,
        allow_missing_check=kept.allow_missing_check or given.allow_missing_check,
        verbose=given.verbose,
        force=kept.force or given.force,
        brought=given.brought,
        flags_from=given.flags_from,
        step=given.step,
    )


def _one_total(flags: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """A new total holds under both of its names where the run had it under both."""
    group = flags.get("supervise", {})
    if "maximumIterations" not in given or "maxRestarts" not in group:
        return flags
    return {**flags, "supervise": {**group, "maxRestarts": given["maximumIterations"]}}


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Both; groups are merged, anything else in `new` wins."""
    merged = dict(old)
    for name, item in new.items():
        before = merged.get(name)
        merged[name] = _merged(before, item) if isinstance(before, dict) and isinstance(item, dict) else item
    return merged
