"""Which repository this is: one id that follows it when it moves, shared by its worktrees, never by a copy."""

from __future__ import annotations

import fcntl
import os
import stat

from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.astray import misplaced
from ralphproof.workspaces.durable import write_all
from ralphproof.workspaces.layout import git_folders, read_small

if TYPE_CHECKING:
    Registry = dict[str, dict[str, str]]  # id: {path, place, before}

ID_LENGTH = 32
PARTS = ("path", "place", "before")  # of what the registry says of an id
MOST_BEFORE = 8  # inodes of an id that are remembered


def find_root(start: str) -> str:
    """The project around `start`: the nearest folder with `.ralph/settings.json` or `.git`, else `start` itself."""
    here = start = os.path.realpath(start)
    while True:
        if os.path.isfile(os.path.join(here, ".ralph", "settings.json")) or _has_repository(here, start):
            return here
        above = os.path.dirname(here)
        if above == here:
            return start
        here = above


def _has_repository(here: str, start: str) -> bool:
    """Whether `.git` is one: an empty folder above counts for nothing, as with git itself.

    Codex 0.166 makes such a folder in /tmp while it works; one in the project itself is a repository that broke.
    """
    entry = os.path.join(here, ".git")
    return os.path.lexists(entry) and (here == start or not os.path.isdir(entry) or bool(os.listdir(entry)))


def repository_around(root: str) -> str | None:
    """The git repository that a project is a mere folder of; None where it is one itself, or in none."""
    here = os.path.realpath(root)
    if git_folders(here):
        return None
    while (above := os.path.dirname(here)) != here:
        if git_folders(above):
            return above
        here = above
    return None


def lies_in_project(path: str, root: str) -> bool:
    """Whether a path, which need not exist, lies in a project: in its folder, or in any work tree of its repository."""
    here, root = os.path.realpath(path), os.path.realpath(root)
    if f"{here}/".startswith(f"{root}/"):
        return True
    own = git_folders(root)
    if own is None:
        return False
    common = os.path.realpath(own.common)
    if f"{here}/".startswith(f"{common}/"):
        return True
    while (above := os.path.dirname(here)) != here:
        found = git_folders(here)
        if found is not None and os.path.realpath(found.common) == common:
            return True
        here = above
    return False


def repository_id(root: str, state_dir: str) -> str:
    """The id under which this repository's records are kept in `state_dir`.

    The registry there knows each id's path and inode. A file in the repository carries the id along when it moves.
    What that file says counts only where the registry does not know better: a folder that moves keeps its inode, and a
    copy on the same disk has another one. From another disk, or out of a backup, an id is taken over where the one
    that had it is gone. Should that one have been elsewhere, it has its id again as soon as it is seen: the registry
    remembers the inodes that an id had `before`.
    """
    folders = git_folders(os.path.realpath(root))
    if folders and misplaced(os.path.realpath(root), folders):
        return known_id(root, state_dir)  # it is the repository of somebody else: nothing is written
    anchor = os.path.realpath(folders.common if folders else root)
    note = _Note(anchor, folders is not None)
    os.makedirs(state_dir, mode=0o700, exist_ok=True)
    lock = os.open(os.path.join(state_dir, "registry.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        registry = _read_registry(state_dir)
        known = _otherwise(registry, anchor, note) or _choose(registry, anchor, note.read())
        entry = _entry(registry.get(known), anchor)
        if registry.get(known) != entry:
            registry = {name: old for name, old in registry.items() if old["path"] != entry["path"]} | {known: entry}
            _write_registry(state_dir, registry)
    finally:
        os.close(lock)
    note.write(known)
    return known


def known_id(root: str, state_dir: str) -> str:
    """The same id for those who only look: nothing is written. A new repository has one under which nothing is kept."""
    folders = git_folders(os.path.realpath(root))
    anchor = os.path.realpath(folders.common if folders else root)
    registry, note = _read_registry(state_dir, look_only=True), _Note(anchor, folders is not None)
    return _otherwise(registry, anchor, note) or _choose(registry, anchor, note.read())


def _otherwise(registry: Registry, anchor: str, note: _Note) -> str | None:
    """The id of a project that we know as a plain folder and is a repository now, or the other way round.

    So its earlier runs stay its own: an agent that deletes `.git` does not get rid of what is known of it.
    """
    if any(entry["path"] == anchor for entry in registry.values()):
        return None
    root, name = os.path.split(anchor)
    if note.in_git:
        before = root, _place(root)
        of_root = (known for known, entry in registry.items() if (entry["path"], entry["place"]) == before)
        found = next(of_root, None) if name == ".git" else None
    else:
        gone = os.path.join(anchor, ".git")
        found = next((known for known, entry in registry.items() if entry["path"] == gone), None)
    return found if note.read() in (None, found) else None


def _choose(registry: Registry, anchor: str, claimed: str | None) -> str:
    here = next((name for name, entry in registry.items() if entry["path"] == anchor), None)
    if here and (registry[here]["place"] == _place(anchor) or here == claimed):
        return here
    entry = registry.get(claimed or "")
    if claimed is None or (entry is not None and _is_copy(entry, claimed, anchor)):
        return os.urandom(ID_LENGTH // 2).hex()
    return claimed


def _is_copy(entry: dict[str, str], name: str, anchor: str) -> bool:
    """Whether a folder that carries an id is another one than that which the id belongs to."""
    place = _place(anchor)
    if place == entry["place"] or place in entry["before"].split():
        return False
    return _disk(place) == _disk(entry["place"]) or _still_there(entry, name, anchor)


def _entry(known: dict[str, str] | None, anchor: str) -> dict[str, str]:
    """What the registry is to say of an id from now on. One that comes back had it all the time."""
    entry = {"path": anchor, "place": _place(anchor), "before": known["before"] if known else ""}
    if known is None or known["place"] == entry["place"]:
        return entry
    before = known["before"].split()
    if entry["place"] in before:
        before.remove(entry["place"])
    elif known["place"]:
        before = [*before, known["place"]][-MOST_BEFORE:]
    return entry | {"before": " ".join(before)}


def _disk(place: str) -> str:
    return place.partition(":")[0]


def _still_there(entry: dict[str, str], name: str, anchor: str) -> bool:
    """Whether the one that the id belongs to is where it was: then the one that asks is a copy."""
    path = entry["path"]
    if _place(path) in ("", _place(anchor)):
        return False
    return _place(path) == entry["place"] or any(_Note(path, in_git).read() == name for in_git in (True, False))


def _place(path: str) -> str:
    try:
        state = os.stat(path)
    except OSError:
        return ""
    return f"{state.st_dev}:{state.st_ino}"


class _Note:
    """The file in the repository that carries its id."""

    def __init__(self, anchor: str, in_git: bool) -> None:
        self.in_git = in_git
        self._folder = anchor if in_git else os.path.join(anchor, ".ralph")
        self._name = "ralph-id" if in_git else "id"

    def read(self) -> str | None:
        file = os.path.join(self._folder, self._name)
        try:
            if os.path.islink(self._folder) or os.path.islink(file):
                return None
            text = read_small(os.fsencode(file), 100).strip().decode("ascii", "replace")
        except OSError:
            return None
        return text if len(text) == ID_LENGTH and not set(text) - set("0123456789abcdef") else None

    def write(self, known: str) -> None:
        """Put the id there, over anything that stands in its place. A read-only repository goes without."""
        if self.read() == known:
            return
        try:
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return
        try:
            self._replace(folder, known)
        except OSError:
            return
        finally:
            os.close(folder)

    def _replace(self, folder: int, known: str) -> None:
        temporary = f"{self._name}.{os.getpid()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(temporary, flags, 0o600, dir_fd=folder)
        try:
            write_all(file, known.encode() + b"\n")
            os.fsync(file)
        finally:
            os.close(file)
        os.rename(temporary, self._name, src_dir_fd=folder, dst_dir_fd=folder)


def _read_registry(state_dir: str, look_only: bool = False) -> Registry:
    import json

    file = os.path.join(state_dir, "registry.json")
    try:
        data = json.loads(read_small(os.fsencode(file)))
        return {str(name): {part: str(entry[part]) for part in PARTS} for name, entry in data.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        if not look_only and stat.S_ISREG(os.lstat(file).st_mode):
            os.rename(file, file + ".damaged")
        return {}


def _write_registry(state_dir: str, registry: Registry) -> None:
    import json

    file = os.path.join(state_dir, "registry.json")
    descriptor = os.open(file + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        write_all(descriptor, json.dumps(registry, indent=1).encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(file + ".new", file)
