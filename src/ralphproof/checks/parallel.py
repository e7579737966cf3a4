"""Parallel execution of checks, each in its own thread, with one watcher."""

from __future__ import annotations

import _thread
import os
import time
from _thread import allocate_lock
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from threading import Thread

from ralphproof.base.value import replace
from ralphproof.checks.command import STOPPED
from ralphproof.checks.judge import NOTHING_SPENT, add_spent
from ralphproof.engine.agent import Event, Spent
from ralphproof.engine.check import Check, CheckWatcher, Finding, Inspection
from ralphproof.engine.sandbox import CONTINUE, KILL, STOP

Message = bytes | list[Event] | _thread.LockType | None


# Output, events, or a tick request, whose lock is released after the tick; None: something ended.

MIN_PARALLEL, MAX_PARALLEL = 2, 8  # checks at a time, by the number of processors
TICK_S = 0.5
TICK_TIMEOUT_S = 0.25  # how long a check waits for a tick; then the last request holds
MAX_QUEUED = 32  # with more messages, a check's output is dropped: it is in the log


def run_checks_in_parallel(
    checks: tuple[Check, ...], inspection: Inspection, watch: CheckWatcher
) -> tuple[Finding, ...]:
    """The findings in the order of the checks. `watch` is called from this thread only.

    Of several checks with the same key one is run. Checks that have not started when the watcher requests a stop are
    not run. An exception, here or in a check, is raised after all checks have ended.
    """
    first: dict[str, int] = {}
    same = [first.setdefault(getattr(check, "key", "") or f"{at}", at) for at, check in enumerate(checks)]
    distinct = [at for at, original in enumerate(same) if at == original]
    if len(distinct) < 2:
        findings = [checks[at].run(inspection, watch) for at in distinct]
    else:
        findings = _CheckBatch(tuple(checks[at] for at in distinct), inspection).run(watch)
    by_position = dict(zip(distinct, findings, strict=True))
    return tuple(
        by_position[at] if at == original else _copy_finding(by_position[original], checks[at])
        for at, original in enumerate(same)
    )


def _copy_finding(finding: Finding, check: Check) -> Finding:
    """The finding of one check as that of another with the same key."""
    required = getattr(check, "required", finding.required)
    return replace(finding, check=check.name, required=required, seconds=0.0, runs=0, spent=None)


class _CheckBatch:
    """A batch of checks. State shared between threads changes in atomic steps only."""

    def __init__(self, checks: tuple[Check, ...], inspection: Inspection) -> None:
        self.messages: SimpleQueue[Message] = SimpleQueue()
        self.cancelled = False  # all checks are to be killed
        self._checks, self._inspection = checks, inspection
        self._remaining: Iterator[int] = iter(range(len(checks)))
        self._findings: dict[int, Finding] = {}
        self._errors: list[BaseException] = []
        self._started: list[int] = []
        self._finished: list[int] = []
        self._requested, self._next_tick_s = CONTINUE, 0.0
        self._spent: dict[int, Spent] = {}

    def spent(self, watch: int, spent: Spent) -> Spent:
        """The cost of all checks, with this as the cost of one of them."""
        self._spent[watch] = spent
        total = NOTHING_SPENT
        for check_spent in [*self._spent.values()]:
            total = add_spent(total, check_spent)
        return total

    @property
    def requested(self) -> int:
        """The request to all checks: continue, stop or kill."""
        return KILL if self.cancelled else self._requested

    def run(self, watch: CheckWatcher) -> list[Finding]:
        """Run all checks, and pass their messages to the watcher."""
        self._tick(watch)
        count = min(max(os.cpu_count() or MIN_PARALLEL, MIN_PARALLEL), MAX_PARALLEL, len(self._checks))
        threads = [Thread(target=self._work, name=f"check {number}", daemon=True) for number in range(count)]
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
        return [self._findings[at] for at in range(len(self._checks))]

    def _work(self) -> None:
        """The body of a thread: run checks until none is left."""
        self._started.append(1)
        try:
            for at in self._remaining:
                self._findings[at] = self._run_check(self._checks[at])
        except BaseException as fault:  # noqa: BLE001 (raised in the calling thread, when the others have ended)
            self._errors.append(fault)
            self.cancelled = True
        finally:
            self._finished.append(1)
            self.messages.put(None)

    def _run_check(self, check: Check) -> Finding:
        if self.requested >= STOP:
            return Finding(check.name, False, why=STOPPED, required=getattr(check, "required", True), runs=0)
        try:
            return check.run(self._inspection, _BatchWatch(self))
        finally:
            self.messages.put(None)

    def _wait(self, watch: CheckWatcher) -> None:
        """Wait for messages until the next tick is due, and deliver them."""
        try:
            first = self.messages.get(timeout=max(0.0, self._next_tick_s - time.monotonic()))
        except Empty:
            self._tick(watch)
            return
        self._deliver(watch, first)

    def _deliver(self, watch: CheckWatcher, *first: Message) -> None:
        """Deliver all messages. A check that requests a tick gets one that begins after its request."""
        tick_requests: list[_thread.LockType] = []
        messages = [*first, *(self.messages.get_nowait() for _ in range(self.messages.qsize()))]
        for message in messages:
            if isinstance(message, bytes):
                watch.output(message)
            elif isinstance(message, list):
                watch.events(message)
            elif message is not None:
                tick_requests.append(message)
        if tick_requests or None in messages or time.monotonic() >= self._next_tick_s:
            self._tick(watch)
        for request in tick_requests:
            request.release()

    def _tick(self, watch: CheckWatcher) -> None:
        self._requested = watch.tick()
        self._next_tick_s = time.monotonic() + TICK_S

    def _cancel(self) -> None:
        """Have all checks killed, and wait for their end, whatever exceptions arrive meanwhile."""
        self.cancelled = True  # a thread that starts later runs no check
        while len(self._finished) < len(self._started):
            try:
                self.messages.get(timeout=TICK_S)
            except Empty:
                continue
            except BaseException:  # noqa: BLE001, S112 (a second exception: the end is already requested)
                continue


class _BatchWatch:
    """The watcher of one check, in its thread."""

    def __init__(self, batch: _CheckBatch) -> None:
        self._batch = batch

    def output(self, chunk: bytes) -> None:
        if self._batch.messages.qsize() < MAX_QUEUED:
            self._batch.messages.put(chunk)

    def events(self, events: list[Event]) -> None:
        """Events are never dropped; ticks, which wait for the calling thread, limit their number."""
        totals = [self._batch.spent(id(self), event) if isinstance(event, Spent) else event for event in events]
        self._batch.messages.put(totals)

    def tick(self) -> int:
        if not self._batch.cancelled:
            request = allocate_lock()
            request.acquire()
            self._batch.messages.put(request)
            request.acquire(timeout=TICK_TIMEOUT_S)
        return self._batch.requested
