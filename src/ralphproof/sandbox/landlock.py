"""Landlock back end: a process restricts itself, where user namespaces are not allowed."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence

from ralphproof.engine.sandbox import Command
from ralphproof.sandbox import landlock_seccomp
from ralphproof.sandbox.plan import (
    DEV_NULL,
    EMPTY_FOLDER,
    PROXY_BY_PORT,
    READ_ONLY,
    WRITABLE,
    BackendProblem,
    LandlockRules,
    Mount,
    SandboxEntry,
    SandboxPlan,
    is_within,
    visible_mounts,
)

PROC_FOLDER = "/proc"
# Without /dev/pts, where the user's other terminals could be read, and /dev/shm, which all processes share.
DEVICES = (DEV_NULL, "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
# For root, whom modes do not stop: packaged files are public, and many; files installed by hand may not be.
PACKAGED_FOLDERS, USR_LOCAL = ("/usr", "/nix/store", "/gnu/store", "/snap", "/sys"), "/usr/local"
# A program that runs as root could change their modes, so they stay closed whatever these are.
SECRET_FILES = (
    "/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers", "/etc/sudoers.d",
    "/etc/security/opasswd", "/etc/ssl/private",
)  # fmt: skip
SECCOMP_FOLDER = "/proc/sys/kernel/seccomp"
LSM_FILE = "/sys/kernel/security/lsm"


class Landlock:
    """Needs no program and no privilege. The program sees the machine's own file system, and most of it is denied."""

    name = "landlock"
    strength = "partial"
    weaknesses: tuple[str, ...] = (
        "protected paths are watched, not held",
        "ports are held by number, not by host",
        "other processes and their command lines can be seen, though neither signalled nor read",
        "the proxy listens on a port of this machine, behind a token",
        "temporary folders and the home folder of the machine are refused, not replaced by fresh ones",
        "that a file outside is there, its size and its dates can be seen",
        "modes and dates of the user's own files outside can be changed",
    )
    protects_paths = can_remount = False

    def __init__(self) -> None:
        # Computed once: a mode that was changed from inside must not show more to a later command.
        self._for_others: dict[str, tuple[str, ...]] = {}

    def problem(self) -> BackendProblem | None:
        """What the kernel reports."""
        if sys.platform != "linux":
            return BackendProblem("Landlock is a part of Linux")
        try:
            landlock_seccomp.machine_column()
        except OSError as error:
            return BackendProblem(str(error.strerror))
        try:
            landlock_seccomp.landlock_abi()
        except OSError as error:
            return _kernel_problem(error)
        if not os.path.isdir(SECCOMP_FOLDER):
            return BackendProblem("this kernel cannot filter system calls", "use a kernel with CONFIG_SECCOMP_FILTER")
        return None

    def entry(self, plan: SandboxPlan) -> SandboxEntry:
        return SandboxEntry((), PROXY_BY_PORT, landlock=self.landlock(plan, os.geteuid() == 0))

    def landlock(self, plan: SandboxPlan, root_user: bool) -> LandlockRules:
        """The rules for a plan. Its paths must be real.

        A writable folder opens everything below it, so nothing below is listed again: a link created from inside would
        be followed. `root_user` is a user whom file modes do not stop.
        """
        seen = visible_mounts(plan.mounts)
        write = _outermost_paths(
            [*(one.host_path for one in seen if one.kind == WRITABLE), *([plan.temp] if plan.temp else [])]
        )
        covered = (*_covered_paths(seen), *(SECRET_FILES if root_user else ()))
        shown = [one.host_path for one in seen if one.kind == READ_ONLY and one.host_path != DEV_NULL]
        read = [
            piece
            for path in dict.fromkeys(shown)
            if not any(is_within(path, top) for top in write)
            for whole in list_around(path, covered)
            for piece in (
                self._others_may(whole) if root_user and not _is_shown_on_purpose(path, plan.home) else (whole,)
            )
        ]
        return LandlockRules((*dict.fromkeys(read), PROC_FOLDER), (*write, *DEVICES), plan.egress.local_ports)

    def _others_may(self, path: str) -> tuple[str, ...]:
        if path not in self._for_others:
            self._for_others[path] = _is_open_to_others(path)
        return self._for_others[path]

    def prepare(self, plan: SandboxPlan, command: Command) -> str:
        return ""

    def clean_up(self, plan: SandboxPlan) -> None:
        """Landlock leaves nothing behind."""


def _kernel_problem(error: OSError) -> BackendProblem:
    if error.errno == errno.EOPNOTSUPP:
        return BackendProblem(
            "Landlock is not switched on in this kernel", f"boot with lsm=landlock,{_security_modules()}"
        )
    if error.errno == errno.ENOSYS:
        return BackendProblem(
            "this kernel has no Landlock", "use Linux 5.13 or newer, built with CONFIG_SECURITY_LANDLOCK"
        )
    return BackendProblem(
        f"Landlock is refused here: {error.strerror}", "allow the landlock_* system calls where this runs"
    )


def _security_modules() -> str:
    try:
        with open(LSM_FILE, encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "…"


def _outermost_paths(paths: Sequence[str]) -> list[str]:
    kept = dict.fromkeys(paths)
    return [path for path in kept if not any(path != other and is_within(path, other) for other in kept)]


def _covered_paths(seen: Sequence[Mount]) -> Iterator[str]:
    """Host paths that another mount covers."""
    for over in (one for one in seen if one.kind == READ_ONLY):
        for one in seen:
            if one is over or not is_within(one.path, over.path):
                continue
            place = over.host_path.rstrip("/") + one.path[len(over.path.rstrip("/")) :]
            if one.kind == EMPTY_FOLDER or os.path.realpath(place) != os.path.realpath(one.host_path):
                yield place


def list_around(folder: str, covered: Iterable[str]) -> tuple[str, ...]:
    """Paths to list so that a folder is shown without what is covered in it; the folder itself if nothing is."""
    inside = [path for path in covered if is_within(path, folder) and os.path.lexists(path)]
    if not inside:
        return (folder,)
    if folder in inside:
        return ()
    return tuple(piece for entry in _folder_entries(folder) for piece in list_around(entry.path, inside))


def list_readable_by_others(path: str) -> tuple[str, ...]:
    """Paths to list so that everything world-readable is shown; the path itself if all of it is."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return ()
    if not _is_world_readable(mode) or not stat.S_ISDIR(mode):
        return (path,) if _is_world_readable(mode) else ()
    entries = _folder_entries(path)
    pieces = [list_readable_by_others(entry.path) for entry in entries]
    if all(piece == (entry.path,) for piece, entry in zip(pieces, entries, strict=True)):
        return (path,)
    return tuple(one for piece in pieces for one in piece)


def _is_open_to_others(path: str) -> tuple[str, ...]:
    if is_within(path, USR_LOCAL) or not any(is_within(path, top) for top in PACKAGED_FOLDERS):
        return list_readable_by_others(path)
    if is_within(USR_LOCAL, path):
        return (*list_around(path, (USR_LOCAL,)), *list_readable_by_others(USR_LOCAL))
    return (path,)


def _is_world_readable(mode: int) -> bool:
    wanted = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) else 0)
    return mode & wanted == wanted


def _is_shown_on_purpose(path: str, home: str) -> bool:
    """Whether a path is listed regardless of modes: it is in the user's home, or private and still mounted."""
    try:
        return is_within(path, home) or not _is_world_readable(os.stat(path).st_mode)
    except OSError:
        return True


def _folder_entries(folder: str) -> list[os.DirEntry[str]]:
    """Entries without links: a link needs no rule, and its target has its own."""
    try:
        with os.scandir(folder) as listing:
            return [entry for entry in listing if not entry.is_symlink()]
    except OSError:
        return []
