"""What in a repository would let git write elsewhere, or wait: links that lead out of it, pipes and the like.

An agent can leave such things, and every verb that writes through git looks for them first.
"""

from __future__ import annotations

import os

from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.layout import read_small

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.workspaces.layout import GitFolders

READ_ONLY = frozenset(("hooks", "info", "modules", "lfs"))  # what nothing of ours writes to
DEEP = ("logs", "refs")  # written at every depth; the rest at the top alone, objects one folder deeper
OWN_REFS = ("refs", "refs/ralph")  # what a save writes to, besides objects


def refuse_astray(root: str, folders: GitFolders) -> None:
    """Raise Refused where git would write elsewhere than into the repository."""
    if found := astray(root, folders):
        raise Refused(elsewhere(found))


def elsewhere(path: str) -> str:
    """What to say of such a path."""
    return f"git would write elsewhere than into the repository: look at {path}, and remove it"


def astray(root: str, folders: GitFolders) -> str:
    """The first path that git would not write where it stands; empty where all is as git makes it."""
    tops = dict.fromkeys((folders.git_dir, folders.common))
    return misplaced(root, folders) or _first(folders, (entry for top in tops for entry in _written(top)))


def astray_for_saving(root: str, folders: GitFolders, run: str) -> str:
    """The same for what a save writes to: objects, and our own refs."""
    common = folders.common
    places = [_in(common, only=("objects", "refs")), _in(os.path.join(common, "objects"))]
    places += [_in(os.path.join(common, folder), only=("ralph", run)) for folder in OWN_REFS]
    return misplaced(root, folders) or _first(folders, (entry for place in places for entry in place))


def _first(folders: GitFolders, entries: Iterator[os.DirEntry[str]]) -> str:
    inside: tuple[str, ...] = ()
    for entry in entries:
        if entry.is_symlink():
            inside = inside or tuple(os.path.realpath(one) + "/" for one in (folders.git_dir, folders.common))
            if not os.path.realpath(entry.path).startswith(inside):
                return entry.path
        elif not (entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False) or _is_socket(entry)):
            return entry.path
    return ""


def _is_socket(entry: os.DirEntry[str]) -> bool:
    """Git's own monitor of files has one in the repository. Nobody waits for one, or writes through it."""
    import stat

    return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)


def misplaced(root: str, folders: GitFolders) -> str:
    """`.git`, where it is a link to, or a file that names, the repository of somebody else."""
    entry = os.path.join(root, ".git")
    whole = os.path.isdir(entry) and not os.path.islink(entry)
    gone = not os.path.lexists(entry)  # which is another matter
    return "" if whole or gone or _is_theirs(root, folders) else entry


def _is_theirs(root: str, folders: GitFolders) -> bool:
    """Whether a repository outside is that of this work tree: a worktree's, a submodule's, or one put elsewhere."""
    common = os.path.realpath(folders.common)
    if folders.git_dir != folders.common:
        try:
            named = os.fsdecode(read_small(os.fsencode(os.path.join(folders.git_dir, "gitdir"))).strip())
        except OSError:
            return False
        place = os.path.dirname(os.path.join(folders.git_dir, named))
        return os.path.realpath(place) == os.path.realpath(root) or not os.path.isfile(os.path.join(place, ".git"))
    settings = _settings(common)
    if named := settings.get("worktree", ""):
        return os.path.realpath(os.path.join(common, named)) == os.path.realpath(root)
    # Else it is that of the folder it lies in, or of none.
    return os.path.basename(common) != ".git" and settings.get("bare") != "true"


def _settings(common: str) -> dict[str, str]:
    """The settings of a repository, by the last word of their names."""
    try:
        text = os.fsdecode(read_small(os.fsencode(os.path.join(common, "config"))))
    except OSError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines())
    return {name.strip().lower(): rest.strip().strip('"') for name, _, rest in pairs}


def _written(top: str) -> Iterator[os.DirEntry[str]]:
    yield from _in(top)
    yield from _in(os.path.join(top, "objects"))
    for name in DEEP:
        yield from _below(os.path.join(top, name))


def _below(folder: str) -> Iterator[os.DirEntry[str]]:
    for entry in _in(folder, but=frozenset()):
        yield entry
        if entry.is_dir(follow_symlinks=False):
            yield from _below(entry.path)


def _in(folder: str, only: tuple[str, ...] = (), but: frozenset[str] = READ_ONLY) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as listed:
            found = [entry for entry in listed if entry.name in only or (not only and entry.name not in but)]
    except OSError:
        return []
    return sorted(found, key=lambda entry: entry.name)
