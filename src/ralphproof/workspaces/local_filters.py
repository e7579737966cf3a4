"""Filters that a repository's own settings name. What keeps the books for a user runs none of them.

An agent can write `.git/config`. Filters that the user set up for all of their repositories (Git LFS, say) are theirs.
"""

from __future__ import annotations

import os

from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.gitcall import NOTHING_RUNS, call
from ralphproof.workspaces.layout import read_small

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphproof.workspaces.layout import GitFolders

FILES = ("config", "config.worktree")
OURS = ("local", "worktree")  # scopes that the repository has itself
PROGRAMS = ("clean", "smudge", "process")


def local_filters(git: str, root: str, folders: GitFolders, env: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The filters that the repository's own settings name, each with the programs that the user's settings name for it.

    Git is asked only where those settings speak of filters at all.
    """
    if not _may_have(folders):
        return {}
    argv = (git, "-C", root, *NOTHING_RUNS, "config", "-z", "--show-scope", "--get-regexp", r"^filter\.")
    words = call(argv, env).out.decode("utf-8", "surrogateescape").split("\0")[:-1]
    found: dict[str, dict[str, str]] = {}
    theirs: dict[str, dict[str, str]] = {}
    for scope, setting in zip(words[::2], words[1::2], strict=False):
        key, _, text = setting.partition("\n")
        name, _, program = key.removeprefix("filter.").rpartition(".")
        if scope in OURS:
            found.setdefault(name, {})
        elif program in PROGRAMS:
            theirs.setdefault(name, {})[program] = text
    return {name: theirs.get(name, {}) for name in found}


def _may_have(folders: GitFolders) -> bool:
    for place in {os.path.join(top, name) for top in (folders.git_dir, folders.common) for name in FILES}:
        try:
            text = read_small(os.fsencode(place)).lower()
        except FileNotFoundError:
            continue
        except OSError:
            return True
        if b"filter" in text or b"include" in text:
            return True
    return False


def without(filters: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The environment in which git runs of these filters what the user set up, and nothing else."""
    settings = [
        (f"filter.{name}.{program}", programs.get(program, ""))
        for name, programs in sorted(filters.items())
        for program in PROGRAMS
    ]
    settings += [(f"filter.{name}.required", "false") for name, programs in sorted(filters.items()) if not programs]
    given = {f"GIT_CONFIG_KEY_{at}": key for at, (key, _) in enumerate(settings)}
    given |= {f"GIT_CONFIG_VALUE_{at}": text for at, (_, text) in enumerate(settings)}
    return given | {"GIT_CONFIG_COUNT": str(len(settings))} if settings else {}
