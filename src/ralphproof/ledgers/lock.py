"""One loop a directory."""

from __future__ import annotations

import errno
import fcntl
import os

from ralphproof.errors import Busy, Refused
from ralphproof.ledgers.files import explain, private_folder
from ralphproof.ledgers.folder_lock import project_lock
from ralphproof.ledgers.process import LoopProcess, this_process
from ralphproof.value import value

WORKTREE = "other work can go on meanwhile in a worktree of its own: git worktree add ../NAME -b BRANCH"
ALONE = ("archive", "gc", "init", "plan", "restore")  # no runs, but verbs that have the directory for themselves
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_REMEDY = "set RALPH_STATE_DIR to a local directory of yours"
_RECORD_BYTES = 4096
_LOOKS, _LOOK_S = 200, 0.01  # so long is waited for a holder that has not said its name
_TRIES = 5
_GENERATIONS = 40  # of those above a run; more of them would not fit into a record


@value
class LockRecord:
    """Who has, or had, a lock. `above` is its parent, the parent of that, and so on."""

    run: str
    process: LoopProcess
    above: tuple[str, ...] = ()


class DirectoryLock:
    """The right to work in a directory. It ends with the process, however that ends; the file stays.

    A run whose `parent` has the directory works beside it, with a lock of its own: `path` says which one it is. One
    child of a run at a time does so. As long as it works no stranger gets in, also where its parent is gone.

    Who uses another state folder cannot see these locks: `folder` keeps such runs out, and only them.

    After `take`, `reclaimed` tells of an earlier run that had the lock and never gave it back.
    """

    def __init__(self, state_dir: str, directory: str, run: str, parent: str = "") -> None:
        import hashlib

        self.directory, self.run, self.parent, self.reclaimed = os.path.realpath(directory), run, parent, ""
        name = hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:16]
        self._plain = self.path = os.path.join(state_dir, "locks", f"{name}.lock")
        self.folder = project_lock(self.directory, f"{self._plain.removesuffix('.lock')}.present")
        self._file: int | None = None
        self._above: tuple[str, ...] = ()

    def beside(self, run: str) -> str:
        """The path of the lock for the child of this run that works beside it."""
        return f"{self._plain.removesuffix('.lock')}-{run}.lock"

    def take(self) -> None:
        """Take the lock, or raise Busy naming who has it."""
        for _ in range(_TRIES):
            self.path = self._way_in()
            file = self._open()
            try:
                left = self._taken(file)
            except BaseException as error:
                self.folder.release()
                os.close(file)
                if isinstance(error, OSError):
                    raise explain(error, self.path, _REMEDY) from error
                raise
            self._file = file
            if self._way_in() == self.path:
                self.reclaimed = _tale(left)
                return
            self.release()  # who had the directory a moment ago has it no more
        raise Busy(f"runs begin and end in {self.directory} at this moment; try again")

    def _taken(self, file: int) -> LockRecord | None:
        """Take a lock; the record of an earlier run that never gave it back.

        A stranger has the plain lock when it looks for children, and a child has its own, and said so, when it looks
        for its parent again: so one of them sees the other.
        """
        self._lock(file)
        if self.path == self._plain:
            self._refuse_strangers()
        self.folder.take()
        left = _read(file)
        self._write(file)
        return left

    def release(self) -> None:
        """Give the lock back. The emptied file says that the run ended."""
        self.folder.release()
        if self._file is None:
            return

        file, self._file = self._file, None
        try:
            os.ftruncate(file, 0)
        except OSError:
            pass  # the next run then says that this one did not end properly, and goes on
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)  # a program that we are just starting may still have a copy of it
            os.close(file)

    def _way_in(self) -> str:
        """The lock to take: one beside the parent's where that has the directory, or had when its harness died."""
        found = self._parents_record() if self.parent else None
        self._above = (self.parent, *(found.above if found else ()))[:_GENERATIONS] if self.parent else ()
        return self.beside(self.parent) if found else self._plain

    def _parents_record(self) -> LockRecord | None:
        """What the parent wrote into its lock: the plain one, one beside that and so on, or another that is held."""
        path, passed = self._plain, {""}
        while (record := _look(path)[0]) is not None and record.run not in passed:
            if record.run == self.parent:
                return record
            passed.add(record.run)
            path = self.beside(record.run)
        own = self.beside(self.parent)
        others = (_look(path) for path in self._children() if path != own)
        return next((one for one, held in others if held and one is not None and one.run == self.parent), None)

    def _refuse_strangers(self) -> None:
        """Raise Busy where a child works whose parent is not at work, unless this run is above it."""
        for path in self._children():
            record, held = _look(path)
            if held and (record is None or self.run not in record.above):
                raise Busy(self._says(record, path))

    def _children(self) -> list[str]:
        """The paths of all locks of children in this directory."""
        folder, start = os.path.split(self._plain.removesuffix(".lock") + "-")
        try:
            return sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.startswith(start))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise explain(error, folder, _REMEDY) from error

    def _open(self) -> int:
        try:
            private_folder(os.path.dirname(self.path))
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            os.fchmod(file, 0o600)
        except OSError as error:
            raise explain(error, self.path, _REMEDY) from error
        return file

    def _lock(self, file: int) -> None:
        """Whoever has it may not have said so yet, or only looked whether it is free: the words of a dead one are
        waited out."""
        import time

        for _ in range(_LOOKS):
            try:
                return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = _read(file)
            except OSError as error:
                if error.errno in _NO_LOCKS:
                    why = os.strerror(error.errno or 0)
                    raise Refused(f"{self.path} cannot be locked ({why}), so no run may start; {_REMEDY}") from error
                raise
            if holder is not None and holder.process.alive:
                raise Busy(self._says(holder, self.path))
            time.sleep(_LOOK_S)
        raise Busy(self._says(None, self.path))

    def _says(self, holder: LockRecord | None, path: str) -> str:
        if holder is None:
            return f"another process works in {self.directory}, and holds {path}; wait for it"
        pid, run = holder.process.pid, holder.run
        if (verb := _verb(run)) in ALONE:
            return f"ralph {verb} (pid {pid}) works in {self.directory}; wait for it"
        return (
            f"run {run} (pid {pid}) works in {self.directory}; wait for it, or end it: ralph cancel {run}; {WORKTREE}"
        )

    def _write(self, file: int) -> None:
        """One call, and readers take the first line: a crash leaves the old record or the new one."""
        import json

        me = this_process()
        facts = {"pid": me.pid, "run": self.run, "boot": me.boot, "start": me.start, "above": self._above}
        line = json.dumps(facts).encode() + b"\n"
        os.pwrite(file, line, 0)
        os.ftruncate(file, len(line))


def _read(file: int) -> LockRecord | None:
    """The record in a lock file; None where there is none, or none that can be read."""
    import json

    try:
        facts = json.loads(os.pread(file, _RECORD_BYTES, 0).partition(b"\n")[0])
        process = LoopProcess(int(facts["pid"]), str(facts["start"]), str(facts["boot"]))
        record = LockRecord(str(facts["run"]), process, tuple(map(str, facts.get("above", ()))))
        return record if record.run and not {"/", "\0"} & {*record.run} else None  # its name is part of a path
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _look(path: str) -> tuple[LockRecord | None, bool]:
    """What a lock file says, and whether somebody has the lock: who has not said its name yet is waited for."""
    import time

    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            for _ in range(_LOOKS):
                record = _read(file.fileno())
                if record is not None and record.process.alive:
                    return record, True
                if _free(file.fileno()):
                    return record, False
                time.sleep(_LOOK_S)
    except OSError:
        return None, False  # whoever wants to take it will say what is wrong
    return None, True


def _free(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return True


def _verb(run: str) -> str:
    """The verb that has the directory under this name, where it is one of ALONE."""
    return run.partition("-")[0]


def _tale(left: LockRecord | None) -> str:
    if left is None:
        return ""
    who = f"ralph {verb}" if (verb := _verb(left.run)) in ALONE else f"run {left.run}"
    return f"{who} (pid {left.process.pid}) did not end properly; its lock was taken over"
