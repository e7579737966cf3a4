"""Keeps runs of other users, and of other state folders, out of a project folder: a lock on the folder itself.

All processes of one state folder share it; who of them may work is for the locks in that state folder. They are told
from strangers by a file there that each of them holds too. So whoever finds the folder held, and that file free, is a
stranger. Holding ends with the process, however that ends. No program that is started inherits it; a keeper is handed
it for the length of a turn, so an agent that outlives its harness still keeps strangers out.
"""

from __future__ import annotations

import errno
import fcntl
import os

from ralphproof.errors import Busy
from ralphproof.ledgers.repair import alone
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# NFS has no exclusive lock for what is open for reading only, and a folder cannot be opened for anything else.
_UNLOCKABLE = (
    errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF, errno.EINVAL, errno.EISDIR,
    errno.EACCES, errno.EPERM, errno.EIO,
)  # fmt: skip
_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR)
_TRIES, _PAUSE_S = 25, 0.01  # whoever only tries holds it for a moment
_LOCKS_BYTES = 1 << 20


class FolderLock:
    """Shared by all of one state folder. `remark` says that a folder cannot be locked: then nothing is held."""

    def __init__(self, directory: str, presence: str) -> None:
        """`presence` is the file in the state folder; the folder that it lies in exists."""
        self.remark = ""
        self._directory, self._presence = directory, presence
        self._held: tuple[int, ...] = ()

    def descriptors(self) -> tuple[int, ...]:
        """What a process must keep open to hold the folder too."""
        return self._held

    def take(self) -> None:
        """Take it, or raise Busy naming who has it, as far as that can be known."""
        present = os.open(self._presence, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        os.fchmod(present, 0o600)  # whatever the umask
        try:
            folder = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            os.close(present)
            return self._give_up(error)
        try:
            alone(self._presence, lambda: self._enter(folder, present))
        except BaseException as error:
            os.close(present)
            os.close(folder)
            if isinstance(error, OSError):
                return self._give_up(error)
            raise
        # A process that dies closes them in this order: who is not present holds nothing.
        self._held = (present, folder)

    def release(self) -> None:
        """Let go. A keeper that still has a turn goes on to hold it."""
        held, self._held = self._held, ()
        for descriptor in held:
            os.close(descriptor)

    def _give_up(self, error: OSError) -> None:
        if error.errno in _NO_FOLDER:
            return  # nobody can work in a folder that is gone
        if error.errno not in _UNLOCKABLE:
            raise error
        why = os.strerror(error.errno or 0)
        self.remark = (
            f"{self._directory} cannot be locked ({why}): runs of other users, or with another state folder, "
            "are not kept out of it"
        )

    def _enter(self, folder: int, present: int) -> None:
        """Only one process of a state folder does this at a time, so none takes another's attempt for presence."""
        import time

        for _ in range(_TRIES):
            if _try(folder, fcntl.LOCK_EX):  # it was free
                fcntl.flock(present, fcntl.LOCK_SH)
                if _try(folder, fcntl.LOCK_SH):  # not at one stroke: somebody may have come in between
                    return
                fcntl.flock(present, fcntl.LOCK_UN)
            elif _others(present) and _try(folder, fcntl.LOCK_SH):
                if _others(present):  # so one of ours had it all the time
                    fcntl.flock(present, fcntl.LOCK_SH)
                    return
                fcntl.flock(folder, fcntl.LOCK_UN)
            time.sleep(_PAUSE_S)
        who = ", ".join(_holders(folder)) or "who it is cannot be seen from here"
        raise Busy(
            f"another user, or a run with another state folder, works in {self._directory} ({who}); wait for it, or "
            "work meanwhile in a worktree of your own: git worktree add ../NAME -b BRANCH"
        )


def _try(file: int, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _others(present: int) -> bool:
    """Whether another process of this state folder holds the project folder."""
    if not _try(present, fcntl.LOCK_EX):
        return True
    fcntl.flock(present, fcntl.LOCK_UN)
    return False


def _holders(folder: int) -> Iterator[str]:
    """Who holds a lock on this folder, by the kernel's table of locks; nobody on a system that shows none."""
    state = os.fstat(folder)
    place = f"{os.major(state.st_dev):02x}:{os.minor(state.st_dev):02x}:{state.st_ino}"
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            rows = [line.split() for line in file.read(_LOCKS_BYTES).splitlines()]
    except OSError:
        return
    for pid in dict.fromkeys(row[4] for row in rows if len(row) > 5 and row[1] == "FLOCK" and row[5] == place):
        try:
            yield f"pid {pid}, user {_user(os.stat(f'/proc/{pid}').st_uid)}"
        except OSError:
            yield f"what pid {pid} left at work"


def _user(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
