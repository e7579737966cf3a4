"""Listens to one turn: lines become events, events become a turn, and what nobody understands is kept as it came."""

from __future__ import annotations

from ralphproof.agent import Fold, TurnWatch
from ralphproof.agents.lines import LINE_BYTES, Lines
from ralphproof.event import Ended, Event, Started, Unparsed
from ralphproof.sandbox import GO_ON, SAID
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

RAW_CHARS = 2000  # of a line that is not understood
UNREAD = 5  # such lines, the last ones, that are kept
QUIET_TICKS = 4  # two seconds without output: who left a line open then may wait for somebody, or be at its end


class Ear:
    """Hands events on as they come, and says once that the program said its result. `tell` takes one event."""

    def __init__(self, watch: TurnWatch) -> None:
        self.fold = Fold()
        self.ended: Ended | None = None
        self._watch, self._lines = watch, Lines(LINE_BYTES)
        self._told: list[Event] = []
        self.tell = self._told.append  # a stream may hold a million events: they are handed on many at a time
        self._read: Callable[[bytes], None] = self._misses
        self._said = False
        self._lines_heard = self._starts = 0
        self._pauses: list[Callable[[], None]] = []
        self._missed: list[Callable[[bytes], None]] = []
        self._unread: list[str] = []
        self._quiet = 0

    def pause(self, call: Callable[[], None]) -> None:
        """Call this whenever everything that has come was read."""
        self._pauses.append(call)

    def listen(self, read: Callable[[bytes], None], missed: Callable[[bytes], None] | None = None) -> None:
        """From now on lines go to `read`; those for which it raises ValueError or RecursionError go to `missed` too."""
        self._read = read
        self._missed = [missed] if missed else []

    @property
    def silent(self) -> bool:
        """Whether nothing was printed, but for the line that says that the program came up."""
        return self._lines_heard == self._starts

    @property
    def unread(self) -> str:
        """The last of what was not understood."""
        return "\n".join(self._unread)

    def output(self, chunk: bytes) -> None:
        self._quiet = 0
        self._hear(self._lines.feed(chunk))

    def tick(self) -> int:
        self._quiet += 1
        if self._quiet == QUIET_TICKS and self._lines.open:
            self._hear(self._lines.end())
        wanted = self._watch.tick()
        if self._said and wanted <= GO_ON:
            self._said = False
            return SAID
        return wanted

    def finish(self) -> None:
        """No more comes: what is left is a line too."""
        self._hear(self._lines.end())

    def hand_on(self) -> None:
        """Hand on what was told."""
        if not self._told:
            return
        events = self._told[:]
        self._told.clear()
        for event in events:
            if type(event) is Ended:
                self.ended, self._said = event, True
            elif type(event) is Started:
                self._starts += 1
        self.fold.add(events)
        self._watch.events(events)

    def _hear(self, lines: list[bytes]) -> None:
        read = self._read
        self._lines_heard += sum(1 for line in lines if line.strip()) + len(self._lines.dropped)
        for line in lines:
            try:
                read(line)
            except (ValueError, RecursionError):
                self._misses(line)
        for size in self._lines.dropped:  # lines that were too long to be read; the log has them
            self.tell(Unparsed("", size))
        self._lines.dropped.clear()
        for call in self._pauses:
            call()
        self.hand_on()

    def _misses(self, line: bytes) -> None:
        if not line.strip():
            return
        for missed in self._missed:
            missed(line)
        raw = line[:RAW_CHARS].decode("utf-8", "replace")
        self._unread = [*self._unread[1 - UNREAD :], raw]
        self.tell(Unparsed(raw, len(line)))
