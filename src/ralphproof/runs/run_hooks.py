"""Hooks of a run: the user's own commands around the run and its iterations."""

from __future__ import annotations

import os

from ralphproof.base.text import strip_terminal_codes
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.checks.command import INTERRUPTED, MAX_INTERRUPTIONS, shell_argv
from ralphproof.engine.run_hooks import HOOK_STOPPED, HookResult
from ralphproof.engine.sandbox import CONTINUE, KILL, STOP, Command, Exit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphproof.engine.check import CheckWatcher
    from ralphproof.engine.environment import RunFiles
    from ralphproof.engine.sandbox import CommandWatcher, Sandbox

HOOK_TIMEOUT_S = 600.0
TAIL_BYTES = 4096  # read from the end of a log
MAX_TAIL_CHARS = 500  # of them are shown


class CommandHooks:
    """Runs hooks in the project with the environment of the run's start; the whole output is in a log.

    `grace_s` is how long a hook may take after the run was asked to end.
    """

    def __init__(
        self, sandbox: Sandbox, folder: RunFiles, root: str, env: tuple[tuple[str, str], ...], grace_s: float
    ) -> None:
        self._sandbox, self._folder, self._root, self._env, self._grace_s = sandbox, folder, root, env, grace_s

    def run(
        self, name: str, command: str, exports: Mapping[str, str], watch: CheckWatcher, ending: bool = False
    ) -> HookResult:
        """Run a hook, or return the result of the one of this name; one that a crash or an earlier stop interrupted
        runs again.
        """
        if ending and watch.tick() >= KILL:
            return HookResult(command, False, why="no run: the run was to end at once")
        times, result = 1, self._once(name, command, exports, watch, ending)
        while result.why in (INTERRUPTED, HOOK_STOPPED) and watch.tick() < STOP and times < MAX_INTERRUPTIONS:
            times += 1
            result = self._once(f"{name}-run{times}", command, exports, watch, ending)
        return result

    def _once(
        self, name: str, command: str, exports: Mapping[str, str], watch: CheckWatcher, ending: bool
    ) -> HookResult:
        log, shown = self._folder.log_base(name) + ".log", self._folder.published_path(name) + ".log"
        env = {**dict(self._env), **exports, "RALPH_RUN_DIR": os.path.dirname(shown)}
        env |= {"PWD": self._root} if "PWD" in env else {}
        timeout_s = max(min(HOOK_TIMEOUT_S, self._grace_s), 0.1) if ending else HOOK_TIMEOUT_S
        end = self._sandbox.run(
            Command(
                shell_argv(command), self._root, tuple(env.items()), out=log,
                turn_file=self._folder.turn_file(name), mark=f"{self._folder.run}/{name}", timeout_s=timeout_s,
            ),
            _KillOnlyWatch(watch) if ending else watch,
        )  # fmt: skip
        self._folder.publish(name)
        passed = end.why == "exit" and end.code == 0 and not end.survivors
        why = "" if passed else _failure_reason(end, timeout_s)
        tail = "" if passed else _log_tail(log)
        return HookResult(command, passed, end.code, why, end.seconds, os.path.relpath(shown, self._root), tail)


class _KillOnlyWatch:
    """Lets a hook finish although the run was asked to end; only a second request kills it."""

    def __init__(self, watch: CommandWatcher) -> None:
        self._watch = watch

    def output(self, chunk: bytes) -> None:
        self._watch.output(chunk)

    def tick(self) -> int:
        return KILL if self._watch.tick() >= KILL else CONTINUE


def _failure_reason(end: Exit, timeout_s: float) -> str:
    """Why a hook failed, in the words that follow "failed with"."""
    if end.survivors:
        return f"processes that could not be ended: {', '.join(map(str, end.survivors))}"
    match end.why:
        case "exit":
            return f"exit code {end.code}" if end.signal is None else f"signal {end.signal}"
        case "timeout":
            return f"a timeout after {timeout_s:g} s"
        case "stopped" | "killed":
            return HOOK_STOPPED
        case _:
            return INTERRUPTED if end.why == INTERRUPTED else end.error or end.why


def _log_tail(log: str) -> str:
    """The end of a log in one line."""
    try:
        file = os.open(log, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""  # a command that could not be started has no log
    try:
        os.lseek(file, max(0, os.fstat(file).st_size - TAIL_BYTES), os.SEEK_SET)
        text = strip_terminal_codes(os.read(file, TAIL_BYTES).decode("utf-8", "replace"))
    except OSError:
        return ""
    finally:
        os.close(file)
    words = " ".join(text.split())
    return words if len(words) <= MAX_TAIL_CHARS else "... " + words[-MAX_TAIL_CHARS:]
