"""What a run was asked to do, kept beside its logs: whoever begins or resumes it later reads it there."""

from __future__ import annotations

import os

from ralphproof.cli.hidden import hidden, revealed
from ralphproof.config.brought import NOTHING_BROUGHT
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING, pack, replace, unpack

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ralphproof.cli.order import Wish
    from ralphproof.ledgers.folder import RunFolder
    from ralphproof.value import Json

WISH = "wish"


def keep_wish(folder: RunFolder, wish: Wish, mask: Callable[[str], str]) -> None:
    """Write a wish down, durably, for the user's eyes alone. What a program brought along cannot be written."""
    folder.note(WISH, _plain(wish, mask))


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


def _plain(wish: Wish, mask: Callable[[str], str]) -> Json:
    bare = replace(wish, flags={}, brought=NOTHING_BROUGHT, explain=False)
    noted: Json = {"wish": pack(bare), "flags": pack(wish.flags), "brought": wish.brought != NOTHING_BROUGHT}
    return hidden(noted, os.environ, mask)


def wish_in(text: bytes) -> Wish | None:
    """The wish in a file that anybody may have written; None where it holds none."""
    import json

    from ralphproof.cli.order import Wish

    try:
        said: Any = revealed(json.loads(text), os.environ)
        wish = unpack(said["wish"])
        flags = said["flags"]
    except (ValueError, TypeError, KeyError, RecursionError, Refused):
        return None
    sound = isinstance(wish, Wish) and isinstance(flags, dict) and _sound(wish)
    return replace(wish, flags=flags, brought=NOTHING_BROUGHT) if sound else None


def _sound(wish: Wish) -> bool:
    """Whether every field is of the kind that it should be."""
    text, file = wish.prompt if isinstance(wish.prompt, tuple) and len(wish.prompt) == 2 else (0, 0)
    lists = (wish.checks, wish.protect, wish.plain)
    words = (wish.skill, wish.type, wish.risk, wish.task_folder, wish.project, wish.task, wish.flags_from)
    return (
        all(part is None or isinstance(part, str) for part in (text, file, wish.folder))
        and all(isinstance(item, tuple) and all(isinstance(word, str) for word in item) for item in lists)
        and all(isinstance(word, str) for word in words)
    )


def overlaid(kept: Wish, given: Wish) -> Wish:
    """The kept wish with what was given anew. Prompt, task folder and names stay those of the run."""
    return replace(
        kept,
        flags=_one_total(_merged(kept.flags, given.flags), given.flags),
        checks=given.checks or kept.checks,
        protect=tuple(dict.fromkeys((*kept.protect, *given.protect))),
        guarded=kept.guarded and given.guarded,
        allow_unknown_cost=kept.allow_unknown_cost or given.allow_unknown_cost,
        verbose=given.verbose,
        force=kept.force or given.force,
        brought=given.brought,
        flags_from=given.flags_from,
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
