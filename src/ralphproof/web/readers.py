"""Threads that read the run database, and a queue for slow reads."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from queue import SimpleQueue

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from starlette.requests import Request

    T = TypeVar("T")


# Slow reads run one at a time, so that readers are left for the others.


MAX_WAITING = 8
BUSY_MESSAGE = "too many ask for this at once; come again"
RETRY_AFTER_S = "2"


class SlowReadQueue:
    """Passes one read at a time to the readers. The queue is bounded; reads of disconnected clients are dropped.

    A read that has begun is awaited even then, because its thread is still busy.
    """

    def __init__(self, readers: ReaderPool) -> None:
        self._readers = readers
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def __call__(self, request: Request, call: Callable[[], T]) -> T:
        if self._waiting >= MAX_WAITING:
            raise HTTPException(503, BUSY_MESSAGE, {"retry-after": RETRY_AFTER_S})
        self._waiting += 1
        try:
            await self._wait_turn(request)
        finally:
            self._waiting -= 1
        try:
            return await self._readers(call)
        finally:
            self._turn.release()

    async def _wait_turn(self, request: Request) -> None:
        """Wait for the turn; raises ClientDisconnect if the client leaves first."""
        turn, leaving = asyncio.ensure_future(self._turn.acquire()), asyncio.ensure_future(wait_for_disconnect(request))
        try:
            await asyncio.wait((turn, leaving), return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                raise ClientDisconnect
        except BaseException:  # also where we are told to end: whose turn it was must not keep it
            if turn.done() and not turn.cancelled():
                self._turn.release()
            raise
        finally:
            for task in (turn, leaving):
                task.cancel()


async def wait_for_disconnect(request: Request) -> None:
    """Returns when the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


# The read model is queried in a few threads, so that a slow disk does not block the event loop.


READER_THREADS = 8


class ReaderPool:
    """A bounded pool of reader threads.

    Unlike those of the standard library they are not joined at exit: a hanging read must not keep the server alive.
    """

    def __init__(self, threads: int = READER_THREADS) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._threads = threads
        for number in range(threads):
            threading.Thread(target=self._read, name=f"ralph-reader-{number}", daemon=True).start()

    async def __call__(self, call: Callable[[], T]) -> T:
        future: Future[T] = Future()
        self._calls.put((future, call))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Start no further reads."""
        for _ in range(self._threads):
            self._calls.put(None)

    def _read(self) -> None:
        while asked := self._calls.get():
            future, call = asked
            if not future.set_running_or_notify_cancel():
                continue  # who asked has left
            try:
                found = call()
            except BaseException as fault:  # noqa: BLE001 (it is told to whoever asked)
                future.set_exception(fault)
            else:
                future.set_result(found)
