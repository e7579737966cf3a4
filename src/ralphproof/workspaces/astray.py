"""What in a repository would let git write elsewhere, or wait: links that lead out of it, pipes and the like."""

from __future__ import annotations

import os
import stat

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

READ_ONLY = frozenset(("hooks", "info", "modules", "worktrees", "lfs"))  # what no commit writes to
DEEP = ("logs", "refs")  # written at every depth; the rest at the top alone, objects one folder deeper


def astray(git_dir: str, common: str) -> str:
    """The first path that git would not write where it stands; empty where all is as git makes it."""
    inside = tuple(os.path.realpath(folder) + "/" for folder in (git_dir, common))
    for path in (path for top in dict.fromkeys((git_dir, common)) for path in _written(top)):
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            if not os.path.realpath(path).startswith(inside):
                return path
        elif not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            return path
    return ""


def _written(top: str) -> Iterator[str]:
    yield from _in(top)
    yield from _in(os.path.join(top, "objects"))
    for name in DEEP:
        for folder, folders, files in os.walk(os.path.join(top, name)):
            yield from (os.path.join(folder, one) for one in (*folders, *files))


def _in(folder: str) -> list[str]:
    try:
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name not in READ_ONLY]
    except OSError:
        return []
