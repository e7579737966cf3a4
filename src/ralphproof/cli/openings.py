"""What a repository may not do to a sandbox that its user asked for: turn it off, or open it."""

from __future__ import annotations

import os

from ralphproof.config.environment import PREFIX
from ralphproof.config.load import read_files
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ralphproof.config.load import Loaded

COMMITTED, LOCAL = ".ralph/settings.json", ".ralph/settings.local.json"
LISTS = {
    "allowHosts": "--allow-host",
    "allowLocalPorts": "your own settings",
    "readPaths": "your own settings",
}  # what opens a sandbox, and where the user may say the same


def held_open(loaded: Loaded, root: str, environ: Mapping[str, str], flags: dict[str, Any]) -> dict[str, Any]:
    """Settings of the sandbox that hold in the place of those that are committed; nothing where all of them hold.

    Whoever asks for a sandbox, by a flag or in settings of their own, gets it as they say it: only where the repository
    itself asks for one is it the repository's to say what can be reached from it.
    """
    own, by = _users(root, environ), loaded.origins.get("sandbox.backend", "")
    by_variable = by.startswith(PREFIX) and loaded.settings.sandbox.backend
    if not (flags.get("sandbox", {}).get("backend") or own.get("backend") or by_variable):
        return {}
    named = (*(["backend"] if own.get("backend") else []), *LISTS)
    origins = {name: loaded.origins.get(f"sandbox.{name}", "") for name in named}
    theirs = {COMMITTED, *([LOCAL] if LOCAL in origins.values() and _tracked(LOCAL, root, environ) else [])}
    return {name: own.get(name, []) for name, origin in origins.items() if origin in theirs}


def told(loaded: Loaded, instead: dict[str, Any]) -> list[str]:
    """What to say of that, in sentences."""
    said = loaded.raw["sandbox"]
    lines: list[str] = []
    for name, here in instead.items():
        if said[name] == here:
            continue
        if name == "backend":
            lines.append(
                f"{COMMITTED} asks for sandbox {said[name] or 'none'}; your own settings say {here}, which holds"
            )
        else:
            entries, file = ", ".join(map(str, said[name])), loaded.origins[f"sandbox.{name}"]
            way = f"{LISTS[name]} can" if file == LOCAL else f"{LISTS[name]} or {LOCAL} can"
            lines.append(f"{file} may not open a sandbox that you asked for ({name}: {entries}); {way}")
    return lines


def _tracked(path: str, root: str, environ: Mapping[str, str]) -> bool:
    """Whether a repository brings a file that should be its user's own."""
    from ralphproof.workspaces.gitcall import call, find_program, plain_environment

    git = find_program("git", environ.get("PATH", os.defpath), outside=root)
    words = [git or "", "-c", "core.fsmonitor=false", "-C", root, "ls-files", "--error-unmatch", "--", path]
    return bool(git) and call(words, plain_environment(environ)).code == 0


def _users(root: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """What the user's own file says of sandboxes."""
    data = read_files(root, environ)[0].data
    found = data.get("sandbox") if isinstance(data, dict) else None
    return found if isinstance(found, dict) else {}
