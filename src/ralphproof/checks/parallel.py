"""Checks run in parallel, each in its own thread, with one watcher."""

from __future__ import annotations

import os
import time
from _thread import allocate_lock

from ralphproof.base.value import TYPE_CHECKING, replace
from ralphproof.checks.command import STOPPED
from ralphproof.engine.check import Check, CheckWatcher, Finding, Inspection
from ralphproof.engine.events import Event, Spent
from ralphproof.engine.sandbox import CONTINUE, KILL, STOP

if TYPE_CHECKING:
    import _thread
    from collections.abc import Iterator
    from queue import SimpleQueue

    # More of an output, of what a model says, or a wish for a tick, which releases it; None that something ended.
    Message = bytes | list[Event] | _thread.LockType | None

MIN_PARALLEL, MAX_PARALLEL = 2, 8  # checks at a time, as the machine has processors
TICK_S = 0.5
TICK_TIMEOUT_S = 0.25  # how long a check waits to be told what is wanted now; then what was wanted last holds
MAX_QUEUED = 32  # messages, from which on a check's output is not handed on: it is in the log


def run_checks_in_parallel(
    checks: tuple[Check, ...], inspection: Inspection, watch: CheckWatcher
) -> tuple[Finding, ...]:
    """The answers in the order of the checks. `watch` is called from this thread alone.

    Of several checks with the same key one is asked. Those that have not begun when the watcher wants an end are not
    asked at all. Whatever is raised, here or in a check, is raised when nothing of all this runs any more.
    """
    first: dict[str, int] = {}
    same = [first.setdefault(getattr(check, "key", "") or f"{at}", at) for at, check in enumerate(checks)]
    alone = [at for at, one in enumerate(same) if at == one]
    if len(alone) < 2:
        found = [checks[at].run(inspection, watch) for at in alone]
    else:
        found = _CheckBatch(tuple(checks[at] for at in alone), inspection).run(watch)
    answers = dict(zip(alone, found, strict=True))
    return tuple(answers[at] if at == one else _copy_finding(answers[one], checks[at]) for at, one in enumerate(same))


def _copy_finding(found: Finding, check: Check) -> Finding:
    """The answer of one check as that of another, which asks the same."""
    required = getattr(check, "required", found.required)
    return replace(found, check=check.name, required=required, seconds=0.0, runs=0, spent=None)


class _CheckBatch:
    """Checks that are being asked. What their threads share with the calling one changes in single steps."""

    def __init__(self, checks: tuple[Check, ...], inspection: Inspection) -> None:
        from queue import SimpleQueue

        self.messages: SimpleQueue[Message] = SimpleQueue()
        self.cancelled = False  # nothing of it is wanted any more
        self._checks, self._inspection = checks, inspection
        self._remaining: Iterator[int] = iter(range(len(checks)))
        self._answers: dict[int, Finding] = {}
        self._errors: list[BaseException] = []
        self._started: list[int] = []
        self._finished: list[int] = []
        self._requested, self._next_tick_s = CONTINUE, 0.0
        self._spent: dict[int, Spent] = {}

    def spent(self, who: int, spent: Spent) -> Spent:
        """What all have spent, now that one of them has spent this."""
        from ralphproof.checks.judge import NOTHING_SPENT, add_spent

        self._spent[who] = spent
        total = NOTHING_SPENT
        for one in [*self._spent.values()]:
            total = add_spent(total, one)
        return total

    @property
    def requested(self) -> int:
        """What is wanted of every check."""
        return KILL if self.cancelled else self._requested

    def run(self, watch: CheckWatcher) -> list[Finding]:
        """Ask all, and hand on to the watcher what comes."""
        from threading import Thread

        self._tick(watch)
        most = min(max(os.cpu_count() or MIN_PARALLEL, MIN_PARALLEL), MAX_PARALLEL, len(self._checks))
        threads = [Thread(target=self._work, name=f"check {number}", daemon=True) for number in range(most)]
        try:
            for thread in threads:
                thread.start()
            while len(self._finished) < len(threads):
                self._wait(watch)
            self._deliver(watch)
        except BaseException:
            self._cancel()
            raise
        if self._errors:
            raise self._errors[0]
        return [self._answers[at] for at in range(len(self._checks))]

    def _work(self) -> None:
        """Ask one after the other, in a thread, until none is left."""
        self._started.append(1)
        try:
            for at in self._remaining:
                self._answers[at] = self._answer(self._checks[at])
        except BaseException as fault:  # noqa: BLE001 (raised in the calling thread, when the others have ended)
            self._errors.append(fault)
            self.cancelled = True
        finally:
            self._finished.append(1)
            self.messages.put(None)

    def _answer(self, check: Check) -> Finding:
        if self.requested >= STOP:
            return Finding(check.name, False, why=STOPPED, required=getattr(check, "required", True), runs=0)
        try:
            return check.run(self._inspection, _BatchWatch(self))
        finally:
            self.messages.put(None)

    def _wait(self, watch: CheckWatcher) -> None:
        """Wait for something to happen, for as long as a tick may wait, and hand it on."""
        from queue import Empty

        try:
            first = self.messages.get(timeout=max(0.0, self._next_tick_s - time.monotonic()))
        except Empty:
            self._tick(watch)
            return
        self._deliver(watch, first)

    def _deliver(self, watch: CheckWatcher, *first: Message) -> None:
        """Everything that has come. Who wishes for a tick gets one that begins after the wish."""
        wishes: list[_thread.LockType] = []
        messages = [*first, *(self.messages.get_nowait() for _ in range(self.messages.qsize()))]
        for message in messages:
            if isinstance(message, bytes):
                watch.output(message)
            elif isinstance(message, list):
                watch.events(message)
            elif message is not None:
                wishes.append(message)
        if wishes or None in messages or time.monotonic() >= self._next_tick_s:
            self._tick(watch)
        for wish in wishes:
            wish.release()

    def _tick(self, watch: CheckWatcher) -> None:
        self._requested = watch.tick()
        self._next_tick_s = time.monotonic() + TICK_S

    def _cancel(self) -> None:
        """Have all that runs killed, and wait for its end, whatever comes meanwhile."""
        from queue import Empty

        self.cancelled = True  # a thread that only begins now asks nothing
        while len(self._finished) < len(self._started):
            try:
                self.messages.get(timeout=TICK_S)
            except Empty:
                continue
            except BaseException:  # noqa: BLE001, S112 (a second one: what it wants is on its way)
                continue


class _BatchWatch:
    """Looks on at one check, in its thread, for whoever looks on at all of them."""

    def __init__(self, batch: _CheckBatch) -> None:
        self._batch = batch

    def output(self, chunk: bytes) -> None:
        if self._batch.messages.qsize() < MAX_QUEUED:
            self._batch.messages.put(chunk)

    def events(self, events: list[Event]) -> None:
        """None of them is lost; no more of them come than the calling thread takes: each tick waits for it."""
        whole = [self._batch.spent(id(self), one) if isinstance(one, Spent) else one for one in events]
        self._batch.messages.put(whole)

    def tick(self) -> int:
        if not self._batch.cancelled:
            wish = allocate_lock()
            wish.acquire()
            self._batch.messages.put(wish)
            wish.acquire(timeout=TICK_TIMEOUT_S)
        return self._batch.requested
