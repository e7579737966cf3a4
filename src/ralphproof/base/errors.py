"""The exception tree of the harness, with exit codes.

RalphError                  exit code
├── Refused                 2    the run may not start, or cannot go on by configuration; says what to do
│   ├── SettingsWrong       2    all that is wrong with the settings, one problem a line
│   ├── TaskWrong           2    a task's completion spec cannot be worked by
│   ├── Busy                2    another loop works in this directory
│   ├── StoriesWrong        2    the file of stories is not as it must be
│   ├── StaleRead           2    what was read came from a dead run, and was reverted since
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
    """An error to report to the user in one clear line. `reason` is the abort reason where a run could end by it."""

    exit_code = 3
    reason = ""


class RalphWarning(UserWarning):
    """An option given through the Python API cannot be honoured; the run continues."""


class Refused(RalphError):
    """The run may not start, or cannot go on by configuration."""

    exit_code = 2


class SettingsWrong(Refused):
    """All problems of the settings at once."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class TaskWrong(Refused):
    """A task cannot be worked on as it is written; others may be."""


class Busy(Refused):
    """Another loop works in this directory."""


class StoriesWrong(Refused):
    """The stories file is invalid."""


class StaleRead(Refused):
    """Project content that was read came from a dead run and was reverted since: it must be read again."""


class NotThere(Refused):
    """No run, task or log has this name."""


class AgentUnusable(Refused):
    """The agent is missing, not permitted, or not logged in."""


class HarnessFailed(RalphError):
    """A fault of the harness or the machine."""


class LedgerBroken(HarnessFailed):
    """The record is damaged; nothing was overwritten."""


class DiskFull(HarnessFailed):
    """No disk space for records, so the run must stop."""

    exit_code = 1
    reason = "DISK_FULL"


class WorkspaceGone(HarnessFailed):
    """The project's directory was deleted or moved during the run."""

    exit_code = 1
    reason = "WORKSPACE_GONE"


class KeeperLost(HarnessFailed):
    """The process that owns turns could not be started."""


def wrap_os_error(error: OSError) -> RalphError:
    """An operating-system error as an exception of this tree."""
    import errno

    name = error.filename
    name = name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name
    text = f"{error.strerror or error}" + (f": {name}" if name else "")
    return DiskFull(text) if error.errno in (errno.ENOSPC, errno.EDQUOT) else HarnessFailed(text)
