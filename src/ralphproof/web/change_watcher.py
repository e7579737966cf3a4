"""The thread that notices changes of the project's records and wakes event streams."""

from __future__ import annotations

import asyncio
import threading
import time

from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from ralphproof.views.read_model import ReadModel, ReadModelVersion
    from ralphproof.web.readers import ReaderPool

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
