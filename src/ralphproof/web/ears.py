"""Live agents, each overheard once for all who look on at its run, and only while somebody does."""

from __future__ import annotations

import asyncio
from collections import deque

from ralphproof.errors import RalphError
from ralphproof.value import TYPE_CHECKING
from ralphproof.web.frames import earful, lost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ralphproof.views.overhear import Overheard, Overhearing
    from ralphproof.web.frames import Earful
    from ralphproof.web.readers import Readers

    Overhear = Callable[[str, Callable[[Overheard], None]], Overhearing]

HELD_BYTES, HELD_EARFULS = 1 << 20, 256  # for one who reads slowly
RECENT_BYTES = 256 * 1024  # for one who comes later


class Inbox:
    """What one onlooker has yet to be told of an agent, within bounds; what does not fit is counted."""

    def __init__(self, wake: asyncio.Event) -> None:
        self._wake = wake
        self._held: deque[Earful] = deque()
        self._bytes = self._missed = 0

    def put(self, one: Earful) -> None:
        self._held.append(one)
        self._bytes += len(one.message)
        while len(self._held) > 1 and (self._bytes > HELD_BYTES or len(self._held) > HELD_EARFULS):
            gone = self._held.popleft()
            self._bytes -= len(gone.message)
            self._missed += gone.count
        self._wake.set()

    def taken(self) -> Iterator[bytes]:
        """All messages, oldest first, each once."""
        while self._held:
            one = self._held.popleft()
            self._bytes -= len(one.message)
            if self._missed:
                missed, self._missed = self._missed, 0
                yield lost(missed, one)
            yield one.message


class Ear:
    """One run's agent, and everybody who looks on at it."""

    def __init__(self) -> None:
        self.inboxes: set[Inbox] = set()
        self.deserted = asyncio.Event()
        self._recent: deque[Earful] = deque()

    def hear(self, one: Earful) -> None:
        """In the event loop: hand it to everybody."""
        if self._recent and self._recent[-1].turn != one.turn:
            self._recent.clear()
        self._recent.append(one)
        while len(self._recent) > 1 and sum(len(old.message) for old in self._recent) > RECENT_BYTES:
            self._recent.popleft()
        for inbox in self.inboxes:
            inbox.put(one)

    def let_in(self, inbox: Inbox) -> None:
        """Who comes later is told the last of it first."""
        for old in self._recent:
            inbox.put(old)
        self.inboxes.add(inbox)


class Ears:
    """Everybody who is overheard now."""

    def __init__(self, overhear: Overhear, readers: Readers, note: Callable[[str], None]) -> None:
        self._overhear, self._readers, self._note = overhear, readers, note
        self._ears: dict[str, Ear] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def join(self, run: str, inbox: Inbox) -> None:
        ear = self._ears.get(run)
        if ear is None:
            ear = self._ears[run] = Ear()
            task = asyncio.get_running_loop().create_task(self._listen(run, ear))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        ear.let_in(inbox)

    def leave(self, run: str, inbox: Inbox) -> None:
        ear = self._ears.get(run)
        if ear is None:
            return
        ear.inboxes.discard(inbox)
        if not ear.inboxes:
            del self._ears[run]
            ear.deserted.set()

    async def _listen(self, run: str, ear: Ear) -> None:
        """Begin, and stop when the last has left. Both may take a moment, so they are done in a thread."""
        loop = asyncio.get_running_loop()

        def hear(heard: Overheard) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(ear.hear, earful(heard))

        try:
            overhearing = await self._readers(lambda: _begun(self._overhear(run, hear)))
        except (RalphError, OSError) as fault:
            self._note(f"the agent of run {run} cannot be overheard ({fault})")
            return
        try:
            await ear.deserted.wait()
        finally:
            await self._readers(overhearing.stop)


def _begun(overhearing: Overhearing) -> Overhearing:
    overhearing.start()
    return overhearing
