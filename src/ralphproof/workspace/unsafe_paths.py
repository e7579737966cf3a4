"""Links, pipes and devices in a repository through which git would write elsewhere or block.

An agent can create them, so every command that writes through git looks for them first.
"""

from __future__ import annotations

import os

from ralphproof.base.errors import Refused
from ralphproof.base.git_layout import read_regular_file
from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.base.git_layout import GitFolders

NEVER_WRITTEN = frozenset(("hooks", "info", "modules", "lfs"))  # what nothing of ours writes to
RECURSIVE_FOLDERS = ("logs", "refs")  # written at every depth; the rest at the top alone, objects one folder deeper
OWN_REFS = ("refs", "refs/ralph")  # what a save writes to, besides objects


def refuse_unsafe_repository(root: str, folders: GitFolders) -> None:
    """Raise Refused where git would write elsewhere than into the repository."""
    if unsafe := find_unsafe_path(root, folders):
        raise Refused(describe_unsafe_path(unsafe))


def describe_unsafe_path(path: str) -> str:
    """The message about such a path."""
    return f"git would write elsewhere than into the repository: look at {path}, and remove it"


def find_unsafe_path(root: str, folders: GitFolders) -> str:
    """The first such path; empty where there is none."""
    tops = dict.fromkeys((folders.git_dir, folders.common))
    return find_foreign_git_dir(root, folders) or _first_unsafe(
        folders, (entry for top in tops for entry in _written_entries(top))
    )


def find_unsafe_snapshot_path(root: str, folders: GitFolders, run: str) -> str:
    """The same, only for what a snapshot writes to: objects, and our own refs."""
    common = folders.common
    places = [_list_entries(common, only=("objects", "refs")), _list_entries(os.path.join(common, "objects"))]
    places += [_list_entries(os.path.join(common, folder), only=("ralph", run)) for folder in OWN_REFS]
    return find_foreign_git_dir(root, folders) or _first_unsafe(folders, (entry for place in places for entry in place))


def _first_unsafe(folders: GitFolders, entries: Iterator[os.DirEntry[str]]) -> str:
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
    """Git's file system monitor has a socket in the repository; git neither blocks on it nor writes through it."""
    import stat

    return stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)


def find_foreign_git_dir(root: str, folders: GitFolders) -> str:
    """`.git`, where it is a link or a file that leads to the repository of another work tree."""
    entry = os.path.join(root, ".git")
    whole = os.path.isdir(entry) and not os.path.islink(entry)
    gone = not os.path.lexists(entry)  # which is another matter
    return "" if whole or gone or _belongs_to_work_tree(root, folders) else entry


def _belongs_to_work_tree(root: str, folders: GitFolders) -> bool:
    """Whether an outside repository belongs to this work tree: a worktree, a submodule, or a separate git dir."""
    common = os.path.realpath(folders.common)
    if folders.git_dir != folders.common:
        try:
            named = os.fsdecode(read_regular_file(os.fsencode(os.path.join(folders.git_dir, "gitdir"))).strip())
        except OSError:
            return False
        place = os.path.dirname(os.path.join(folders.git_dir, named))
        return os.path.realpath(place) == os.path.realpath(root) or not os.path.isfile(os.path.join(place, ".git"))
    settings = _read_config(common)
    if named := settings.get("worktree", ""):
        return os.path.realpath(os.path.join(common, named)) == os.path.realpath(root)
    # Otherwise it belongs to the folder that contains it, or to none.
    return os.path.basename(common) != ".git" and settings.get("bare") != "true"


def _read_config(common: str) -> dict[str, str]:
    """The settings of a repository, by the last part of their names."""
    try:
        text = os.fsdecode(read_regular_file(os.fsencode(os.path.join(common, "config"))))
    except OSError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines())
    return {name.strip().lower(): rest.strip().strip('"') for name, _, rest in pairs}


def _written_entries(top: str) -> Iterator[os.DirEntry[str]]:
    yield from _list_entries(top)
    yield from _list_entries(os.path.join(top, "objects"))
    for name in RECURSIVE_FOLDERS:
        yield from _entries_below(os.path.join(top, name))


def _entries_below(folder: str) -> Iterator[os.DirEntry[str]]:
    for entry in _list_entries(folder, but=frozenset()):
        yield entry
        if entry.is_dir(follow_symlinks=False):
            yield from _entries_below(entry.path)


def _list_entries(
    folder: str, only: tuple[str, ...] = (), but: frozenset[str] = NEVER_WRITTEN
) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as listed:
            entries = [entry for entry in listed if entry.name in only or (not only and entry.name not in but)]
    except OSError:
        return []
    return sorted(entries, key=lambda entry: entry.name)
