"""The exception tree of the harness, with exit codes.

RalphError                  exit code
├── Refused                 2    the run may not start, or cannot go on by configuration; says what to do
│   ├── SettingsWrong       2    all that is wrong with the settings, one problem a line
│   ├── TaskWrong           2    a task's completion spec cannot be worked by
│   ├── Busy                2    another loop works in this directory
│   ├── StoriesWrong        2    the file of stories is not as it must be
│   ├── ReadTooEarly        2    what was read was a dead run's doing, and is put back by now
│   ├── NotThere            2    nothing has this name
│   └── AgentUnusable       2    missing, not permitted, not logged in
└── HarnessFailed           3    our own fault, or the machine's
    ├── LedgerBroken        3    the record is damaged; the damaged file is kept
    ├── DiskFull            1    ABORTED/DISK_FULL
    ├── WorkspaceGone       1    ABORTED/WORKSPACE_GONE
    └── KeeperLost          3    the process that owns turns could not be started
"""

from __future__ import annotations


class RalphError(Exception):
    """Something the user must hear in one clear line. `reason` is the word for it where a run could end by it."""

    exit_code = 3
    reason = ""


class RalphWarning(UserWarning):
    """Something does not hold as a caller from Python asked for it, and the run goes on all the same."""


class Refused(RalphError):
    """The run may not start, or cannot go on by configuration."""

    exit_code = 2


class SettingsWrong(Refused):
    """Everything that is wrong with the settings at once."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class TaskWrong(Refused):
    """A task cannot be worked on as it is written; others may be."""


class Busy(Refused):
    """Another loop works in this directory."""


class StoriesWrong(Refused):
    """The file of stories is not as it must be."""


class StaleRead(Refused):
    """What was read of the project was a dead run's doing, and is put back by now: it must be read again."""


class NotThere(Refused):
    """No run, task or log has this name."""


class AgentUnusable(Refused):
    """The agent is missing, not permitted, or not logged in."""


class HarnessFailed(RalphError):
    """Our own fault, or the machine's."""


class LedgerBroken(HarnessFailed):
    """The record is damaged; nothing was overwritten."""


class DiskFull(HarnessFailed):
    """No space to record what happens, so nothing more may happen."""

    exit_code = 1
    reason = "DISK_FULL"


class WorkspaceGone(HarnessFailed):
    """The project's directory was deleted or moved during the run."""

    exit_code = 1
    reason = "WORKSPACE_GONE"


class KeeperLost(HarnessFailed):
    """The process that owns turns could not be started."""


def wrap_os_error(error: OSError) -> RalphError:
    """What the system refused us, as a fault of this tree."""
    import errno

    name = error.filename
    name = name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name
    text = f"{error.strerror or error}" + (f": {name}" if name else "")
    return DiskFull(text) if error.errno in (errno.ENOSPC, errno.EDQUOT) else HarnessFailed(text)
