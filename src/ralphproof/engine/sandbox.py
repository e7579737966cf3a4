"""Commands, how they ended, and the sandbox protocol that runs them."""

from __future__ import annotations

from ralphproof.base.value import Protocol, value


@value
class Command:
    """One program to run, where its output goes, and how long it may take.

    `env` is the whole environment. `stdin` is a file to read, None is closed. `err` None joins stderr to `out`.
    `turn_file` is lock, journal and result of the run; `mark` is found in the environment of every process of it.
    A program that said its result (its watcher tells) has `linger_s` to leave. One that is `taken_up` may have been
    begun with other arguments: whatever the turn file tells of is meant. `agent` names the agent that it is, whose own
    state and login it needs; `reads` are files outside the project that it must be able to read.
    """

    argv: tuple[str, ...]
    cwd: str
    env: tuple[tuple[str, str], ...]
    out: str
    turn_file: str
    mark: str
    err: str | None = None
    stdin: str | None = None
    timeout_s: float = 3600.0
    idle_s: float | None = None
    linger_s: float = 10.0
    grace_s: float = 5.0
    taken_up: bool = False
    agent: str = ""
    reads: tuple[str, ...] = ()


@value
class AgentRequirements:
    """What the program of one agent needs of the machine beside the project.

    `folder` is where it keeps its state, from the user's home (`~/.claude`); `variable` moves it, empty where nothing
    does. `lent` are entries of the user's own folder that it may read, or of their home (`~/...`): its login and its
    settings. It calls `hosts`, and whatever the variables in `addresses` name; what has `://` in it there is such an
    address itself. It is told the variables in `variables`; a star at the end of one stands for all that begin so.
    `settings` are paths of a project that it takes settings from; a folder ends with a slash. Of what is lent, `logins`
    are what it may keep itself where the user has none: all else there is the user's to set.
    """

    folder: str = ""
    variable: str = ""
    lent: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    logins: tuple[str, ...] = ()


@value
class Exit:
    """How a command ended.

    `why` is one of: exit (by itself), timeout, idle, lingered (ended by us after its result), stopped (asked to end),
    killed (ended at once), unstartable (never ran; `error` says why), interrupted (its keeper died: end unknown).
    A command that died by a signal has `code` None. `survivors` are processes that could not be ended. `paused_s` is
    how long everything was suspended: no timeout counts it. `log_error` says why the disk did not take all output, and
    `lost_bytes` how much of stdout nobody has seen because of that.
    `blocked` names, as `host:port`, what it tried to reach and may not.
    """

    code: int | None
    why: str = "exit"
    signal: int | None = None
    seconds: float = 0.0
    out_bytes: int = 0
    dropped_bytes: int = 0
    cpu_s: float = 0.0
    error: str = ""
    survivors: tuple[int, ...] = ()
    paused_s: float = 0.0
    log_error: str = ""
    blocked: tuple[str, ...] = ()
    lost_bytes: int = 0

    @property
    def clean(self) -> bool:
        """It ended by itself with 0, or said its result and only lingered."""
        return self.why == "lingered" or (self.why == "exit" and self.code == 0)


# What a watcher wants of a running command, from least to most urgent. ACTIVE tells that it is not idle, whatever its
# output says; SAID, told once, that it has said its result and should now leave.
RESULT_SAID, ACTIVE, CONTINUE, STOP, KILL = -2, -1, 0, 1, 2


class CommandWatcher(Protocol):
    """Looks on while a command runs. Called in order, from one thread."""

    def output(self, chunk: bytes) -> None:
        """More of stdout, already in the log."""

    def tick(self) -> int:
        """Called twice a second and after each output: SAID, ACTIVE, GO_ON, STOP (TERM, grace, KILL) or KILL."""


class Sandbox(Protocol):
    """Runs commands; nothing that it ran is alive when `run` returns."""

    name: str
    strength: str  # strong, partial or none

    def run(self, command: Command, watch: CommandWatcher) -> Exit:
        """Run to the end and tell how it ended; a program that fails is a value, never an exception."""
