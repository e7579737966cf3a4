"""The API that only reads: every page is one question to the read model."""

from __future__ import annotations

from starlette.responses import Response

from ralphproof.errors import NotThere
from ralphproof.value import TYPE_CHECKING
from ralphproof.web.answers import JSON, encoded, missing
from ralphproof.web.asked import LARGEST, before_of, day_of, log_of, number, part_of, run_of, task_of
from ralphproof.web.turnstile import Turnstile

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from starlette.requests import Request

    from ralphproof.value import Json
    from ralphproof.views.board import Board
    from ralphproof.web.readers import Readers

    T = TypeVar("T")
    Read = Callable[[str], dict[str, Json]]  # of a run

RUNS, MOST_RUNS = 200, 500
LOG_BYTES, MOST_LOG_BYTES = 65_536, 256 * 1024
EVENTS = 500
MOST_ITERATIONS = 1_000_000


class Pages:
    """Questions to the board, each in a thread of its own, with the answer made there too.

    A patch may be large, and so may the log of a turn: who asks for one waits until it is their turn.
    """

    def __init__(self, board: Board, readers: Readers, control: bool) -> None:
        self._board, self._readers, self._control = board, readers, control
        self._turns, self._diffs = Turnstile(readers), Turnstile(readers)

    async def runs(self, request: Request) -> Response:
        limit, before = number(request, "limit", 1, MOST_RUNS) or RUNS, before_of(request)
        return await self._told(lambda: {**self._board.runs(limit, before), "control": self._control})

    async def run(self, request: Request) -> Response:
        after = number(request, "after", 0, LARGEST) or 0
        return await self._of_run(request, lambda run: self._board.run(run, after))

    async def activity(self, request: Request) -> Response:
        turn, most = log_of(request, "turn"), number(request, "most", 1, EVENTS) or EVENTS
        answer = self._answer(request, lambda run: _there(lambda: self._board.activity(run, turn, most)))
        return _as_json(await self._turns(request, answer))

    async def logs(self, request: Request) -> Response:
        return await self._of_run(request, self._board.logs)

    async def log(self, request: Request) -> Response:
        name, part, offset = log_of(request), part_of(request), number(request, "offset", 0, LARGEST)
        most = number(request, "most", 1, MOST_LOG_BYTES) or LOG_BYTES
        return await self._of_run(request, lambda run: _there(lambda: self._board.log(run, name, part, offset, most)))

    async def diff(self, request: Request) -> Response:
        iteration = number(request, "iteration", 0, MOST_ITERATIONS)
        answer = self._answer(request, lambda run: self._board.diff(run, iteration))
        return _as_json(await self._diffs(request, answer))

    async def stories(self, request: Request) -> Response:
        return await self._of_run(request, self._board.stories)

    async def tasks(self, _: Request) -> Response:
        return await self._told(self._board.tasks)

    async def task(self, request: Request) -> Response:
        wanted = task_of(request)
        return await self._told(lambda: _there(lambda: self._board.task(wanted)))

    async def report(self, request: Request) -> Response:
        first, last = day_of(request, "from"), day_of(request, "to")
        return await self._told(lambda: self._board.report(first, last))

    async def _of_run(self, request: Request, read: Read) -> Response:
        return _as_json(await self._readers(self._answer(request, read)))

    async def _told(self, read: Callable[[], dict[str, Json]]) -> Response:
        return _as_json(await self._readers(lambda: encoded(read())))

    def _answer(self, request: Request, read: Read) -> Callable[[], bytes]:
        name = run_of(request)
        return lambda: encoded(read(_there(lambda: self._board.find(name))))


def _as_json(body: bytes) -> Response:
    return Response(body, media_type=JSON)


def _there(read: Callable[[], T]) -> T:
    """What is read by a name; one that nothing has is not found."""
    try:
        return read()
    except NotThere as refused:
        raise missing(str(refused)) from None
