"""The JSON API: reading runs and tasks, and control of runs with `--control`."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from ralphproof.base.errors import NotThere
from ralphproof.base.value import TYPE_CHECKING, Json
from ralphproof.engine.outcome import published
from ralphproof.reports.daily_report import project_report_json
from ralphproof.runs.control import RunControl
from ralphproof.views.read_model import ReadModel
from ralphproof.web.http import (
    JSON_TYPE,
    MAX_INTEGER,
    bad_request,
    before_parameter,
    day_parameter,
    encode_json,
    int_parameter,
    json_response,
    log_parameter,
    not_found,
    part_parameter,
    read_body,
    run_parameter,
    task_parameter,
)

Read = Callable[[str], dict[str, Json]]  # of a run

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive

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
        turn, leaving = (
            asyncio.ensure_future(self._turn.acquire()),
            asyncio.ensure_future(wait_for_disconnect(request.receive)),
        )
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


async def wait_for_disconnect(receive: Receive) -> None:
    """Returns when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
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


# Read-only API: every endpoint is one query of the read model.


DEFAULT_RUNS, MAX_RUNS = 200, 500
DEFAULT_LOG_BYTES, MAX_LOG_BYTES = 65_536, 256 * 1024
MAX_EVENTS = 500
MAX_ITERATIONS = 1_000_000


class ReadApi:
    """Read requests, each answered and encoded in a reader thread.

    Diffs and turn logs may be large: such requests are queued.
    """

    def __init__(self, read_model: ReadModel, readers: ReaderPool, control: bool) -> None:
        self._read_model, self._readers, self._control = read_model, readers, control
        self._turns, self._diffs = SlowReadQueue(readers), SlowReadQueue(readers)

    async def runs(self, request: Request) -> Response:
        limit, before = int_parameter(request, "limit", 1, MAX_RUNS) or DEFAULT_RUNS, before_parameter(request)
        return await self._respond(lambda: {**self._read_model.runs(limit, before), "control": self._control})

    async def run(self, request: Request) -> Response:
        after = int_parameter(request, "after", 0, MAX_INTEGER) or 0
        return await self._of_run(request, lambda run: self._read_model.run(run, after))

    async def activity(self, request: Request) -> Response:
        log, most = log_parameter(request, "log"), int_parameter(request, "most", 1, MAX_EVENTS) or MAX_EVENTS
        answer = self._answer(request, lambda run: _found_or_404(lambda: self._read_model.activity(run, log, most)))
        return _json_body(await self._turns(request, answer))

    async def logs(self, request: Request) -> Response:
        return await self._of_run(request, self._read_model.logs)

    async def log(self, request: Request) -> Response:
        name, part, offset = (
            log_parameter(request),
            part_parameter(request),
            int_parameter(request, "offset", 0, MAX_INTEGER),
        )
        most = int_parameter(request, "most", 1, MAX_LOG_BYTES) or DEFAULT_LOG_BYTES
        return await self._of_run(
            request, lambda run: _found_or_404(lambda: self._read_model.log(run, name, part, offset, most))
        )

    async def diff(self, request: Request) -> Response:
        iteration = int_parameter(request, "iteration", 0, MAX_ITERATIONS)
        answer = self._answer(request, lambda run: self._read_model.diff(run, iteration))
        return _json_body(await self._diffs(request, answer))

    async def stories(self, request: Request) -> Response:
        return await self._of_run(request, self._read_model.stories)

    async def tasks(self, _: Request) -> Response:
        return await self._respond(self._read_model.tasks)

    async def task(self, request: Request) -> Response:
        wanted = task_parameter(request)
        return await self._respond(lambda: _found_or_404(lambda: self._read_model.task(wanted)))

    async def report(self, request: Request) -> Response:
        first, last = day_parameter(request, "from"), day_parameter(request, "to")
        return await self._respond(lambda: project_report_json(self._read_model.project, first, last))

    async def _of_run(self, request: Request, read: Read) -> Response:
        return _json_body(await self._readers(self._answer(request, read)))

    async def _respond(self, read: Callable[[], dict[str, Json]]) -> Response:
        return _json_body(await self._readers(lambda: encode_json(read())))

    def _answer(self, request: Request, read: Read) -> Callable[[], bytes]:
        name = run_parameter(request)
        return lambda: encode_json(read(_found_or_404(lambda: self._read_model.find(name))))


def _json_body(body: bytes) -> Response:
    return Response(body, media_type=JSON_TYPE)


def _found_or_404(read: Callable[[], T]) -> T:
    """The result, or a 404 response if the name is unknown."""
    try:
        return read()
    except NotThere as refused:
        raise not_found(str(refused)) from None


# Control API, only with `--control`: the same actions as on the command line.


class ControlApi:
    """Each action is one call of the run control, which answers with one sentence."""

    def __init__(self, read_model: ReadModel, run_control: RunControl, readers: ReaderPool) -> None:
        self._read_model, self._run_control, self._readers = read_model, run_control, readers

    async def pause(self, request: Request) -> Response:
        return await self._handle(request, self._run_control.pause)

    async def resume(self, request: Request) -> Response:
        return await self._handle(request, self._run_control.resume)

    async def cancel(self, request: Request) -> Response:
        return await self._handle(request, self._run_control.cancel)

    async def say(self, request: Request) -> Response:
        text = parse_message(await read_body(request))
        return await self._respond(run_parameter(request), lambda run: self._run_control.say(run, text))

    async def _handle(self, request: Request, action: Callable[[str], str]) -> Response:
        await read_body(request)
        return await self._respond(run_parameter(request), action)

    async def _respond(self, name: str, action: Callable[[str], str]) -> Response:
        def act() -> str:
            return action(_found_or_404(lambda: self._read_model.find(name)))

        return json_response(published("answer", {"message": await self._readers(act)}))


def parse_message(body: bytes) -> str:
    """The text of the message."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        data = None
    text = data.get("text") if isinstance(data, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise bad_request('the body must be {"text": "what to say"}')
    return text
