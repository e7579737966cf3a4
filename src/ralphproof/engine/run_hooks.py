"""The user's own commands around a run and its iterations (settings `on`): results, progress, protocol."""

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
    """How one command of a hook ended. `why` are the words that follow "failed with"; `output` is the end of it."""

    command: str
    passed: bool
    code: int | None = None
    why: str = ""
    seconds: float = 0.0
    log: str = ""
    output: str = ""

    def failure_message(self, hook: str) -> str:
        """The failure in a sentence."""
        said = f"; it said: {self.output}" if self.output else ""
        lacking = " (the command was not found, or may not be executed)" if self.code in NOT_FOUND_CODES else ""
        return f"{hook} failed with {self.why}{lacking}: {self.command}{said}; log: {self.log}"


@value
class HookProgress:
    """Which commands of hooks have run. A command is known by its hook and its place in the hook's list.

    `begun` counts all that were ever begun in the run. `open` began and has no recorded end. `done` ended, in this run
    (before the run, after it) or in this iteration. `failed` is the one whose failure ends the run. `paths` is what
    hooks changed in the tree since an agent was first asked: no work of its own, and no word of the user's on what
    decides over checks, because an agent may have written what the hook runs.
    """

    begun: int = 0
    open: tuple[str, int] | None = None
    done: frozenset[tuple[str, int]] = frozenset()
    failed: tuple[str, HookResult] | None = None
    paths: frozenset[str] = frozenset()

    def began(self, hook: str, place: int, number: int) -> HookProgress:
        """With one more that began. After the end of a run, its beginning comes again."""
        known = self.without(BEFORE_RUN) if hook == AFTER_RUN else self
        return replace(known, begun=number + 1, open=(hook, place))

    def ended(self, hook: str, place: int, result: HookResult) -> HookProgress:
        """With the end of one. That nobody started it is no end, and whoever wants it begins it anew."""
        if result.why == HOOK_NOT_STARTED:
            return replace(self, open=None)
        if hook in BEFORE_HOOKS and not result.passed:
            return replace(self, open=None, failed=(hook, result))
        return replace(self, open=None, done=self.done | {(hook, place)})

    def without(self, *hooks: str) -> HookProgress:
        """These may run again."""
        return replace(self, done=frozenset(one for one in self.done if one[0] not in hooks))


class HookRunner(Protocol):
    """Runs one command of a hook to its verified end."""

    def run(
        self, name: str, command: str, exports: Mapping[str, str], watch: CheckWatcher, ending: bool = False
    ) -> HookResult:  # fmt: skip
        """Run it, or tell how the one of this name ended. `ending`: the user wants the run to end, and waits."""


class NoHooks:
    """None are configured."""

    def run(
        self, name: str, command: str, exports: Mapping[str, str], watch: CheckWatcher, ending: bool = False
    ) -> HookResult:  # fmt: skip
        return HookResult(command, True)
