"""Keeps strangers out of a folder: a lock on the folder itself, which every user and every state folder sees.

Processes that belong together share it. They are told from strangers by a file in the state folder that each of them
holds too: whoever finds the folder held, and that file free, is a stranger. In a project's folder all processes of one
state folder belong together, and who of them may work is for the locks there; in a task folder those of one run do.

Holding ends with the process, however that ends. No program that is started inherits it; a keeper is handed it for the
length of a turn, so an agent that outlives its harness still keeps strangers out.
"""

from __future__ import annotations

import errno
import fcntl
import os

from ralphproof.errors import Busy
from ralphproof.ledgers.files import private_folder
from ralphproof.ledgers.repair import alone
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# NFS has no exclusive lock for what is open for reading only, and a folder cannot be opened for anything else.
_UNLOCKABLE = (
    errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF, errno.EINVAL, errno.EISDIR,
    errno.EACCES, errno.EPERM, errno.EIO,
)  # fmt: skip
_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR)
_TRIES, _PAUSE_S = 25, 0.01  # whoever only tries holds it for a moment
_LOCKS_BYTES = 1 << 20
_ENDING = ".present"


def project_lock(directory: str, presence: str) -> FolderLock:
    """That of a project's folder."""
    return FolderLock(
        directory, presence,
        lambda who: f"another user, or a run with another state folder, works in {directory} ({who}); wait for it, or "
        "work meanwhile in a worktree of your own: git worktree add ../NAME -b BRANCH",
        "runs of other users, or with another state folder, are not kept out of it",
    )  # fmt: skip


def task_folder_lock(state_dir: str, folder: str, run: str) -> FolderLock:
    """That of a task folder: the marker of one run would complete another that shares it."""
    import hashlib

    start = f"task-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]}-"
    place = os.path.join(state_dir, "locks")
    private_folder(place)

    def refusal(who: str) -> str:
        paths = {name.removeprefix(start).removesuffix(_ENDING): os.path.join(place, name) for name in os.listdir(place)
                 if name.startswith(start)}  # fmt: skip
        others = [f"run {other}" for other, path in sorted(paths.items()) if other != run and _held(path)]
        return f"{', '.join(others) or who} uses the task folder {folder}; give each run a task folder of its own"

    presence = os.path.join(place, f"{start}{run}{_ENDING}")
    return FolderLock(folder, presence, refusal, "other runs are not kept out of it", passing=True)


class FolderLock:
    """Shared by those with one presence file. `remark` says that a folder cannot be locked: then nothing is held."""

    def __init__(
        self, directory: str, presence: str, refusal: Callable[[str], str], unlocked: str, passing: bool = False
    ) -> None:
        """`refusal` says who is in the way, `unlocked` what follows where nothing can be locked.

        The folder of `presence` exists; the file goes with a `passing` lock.
        """
        self.remark = ""
        self._directory, self._presence, self._refusal = directory, presence, refusal
        self._unlocked, self._passing = unlocked, passing
        self._held: tuple[()] | tuple[int, int] = ()

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
            self._pass(present)
            return self._give_up(error)
        try:
            alone(self._presence, lambda: self._enter(folder, present))
        except BaseException as error:
            self._pass(present)
            os.close(folder)
            if isinstance(error, OSError):
                return self._give_up(error)
            raise
        # A process that dies closes them in this order: who is not present holds nothing.
        self._held = (present, folder)

    def release(self) -> None:
        """Let go. A keeper that still has a turn goes on to hold it."""
        if self._held:
            (present, folder), self._held = self._held, ()
            self._pass(present)
            os.close(folder)

    def _pass(self, present: int) -> None:
        try:
            if self._passing:
                os.unlink(self._presence)
        except OSError:
            pass  # an empty file stays
        os.close(present)

    def _give_up(self, error: OSError) -> None:
        if error.errno in _NO_FOLDER:
            return  # nobody can work in a folder that is gone
        if error.errno not in _UNLOCKABLE:
            raise error
        why = os.strerror(error.errno or 0)
        self.remark = f"{self._directory} cannot be locked ({why}): {self._unlocked}"

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
        raise Busy(self._refusal(who))


def _held(path: str) -> bool:
    """Whether somebody is present by this file."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return _others(file)
    finally:
        os.close(file)


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
        if pid == str(os.getppid()):  # as in `flock . ralph run`: to wait for it would be in vain
            yield f"pid {pid}, which started this command; have it lock a file, not this folder"
            continue
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
