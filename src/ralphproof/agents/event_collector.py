"""The program of one turn: its command, the lines of its output, and the events read from them."""

from __future__ import annotations

import json
from collections.abc import Callable

from ralphproof.base.value import unpack
from ralphproof.engine.agent import Ended, Event, Spent, Started, Turn, TurnBuilder, TurnInput, TurnWatcher, Unparsed
from ralphproof.engine.sandbox import CONTINUE, RESULT_SAID, Command, Sandbox

MAX_LINE_BYTES = 16 * 1024 * 1024  # a longer line is not parsed
HEAD_TAIL_BYTES = 128 * 1024  # of the beginning, and of the end


def turn_command(agent: str, argv: tuple[str, ...], brief: TurnInput, reads: tuple[str, ...] = ()) -> Command:
    """The command of a turn, with the prompt on its standard input. `agent` and `reads` are as in `Command`."""
    return Command(
        argv, brief.cwd, brief.env, out=brief.log_base + ".ndjson", err=brief.log_base + ".stderr.log",
        stdin=brief.prompt_file, turn_file=brief.turn_file, mark=brief.call_id, timeout_s=brief.timeout_s,
        idle_s=brief.idle_s, taken_up=brief.adopt, agent=agent, reads=reads,
    )  # fmt: skip


class LineSplitter:
    """Splits chunks on newlines. A line longer than the limit is dropped as a whole."""

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_bytes = max_bytes
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
        if len(chunk) <= self._max_bytes:  # the usual case: none of them can be too long
            lines += pieces[1:-1]
        else:
            for piece in pieces[1:-1]:
                self._grow(piece)
                self._finish(lines)
        self._grow(pieces[-1])
        return lines

    @property
    def open(self) -> bytes:
        """The beginning of a line that is not complete yet."""
        return bytes(self._part)

    def end(self) -> list[bytes]:
        """The last line, where it has no newline."""
        lines: list[bytes] = []
        if self._part or self._skipped:
            self._finish(lines)
        return lines

    def _grow(self, piece: bytes) -> None:
        if self._skipped or len(self._part) + len(piece) > self._max_bytes:
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

    def __init__(self, limit: int = HEAD_TAIL_BYTES) -> None:
        self._limit = limit  # of each
        self._head = bytearray()
        self._tail = bytearray()
        self._cut = False

    def feed(self, chunk: bytes) -> None:
        room = self._limit - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:] if room < len(chunk) else b""
        if len(self._tail) > 2 * self._limit:
            del self._tail[: -self._limit]
            self._cut = True

    def text(self) -> str:
        """The kept bytes as text, with a mark where the middle was dropped."""
        if len(self._tail) > self._limit:
            del self._tail[: -self._limit]
            self._cut = True
        middle = b"\n... [truncated]\n" if self._cut else b""
        return bytes(self._head + middle + self._tail).decode("utf-8", "replace")


MAX_UNPARSED_CHARS = 2000  # of a line that could not be parsed
MAX_UNPARSED_LINES = 5  # of the last ones, which are kept for error messages
QUIET_TICKS = 4  # two seconds without output, after which an incomplete line is read: it may be a prompt for input


class EventCollector:
    """Collects the events of one turn from its output lines and passes them on in batches; `emit` takes one event.

    Its tick reports once that the program has given its result.
    """

    def __init__(self, watch: TurnWatcher) -> None:
        self.turn_builder = TurnBuilder()
        self.ended: Ended | None = None
        self._watch, self._lines = watch, LineSplitter(MAX_LINE_BYTES)
        self._pending: list[Event] = []
        self.emit = self._pending.append  # in batches: a stream may hold a million events
        self._read: Callable[[bytes], None] = self._add_unparsed
        self._result_said = False
        self._line_count = self._start_count = 0
        self._idle_callbacks: list[Callable[[], None]] = []
        self._on_unparsed: list[Callable[[bytes], None]] = []
        self._unparsed_lines: list[str] = []
        self._idle_ticks = 0

    def on_idle(self, callback: Callable[[], None]) -> None:
        """Call this whenever all output so far was read."""
        self._idle_callbacks.append(callback)

    def set_reader(self, read: Callable[[bytes], None], on_unparsed: Callable[[bytes], None] | None = None) -> None:
        """Send lines to `read`; those for which it raises ValueError or RecursionError go to `on_unparsed` too."""
        self._read = read
        self._on_unparsed = [on_unparsed] if on_unparsed else []

    @property
    def printed_nothing(self) -> bool:
        """Whether nothing was printed, apart from the line that says that the program started."""
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
        """Read an incomplete last line, at the end of the output."""
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
        for size in self._lines.dropped:  # too long to be parsed; the log has them
            self.emit(Unparsed("", size))
        self._lines.dropped.clear()
        for callback in self._idle_callbacks:
            callback()
        self.flush_events()

    def _add_unparsed(self, line: bytes) -> None:
        if not line.strip():
            return
        for callback in self._on_unparsed:
            callback(line)
        raw = line[:MAX_UNPARSED_CHARS].decode("utf-8", "replace")
        self._unparsed_lines = [*self._unparsed_lines[1 - MAX_UNPARSED_LINES :], raw]
        self.emit(Unparsed(raw, len(line)))


def run_event_program(
    command: Command, sandbox: Sandbox, watch: TurnWatcher, adjust: Callable[[Event], Event] = lambda event: event
) -> Turn:
    """The turn of a program that prints our own events as JSON lines; each event passes through `adjust`."""
    collector = EventCollector(watch)
    collector.set_reader(lambda line: collector.emit(adjust(parse_event(line))))
    end = sandbox.run(command, collector)
    collector.finish()
    return collector.turn_builder.turn(end)


def parse_event(line: bytes) -> Event:
    """The event that a JSON line holds; raises ValueError where it holds none."""
    try:
        event = unpack(json.loads(line))
    except TypeError as error:
        raise ValueError(error) from error
    if not isinstance(event, Event) or (isinstance(event, Spent) and not _is_valid_cost(event.micro_usd)):
        raise ValueError("no event")
    return event


def _is_valid_cost(micro_usd: object) -> bool:
    return micro_usd is None or (isinstance(micro_usd, int) and 0 <= micro_usd < 10**12)
