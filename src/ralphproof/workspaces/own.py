"""Files that only the user and the harness change, although they lie in the project."""

from __future__ import annotations

import os

from ralphproof.value import TYPE_CHECKING, value
from ralphproof.workspaces.protected import literal

if TYPE_CHECKING:
    from collections.abc import Mapping


@value
class Own:
    """A file, a folder or a pattern, from the project's root, and what it is. `.git/hooks/` is where git looks."""

    path: str
    rule: str


HOOKS = ".git/hooks/"
USUAL = (
    Own(".ralph/settings.json", "the settings of ralph"),
    Own(".ralph/settings.local.json", "the settings of ralph"),
    Own(".ralph/skills/", "skills"),
    Own(".ralph/templates/", "the prompts of stages"),
    Own(".ralph-active", "the marker of the run"),
    Own(".claude/skills/", "skills"),
    Own(".claude/settings*.json", "the settings of Claude Code"),
    Own(".claude/hooks/", "the hooks of Claude Code"),
    Own(".mcp.json", "the servers that offer tools"),
    Own(HOOKS, "the hooks of git"),
    Own(".git/commondir", "where git looks for its settings"),
)


def own_files(root: str, more: Mapping[str, str]) -> tuple[Own, ...]:
    """What to put back in every run, and files of this one that lie in the project, by what they are."""
    made = list(USUAL)
    for file, rule in more.items():
        folder, name = os.path.split(os.path.join(root, file))
        path = os.path.relpath(os.path.join(os.path.realpath(folder), name), os.path.realpath(root))
        if path.split("/")[0] != "..":
            made.append(Own(literal(path), rule))
    return tuple(made)
