"""The id of a repository, which follows it when it moves and is shared by its worktrees."""

from __future__ import annotations

import os
import stat

from ralphproof.base.files import FileLock, replace_file, write_atomically
from ralphproof.base.git_layout import git_folders, read_regular_file
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.workspace.git_command import find_foreign_git_dir

if TYPE_CHECKING:
    Registry = dict[str, dict[str, str]]  # id: {path, place, before}


ID_LENGTH = 32
ENTRY_KEYS = ("path", "place", "before")  # of what the registry says of an id
MAX_PREVIOUS_INODES = 8  # inodes of an id that are remembered


def repository_id(root: str, state_dir: str) -> str:
    """The id under which this repository's records are stored in `state_dir`.

    The registry there stores the path and inode of each id. A file in the repository carries the id along when it
    moves. That file counts only where the registry has no better information: a folder that moves keeps its inode, and
    a copy on the same disk has another one. From another disk, or out of a backup, an id is taken over if its owner is
    gone. If the owner was only elsewhere, it gets its id back when it is seen again: the registry remembers the inodes
    that an id had `before`.
    """
    folders = git_folders(os.path.realpath(root))
    if folders and find_foreign_git_dir(os.path.realpath(root), folders):
        return lookup_repository_id(root, state_dir)  # it is the repository of somebody else: nothing is written
    anchor = os.path.realpath(folders.common if folders else root)
    note = _IdFile(anchor, folders is not None)
    with FileLock(os.path.join(state_dir, "registry.lock")):
        registry = _read_registry(state_dir)
        known = _find_converted_id(registry, anchor, note) or _choose_id(registry, anchor, note.read())
        entry = _registry_entry(registry.get(known), anchor)
        if registry.get(known) != entry:
            registry = {name: old for name, old in registry.items() if old["path"] != entry["path"]} | {known: entry}
            _write_registry(state_dir, registry)
    note.write(known)
    return known


def lookup_repository_id(root: str, state_dir: str) -> str:
    """The same id, without writing anything. A new repository gets an id without records."""
    folders = git_folders(os.path.realpath(root))
    anchor = os.path.realpath(folders.common if folders else root)
    registry, note = _read_registry(state_dir, look_only=True), _IdFile(anchor, folders is not None)
    return _find_converted_id(registry, anchor, note) or _choose_id(registry, anchor, note.read())


def _find_converted_id(registry: Registry, anchor: str, note: _IdFile) -> str | None:
    """The id of a known plain folder that is a repository now, or the reverse.

    So its earlier runs stay its own, and an agent that deletes `.git` does not detach the project from its records.
    """
    if any(entry["path"] == anchor for entry in registry.values()):
        return None
    root, name = os.path.split(anchor)
    if note.in_git:
        before = root, _inode_of(root)
        of_root = (known for known, entry in registry.items() if (entry["path"], entry["place"]) == before)
        known_id = next(of_root, None) if name == ".git" else None
    else:
        gone = os.path.join(anchor, ".git")
        known_id = next((known for known, entry in registry.items() if entry["path"] == gone), None)
    return known_id if note.read() in (None, known_id) else None


def _choose_id(registry: Registry, anchor: str, claimed: str | None) -> str:
    here = next((name for name, entry in registry.items() if entry["path"] == anchor), None)
    if here and (registry[here]["place"] == _inode_of(anchor) or here == claimed):
        return here
    entry = registry.get(claimed or "")
    if claimed is None or (entry is not None and _is_copy(entry, claimed, anchor)):
        return os.urandom(ID_LENGTH // 2).hex()
    return claimed


def _is_copy(entry: dict[str, str], name: str, anchor: str) -> bool:
    """Whether a folder with an id is a copy of the owner of that id."""
    place = _inode_of(anchor)
    if place == entry["place"] or place in entry["before"].split():
        return False
    return _device_of(place) == _device_of(entry["place"]) or _owner_still_exists(entry, name, anchor)


def _registry_entry(known: dict[str, str] | None, anchor: str) -> dict[str, str]:
    """The new registry entry of an id. A repository that returns gets its earlier entry back."""
    entry = {"path": anchor, "place": _inode_of(anchor), "before": known["before"] if known else ""}
    if known is None or known["place"] == entry["place"]:
        return entry
    before = known["before"].split()
    if entry["place"] in before:
        before.remove(entry["place"])
    elif known["place"]:
        before = [*before, known["place"]][-MAX_PREVIOUS_INODES:]
    return entry | {"before": " ".join(before)}


def _device_of(place: str) -> str:
    return place.partition(":")[0]


def _owner_still_exists(entry: dict[str, str], name: str, anchor: str) -> bool:
    """Whether the owner of the id still exists: then the folder in question is a copy."""
    path = entry["path"]
    if _inode_of(path) in ("", _inode_of(anchor)):
        return False
    return _inode_of(path) == entry["place"] or any(_IdFile(path, in_git).read() == name for in_git in (True, False))


def _inode_of(path: str) -> str:
    try:
        state = os.stat(path)
    except OSError:
        return ""
    return f"{state.st_dev}:{state.st_ino}"


class _IdFile:
    """The file in the repository that stores its id."""

    def __init__(self, anchor: str, in_git: bool) -> None:
        self.in_git = in_git
        self._folder = anchor if in_git else os.path.join(anchor, ".ralph")
        self._name = "ralph-id" if in_git else "id"

    def read(self) -> str | None:
        file = os.path.join(self._folder, self._name)
        try:
            if os.path.islink(self._folder) or os.path.islink(file):
                return None
            text = read_regular_file(os.fsencode(file), 100).strip().decode("ascii", "replace")
        except OSError:
            return None
        return text if len(text) == ID_LENGTH and not set(text) - set("0123456789abcdef") else None

    def write(self, known: str) -> None:
        """Write the id, over anything in its place. A read-only repository goes without."""
        if self.read() == known:
            return
        try:
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return
        try:
            write_atomically(folder, self._name, known.encode() + b"\n")
        except OSError:
            return
        finally:
            os.close(folder)


def _read_registry(state_dir: str, look_only: bool = False) -> Registry:
    import json

    file = os.path.join(state_dir, "registry.json")
    try:
        data = json.loads(read_regular_file(os.fsencode(file)))
        return {str(name): {part: str(entry[part]) for part in ENTRY_KEYS} for name, entry in data.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        if not look_only and stat.S_ISREG(os.lstat(file).st_mode):
            os.rename(file, file + ".damaged")
        return {}


def _write_registry(state_dir: str, registry: Registry) -> None:
    import json

    replace_file(os.path.join(state_dir, "registry.json"), json.dumps(registry, indent=1).encode())
