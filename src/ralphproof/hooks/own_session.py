"""The command guard in a user's own session, run or no run: the rules it goes by.

The exceptions are the user's own: `guard.allow` and `guard.deny` of their settings file. A repository is anybody's, so
its settings may only add: its `guard.deny` and `protectedPaths` count, its `guard.allow` does not. Nothing that the
repository names is executed.
"""

from __future__ import annotations

import json
import os

from ralphproof.hooks import given
from ralphproof.hooks.pre_tool_use import Unusable, contents
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

FOLDER, FILES = ".ralph", ("settings.json", "settings.local.json")
NOWHERE = "/tmp"  # noqa: S108 (everybody may write there anyway: no more than that is the project's)


def rules(event: dict[str, Any], users_file: str, project_around: Callable[[str], str]) -> dict[str, Any]:
    """What the guard goes by in the session of this event; raises Unusable where a settings file cannot be read."""
    start = os.environ.get("CLAUDE_PROJECT_DIR", "")
    start = start if os.path.isabs(start) else given.text(event, "cwd")
    if not os.path.isabs(start):
        raise Unusable("the event must have a tool_name, a tool_input and a cwd")
    root, home = project_around(start), os.path.realpath(os.path.expanduser("~"))
    allow, deny, _ = _lists(users_file)
    protected: list[str] = []
    for name in FILES:
        _, denied, paths = _lists(os.path.join(root, FOLDER, name))
        deny, protected = deny + denied, protected + paths
    if f"{home}/".startswith(f"{root.rstrip('/')}/"):  # the home folder is nobody's project: all else is outside of it
        root = NOWHERE
    return {"root": root, "allow": allow, "deny": deny, "protected": protected}


def _lists(path: str) -> tuple[list[str], list[str], list[str]]:
    """What a settings file allows, denies and protects; nothing where there is no such file."""
    try:
        found = json.loads(contents(path, path))
    except FileNotFoundError:
        return [], [], []
    except OSError as error:
        raise Unusable(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise Unusable(f"{path}: not valid JSON; ralph config show says where") from error
    guard = found.get("guard", {}) if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(guard, dict):
        raise Unusable(f"{path}: the settings, and guard in them, must be objects")
    allow, deny = (_texts(path, f"guard.{name}", guard.get(name)) for name in ("allow", "deny"))
    if allow or deny:
        from ralphproof.guard.exceptions import bad_entry

        for entries, allows in ((allow, True), (deny, False)):
            for entry in entries:
                if wrong := bad_entry(entry, allows):
                    raise Unusable(f"{path}: guard.{'allow' if allows else 'deny'}: {entry!r} {wrong}")
    return allow, deny, _texts(path, "protectedPaths", found.get("protectedPaths"))


def _texts(path: str, key: str, given: object) -> list[str]:
    entries = [] if given is None else given
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise Unusable(f"{path}: {key} must be a list of texts")
    return entries
