"""Locks on project folders and task folders: one loop a directory."""

from __future__ import annotations

import errno
import fcntl
import os

from ralphproof.base.errors import Busy, Refused
from ralphproof.base.files import explain_os_error, make_private_folder
from ralphproof.base.processes import ProcessIdentity, current_process
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.store.database import run_exclusively

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# A FolderLock is a flock on the folder itself, which every user and every state folder sees. Processes that belong
# together share it. They are recognised by a presence file in the state folder that each of them locks too: if the
# folder is locked and the presence file is free, the holder is another user's process or uses another state folder.
# For a project's folder all processes of one state folder belong together, and DirectoryLock decides which of them may
# work; for a task folder those of one run do.
#
# A lock ends with its process, however that ends. Programs that are started do not inherit it; a keeper is passed it
# for the length of a turn, so the lock outlives a harness that dies during a turn.


# NFS has no exclusive lock for files that are open for reading only, and a folder cannot be opened otherwise.
_UNLOCKABLE = (
    errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF, errno.EINVAL, errno.EISDIR,
    errno.EACCES, errno.EPERM, errno.EIO,
)  # fmt: skip
_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR)
_MAX_FLOCK_TRIES, _FLOCK_PAUSE_S = 25, 0.01  # a failed attempt of another process holds it for a moment
_LOCKS_BYTES = 1 << 20
_PRESENCE_SUFFIX = ".present"


def project_folder_lock(directory: str, presence: str) -> FolderLock:
    """The lock of a project's folder."""
    return FolderLock(
        directory, presence,
        lambda who: f"another user, or a run with another state folder, works in {directory} ({who}); wait for it, or "
        "work meanwhile in a worktree of your own: git worktree add ../NAME -b BRANCH",
        "runs of other users, or with another state folder, are not kept out of it",
    )  # fmt: skip


def task_folder_lock(state_dir: str, folder: str, run: str) -> FolderLock:
    """The lock of a task folder: the signal file of one run would complete another that shares it."""
    import hashlib

    start = f"task-{hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]}-"
    place = os.path.join(state_dir, "locks")
    make_private_folder(place)

    def refusal(who: str) -> str:
        names = sorted(name for name in os.listdir(place) if name.startswith(start))
        runs = {name.removeprefix(start).removesuffix(_PRESENCE_SUFFIX): name for name in names}
        others = [
            f"run {other}" for other, name in runs.items() if other != run and _is_present(os.path.join(place, name))
        ]
        return f"{', '.join(others) or who} uses the task folder {folder}; give each run a task folder of its own"

    presence = os.path.join(place, f"{start}{run}{_PRESENCE_SUFFIX}")
    return FolderLock(folder, presence, refusal, "other runs are not kept out of it", temporary=True)


class FolderLock:
    """A lock shared by the processes with one presence file. A non-empty `remark` says why nothing could be locked."""

    def __init__(
        self, directory: str, presence: str, refusal: Callable[[str], str], unlocked: str, temporary: bool = False
    ) -> None:
        """`refusal` formats who holds the folder, `unlocked` says what follows if nothing can be locked.

        The folder of `presence` exists; the file is deleted with a `temporary` lock.
        """
        self.remark = ""
        self._directory, self._presence, self._refusal = directory, presence, refusal
        self._unlocked, self._temporary = unlocked, temporary
        self._held: tuple[()] | tuple[int, int] = ()

    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that another process must keep open to hold the lock too."""
        return self._held

    def take(self) -> None:
        """Take the lock, or raise Busy naming the holder, as far as it is known."""
        present = os.open(self._presence, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        os.fchmod(present, 0o600)  # whatever the umask
        try:
            folder = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            self._close_presence(present)
            return self._give_up(error)
        try:
            run_exclusively(self._presence, lambda: self._enter(folder, present))
        except BaseException as error:
            self._close_presence(present)
            os.close(folder)
            if isinstance(error, OSError):
                return self._give_up(error)
            raise
        # A process that dies closes them in this order: one without the presence file holds nothing.
        self._held = (present, folder)

    def release(self) -> None:
        """Release the lock. A keeper that still runs a turn continues to hold it."""
        if self._held:
            (present, folder), self._held = self._held, ()
            self._close_presence(present)
            os.close(folder)

    def _close_presence(self, present: int) -> None:
        try:
            if self._temporary:
                os.unlink(self._presence)
        except OSError:
            pass  # an empty file stays
        os.close(present)

    def _give_up(self, error: OSError) -> None:
        if error.errno in _NO_FOLDER:
            return  # a folder that is gone needs no lock
        if error.errno not in _UNLOCKABLE:
            raise error
        why = os.strerror(error.errno or 0)
        self.remark = f"{self._directory} cannot be locked ({why}): {self._unlocked}"

    def _enter(self, folder: int, present: int) -> None:
        """Only one process of a state folder does this at a time, so none takes another's attempt for presence."""
        import time

        for _ in range(_MAX_FLOCK_TRIES):
            if _try_flock(folder, fcntl.LOCK_EX):  # it was free
                fcntl.flock(present, fcntl.LOCK_SH)
                if _try_flock(folder, fcntl.LOCK_SH):  # not atomic: another process may have taken it in between
                    return
                fcntl.flock(present, fcntl.LOCK_UN)
            elif _has_other_holders(present) and _try_flock(folder, fcntl.LOCK_SH):
                if _has_other_holders(present):  # so a process of this group held it all the time
                    fcntl.flock(present, fcntl.LOCK_SH)
                    return
                fcntl.flock(folder, fcntl.LOCK_UN)
            time.sleep(_FLOCK_PAUSE_S)
        who = ", ".join(_list_holders(folder)) or "who it is cannot be seen from here"
        raise Busy(self._refusal(who))


def _is_present(path: str) -> bool:
    """Whether a process holds this presence file."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return _has_other_holders(file)
    finally:
        os.close(file)


def _try_flock(file: int, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _has_other_holders(present: int) -> bool:
    """Whether another process of this state folder holds the project folder."""
    if not _try_flock(present, fcntl.LOCK_EX):
        return True
    fcntl.flock(present, fcntl.LOCK_UN)
    return False


def _list_holders(folder: int) -> Iterator[str]:
    """The holders of a lock on this folder, by the kernel's table of locks; none on a system that shows none."""
    state = os.fstat(folder)
    place = f"{os.major(state.st_dev):02x}:{os.minor(state.st_dev):02x}:{state.st_ino}"
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            rows = [line.split() for line in file.read(_LOCKS_BYTES).splitlines()]
    except OSError:
        return
    for pid in dict.fromkeys(row[4] for row in rows if len(row) > 5 and row[1] == "FLOCK" and row[5] == place):
        if pid == str(os.getppid()):  # as in `flock . ralph run`: waiting would never end
            yield f"pid {pid}, which started this command; have it lock a file, not this folder"
            continue
        try:
            yield f"pid {pid}, user {_user_name(os.stat(f'/proc/{pid}').st_uid)}"
        except OSError:
            yield f"what pid {pid} left at work"


def _user_name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


WORKTREE_HINT = "other work can go on meanwhile in a worktree of its own: git worktree add ../NAME -b BRANCH"
EXCLUSIVE_VERBS = (
    "archive",
    "gc",
    "init",
    "plan",
    "restore",
)  # verbs that need the directory for themselves
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_REMEDY = "set RALPH_STATE_DIR to a local directory of yours"
_RECORD_BYTES = 4096
_MAX_INSPECTIONS, _INSPECTION_PAUSE_S = 200, 0.01  # how long to wait for the record of a holder
_MAX_LOCK_TRIES = 5
_MAX_ANCESTORS = 40  # more would not fit into a record


@value
class LockRecord:
    """The holder, or last holder, of a lock. `above` is its parent run, the parent of that, and so on."""

    run: str
    process: ProcessIdentity
    above: tuple[str, ...] = ()


class DirectoryLock:
    """The lock for a loop in a directory. It ends with the process, however that ends; the file stays.

    A run whose `parent` holds the directory works beside it, with a lock of its own: `path` is the one it has. One
    child of a run at a time does so. While it works no other run gets in, even if its parent is gone.

    Runs with another state folder cannot see these locks: the lock `folder` is against them.

    After `take`, `reclaimed` describes an earlier run that never released the lock.
    """

    def __init__(self, state_dir: str, directory: str, run: str, parent: str = "") -> None:
        import hashlib

        self.directory, self.run, self.parent, self.reclaimed = os.path.realpath(directory), run, parent, ""
        name = hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:16]
        self._plain = self.path = os.path.join(state_dir, "locks", f"{name}.lock")
        self.folder = project_folder_lock(self.directory, f"{self._plain.removesuffix('.lock')}.present")
        self._file: int | None = None
        self._above: tuple[str, ...] = ()

    def beside(self, run: str) -> str:
        """The path of the lock for the child of this run that works beside it."""
        return f"{self._plain.removesuffix('.lock')}-{run}.lock"

    def take(self) -> None:
        """Take the lock, or raise Busy naming the holder."""
        for _ in range(_MAX_LOCK_TRIES):
            self.path = self._path_to_lock()
            file = self._open()
            try:
                previous = self._take(file)
            except BaseException as error:
                self.folder.release()
                os.close(file)
                if isinstance(error, OSError):
                    raise explain_os_error(error, self.path, _REMEDY) from error
                raise
            self._file = file
            if self._path_to_lock() == self.path:
                self.reclaimed = _describe_previous_holder(previous)
                return
            self.release()  # the parent has released the directory, or taken it, meanwhile
        raise Busy(f"runs begin and end in {self.directory} at this moment; try again")

    def _take(self, file: int) -> LockRecord | None:
        """Take a lock; returns the record of an earlier run that never released it.

        An unrelated run holds the plain lock when it looks for children, and a child holds its own, with its record,
        when it looks for its parent again: so one of them sees the other.
        """
        self._lock(file)
        if self.path == self._plain:
            self._refuse_unrelated_children()
        self.folder.take()
        previous = _read_lock_record(file)
        self._write(file)
        return previous

    def release(self) -> None:
        """Release the lock. The file is emptied to show that the run ended."""
        self.folder.release()
        if self._file is None:
            return

        file, self._file = self._file, None
        try:
            os.ftruncate(file, 0)
        except OSError:
            pass  # the next run then only reports that this one did not end properly
        finally:
            fcntl.flock(
                file, fcntl.LOCK_UN
            )  # a program that is just being started may still have a copy of the descriptor
            os.close(file)

    def _path_to_lock(self) -> str:
        """The lock to take: one beside the parent's if that holds the directory, or did when its harness died."""
        found = self._parents_record() if self.parent else None
        self._above = (self.parent, *(found.above if found else ()))[:_MAX_ANCESTORS] if self.parent else ()
        return self.beside(self.parent) if found else self._plain

    def _parents_record(self) -> LockRecord | None:
        """The record of the parent: in the plain lock, one beside that and so on, or another that is held."""
        path, visited = self._plain, {""}
        while (record := _inspect_lock(path)[0]) is not None and record.run not in visited:
            if record.run == self.parent:
                return record
            visited.add(record.run)
            path = self.beside(record.run)
        own = self.beside(self.parent)
        others = (_inspect_lock(path) for path in self._children() if path != own)
        return next((other for other, held in others if held and other is not None and other.run == self.parent), None)

    def _refuse_unrelated_children(self) -> None:
        """Raise Busy if a child run works here without its parent, unless this run is one of its ancestors."""
        for path in self._children():
            record, held = _inspect_lock(path)
            if held and (record is None or self.run not in record.above):
                raise Busy(self._busy_message(record, path))

    def _children(self) -> list[str]:
        """The paths of all locks of children in this directory."""
        folder, start = os.path.split(self._plain.removesuffix(".lock") + "-")
        try:
            return sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.startswith(start))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise explain_os_error(error, folder, _REMEDY) from error

    def _open(self) -> int:
        try:
            make_private_folder(os.path.dirname(self.path))
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            os.fchmod(file, 0o600)
        except OSError as error:
            raise explain_os_error(error, self.path, _REMEDY) from error
        return file

    def _lock(self, file: int) -> None:
        """Lock the file. A holder may not have written its record yet, or may only be testing the lock: wait while the
        record is missing, or that of a dead process.
        """
        import time

        for _ in range(_MAX_INSPECTIONS):
            try:
                return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = _read_lock_record(file)
            except OSError as error:
                if error.errno in _NO_LOCKS:
                    why = os.strerror(error.errno or 0)
                    raise Refused(f"{self.path} cannot be locked ({why}), so no run may start; {_REMEDY}") from error
                raise
            if holder is not None and holder.process.alive:
                raise Busy(self._busy_message(holder, self.path))
            time.sleep(_INSPECTION_PAUSE_S)
        raise Busy(self._busy_message(None, self.path))

    def _busy_message(self, holder: LockRecord | None, path: str) -> str:
        if holder is None:
            return f"another process works in {self.directory}, and holds {path}; wait for it"
        pid, run = holder.process.pid, holder.run
        if (verb := _exclusive_verb(run)) in EXCLUSIVE_VERBS:
            return f"ralph {verb} (pid {pid}) works in {self.directory}; wait for it"
        return (
            f"run {run} (pid {pid}) works in {self.directory}; wait for it, or end it: ralph cancel {run}; "
            f"{WORKTREE_HINT}"
        )

    def _write(self, file: int) -> None:
        """Write the record in one call. Readers take the first line: a crash leaves the old record or the new one."""
        import json

        own = current_process()
        facts = {"pid": own.pid, "run": self.run, "boot": own.boot, "start": own.start, "above": self._above}
        line = json.dumps(facts).encode() + b"\n"
        os.pwrite(file, line, 0)
        os.ftruncate(file, len(line))


def _read_lock_record(file: int) -> LockRecord | None:
    """The record in a lock file; None if there is none that can be read."""
    import json

    try:
        facts = json.loads(os.pread(file, _RECORD_BYTES, 0).partition(b"\n")[0])
        process = ProcessIdentity(int(facts["pid"]), str(facts["start"]), str(facts["boot"]))
        record = LockRecord(str(facts["run"]), process, tuple(map(str, facts.get("above", ()))))
        return record if record.run and not {"/", "\0"} & {*record.run} else None  # its name is part of a path
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _inspect_lock(path: str) -> tuple[LockRecord | None, bool]:
    """The record of a lock file, and whether the lock is held: a holder that has not written its record yet is waited
    for.
    """
    import time

    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            for _ in range(_MAX_INSPECTIONS):
                record = _read_lock_record(file.fileno())
                if record is not None and record.process.alive:
                    return record, True
                if _try_flock(file.fileno(), fcntl.LOCK_SH):
                    fcntl.flock(file.fileno(), fcntl.LOCK_UN)
                    return record, False
                time.sleep(_INSPECTION_PAUSE_S)
    except OSError:
        return None, False  # the process that takes it will report the error
    return None, True


def _exclusive_verb(run: str) -> str:
    """The verb of a lock's run name, if it is one of EXCLUSIVE_VERBS."""
    return run.partition("-")[0]


def _describe_previous_holder(holder: LockRecord | None) -> str:
    if holder is None:
        return ""
    who = f"ralph {verb}" if (verb := _exclusive_verb(holder.run)) in EXCLUSIVE_VERBS else f"run {holder.run}"
    return f"{who} (pid {holder.process.pid}) did not end properly; its lock was taken over"
