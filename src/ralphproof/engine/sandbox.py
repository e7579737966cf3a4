"""Commands, their exits, the sandbox protocol that runs them, and the user's hooks (settings `on`)."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, Protocol, replace, value

if TYPE_CHECKING:
    from collections.abc import Mapping


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


BEFORE_RUN, BEFORE_ITERATION = "beforeRun", "beforeIteration"
AFTER_ITERATION, AFTER_RUN = "afterIteration", "afterRun"
HOOKS = (BEFORE_RUN, BEFORE_ITERATION, AFTER_ITERATION, AFTER_RUN)
BEFORE_HOOKS = (BEFORE_RUN, BEFORE_ITERATION)  # a failure of these ends the run

HOOK_STOPPED = "stopped"
HOOK_NOT_STARTED = "no start: a crash came before it"
NOT_FOUND_CODES = (126, 127)


@value
class HookResult:
    """How a hook command ended. `why` completes "failed with"; `output` is the end of its output."""

    command: str
    passed: bool
    code: int | None = None
    why: str = ""
    seconds: float = 0.0
    log: str = ""
    output: str = ""

    def failure_message(self, hook: str) -> str:
        """The failure in a sentence."""
        output = f"; it said: {self.output}" if self.output else ""
        hint = " (the command was not found, or may not be executed)" if self.code in NOT_FOUND_CODES else ""
        return f"{hook} failed with {self.why}{hint}: {self.command}{output}; log: {self.log}"


@value
class HookProgress:
    """Which hook commands have run. A command is identified by its hook and its index in the hook's list.

    `begun` counts all that were begun in the run. `open` began and has no recorded end. `done` ended, in this run
    (before the run, after it) or in this iteration. `failed` is the one whose failure ends the run. `paths` is what
    hooks changed in the tree since the first agent was started: neither the agent's work, nor an approval by the user
    of changes to check inputs, because an agent may have written what the hook runs.
    """

    begun: int = 0
    open: tuple[str, int] | None = None
    done: frozenset[tuple[str, int]] = frozenset()
    failed: tuple[str, HookResult] | None = None
    paths: frozenset[str] = frozenset()

    def began(self, hook: str, index: int, number: int) -> HookProgress:
        """The progress after one more command began. After the end of a run, start hooks may run again."""
        progress = self.without(BEFORE_RUN) if hook == AFTER_RUN else self
        return replace(progress, begun=number + 1, open=(hook, index))

    def ended(self, hook: str, index: int, result: HookResult) -> HookProgress:
        """The progress after one ended. A command that was never started has not ended, and may be begun again."""
        if result.why == HOOK_NOT_STARTED:
            return replace(self, open=None)
        if hook in BEFORE_HOOKS and not result.passed:
            return replace(self, open=None, failed=(hook, result))
        return replace(self, open=None, done=self.done | {(hook, index)})

    def without(self, *hooks: str) -> HookProgress:
        """The progress with these free to run again."""
        return replace(self, done=frozenset(command for command in self.done if command[0] not in hooks))


class HookRunner(Protocol):
    """Runs one hook command until all its processes have ended."""

    def run(
        self, name: str, command: str, exports: Mapping[str, str], watch: CommandWatcher, ending: bool = False
    ) -> HookResult:  # fmt: skip
        """Run it, or report how the one of this name ended. `ending`: the user requested the end, and waits."""
