"""Several keepers as one: commands that are run at the same time have a keeper each."""

from __future__ import annotations

import os
import time
from _thread import allocate_lock

from ralphproof.keeper.client import Keeper
from ralphproof.keeper.tree import alive, start_time
from ralphproof.sandbox import GO_ON
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ralphproof.keeper.request import StandIn
    from ralphproof.sandbox import Command, Exit, Watch

_LOOK_S = 0.003


class Pool:
    """Runs as many commands at the same time as it is asked to, from as many threads; else it is like one keeper.

    The first keeper is whose it was: `close` leaves it alone. It runs whatever is run alone, and it alone listens on
    `wake_fd`. Others are made when all are busy, and let go when nothing runs: to start one again takes 20 ms, to
    keep it 3.5 MB for as long as an agent works.
    """

    def __init__(self, first: Keeper) -> None:
        self._first = first
        self._lock = allocate_lock()
        self._idle: list[Keeper] = [first]  # the first one, if it is there, at the end
        self._busy: list[Keeper] = []

    @property
    def wake_fd(self) -> int | None:
        """As of a keeper."""
        return self._first.wake_fd

    @wake_fd.setter
    def wake_fd(self, fd: int | None) -> None:
        self._first.wake_fd = fd

    @property
    def stand_in(self) -> StandIn | None:
        """As of a keeper."""
        return self._first.stand_in

    @stand_in.setter
    def stand_in(self, stand_in: StandIn | None) -> None:
        self._first.stand_in = stand_in

    def hide(self, secrets: Iterable[str]) -> None:
        """Mask these too, from the next command on."""
        self._first.hide(secrets)

    def run(self, command: Command, watch: Watch) -> Exit:
        """As of a keeper. What one watcher wants more urgently than before, the others are asked for at once."""
        keeper = self._taken()
        try:
            return keeper.run(command, _Heeded(watch, lambda: self._ring(keeper)))
        finally:
            self._give_back(keeper)

    def close(self) -> None:
        """Let all go that were made here. One that is busy goes when its command has ended."""
        with self._lock:
            going = [keeper for keeper in self._idle if isinstance(keeper, _Another)]
            self._idle = [keeper for keeper in self._idle if keeper not in going]
        for keeper in going:
            keeper.let_go()

    def _taken(self) -> Keeper:
        """One that is idle, or a new one.

        While a command's dead keeper is cleaned up after, a process that was just made may be taken for what it left:
        nothing begins before that is over. Whoever was ended by that mistake had done nothing, and starts anew.
        """
        with self._lock:
            keeper = self._idle.pop() if self._idle else _Another(self._first)
        while self._clearing():
            time.sleep(_LOOK_S)
        with self._lock:
            self._busy.append(keeper)
        return keeper

    def _clearing(self) -> bool:
        """Whether a keeper has died over its command."""
        with self._lock:
            return not all(alive(keeper.pid, start_time(keeper.pid)) for keeper in self._busy)

    def _give_back(self, keeper: Keeper) -> None:
        with self._lock:
            self._busy.remove(keeper)
            self._idle.insert(len(self._idle) if keeper is self._first else 0, keeper)
            if self._busy:
                return
        self.close()

    def _ring(self, rung_by: Keeper) -> None:
        with self._lock:
            for keeper in self._busy:
                if isinstance(keeper, _Another) and keeper is not rung_by:
                    keeper.ring()


class _Another(Keeper):
    """One more, like the first in all that it was told. Its wake-ups come from the others."""

    def __init__(self, first: Keeper) -> None:
        self._first = first
        reader, self._bell = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(self._bell, False)
        try:
            super().__init__(stderr_path=first._stderr, wake_fd=reader, sizes=first._sizes)
        except BaseException:
            self._close_pipe(reader)
            raise

    def run(self, command: Command, watch: Watch) -> Exit:
        """As any other."""
        self._secrets, self.stand_in = self._first._secrets, self._first.stand_in
        self.holding = self._first.holding
        return super().run(command, watch)

    def ring(self) -> None:
        """Have its watcher asked at once."""
        try:
            os.write(self._bell, b"!")
        except BlockingIOError:
            return  # it is rung already

    def let_go(self) -> None:
        """It is not needed any more. (`close` also makes way for a new process of the same keeper.)"""
        self.close()
        if self.wake_fd is not None:
            self._close_pipe(self.wake_fd)

    def _close_pipe(self, reader: int) -> None:
        os.close(reader)
        os.close(self._bell)


class _Heeded:
    """A watcher that tells when it wants something more urgently than before."""

    def __init__(self, watch: Watch, tell: Callable[[], None]) -> None:
        self._watch, self._tell = watch, tell
        self._wanted = GO_ON

    def output(self, chunk: bytes) -> None:
        self._watch.output(chunk)

    def tick(self) -> int:
        wanted = self._watch.tick()
        if wanted > self._wanted:
            self._wanted = wanted
            self._tell()
        return wanted
