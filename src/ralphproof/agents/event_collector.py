"""The output stream of one turn: bounded lines, and the events read from them."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, unpack
from ralphproof.engine.agent import TurnBuilder, TurnWatcher
from ralphproof.engine.events import Ended, Event, Spent, Started, Unparsed
from ralphproof.engine.sandbox import CONTINUE, RESULT_SAID

if TYPE_CHECKING:
    from collections.abc import Callable


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
        """The part of a line that has come so far."""
        return bytes(self._part)

    def end(self) -> list[bytes]:
        """The last line, where it has no newline."""
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


MAX_UNPARSED_CHARS = 2000  # of a line that is not understood
MAX_UNPARSED_LINES = 5  # such lines, the last ones, that are kept
QUIET_TICKS = 4  # two seconds without output: who left a line open then may wait for somebody, or be at its end


class EventCollector:
    """Collects the events of one turn from its output lines and passes them on in batches; `emit` takes one event.

    Its tick reports once that the program has given its result.
    """

    def __init__(self, watch: TurnWatcher) -> None:
        self.turn_builder = TurnBuilder()
        self.ended: Ended | None = None
        self._watch, self._lines = watch, LineSplitter(MAX_LINE_BYTES)
        self._pending: list[Event] = []
        self.emit = self._pending.append  # a stream may hold a million events: they are handed on many at a time
        self._read: Callable[[bytes], None] = self._add_unparsed
        self._result_said = False
        self._line_count = self._start_count = 0
        self._idle_callbacks: list[Callable[[], None]] = []
        self._on_unparsed: list[Callable[[bytes], None]] = []
        self._unparsed_lines: list[str] = []
        self._idle_ticks = 0

    def on_idle(self, call: Callable[[], None]) -> None:
        """Call this whenever all output so far was read."""
        self._idle_callbacks.append(call)

    def set_reader(self, read: Callable[[bytes], None], on_unparsed: Callable[[bytes], None] | None = None) -> None:
        """Send lines to `read`; those for which it raises ValueError or RecursionError go to `on_unparsed` too."""
        self._read = read
        self._on_unparsed = [on_unparsed] if on_unparsed else []

    @property
    def printed_nothing(self) -> bool:
        """Whether nothing was printed except the line that says that the program started."""
        return self._line_count == self._start_count

    @property
    def unparsed_text(self) -> str:
        """The last lines that could not be parsed."""
        return "\n".join(self._unparsed_lines)

    def output(self, chunk: bytes) -> None:
        self._idle_ticks = 0
        self._read_lines(self._lines.feed(chunk))

    def tick(self) -> int:
        self._idle_ticks += 1
        if self._idle_ticks == QUIET_TICKS and self._lines.open:
            self._read_lines(self._lines.end())
        wanted = self._watch.tick()
        if self._result_said and wanted <= CONTINUE:
            self._result_said = False
            return RESULT_SAID
        return wanted

    def finish(self) -> None:
        """End of output: an incomplete last line is a line too."""
        self._read_lines(self._lines.end())

    def flush_events(self) -> None:
        """Pass on the pending events."""
        if not self._pending:
            return
        events = self._pending[:]
        self._pending.clear()
        for event in events:
            if type(event) is Ended:
                self.ended, self._result_said = event, True
            elif type(event) is Started:
                self._start_count += 1
        self.turn_builder.add(events)
        self._watch.events(events)

    def _read_lines(self, lines: list[bytes]) -> None:
        read = self._read
        self._line_count += sum(1 for line in lines if line.strip()) + len(self._lines.dropped)
        for line in lines:
            try:
                read(line)
            except (ValueError, RecursionError):
                self._add_unparsed(line)
        for size in self._lines.dropped:  # lines that were too long to be read; the log has them
            self.emit(Unparsed("", size))
        self._lines.dropped.clear()
        for call in self._idle_callbacks:
            call()
        self.flush_events()

    def _add_unparsed(self, line: bytes) -> None:
        if not line.strip():
            return
        for callback in self._on_unparsed:
            callback(line)
        raw = line[:MAX_UNPARSED_CHARS].decode("utf-8", "replace")
        self._unparsed_lines = [*self._unparsed_lines[1 - MAX_UNPARSED_LINES :], raw]
        self.emit(Unparsed(raw, len(line)))


def parse_event(line: bytes) -> Event:
    """The event that a JSON line holds; raises ValueError where it holds none."""
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
