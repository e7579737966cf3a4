"""Landlock: a program forbids itself files, ports and signals, where nobody may make namespaces."""

from __future__ import annotations

import os
import stat
import sys

from ralphproof.sandboxes import fence
from ralphproof.sandboxes.box import BY_PORT, EMPTY, NOTHING, READ, WRITE, Fence, Lack, Way
from ralphproof.sandboxes.places import within
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ralphproof.sandbox import Command
    from ralphproof.sandboxes.box import Box, Mount

PROCESSES = "/proc"
# Nor /dev/pts, where the user's other terminals could be read, nor /dev/shm, which all processes have in common.
DEVICES = (NOTHING, "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
# For root, whom no mode stops: what lies in packages is for everybody, and large; what was put there by hand is not.
PACKAGED, BY_HAND = ("/usr", "/nix/store", "/gnu/store", "/snap", "/sys"), "/usr/local"
# A program that runs as root can change modes that it cannot read by: these stay closed whatever theirs say.
SECRET = (
    "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d",
    "/etc/security/opasswd", "/etc/ssl/private",
)  # fmt: skip
FILTERS = "/proc/sys/kernel/seccomp"
LISTED = "/sys/kernel/security/lsm"


class Landlock:
    """Needs no program and no privilege; what is inside sees the machine as it is, and is refused most of it."""

    name = "landlock"
    strength = "partial"
    weak: tuple[str, ...] = (
        "protected paths are watched, not held",
        "ports are held by number, not by host",
        "other processes and their command lines can be seen, though neither signalled nor read",
        "the proxy listens on a port of this machine, behind a token",
        "temporary folders and the home folder of the machine are refused, not replaced by fresh ones",
        "that a file outside is there, its size and its dates can be seen",
        "modes and dates of the user's own files outside can be changed",
    )
    holds = remounts = False

    def __init__(self) -> None:
        # Looked for once: a mode that was changed from inside must not show a later command more.
        self._for_others: dict[str, tuple[str, ...]] = {}

    def lacking(self) -> Lack | None:
        """What the kernel says of itself."""
        if sys.platform != "linux":
            return Lack("Landlock is a part of Linux")
        try:
            fence.machine()
        except OSError as error:
            return Lack(str(error.strerror))
        try:
            fence.version()
        except OSError as error:
            return _missing(error)
        if not os.path.isdir(FILTERS):
            return Lack("this kernel cannot filter system calls", "use a kernel with CONFIG_SECCOMP_FILTER")
        return None

    def way(self, box: Box) -> Way:
        return Way((), BY_PORT, fence=self.fence(box, os.geteuid() == 0))

    def fence(self, box: Box, root_user: bool) -> Fence:
        """What of a box can be held. Its paths must be real ones.

        A place that is written is open to everything below it, so nothing below it is listed again: a link that was
        put there from inside would be followed. `root_user` is one whom no mode stops from reading.
        """
        seen = _seen(box.mounts)
        write = _outermost([*(one.outside for one in seen if one.kind == WRITE), *([box.temp] if box.temp else [])])
        covered = (*_covered(seen), *(SECRET if root_user else ()))
        shown = [one.outside for one in seen if one.kind == READ and one.outside != NOTHING]
        read = [
            piece
            for path in dict.fromkeys(shown)
            if not any(within(path, top) for top in write)
            for whole in around(path, covered)
            for piece in (self._others_may(whole) if root_user and not _meant(path, box.home) else (whole,))
        ]
        return Fence((*dict.fromkeys(read), PROCESSES), (*write, *DEVICES), box.egress.local_ports)

    def _others_may(self, path: str) -> tuple[str, ...]:
        if path not in self._for_others:
            self._for_others[path] = _open_to_others(path)
        return self._for_others[path]

    def ready(self, box: Box, command: Command) -> str:
        return ""

    def over(self, box: Box) -> None:
        """Nothing is left of it."""


def _missing(error: OSError) -> Lack:
    import errno

    if error.errno == errno.EOPNOTSUPP:
        return Lack("Landlock is not switched on in this kernel", f"boot with lsm=landlock,{_modules()}")
    if error.errno == errno.ENOSYS:
        return Lack("this kernel has no Landlock", "use Linux 5.13 or newer, built with CONFIG_SECURITY_LANDLOCK")
    return Lack(f"Landlock is refused here: {error.strerror}", "allow the landlock_* system calls where this runs")


def _modules() -> str:
    try:
        with open(LISTED, encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "…"


def _seen(mounts: Sequence[Mount]) -> list[Mount]:
    """Those that no later one lies over."""
    return [one for at, one in enumerate(mounts) if not any(within(one.path, top.path) for top in mounts[at + 1 :])]


def _outermost(paths: Sequence[str]) -> list[str]:
    kept = dict.fromkeys(paths)
    return [path for path in kept if not any(path != other and within(path, other) for other in kept)]


def _covered(seen: Sequence[Mount]) -> Iterator[str]:
    """Places outside that something else lies over inside."""
    for over in (one for one in seen if one.kind == READ):
        for one in seen:
            if one is over or not within(one.path, over.path):
                continue
            place = over.outside.rstrip("/") + one.path[len(over.path.rstrip("/")) :]
            if one.kind == EMPTY or os.path.realpath(place) != os.path.realpath(one.outside):
                yield place


def around(folder: str, covered: Iterable[str]) -> tuple[str, ...]:
    """What must be listed to show a folder without what is covered in it; the folder itself if that is nothing."""
    inside = [path for path in covered if within(path, folder) and os.path.lexists(path)]
    if not inside:
        return (folder,)
    if folder in inside:
        return ()
    return tuple(piece for entry in _entries(folder) for piece in around(entry.path, inside))


def readable_by_others(path: str) -> tuple[str, ...]:
    """What must be listed to show what everybody may read of a file or folder; the path itself if that is all of it."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return ()
    if not _for_everybody(mode) or not stat.S_ISDIR(mode):
        return (path,) if _for_everybody(mode) else ()
    entries = _entries(path)
    pieces = [readable_by_others(entry.path) for entry in entries]
    if all(piece == (entry.path,) for piece, entry in zip(pieces, entries, strict=True)):
        return (path,)
    return tuple(one for piece in pieces for one in piece)


def _open_to_others(path: str) -> tuple[str, ...]:
    if within(path, BY_HAND) or not any(within(path, top) for top in PACKAGED):
        return readable_by_others(path)
    if within(BY_HAND, path):
        return (*around(path, (BY_HAND,)), *readable_by_others(BY_HAND))
    return (path,)


def _for_everybody(mode: int) -> bool:
    wanted = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) else 0)
    return mode & wanted == wanted


def _meant(path: str, home: str) -> bool:
    """Whether a place is shown whoever may read it: it is in the user's home, or is closed to others and yet named."""
    try:
        return within(path, home) or not _for_everybody(os.stat(path).st_mode)
    except OSError:
        return True


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """What lies in a folder. A link needs no right; where it leads to does, and has its own place."""
    try:
        with os.scandir(folder) as listing:
            return [entry for entry in listing if not entry.is_symlink()]
    except OSError:
        return []
