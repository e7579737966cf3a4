"""Where the read model is asked: in a few threads, so that a slow disk holds up nobody else."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from queue import SimpleQueue

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    T = TypeVar("T")

THREADS = 8


class Readers:
    """A bounded number of threads that read; whoever asks waits for one of them.

    Nobody waits for them at the end, as for those of the standard library: a read that hangs must not keep the server.
    """

    def __init__(self, threads: int = THREADS) -> None:
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
