"""The output stream of one turn: bounded lines, and the events read from them."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, unpack
from ralphproof.engine.agent import TurnBuilder, TurnWatcher
from ralphproof.engine.events import Ended, Event, Spent, Started, Unparsed
from ralphproof.engine.sandbox import CONTINUE, RESULT_SAID

if TYPE_CHECKING:
    from collections.abc import Callable


# A stream of bytes as bounded lines and as bounded text.


MAX_LINE_BYTES = 16 * 1024 * 1024  # a longer line is not parsed
HEAD_TAIL_BYTES = 128 * 1024  # of the beginning, and as much of the end


class LineSplitter:
    """Splits chunks on newlines. A line longer than the bound is dropped whole, and the next one is read as usual."""

    def __init__(self, most: int = MAX_LINE_BYTES) -> None:
        self._most = most
        self._part = bytearray()
        self._skipped = 0
        self.dropped: list[int] = []  # sizes of lines that were too long

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without their newlines."""
        pieces = chunk.split(b"\n")
        self._grow(pieces[0])
        if len(pieces) == 1:
            return []
        lines: list[bytes] = []
        self._finish(lines)
        if len(chunk) <= self._most:  # the usual case: none of them can be too long
            lines += pieces[1:-1]
        else:
            for piece in pieces[1:-1]:
                self._grow(piece)
                self._finish(lines)
        self._grow(pieces[-1])
        return lines

    @property
    def open(self) -> bytes:
        """What has come of a line that is not complete."""
        return bytes(self._part)

    def end(self) -> list[bytes]:
        """What is left without a newline."""
        lines: list[bytes] = []
        if self._part or self._skipped:
            self._finish(lines)
        return lines

    def _grow(self, piece: bytes) -> None:
        if self._skipped or len(self._part) + len(piece) > self._most:
            self._skipped += len(self._part) + len(piece)
            self._part.clear()
        else:
            self._part += piece

    def _finish(self, lines: list[bytes]) -> None:
        if self._skipped:
            self.dropped.append(self._skipped)
        else:
            lines.append(bytes(self._part))
        self._part.clear()
        self._skipped = 0


class HeadTailBuffer:
    """The beginning and the end of a stream, in bounded memory."""

    def __init__(self, each: int = HEAD_TAIL_BYTES) -> None:
        self._each = each
        self._head = bytearray()
        self._tail = bytearray()
        self._cut = False

    def feed(self, chunk: bytes) -> None:
        room = self._each - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:] if room < len(chunk) else b""
        if len(self._tail) > 2 * self._each:
            del self._tail[: -self._each]
            self._cut = True

    def text(self) -> str:
        """What was kept, as text; a cut in the middle is marked."""
        if len(self._tail) > self._each:
            del self._tail[: -self._each]
            self._cut = True
        middle = b"\n... [truncated]\n" if self._cut else b""
        return bytes(self._head + middle + self._tail).decode("utf-8", "replace")


# Listens to one turn: lines become events, events become a turn, and what nobody understands is kept as it came.


MAX_UNPARSED_CHARS = 2000  # of a line that is not understood
MAX_UNPARSED_LINES = 5  # such lines, the last ones, that are kept
QUIET_TICKS = 4  # two seconds without output: who left a line open then may wait for somebody, or be at its end


class EventCollector:
    """Hands events on as they come, and says once that the program said its result. `tell` takes one event."""

    def __init__(self, watch: TurnWatcher) -> None:
        self.fold = TurnBuilder()
        self.ended: Ended | None = None
        self._watch, self._lines = watch, LineSplitter(MAX_LINE_BYTES)
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
        if self._said and wanted <= CONTINUE:
            self._said = False
            return RESULT_SAID
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
        raw = line[:MAX_UNPARSED_CHARS].decode("utf-8", "replace")
        self._unread = [*self._unread[1 - MAX_UNPARSED_LINES :], raw]
        self.tell(Unparsed(raw, len(line)))


def parse_event(line: bytes) -> Event:
    """The event that a line holds; raises ValueError where it holds none."""
    import json

    try:
        event = unpack(json.loads(line))
    except TypeError as error:
        raise ValueError(error) from error
    if not isinstance(event, Event) or (isinstance(event, Spent) and not _is_valid_cost(event.micro_usd)):
        raise ValueError("no event")
    return event


def _is_valid_cost(micro_usd: object) -> bool:
    return micro_usd is None or (isinstance(micro_usd, int) and 0 <= micro_usd < 10**12)
