"""A run that goes on by itself: begun by a process of its own, in a session of its own, without a terminal."""

from __future__ import annotations

import os
import time

from ralphproof import interpreter
from ralphproof.keeper.aftermath import KEEPERS
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Mapping

    from ralphproof.views.project import Project
else:
    import _signal

LOG = "harness.log"
BEGIN_S = 30.0  # a machine under load needs its time to start a program
LOOK_S = 0.02
TOLD_BYTES = 8192
BEGIN, RESUME = "--begin", "--resume"

_started: list[int] = []  # and not yet waited for


def spawn(run: str, root: str, store: str, environ: Mapping[str, str], how: str = BEGIN) -> int:
    """Start the process that begins, or resumes, a run whose wish is kept; its pid. Its log lies beside the run's."""
    log = os.path.join(store, "runs", run, LOG)
    argv = interpreter.ralph("run", how, run, "--project-dir", root)
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        argv[0],
        argv,
        dict(environ),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, append, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=(_signal.SIGCHLD,),
    )
    KEEPERS.add(pid)  # it is nobody's leftover
    _started.append(pid)
    return pid


def reap() -> None:
    """Forget the processes that were started here and have ended."""
    for pid in list(_started):
        if _ended(pid) is not None:
            _started.remove(pid)
            KEEPERS.discard(pid)


def unended(pid: int) -> bool:
    """Whether a process that was started here has not been reaped yet."""
    return pid in _started


def begun(project: Project, run: str, pid: int = 0) -> int | None:
    """Wait until a run has begun. None once it has; the exit code of its process where that ended before.

    Without a `pid` somebody else begins it: then this only looks, and a run that has not begun in time is none.
    """
    deadline = time.monotonic() + BEGIN_S
    while time.monotonic() < deadline:
        if _on_record(project, run, pid):
            return None
        if pid and (code := _ended(pid)) is not None:
            return None if _on_record(project, run, pid) else code
        time.sleep(LOOK_S)
    return 1


def _on_record(project: Project, run: str, pid: int) -> bool:
    """Whether this process has the run. Looked up anew each time: the first run of a repository makes the ledger."""
    ledger = project.ledger()
    try:
        row = ledger.row(run)
        return row is not None and row.pid == (pid or row.pid) and ledger.look.last_of(run) > 0
    finally:
        ledger.close()


def _ended(pid: int) -> int | None:
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 1  # somebody else waited for it
    return os.waitstatus_to_exitcode(status) if found else None


def said(store: str, run: str) -> str:
    """The end of what the process of a run said."""
    try:
        with open(os.path.join(store, "runs", run, LOG), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TOLD_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
