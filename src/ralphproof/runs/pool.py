"""RunPool: several runs at a time in one process, each in a thread with a keeper of its own."""

from __future__ import annotations

import os
import sys
import threading

from ralphproof.base.errors import RalphError, wrap_os_error
from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.process.client import Keeper
from ralphproof.process.signals import SignalRouter
from ralphproof.runs.execute import execute

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable
    from queue import SimpleQueue

    from ralphproof.engine.environment import Observer
    from ralphproof.engine.outcome import Outcome
    from ralphproof.runs.context import RunContext
    from ralphproof.runs.spec import RunSpec
    from ralphproof.runs.target import RunTarget
    from ralphproof.settings.model import Settings
    from ralphproof.store.run_folder import RunFolder
    from ralphproof.store.spend import InProcessSharedBudget

    Ordering = Callable[[], tuple[RunSpec, RunTarget]]

THREAD_STACK_BYTES = 1 << 20  # of a loop's thread; what it does not use is never there
POLL_S = 0.2  # a signal that another thread took is seen after so long


@value
class PooledRunEnded:
    """What came of one run. It has an `outcome`, or was refused or broke down with an `error`."""

    name: str
    run: str = ""
    outcome: Outcome | None = None
    error: RalphError | None = None


class RunPool:
    """Begins runs, and tells as each of them ends. Whatever else happens in a thread is raised by `next`."""

    def __init__(self, args: Namespace, conductor: SignalRouter, shared_budget: InProcessSharedBudget) -> None:
        from queue import SimpleQueue

        self.open: dict[str, threading.Thread] = {}
        self._args, self._conductor, self._shared_budget = args, conductor, shared_budget
        self._ended: SimpleQueue[PooledRunEnded | tuple[str, BaseException]] = SimpleQueue()

    def begin(self, name: str, ordering: Ordering) -> None:
        """Begin a run under a name that none has that goes on. What it is to do is found out in its own thread."""
        before = threading.stack_size(THREAD_STACK_BYTES)
        try:
            thread = threading.Thread(target=self._go, args=(name, ordering), name=name, daemon=True)
            self.open[name] = thread
            thread.start()
        finally:
            threading.stack_size(before)

    def next(self) -> PooledRunEnded | None:
        """A run that has ended; None where none has for a moment."""
        from queue import Empty

        try:
            found = self._ended.get(timeout=POLL_S)
        except Empty:
            return None
        if isinstance(found, tuple):
            self.open.pop(found[0]).join()
            raise found[1]
        self.open.pop(found.name).join()
        return found

    def cancel(self, name: str) -> None:
        """End a run as `ralph cancel` would."""
        self._conductor.cancel(name)

    def drain(self) -> list[PooledRunEnded]:
        """Wait until all have ended, and tell of each."""
        ended: list[PooledRunEnded] = []
        while self.open:
            if one := self.next():
                ended.append(one)
        return ended

    def abandon(self) -> None:
        """End all that go on, because nobody is there to hear of them any more: no agent of theirs is left behind."""
        self._conductor.end_all()
        while self.open:
            try:
                self.next()
            except BaseException:  # noqa: BLE001, S112 (the first fault is the one that is told)
                continue

    def _go(self, name: str, ordering: Ordering) -> None:
        run: list[str] = []
        try:
            self._ended.put(self._gone(name, ordering, run))
        except RalphError as error:
            self._ended.put(PooledRunEnded(name, "".join(run), error=error))
        except OSError as error:
            self._ended.put(PooledRunEnded(name, "".join(run), error=wrap_os_error(error)))
        except BaseException as error:  # noqa: BLE001 (it is raised where somebody waits for it)
            self._ended.put((name, error))
        finally:
            self._conductor.unregister(name)

    def _gone(self, name: str, ordering: Ordering, run: list[str]) -> PooledRunEnded:
        spec, target = ordering()
        spec = replace(spec, custom=replace(spec.custom, shared_budget=self._shared_budget))
        keeper = Keeper()
        try:
            outcome = execute(
                spec, keeper, lambda folder, settings: self._watching(name, folder, settings, spec, run),
                lambda begun, outcome: self._tell(name, begun, outcome, spec),
                lambda present: self._conductor.register(name, present), target,
            )  # fmt: skip
        finally:
            keeper.close()
        return PooledRunEnded(name, "".join(run), outcome)

    def _watching(
        self, name: str, folder: RunFolder, settings: Settings, spec: RunSpec, run: list[str]
    ) -> tuple[Observer, ...]:
        from ralphproof.display.console import ConsoleObserver
        from ralphproof.display.style import stream_style
        from ralphproof.display.terminal import PrefixedStream

        run[:] = [folder.run]
        self._join(folder.run, spec)
        shown = replace(stream_style(sys.stderr, self._args, settings), live=False, stream=False)
        people: Observer = ConsoleObserver(PrefixedStream(sys.stderr, name), shown, spec.project.mask)  # type: ignore[arg-type]
        if not self._args.json:
            return (people,)
        from ralphproof.display.ndjson import NdjsonObserver

        return (people, NdjsonObserver(sys.stdout, folder.run, self._args.verbose, spec.project.mask))

    def _join(self, run: str, spec: RunSpec) -> None:
        self._shared_budget.join(run, spec.project.state_dir)

    def _tell(self, name: str, begun: RunContext, outcome: Outcome, spec: RunSpec) -> None:
        from ralphproof.base.escaping import sanitize

        for trouble in begun.notifiers.deliver(outcome):
            print(f"{name}  {sanitize(spec.project.mask(trouble))}", file=sys.stderr)


def worker_count(asked: int) -> int:
    """How many runs at a time: as many as were asked for; 0 is one for each processor."""
    return asked or os.cpu_count() or 1
