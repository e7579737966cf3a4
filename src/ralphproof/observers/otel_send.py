"""Brings spans to their receiver, in a thread of its own: whatever that does, nobody else waits for it."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque

from ralphproof.observers.otel_address import shown
from ralphproof.observers.otel_receiver import Receiver
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ralphproof.observers.otel_span import TraceSpan

MOST = 4096  # spans that wait; the oldest make room
BATCH = 512  # spans in a request
GATHER_S = 1.0  # so long more spans are waited for
AGAIN_S = 5.0
LOOK_S = 0.05
LATE, CROWDED = "no answer before the end", "too many waited"


class Sender:
    """Takes spans along at once, in bounded memory. It starts no thread before there is something to send.

    `address` has passed `bad_address`.
    """

    def __init__(self, address: str, mask: Callable[[str], str], environ: Mapping[str, str]) -> None:
        self._shown, self._mask = shown(address), mask
        self._receiver = Receiver(address, environ)
        self._waiting: deque[TraceSpan] = deque()
        self._changed = threading.Condition()  # what follows is read and written by both threads
        self._thread: threading.Thread | None = None
        self._closing = self._left = False
        self._under_way = self._lost = 0
        self._why = ""

    @property
    def failures(self) -> list[str]:
        """What could not be sent, in a line without secrets; the first reason stands for all."""
        many = f"{self._lost} spans were" if self._lost > 1 else "a span was"
        return [f"otel: {self._shown}: {many} not sent: {self._why}"] if self._lost else []

    def put(self, span: TraceSpan) -> None:
        """Take a span along."""
        with self._changed:
            self._waiting.append(span)
            if len(self._waiting) > MOST:
                self._waiting.popleft()
                self._lose(1, CROWDED)
            if self._thread is None:
                self._thread = _started(self._work)
            if len(self._waiting) in (1, BATCH):
                self._changed.notify_all()

    def close(self, seconds: float, patience_s: Callable[[], float]) -> None:
        """Bring away what there is, in so many seconds, or less where `patience_s` says so; the rest is lost."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        deadline = time.monotonic() + seconds
        while self._thread and self._thread.is_alive() and (left := deadline - time.monotonic()) > 0:
            deadline = min(deadline, time.monotonic() + patience_s())
            self._thread.join(min(left, LOOK_S))
        with self._changed:
            self._lose(len(self._waiting) + self._under_way, LATE)
            self._waiting.clear()
            self._left = True
        self._receiver.hang_up()

    def _work(self) -> None:
        while batch := self._next():
            why = self._send(batch)
            with self._changed:
                self._under_way = 0
                if why and not self._left:
                    self._lose(len(batch), why)

    def _next(self) -> list[TraceSpan]:
        """The next batch, when there is one; nothing at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            self._changed.wait_for(lambda: len(self._waiting) >= BATCH or self._closing, GATHER_S)
            batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            self._under_way = len(batch)
        return batch

    def _send(self, batch: list[TraceSpan]) -> str:
        """Send them, and again while the receiver is not there; why they are lost."""
        try:
            from ralphproof.observers.otel_wire import encoded

            body = encoded(batch, self._mask)
        except (ImportError, TypeError, ValueError) as error:
            return f"they could not be encoded ({type(error).__name__})"
        while True:
            last = self._closing  # at the end everybody is asked once more
            answer = self._receiver.post(body)
            if not answer.again or last:
                return answer.why
            with self._changed:
                self._changed.wait_for(lambda: self._closing, AGAIN_S)

    def _lose(self, count: int, why: str) -> None:
        self._lost += count
        self._why = self._why or (why if count else "")


def _started(work: Callable[[], None]) -> threading.Thread:
    """A thread that hears no signal: one that it took would not wake the thread that waits for signals."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        made = threading.Thread(target=work, name="ralph-otel", daemon=True)
        made.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return made
