"""Server-sent events: runs of the project, and one run with its agent."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from starlette.responses import Response

from ralphproof.base.errors import NotThere, RalphError, Refused
from ralphproof.base.value import TYPE_CHECKING, Json, value
from ralphproof.engine.outcome import published
from ralphproof.views.events import EventBatch, LiveEvents
from ralphproof.views.read_model import ReadModel, ReadModelVersion
from ralphproof.web.api import ReaderPool, wait_for_disconnect
from ralphproof.web.http import encode_json, error_response, last_event_id, not_found, run_parameter

Overhear = Callable[[str, Callable[[EventBatch], None]], LiveEvents]
Course = Callable[[asyncio.Event], AsyncIterator[bytes]]

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    T = TypeVar("T")


POLL_S, MAX_POLL_S = 0.125, 2.0
RETRY_AFTER_FAULT_S = 1.0  # after a fault
MAX_CACHED = 64  # answers; as many as may look on at once, and a page may be large
IDLE_FACTOR = 3  # of so many parts of the time at most one goes into looking, and into reading what has changed


class ChangeWatcher:
    """Wakes all streams at a change, and caches what was read since: the same question gets the same bytes.

    Everything but the thread itself runs in the event loop. An exception in the thread is reported, and it is
    restarted.
    """

    def __init__(self, read_model: ReadModel, readers: ReaderPool, note: Callable[[str], None]) -> None:
        self._read_model, self._readers, self._note = read_model, readers, note
        self._awake: set[asyncio.Event] = set()
        self._cache: dict[Any, tuple[asyncio.Future[Any], Callable[[], Any]]] = {}
        self._watched, self._over = threading.Event(), threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._busy_s = 0.0

    @property
    def over(self) -> bool:
        return self._over.is_set()

    @property
    def watched_by(self) -> int:
        return len(self._awake)

    def join(self, wake: asyncio.Event) -> None:
        """Set this event at every change from now on."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            threading.Thread(target=self._live, name="ralph-pulse", daemon=True).start()
        if not self._awake:
            self._cache = {}  # nobody looked, so nobody knows whether it is still true
        self._awake.add(wake)
        self._watched.set()

    def leave(self, wake: asyncio.Event) -> None:
        self._awake.discard(wake)
        if not self._awake:
            self._watched.clear()

    def end(self) -> None:
        """Wake and release all streams."""
        self._over.set()
        self._watched.set()
        self._beat()

    async def read(self, key: object, call: Callable[[], T]) -> T:
        """The result of `call`, which runs once per key until something changes."""
        known = self._cache.get(key)
        found: T = await asyncio.shield(
            known[0] if known else self._start_read(key, call)
        )  # who leaves takes nothing away
        return found

    def _start_read(self, key: object, call: Callable[[], T]) -> asyncio.Future[T]:
        """The call is kept as well: a key may contain ids of objects that it holds."""
        future = asyncio.ensure_future(self._timed(call))
        self._cache[key] = future, call
        future.add_done_callback(lambda done: self._on_read_done(key, done))
        while len(self._cache) > MAX_CACHED:
            del self._cache[next(iter(self._cache))]
        return future

    async def _timed(self, call: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            return await self._readers(call)
        finally:
            self._busy_s += loop.time() - began

    def _on_read_done(self, key: object, future: asyncio.Future[Any]) -> None:
        """A failure was reported to those who waited; the next request tries again."""
        if not future.cancelled() and future.exception() and self._cache.get(key, (None,))[0] is future:
            del self._cache[key]

    def _beat(self) -> None:
        self._cache = {}
        for wake in self._awake:
            wake.set()

    # In the thread

    def _live(self) -> None:
        while not self.over:
            try:
                self._watch()
            except Exception as fault:  # noqa: BLE001 (it looks on; a fault of its own ends nothing)
                self._note(f"looking for changes failed ({type(fault).__name__}: {fault}); it is tried again")
                self._over.wait(RETRY_AFTER_FAULT_S)

    def _watch(self) -> None:
        assert self._loop is not None
        before: ReadModelVersion | None = None
        while not self.over:
            self._watched.wait()
            self._busy_s, busy_s = 0.0, self._busy_s
            began_s = time.monotonic()
            now = self._read_model.moment()
            busy_s += time.monotonic() - began_s
            if now != before and not self.over:
                before = now
                self._loop.call_soon_threadsafe(self._beat)
            self._over.wait(min(max(POLL_S, IDLE_FACTOR * busy_s), MAX_POLL_S))


# Messages of `text/event-stream`, encoded once for all clients that get the same.


FIRST_FRAME = b"retry: 1000\n\n"  # how soon a browser comes again, in milliseconds
CHANGING_FIELDS = ("seq", "timeline", "complete", "limits", "headline")  # differ between pages that say the same
MAX_RUNS = 200


def encode_frame(event: str, data: bytes, number: int | None = None) -> bytes:
    """One message; a reconnecting browser sends its number back."""
    mark = b"" if number is None else b"id: %d\n" % number
    return b"event: %s\n%sdata: %s\n\n" % (event.encode(), mark, data)


GONE_FRAME = encode_frame("gone", b"{}")
TASKS_FRAME = encode_frame("tasks", b"{}")
KEEPALIVE_FRAME = encode_frame(
    "still", b"{}"
)  # no comment: a page cannot see one, and must tell a quiet server from a dead one


@value
class RunFrame:
    """State of a run since some record: the message, and its content beside the iterations."""

    seq: int
    says: bytes
    brings: bool
    message: bytes


def build_run_frame(read_model: ReadModel, run: str, after: int) -> RunFrame:
    """What has happened to a run since a record. A number beyond the last is from another ledger: then everything."""
    page: dict[str, Any] = read_model.run(run, after)
    if after > page["seq"]:
        page = read_model.run(run, 0)
    says = encode_json({name: part for name, part in page.items() if name not in CHANGING_FIELDS})
    moving = encode_json({name: page[name] for name in CHANGING_FIELDS})
    return RunFrame(
        page["seq"], says, bool(page["timeline"]), encode_frame("run", says[:-1] + b"," + moving[1:], page["seq"])
    )


@value
class RunListState:
    """All runs as JSON, their project, and the version of the tasks."""

    seq: int
    tasks: int
    total: int
    project: str
    lines: dict[str, bytes]


EMPTY_RUN_LIST = RunListState(0, 0, -1, "", {})


def read_run_list(read_model: ReadModel) -> RunListState:
    tasks = read_model.moment().tasks
    found: dict[str, Any] = read_model.runs(MAX_RUNS)
    lines = {line["id"]: encode_json(line) for line in found["runs"]}
    return RunListState(found["seq"], tasks, found["total"], found["project"], lines)


def run_list_frame(now: RunListState, before: RunListState, control: bool) -> bytes:
    """The message that leads from one state to the next; empty if nothing changed.

    The first one names the project: a reconnecting client may know another project from another server.
    """
    lines = [line for run, line in now.lines.items() if before.lines.get(run) != line]
    if not lines and now.total == before.total:
        return b""
    told = published("runs", {
        "project": now.project, "total": now.total, "seq": now.seq, "complete": before is EMPTY_RUN_LIST,
        "control": control,
    })  # fmt: skip
    return encode_frame("runs", b'%s,"runs":[%s]}' % (encode_json(told)[:-1], b",".join(lines)))


@value
class AgentEventsFrame:
    """A batch of agent events as a message, and its position in the turn."""

    log: str
    first: int
    count: int
    message: bytes


def build_agent_events_frame(heard: EventBatch) -> AgentEventsFrame:
    message = encode_frame("agent", encode_json(heard.to_json()))
    return AgentEventsFrame(heard.log, heard.first, len(heard.events), message)


def missed_events_frame(count: int, before: AgentEventsFrame) -> bytes:
    """The message that says how many agent events a slow client has missed."""
    told: dict[str, Json] = {"log": before.log, "first": before.first, "dropped": count, "events": []}
    return encode_frame("agent", encode_json(published("agentEvents", told)))


# Live agent events: one listener per run, only while a client follows it.


MAX_INBOX_BYTES, MAX_INBOX_FRAMES = 1 << 20, 256  # for one who reads slowly
MAX_RECENT_BYTES = 256 * 1024  # for one who comes later


class EventInbox:
    """Bounded queue of messages for one client; what does not fit is counted."""

    def __init__(self, wake: asyncio.Event) -> None:
        self._wake = wake
        self._messages: deque[AgentEventsFrame] = deque()
        self._bytes = self._missed = 0

    def put(self, one: AgentEventsFrame) -> None:
        self._messages.append(one)
        self._bytes += len(one.message)
        while len(self._messages) > 1 and (self._bytes > MAX_INBOX_BYTES or len(self._messages) > MAX_INBOX_FRAMES):
            gone = self._messages.popleft()
            self._bytes -= len(gone.message)
            self._missed += gone.count
        self._wake.set()

    def drain(self) -> Iterator[bytes]:
        """All messages, oldest first."""
        while self._messages:
            one = self._messages.popleft()
            self._bytes -= len(one.message)
            if self._missed:
                missed, self._missed = self._missed, 0
                yield missed_events_frame(missed, one)
            yield one.message


class LiveEventFeed:
    """Live events of one run's agent, and the clients that follow it."""

    def __init__(self) -> None:
        self.inboxes: set[EventInbox] = set()
        self.abandoned = asyncio.Event()
        self._recent: deque[AgentEventsFrame] = deque()

    def publish(self, one: AgentEventsFrame) -> None:
        """In the event loop: pass a batch to all clients."""
        if self._recent and self._recent[-1].log != one.log:
            self._recent.clear()
        self._recent.append(one)
        while len(self._recent) > 1 and sum(len(old.message) for old in self._recent) > MAX_RECENT_BYTES:
            self._recent.popleft()
        for inbox in self.inboxes:
            inbox.put(one)

    def add_inbox(self, inbox: EventInbox) -> None:
        """Add a client; it gets the most recent messages first."""
        for old in self._recent:
            inbox.put(old)
        self.inboxes.add(inbox)


class LiveEventFeeds:
    """All feeds that have clients now."""

    def __init__(self, listen_to: Overhear, readers: ReaderPool, note: Callable[[str], None]) -> None:
        self._listen_to, self._readers, self._note = listen_to, readers, note
        self._feeds: dict[str, LiveEventFeed] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def join(self, run: str, inbox: EventInbox) -> None:
        feed = self._feeds.get(run)
        if feed is None:
            feed = self._feeds[run] = LiveEventFeed()
            task = asyncio.get_running_loop().create_task(self._listen(run, feed))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        feed.add_inbox(inbox)

    def leave(self, run: str, inbox: EventInbox) -> None:
        feed = self._feeds.get(run)
        if feed is None:
            return
        feed.inboxes.discard(inbox)
        if not feed.inboxes:
            del self._feeds[run]
            feed.abandoned.set()

    async def _listen(self, run: str, feed: LiveEventFeed) -> None:
        """Start, and stop when the last client has left. Both may block, so they run in a thread."""
        loop = asyncio.get_running_loop()

        def hear(heard: EventBatch) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(feed.publish, build_agent_events_frame(heard))

        try:
            overhearing = await self._readers(lambda: _start_feed(self._listen_to(run, hear)))
        except (RalphError, OSError) as fault:
            self._note(f"the agent of run {run} cannot be overheard ({fault})")
            return
        try:
            await feed.abandoned.wait()
        finally:
            await self._readers(overhearing.stop)


def _start_feed(overhearing: LiveEvents) -> LiveEvents:
    overhearing.start()
    return overhearing


KEEPALIVE_S = 10.0
RETRY_AFTER_S = "2"
EVENT_STREAM_TYPE = "text/event-stream"


class EventStreams:
    """The two streams. Each client's last state is known, so a slow client gets fewer messages but no gap."""

    def __init__(
        self, read_model: ReadModel, readers: ReaderPool, watcher: ChangeWatcher, feeds: LiveEventFeeds,
        most: int, control: bool,
        note: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._read_model, self._readers, self._watcher, self._feeds = read_model, readers, watcher, feeds
        self._most, self._control, self._note = most, control, note

    async def of_runs(self, request: Request) -> Response:
        return self._stream(request, self._runs)

    async def of_run(self, request: Request) -> Response:
        name, known = run_parameter(request), last_event_id(request)
        try:
            run, after = await self._readers(lambda: self._begin(name, known))
        except Refused as refused:
            return _run_gone_response(request, refused)
        return self._stream(request, lambda wake: self._run(run, after, wake))

    def _begin(self, name: str, known: int) -> tuple[str, int]:
        """The run, and the record to start from. A number beyond the last is from another ledger: then everything."""
        run = self._read_model.find(name)
        return run, known if known <= self._read_model.last_of(run) else 0

    def _stream(self, request: Request, frames: Course) -> Response:
        if self._watcher.watched_by >= self._most:
            return error_response(503, "too many look on; come again", {"retry-after": RETRY_AFTER_S})
        return EventStreamResponse(self._watcher, frames, request.method == "HEAD")

    async def _runs(self, wake: asyncio.Event) -> AsyncIterator[bytes]:
        """Yields messages; an empty one means no change."""
        before = EMPTY_RUN_LIST
        while True:
            try:
                now = await self._watcher.read("runs", partial(read_run_list, self._read_model))
            except RalphError as fault:
                self._unreadable(fault, wake)
                yield b""
                continue
            told = await self._watcher.read((id(before), id(now)), partial(run_list_frame, now, before, self._control))
            told += TASKS_FRAME if before is not EMPTY_RUN_LIST and before.tasks != now.tasks else b""
            before = now
            yield told

    async def _run(self, run: str, after: int, wake: asyncio.Event) -> AsyncIterator[bytes]:
        inbox, says = EventInbox(wake), b""
        self._feeds.join(run, inbox)
        try:
            while True:
                try:
                    page = await self._watcher.read(
                        (run, after), partial(build_run_frame, self._read_model, run, after)
                    )
                except NotThere:
                    yield GONE_FRAME
                    return
                except RalphError as fault:
                    self._unreadable(fault, wake)
                    yield b""
                    continue
                told = page.message if page.brings or page.says != says else b""
                after, says = page.seq, page.says
                yield told + b"".join(inbox.drain())
        finally:
            self._feeds.leave(run, inbox)

    def _unreadable(self, fault: RalphError, wake: asyncio.Event) -> None:
        """Report the error, and retry after a moment whether or not something has changed."""
        self._note(f"the record cannot be read now ({fault}); it is tried again")
        asyncio.get_running_loop().call_later(RETRY_AFTER_FAULT_S, wake.set)


class EventStreamResponse(Response):
    """A response that lasts until the client leaves, with a heartbeat every few seconds."""

    def __init__(self, watcher: ChangeWatcher, frames: Course, headers_only: bool) -> None:
        super().__init__(media_type=EVENT_STREAM_TYPE)
        del self.headers["content-length"]
        self._watcher, self._frames, self._headers_only = watcher, frames, headers_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        if not self._headers_only:
            wake = asyncio.Event()
            leaving = asyncio.get_running_loop().create_task(_wait_for_disconnect(receive, wake))
            self._watcher.join(wake)
            try:
                await self._send_frames(send, wake, leaving)
            finally:
                self._watcher.leave(wake)
                leaving.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_frames(self, send: Send, wake: asyncio.Event, leaving: asyncio.Task[None]) -> None:
        await send({"type": "http.response.body", "body": FIRST_FRAME, "more_body": True})
        frames, clock = self._frames(wake), asyncio.get_running_loop().time
        said_s = clock()
        try:
            async for told in frames:
                if told or clock() - said_s >= KEEPALIVE_S:  # much may happen of which this one is told nothing
                    await send({"type": "http.response.body", "body": told or KEEPALIVE_FRAME, "more_body": True})
                    said_s = clock()
                while not self._watcher.over and not await _wait_for_change(wake, said_s + KEEPALIVE_S):
                    await send({"type": "http.response.body", "body": KEEPALIVE_FRAME, "more_body": True})
                    said_s = clock()
                if self._watcher.over or leaving.done():
                    return
        finally:
            await frames.aclose()  # type: ignore[attr-defined]  # it is a generator


def _run_gone_response(request: Request, refused: Refused) -> Response:
    """The run is unknown or ambiguous. A browser's EventSource sees no other error."""
    if EVENT_STREAM_TYPE in request.headers.get("accept", ""):
        return Response(
            FIRST_FRAME + encode_frame("gone", encode_json({"error": str(refused)})), media_type=EVENT_STREAM_TYPE
        )
    raise not_found(str(refused)) if isinstance(refused, NotThere) else refused


async def _wait_for_disconnect(receive: Receive, wake: asyncio.Event) -> None:
    await wait_for_disconnect(receive)
    wake.set()


async def _wait_for_change(wake: asyncio.Event, until_s: float) -> bool:
    """Whether something changed; False at the timeout."""
    try:
        async with asyncio.timeout_at(until_s):
            await wake.wait()
    except TimeoutError:
        return False
    wake.clear()
    return True
