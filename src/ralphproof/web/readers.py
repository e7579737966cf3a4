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


# Where those wait who ask for what takes long: one such read at a time, so that readers are left for all others.


MAX_WAITING = 8
BUSY_MESSAGE = "too many ask for this at once; come again"
RETRY_AFTER_S = "2"


class SlowReadQueue:
    """Lets one read after the other pass to the readers. Only some may wait, and who leaves is not read for.

    A read that has begun is waited for even then: its thread goes on, and nobody may take another one meanwhile.
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
            await self._passed(request)
        finally:
            self._waiting -= 1
        try:
            return await self._readers(call)
        finally:
            self._turn.release()

    async def _passed(self, request: Request) -> None:
        """It is this one's turn; raises ClientDisconnect where it has left before."""
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
    """Returns when who asks is no longer there."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


# Where the read model is asked: in a few threads, so that a slow disk holds up nobody else.


READER_THREADS = 8


class ReaderPool:
    """A bounded number of threads that read; whoever asks waits for one of them.

    Nobody waits for them at the end, as for those of the standard library: a read that hangs must not keep the server.
    """

    def __init__(self, threads: int = READER_THREADS) -> None:
        self._asked: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._threads = threads
        for number in range(threads):
            threading.Thread(target=self._read, name=f"ralph-reader-{number}", daemon=True).start()

    async def __call__(self, call: Callable[[], T]) -> T:
        future: Future[T] = Future()
        self._asked.put((future, call))
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Begin nothing more."""
        for _ in range(self._threads):
            self._asked.put(None)

    def _read(self) -> None:
        while asked := self._asked.get():
            future, call = asked
            if not future.set_running_or_notify_cancel():
                continue  # who asked has left
            try:
                found = call()
            except BaseException as fault:  # noqa: BLE001 (it is told to whoever asked)
                future.set_exception(fault)
            else:
                future.set_result(found)
