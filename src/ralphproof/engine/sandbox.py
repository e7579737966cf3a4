"""Commands, their exits, and the sandbox protocol that runs them."""

from __future__ import annotations

from ralphproof.base.value import Protocol, value


@value
class Command:
    """One program to run, its output files and its time limits.

    `env` is the whole environment. `stdin` is a file to read, None is closed. `err` None joins stderr to `out`.
    `turn_file` is lock, journal and result of the run; `mark` is found in the environment of every process of it. A
    program that has reported its result (as its watcher says) has `linger_s` to exit. A command that is `taken_up` may
    have been started with other arguments, which the turn file describes. `agent` names the agent whose state and login
    the command needs; `reads` are files outside the project that it must be able to read.
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
    """What an agent's program needs from the machine beside the project.

    `folder` is where it keeps its state, relative to the user's home (`~/.claude`); `variable` overrides it, empty
    where nothing does. `lent` are entries of the user's own folder, or of their home (`~/...`), that it may read: its
    login and its settings. It calls `hosts`, and the addresses in the variables named by `addresses`; an entry there
    with `://` is itself an address. It receives the variables in `variables`; a trailing star matches all with that
    prefix. `settings` are paths of a project from which it takes settings; a folder ends with a slash. Of `lent`,
    `logins` are what it may store itself where the user has none: everything else there is only the user's to set.
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

    `why` is one of: exit (by itself), timeout, idle, lingered (ended by the harness after its result), stopped (by
    request), killed (ended at once), unstartable (never ran; `error` says why), interrupted (its keeper died: end
    unknown). A command that died by a signal has `code` None. `survivors` are processes that could not be ended.
    `paused_s` is how long everything was suspended: no timeout counts it. `log_error` says why the disk did not take
    all output, and `lost_bytes` how much of stdout was lost because of that. `blocked` lists, as `host:port`, forbidden
    connection attempts.
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
        """It ended by itself with 0, or reported its result and only lingered."""
        return self.why == "lingered" or (self.why == "exit" and self.code == 0)


# A watcher's replies, from least to most urgent. ACTIVE means that the command is not idle, even without output;
# RESULT_SAID, returned once, that it has reported its result and should exit.
RESULT_SAID, ACTIVE, CONTINUE, STOP, KILL = -2, -1, 0, 1, 2


class CommandWatcher(Protocol):
    """Receives a command's output while it runs. Called in order, from one thread."""

    def output(self, chunk: bytes) -> None:
        """Handle further stdout; it is already in the log."""

    def tick(self) -> int:
        """Called twice a second and after each output; the replies are above. STOP sends TERM, after a grace KILL."""


class Sandbox(Protocol):
    """Runs commands; no process of a command is alive when `run` returns."""

    name: str
    strength: str  # strong, partial or none

    def run(self, command: Command, watch: CommandWatcher) -> Exit:
        """Run to the end; a failed program is a value, never an exception."""
