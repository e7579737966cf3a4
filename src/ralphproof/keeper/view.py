"""What a watcher sees of a turn: its output from the log, a tick now and then, and at last its exit."""

from __future__ import annotations

from ralphproof.keeper.tail import Tail
from ralphproof.sandbox import Exit
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from ralphproof.sandbox import Command, Watch

TICK_S = 0.5
_ACK = 1 << 20


class View:
    """Hands each byte of the log to the watcher once, in order, whichever keeper wrote it."""

    def __init__(self, command: Command, watch: Watch, sizes: tuple[int, int, int]) -> None:
        self._watch = watch
        self._tail = Tail(command.out, sizes)
        self._most = sizes[1]
        self._step = min(_ACK, sizes[1])
        self._acked = 0

    @property
    def offset(self) -> int:
        """How far the log has been read."""
        return self._tail.offset

    def pull(self) -> bool:
        """Hand on what has come, at most a segment of it: a flood must not keep the watcher from ticking.

        Whether there may be more at once.
        """
        goal = self.offset + self._most
        for data in self._tail.grown():
            self._watch.output(data)
            if self.offset >= goal:
                return True
        return False

    def read_more(self) -> bool:
        """Enough was read to be worth telling the keeper."""
        if self.offset < self._acked + self._step:
            return False
        self._acked = self.offset
        return True

    def tick(self) -> int:
        """What the watcher wants."""
        return self._watch.tick()

    def finish(self, result: Mapping[str, Any]) -> Exit:
        """Hand on the rest of the log, and say how it ended."""
        lost = int(result.get("lost_bytes", 0))
        stored = int(result.get("out_bytes", 0)) - lost
        for data in self._tail.rest(stored, int(result.get("dropped_bytes", 0)) - lost):
            self._watch.output(data)
        known = {name: result[name] for name in Exit.__match_args__ if name in result}
        return Exit(**known | {"survivors": tuple(result.get("survivors", ()))})
