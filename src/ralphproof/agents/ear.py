"""Listens to one turn: lines become events, events become a turn, and what nobody understands is kept as it came."""

from __future__ import annotations

from ralphproof.agent import Fold, TurnWatch
from ralphproof.agents.lines import LINE_BYTES, Lines
from ralphproof.event import Ended, Event, Unparsed
from ralphproof.sandbox import GO_ON, SAID
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

RAW_CHARS = 2000  # of a line that is not understood


class Ear:
    """Hands every event on as it comes, and says once that the program said its result."""

    def __init__(self, watch: TurnWatch) -> None:
        self.fold = Fold()
        self.ended: Ended | None = None
        self._watch, self._lines = watch, Lines(LINE_BYTES)
        self._read: Callable[[bytes], None] = self._misses
        self._said = False
        self._pauses: list[Callable[[], None]] = []

    def pause(self, call: Callable[[], None]) -> None:
        """Call this whenever everything that has come was read."""
        self._pauses.append(call)

    def listen(self, read: Callable[[bytes], None]) -> None:
        """From now on lines go there; it raises ValueError or RecursionError for one that it does not understand."""
        self._read = read

    def tell(self, event: Event) -> None:
        """One more event."""
        if isinstance(event, Ended):
            self.ended, self._said = event, True
        self.fold.add(event)
        self._watch.event(event)

    def output(self, chunk: bytes) -> None:
        for line in self._lines.feed(chunk):
            self._hear(line)
        self._paused()

    def tick(self) -> int:
        wanted = self._watch.tick()
        if self._said and wanted <= GO_ON:
            self._said = False
            return SAID
        return wanted

    def finish(self) -> None:
        """No more comes: what is left is a line too."""
        for line in self._lines.end():
            self._hear(line)
        self._paused()

    def _hear(self, line: bytes) -> None:
        try:
            self._read(line)
        except (ValueError, RecursionError):
            if line.strip():
                self._misses(line)

    def _paused(self) -> None:
        for size in self._lines.dropped:  # lines that were too long to be read; the log has them
            self.tell(Unparsed("", size))
        self._lines.dropped.clear()
        for call in self._pauses:
            call()

    def _misses(self, line: bytes) -> None:
        self.tell(Unparsed(line[:RAW_CHARS].decode("utf-8", "replace"), len(line)))
