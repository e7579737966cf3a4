"""Where those wait who ask for what takes long: one such read at a time, so that readers are left for all others."""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from starlette.requests import Request

    from ralphproof.web.readers import Readers

    T = TypeVar("T")

WAITING = 8
BUSY = "too many ask for this at once; come again"
RETRY_S = "2"


class Turnstile:
    """Lets one read after the other pass to the readers. Only some may wait, and who leaves is not read for.

    A read that has begun is waited for even then: its thread goes on, and nobody may take another one meanwhile.
    """

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def __call__(self, request: Request, call: Callable[[], T]) -> T:
        if self._waiting >= WAITING:
            raise HTTPException(503, BUSY, {"retry-after": RETRY_S})
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
        turn, leaving = asyncio.ensure_future(self._turn.acquire()), asyncio.ensure_future(left(request))
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


async def left(request: Request) -> None:
    """Returns when who asks is no longer there."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
