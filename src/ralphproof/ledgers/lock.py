"""One loop a directory."""

from __future__ import annotations

import errno
import fcntl
import os

from ralphproof.errors import Busy, Refused
from ralphproof.ledgers.files import explain, private_folder
from ralphproof.ledgers.process import LoopProcess, this_process
from ralphproof.value import value

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_REMEDY = "set RALPH_STATE_DIR to a local directory of yours"
_RECORD_BYTES = 4096


@value
class LockRecord:
    """Who has, or had, a lock."""

    run: str
    process: LoopProcess


class DirectoryLock:
    """The right to work in a directory. It ends with the process, however that ends; the file stays.

    After `take`, `reclaimed` tells of an earlier run that had the lock and never gave it back.
    """

    def __init__(self, state_dir: str, directory: str, run: str) -> None:
        import hashlib

        self.directory, self.run, self.reclaimed = os.path.realpath(directory), run, ""
        name = hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:16]
        self.path = os.path.join(state_dir, "locks", f"{name}.lock")
        self._file: int | None = None

    def take(self) -> None:
        """Take the lock, or raise Busy naming who has it."""
        file = self._open()
        try:
            self._lock(file)
            left = _read(file)
            self._write(file)
        except OSError as error:
            os.close(file)
            raise explain(error, self.path, _REMEDY) from error
        except BaseException:
            os.close(file)
            raise
        if left is not None:
            self.reclaimed = f"run {left.run} (pid {left.process.pid}) did not end properly; its lock was taken over"
        self._file = file

    def release(self) -> None:
        """Give the lock back. The emptied file says that the run ended."""
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

    def _open(self) -> int:
        try:
            private_folder(os.path.dirname(self.path))
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            os.fchmod(file, 0o600)
        except OSError as error:
            raise explain(error, self.path, _REMEDY) from error
        return file

    def _lock(self, file: int) -> None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy(self._held_by(file)) from None
        except OSError as error:
            if error.errno in _NO_LOCKS:
                why = os.strerror(error.errno or 0)
                raise Refused(f"{self.path} cannot be locked ({why}), so no run may start; {_REMEDY}") from error
            raise

    def _held_by(self, file: int) -> str:
        """Whoever has it may not have said so yet: the words of a dead one are waited out."""
        import time

        for _ in range(200):
            holder = _read(file)
            if holder is not None and holder.process.alive:
                pid, run = holder.process.pid, holder.run
                return f"run {run} (pid {pid}) works in {self.directory}; wait for it, or end it: ralph cancel {run}"
            time.sleep(0.01)
        return f"another process works in {self.directory}, and holds {self.path}; wait for it"

    def _write(self, file: int) -> None:
        """One call, and readers take the first line: a crash leaves the old record or the new one."""
        import json

        me = this_process()
        facts = {"pid": me.pid, "run": self.run, "boot": me.boot, "start": me.start}
        line = json.dumps(facts).encode() + b"\n"
        os.pwrite(file, line, 0)
        os.ftruncate(file, len(line))


def _read(file: int) -> LockRecord | None:
    """The record in a lock file; None where there is none, or none that can be read."""
    import json

    try:
        facts = json.loads(os.pread(file, _RECORD_BYTES, 0).partition(b"\n")[0])
        process = LoopProcess(int(facts["pid"]), str(facts["start"]), str(facts["boot"]))
        return LockRecord(str(facts["run"]), process)
    except (ValueError, KeyError, TypeError):
        return None
