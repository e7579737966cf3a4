"""Both outputs of a program, from their pipes to their logs, and the patience with a reader that is behind."""

from __future__ import annotations

import os
import select

from ralphproof.keeper.log import Log
from ralphproof.keeper.stream import Stream
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from ralphproof.keeper.link import Link
    from ralphproof.keeper.start import Start

UNREAD_S = 30.0  # how long a reader that falls behind may hold the program up


class Drain:
    """Takes all that a program says. Only a harness that lives can hold it up: nobody else says how far it has read."""

    def __init__(self, start: Start, link: Link, poll: select.poll) -> None:
        self.out = Log(os.fsdecode(start.out), start.sizes)
        self.err = Log(os.fsdecode(start.err), start.sizes) if start.err else None
        self.held_since = 0.0  # when stdout was held up for a reader that is behind
        self._start, self._link, self._poll = start, link, poll
        self._streams: dict[int, Stream] = {}
        self._patient = True

    def pipes(self) -> list[int]:
        """The ends that the program writes to, stdout first, stderr last; the caller closes them."""
        writers: list[int] = []
        try:
            for log in filter(None, (self.out, self.err)):
                writers.append(self._pipe(log))  # noqa: PERF401 (those made before one fails must be closed)
        except OSError:
            for writer in writers:
                os.close(writer)
            raise
        return writers

    def _pipe(self, log: Log) -> int:
        reader, writer = os.pipe()
        self._streams[reader] = Stream(reader, log, self._start.secrets, self._start.sizes[1])
        self._poll.register(reader, select.POLLIN)
        return writer

    def __contains__(self, fd: int) -> bool:
        """Whether this is one of the program's outputs."""
        return fd in self._streams

    def pump(self, fd: int, now: float) -> bool:
        """Take what is there; whether the program said something."""
        stream = self._streams[fd]
        data = stream.pump()
        if data == b"":
            self._poll.unregister(fd)
            self._streams.pop(fd).close()
            os.close(fd)
        elif data and stream.log is self.out:
            self._link.ring()
            if self._unread() > self._start.sizes[1] * (self._start.sizes[2] - 1) and self._patient:
                self._poll.unregister(fd)
                self.held_since = now
        return bool(data)

    def release(self, now: float) -> None:
        """Let stdout flow again when its reader has caught up, is gone, or takes too long."""
        self._patient = now - self.held_since < UNREAD_S
        if not self._patient or self._unread() <= self._start.sizes[1]:
            self.held_since = 0.0
            reader = next(fd for fd, stream in self._streams.items() if stream.log is self.out)
            self._poll.register(reader, select.POLLIN)

    def _unread(self) -> int:
        """Bytes past the head that a living reader has yet to read: what may be dropped before it comes."""
        if self.out.stored <= self._start.sizes[0] or not self._link.alive:
            return 0
        return self.out.stored - self._link.acked

    def finish(self) -> None:
        """Take what is left in the pipes, and put the logs together."""
        for fd, stream in self._streams.items():
            while stream.pump():
                pass
            stream.close()
            os.close(fd)
        self._streams.clear()
        for log in filter(None, (self.out, self.err)):
            log.close()
