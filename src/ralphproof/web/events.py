"""Events for those who look on: the runs of the project, and one run with its agent."""

from __future__ import annotations

import asyncio
from functools import partial

from starlette.responses import Response

from ralphproof.errors import NotThere, RalphError, Refused
from ralphproof.value import TYPE_CHECKING
from ralphproof.web.answers import encoded, error, missing
from ralphproof.web.asked import run_of, since_of
from ralphproof.web.ears import Inbox
from ralphproof.web.frames import FIRST, GONE, NOBODY, STILL_HERE, TASKS, changed, frame, lineup, run_frame

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from ralphproof.views.board import Board
    from ralphproof.web.ears import Ears
    from ralphproof.web.pulse import Pulse
    from ralphproof.web.readers import Readers

    Course = Callable[[asyncio.Event], AsyncIterator[bytes]]

QUIET_S = 10.0
AGAIN_S = 1.0
RETRY_S = "2"
KIND = "text/event-stream"


class Events:
    """The two streams. Each onlooker knows what it was sent last, so a slow one gets less, and never a gap."""

    def __init__(
        self, board: Board, readers: Readers, pulse: Pulse, ears: Ears, most: int, control: bool,
        note: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._board, self._readers, self._pulse, self._ears = board, readers, pulse, ears
        self._most, self._control, self._note = most, control, note

    async def of_runs(self, request: Request) -> Response:
        return self._stream(request, self._runs)

    async def of_run(self, request: Request) -> Response:
        name, known = run_of(request), since_of(request)
        try:
            run, after = await self._readers(lambda: self._begin(name, known))
        except Refused as refused:
            return _gone(request, refused)
        return self._stream(request, lambda wake: self._run(run, after, wake))

    def _begin(self, name: str, known: int) -> tuple[str, int]:
        """Which run, and from which record on. A number that is not reached yet is another ledger's: then all of it."""
        run = self._board.find(name)
        return run, known if known <= self._board.last_of(run) else 0

    def _stream(self, request: Request, course: Course) -> Response:
        if self._pulse.watched_by >= self._most:
            return error(503, "too many look on; come again", {"retry-after": RETRY_S})
        return Stream(self._pulse, course, request.method == "HEAD")

    async def _runs(self, wake: asyncio.Event) -> AsyncIterator[bytes]:
        """Each value is what there is to say now; empty is nothing."""
        before = NOBODY
        while True:
            try:
                now = await self._pulse.read("runs", partial(lineup, self._board))
            except RalphError as fault:
                self._unreadable(fault, wake)
                yield b""
                continue
            told = await self._pulse.read((id(before), id(now)), partial(changed, now, before, self._control))
            told += TASKS if before is not NOBODY and before.tasks != now.tasks else b""
            before = now
            yield told

    async def _run(self, run: str, after: int, wake: asyncio.Event) -> AsyncIterator[bytes]:
        inbox, says = Inbox(wake), b""
        self._ears.join(run, inbox)
        try:
            while True:
                try:
                    page = await self._pulse.read((run, after), partial(run_frame, self._board, run, after))
                except NotThere:
                    yield GONE
                    return
                except RalphError as fault:
                    self._unreadable(fault, wake)
                    yield b""
                    continue
                told = page.message if page.brings or page.says != says else b""
                after, says = page.seq, page.says
                yield told + b"".join(inbox.taken())
        finally:
            self._ears.leave(run, inbox)

    def _unreadable(self, fault: RalphError, wake: asyncio.Event) -> None:
        """Say so, and look again in a moment, whether something has changed or not."""
        self._note(f"the record cannot be read now ({fault}); it is tried again")
        asyncio.get_running_loop().call_later(AGAIN_S, wake.set)


class Stream(Response):
    """An answer that goes on until somebody leaves. It says something every few seconds, and is told when to look."""

    def __init__(self, pulse: Pulse, course: Course, headers_only: bool) -> None:
        super().__init__(media_type=KIND)
        del self.headers["content-length"]
        self._pulse, self._course, self._headers_only = pulse, course, headers_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        if not self._headers_only:
            wake = asyncio.Event()
            leaving = asyncio.get_running_loop().create_task(_left(receive, wake))
            self._pulse.join(wake)
            try:
                await self._told(send, wake, leaving)
            finally:
                self._pulse.leave(wake)
                leaving.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _told(self, send: Send, wake: asyncio.Event, leaving: asyncio.Task[None]) -> None:
        await send({"type": "http.response.body", "body": FIRST, "more_body": True})
        course, clock = self._course(wake), asyncio.get_running_loop().time
        said_s = clock()
        try:
            async for told in course:
                if told or clock() - said_s >= QUIET_S:  # much may happen of which this one is told nothing
                    await send({"type": "http.response.body", "body": told or STILL_HERE, "more_body": True})
                    said_s = clock()
                while not self._pulse.over and not await _woken(wake, said_s + QUIET_S):
                    await send({"type": "http.response.body", "body": STILL_HERE, "more_body": True})
                    said_s = clock()
                if self._pulse.over or leaving.done():
                    return
        finally:
            await course.aclose()  # type: ignore[attr-defined]  # it is a generator


def _gone(request: Request, refused: Refused) -> Response:
    """That no run is meant, or that it cannot be told which. A browser that waits for events hears of nothing else."""
    if KIND in request.headers.get("accept", ""):
        return Response(FIRST + frame("gone", encoded({"error": str(refused)})), media_type=KIND)
    raise missing(str(refused)) if isinstance(refused, NotThere) else refused


async def _left(receive: Receive, wake: asyncio.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    wake.set()


async def _woken(wake: asyncio.Event, until_s: float) -> bool:
    """Whether there is something to look at; False where it was quiet until then."""
    try:
        async with asyncio.timeout_at(until_s):
            await wake.wait()
    except TimeoutError:
        return False
    wake.clear()
    return True
