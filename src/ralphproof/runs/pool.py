"""RunPool: several runs at a time in one process, each in a thread with a keeper of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from ralphproof.base.errors import RalphError, wrap_os_error
from ralphproof.base.value import replace, value
from ralphproof.engine.environment import Observer
from ralphproof.engine.outcome import Outcome
from ralphproof.process.keeper_client import KeeperClient
from ralphproof.process.signals import SignalRouter
from ralphproof.runs.context import RunContext
from ralphproof.runs.displays import PoolDisplay
from ralphproof.runs.execute import execute
from ralphproof.runs.request import RunTarget
from ralphproof.runs.spec import RunSpec
from ralphproof.settings.declarations import Settings
from ralphproof.store.run_folder import RunFolder
from ralphproof.store.spend import InProcessSharedBudget

Prepare = Callable[[], tuple[RunSpec, RunTarget]]


THREAD_STACK_BYTES = 1 << 20  # of a loop's thread; pages that it does not use are never allocated
POLL_S = 0.2  # after so long a signal is seen that another thread received


@value
class PooledRunEnded:
    """The end of one run: an `outcome`, or the `error` that refused or broke it."""

    name: str
    run: str = ""
    outcome: Outcome | None = None
    error: RalphError | None = None


class RunPool:
    """Begins runs in threads, and returns each as it ends. `next` raises other exceptions of those threads."""

    def __init__(self, display: PoolDisplay, signals: SignalRouter, shared_budget: InProcessSharedBudget) -> None:
        self.open: dict[str, threading.Thread] = {}
        self.signals = signals
        self._display, self._shared_budget = display, shared_budget
        self._ended: SimpleQueue[PooledRunEnded | tuple[str, BaseException]] = SimpleQueue()

    def begin(self, name: str, prepare: Prepare) -> None:
        """Begin a run under a name that no running one has. `prepare` is called in the run's own thread."""
        before = threading.stack_size(THREAD_STACK_BYTES)
        try:
            thread = threading.Thread(target=self._run, args=(name, prepare), name=name, daemon=True)
            self.open[name] = thread
            thread.start()
        finally:
            threading.stack_size(before)

    def next(self) -> PooledRunEnded | None:
        """A run that has ended; None where none ends for a moment."""
        try:
            ended = self._ended.get(timeout=POLL_S)
        except Empty:
            return None
        if isinstance(ended, tuple):
            self.open.pop(ended[0]).join()
            raise ended[1]
        self.open.pop(ended.name).join()
        return ended

    def cancel(self, name: str) -> None:
        """End a run as `ralph cancel` would."""
        self.signals.cancel(name)

    def drain(self) -> list[PooledRunEnded]:
        """Wait until all have ended, and return all of them."""
        ended: list[PooledRunEnded] = []
        while self.open:
            if one := self.next():
                ended.append(one)
        return ended

    def abandon(self) -> None:
        """End all runs, so that no agent of theirs is left behind; how they end is ignored."""
        self.signals.end_all()
        while self.open:
            try:
                self.next()
            except BaseException:  # noqa: BLE001, S112 (the first fault is the one that is raised)
                continue

    def _run(self, name: str, prepare: Prepare) -> None:
        run: list[str] = []
        try:
            self._ended.put(self._execute(name, prepare, run))
        except RalphError as error:
            self._ended.put(PooledRunEnded(name, "".join(run), error=error))
        except OSError as error:
            self._ended.put(PooledRunEnded(name, "".join(run), error=wrap_os_error(error)))
        except BaseException as error:  # noqa: BLE001 (`next` raises it)
            self._ended.put((name, error))
        finally:
            self.signals.unregister(name)

    def _execute(self, name: str, prepare: Prepare, run: list[str]) -> PooledRunEnded:
        spec, target = prepare()
        spec = replace(spec, custom=replace(spec.custom, shared_budget=self._shared_budget))
        mask = spec.project.mask

        def create_observers(folder: RunFolder, settings: Settings) -> tuple[Observer, ...]:
            run[:] = [folder.run]
            self._shared_budget.join(folder.run, spec.project.state_dir)
            return self._display.create_observers(name, folder, settings, mask)

        def on_end(context: RunContext, outcome: Outcome) -> None:
            for trouble in context.notifiers.deliver(outcome):
                self._display.warn(name, mask(trouble))

        keeper = KeeperClient()
        try:
            outcome = execute(
                spec, keeper, create_observers, on_end, lambda clock: self.signals.register(name, clock), target
            )
        finally:
            keeper.close()
        return PooledRunEnded(name, "".join(run), outcome)
