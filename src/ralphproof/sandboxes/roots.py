"""What a sandbox shows of the system: a list of what programs are installed in, not everything less a few."""

from __future__ import annotations

import os
import stat

from ralphproof.sandboxes.box import NOTHING, READ, Mount
from ralphproof.sandboxes.logins import covers_over
from ralphproof.sandboxes.places import within
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Links to folders of /usr on most systems, folders on others.
TOP = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ROOTS = (
    "/usr", "/etc", "/opt", "/snap", "/nix/store", "/nix/var/nix/profiles", "/gnu/store", "/run/current-system",
    "/var/lib/ca-certificates",  # what /etc/ssl/certs leads to on SUSE
    "/sys/devices/system",  # how many processors there are
)  # fmt: skip
SEARCHED = ("/etc", "/opt", "/usr/local")  # for what others may not read; the rest comes from packages
MOST = 50_000  # entries looked at: the nearest to the top first, since settings lie there and not deep below
SETTINGS = "/etc"  # where nothing that is not for everybody is needed, whoever may read it
SOCKETS = "/proc/net/unix"


def system(root_user: bool, empty: str) -> tuple[Mount, ...]:
    """The system, read-only. What only root may read of it, and sockets, are covered.

    For root, who can read everything, that is what others may not: passwords, keys. For others it is what they may
    read of such among the settings, as a member of a group. `empty` is an empty folder.
    """
    mounts = [Mount(READ, path, _source(path)) for path in (*TOP, *ROOTS) if os.path.isdir(path)]
    searched = [path for path in SEARCHED if os.path.isdir(path)]
    return (*mounts, *_covers(searched, root_user, empty), *sockets_in(mounts))


def _source(path: str) -> str:
    real = os.path.realpath(path)
    return "" if real == path else real


def in_system(path: str) -> bool:
    """Whether `system` shows a path, wherever that may lead."""
    root = next((root for root in (*TOP, *ROOTS) if within(path, root)), "")
    return bool(root) and (os.geteuid() != 0 or not _covered(path, root))


def _covered(path: str, root: str) -> bool:
    """Whether something on the way to a path is for its owner alone, and so is covered for root."""
    while path != root:
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            return False
        if _for_its_owner(mode):
            return True
        path = os.path.dirname(path)
    return False


def _for_its_owner(mode: int) -> bool:
    """Whether others may not read a file, or not enter a folder."""
    return (stat.S_ISREG(mode) and not mode & stat.S_IROTH) or (stat.S_ISDIR(mode) and not mode & stat.S_IXOTH)


def _covers(folders: Iterable[str], root_user: bool, empty: str) -> Iterator[Mount]:
    """What lies over entries that nobody inside may see, looked for from the top down."""
    queue, looked_at = list(folders), 0
    for folder in queue:  # which grows meanwhile
        for entry, mode in _entries(folder):
            looked_at += 1
            if looked_at > MOST:
                return
            secret = _for_its_owner(mode) and (root_user or (within(entry, SETTINGS) and os.access(entry, os.R_OK)))
            if stat.S_ISSOCK(mode) or secret:
                yield Mount(READ, entry, empty if stat.S_ISDIR(mode) else NOTHING)
            elif stat.S_ISDIR(mode):
                queue.append(entry)


def _entries(folder: str) -> Iterator[tuple[str, int]]:
    """What is in a folder, with its kind and mode; nothing where it cannot be read."""
    try:
        with os.scandir(folder) as listing:
            for entry in listing:
                try:
                    yield entry.path, entry.stat(follow_symlinks=False).st_mode
                except OSError:  # it has just gone
                    continue
    except OSError:
        return


def sockets_in(mounts: Iterable[Mount], table: str = SOCKETS, folder: str = "/") -> tuple[Mount, ...]:
    """What lies over sockets that the kernel knows of and that could be spoken to through one of these mounts.

    That a folder is read-only keeps nobody from that. A socket may be known by a name from where its server was
    started: that is looked for in `folder`.
    """
    try:
        with open(table, encoding="utf-8", errors="surrogateescape") as file:
            named = [line.rstrip("\n").split(maxsplit=7)[7:] for line in file]
    except OSError:
        return ()
    bound = {os.path.join(folder, name) for names in named for name in names if not name.startswith("@")}
    return covers_over([os.path.realpath(path) for path in sorted(bound) if _is_socket(path)], mounts)


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False
