"""Hooks: the user's own commands around a run and its iterations (settings `on`); results, progress, protocol."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, Protocol, replace, value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphproof.engine.check import CheckWatcher

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
        self, name: str, command: str, exports: Mapping[str, str], watch: CheckWatcher, ending: bool = False
    ) -> HookResult:  # fmt: skip
        """Run it, or report how the one of this name ended. `ending`: the user requested the end, and waits."""


class NoHooks:
    """No hooks are configured."""

    def run(
        self, name: str, command: str, exports: Mapping[str, str], watch: CheckWatcher, ending: bool = False
    ) -> HookResult:  # fmt: skip
        return HookResult(command, True)
