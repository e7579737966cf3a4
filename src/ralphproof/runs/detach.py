"""Detached runs: started in a process and session of their own, without a terminal."""

from __future__ import annotations

import os
import time

from ralphproof.base import interpreter
from ralphproof.base.programs import spawn
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.process.cleanup import KEEPER_PIDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphproof.store.project import Project

HARNESS_LOG = "harness.log"
START_TIMEOUT_S = 30.0  # a machine under load needs its time to start a program
POLL_S = 0.02
LOG_TAIL_BYTES = 8192
BEGIN_FLAG, RESUME_FLAG = "--begin", "--resume"

_started_pids: list[int] = []  # and not yet waited for


def spawn_run(run: str, root: str, store: str, environ: Mapping[str, str], flag: str = BEGIN_FLAG) -> int:
    """Start the process that begins or resumes a run with a saved request; its pid. Its log is in the run's folder."""
    log = os.path.join(store, "runs", run, HARNESS_LOG)
    argv = interpreter.ralph_command("run", flag, run, "--project-dir", root)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        pid = spawn(argv, environ, (nowhere, output, output))
    finally:
        os.close(nowhere)
        os.close(output)
    KEEPER_PIDS.add(pid)  # so that cleanup does not end it
    _started_pids.append(pid)
    return pid


def reap_spawned_runs() -> None:
    """Forget the processes that were started here and have ended."""
    for pid in list(_started_pids):
        if _exit_code(pid) is not None:
            _started_pids.remove(pid)
            KEEPER_PIDS.discard(pid)


def is_unreaped(pid: int) -> bool:
    """Whether a process that was started here has not been reaped yet."""
    return pid in _started_pids


def wait_until_begun(project: Project, run: str, pid: int = 0) -> int | None:
    """Wait until a run has begun: None once it has, or the exit code of its process where that ended first.

    Without a `pid` another process begins it; 1 where it has not begun in time.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if _is_recorded(project, run, pid):
            return None
        if pid and (code := _exit_code(pid)) is not None:
            return None if _is_recorded(project, run, pid) else code
        time.sleep(POLL_S)
    return 1


def _is_recorded(project: Project, run: str, pid: int) -> bool:
    """Whether this process has recorded the run. Opens the ledger each time: a repository's first run creates it."""
    ledger = project.ledger()
    try:
        row = ledger.row(run)
        return row is not None and row.pid == (pid or row.pid) and ledger.queries.last_seq_of(run) > 0
    finally:
        ledger.close()


def _exit_code(pid: int) -> int | None:
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 1  # it was reaped elsewhere
    return os.waitstatus_to_exitcode(status) if ended else None


def read_harness_log_tail(store: str, run: str) -> str:
    """The end of the log of a run's process."""
    try:
        with open(os.path.join(store, "runs", run, HARNESS_LOG), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - LOG_TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
