"""Events of an agent as lines: text, tool calls with results, to-do lists, and the end of a turn."""

from __future__ import annotations

import time
from collections.abc import Callable

from ralphproof.base.escaping import StreamSanitizer, collapse_lines, sanitize
from ralphproof.display.phrases import format_count, format_time
from ralphproof.display.terminal import DIM, GREEN, RED, YELLOW, Line, Marks, Screen, Style
from ralphproof.engine.agent import (
    MAX_DENIALS_KEPT,
    Asked,
    Denied,
    Ended,
    Event,
    Limited,
    Progress,
    Said,
    Spent,
    Started,
    Todo,
    TodosChanged,
    ToolEnded,
    ToolStarted,
    Turn,
    Unparsed,
    Usage,
    describe_exit,
)
from ralphproof.engine.limits import format_usd
from ralphproof.engine.sandbox import Exit

Mask = Callable[[str], str]


# Excerpts of untrusted text, masked and sanitized.


# Characters masked beyond what is shown: a secret that a cut would halve is still recognized.
MARGIN_CHARS = 4096


def excerpt(text: str, lines: int, chars: int, cut: str) -> tuple[list[str], list[str], bool]:
    """The first and the last lines of a sanitized text, within both limits, and whether that is the whole text.

    The last lines often hold a test summary. `cut` marks where a line is cut. A single line is the first one.
    """
    last_lines = lines // 2
    if len(text) > chars:
        last_chars = chars // 2 if last_lines else 0
        first = _cut_after(text, chars - last_chars, cut)[: lines - last_lines]
        return first, _cut_before(text, last_chars, cut)[-last_lines:] if last_chars else [], False
    all_lines = text.splitlines()
    if len(all_lines) <= lines:
        return all_lines, [], True
    return all_lines[: lines - last_lines], all_lines[len(all_lines) - last_lines :], False


def _cut_after(text: str, chars: int, cut: str) -> list[str]:
    lines = text[:chars].splitlines()
    if text[chars : chars + 1] not in ("", "\n") and not text[:chars].endswith("\n"):
        lines[-1] += cut
    return lines


def _cut_before(text: str, chars: int, cut: str) -> list[str]:
    lines = text[-chars:].splitlines()
    if text[-chars - 1] != "\n" and not text[-chars:].startswith("\n"):
        lines[0] = cut + lines[0]
    return lines


def excerpt_source(text: str, chars: int, mask: Callable[[str], str]) -> str:
    """The text from which an excerpt of so many characters is taken: masked, sanitized, and of bounded length."""
    limit = chars + MARGIN_CHARS
    if len(text) <= 2 * limit:
        return sanitize(mask(text)).rstrip().lstrip("\n")
    return f"{sanitize(mask(text[:limit])).lstrip(chr(10))}\n{sanitize(mask(text[-limit:])).rstrip()}"


def one_line(text: str, chars: int, cut: str, mask: Callable[[str], str] = str) -> str:
    """The text in one line of at most so many characters."""
    text = mask(text[: chars + MARGIN_CHARS])
    if not text.isprintable():
        text = collapse_lines(sanitize(text)).strip()
    return text if len(text) <= chars else text[: max(0, chars - len(cut))] + cut


# The end of a turn.


PATH_CHARS = 500
MAX_DENIALS, NAME_CHARS = 3, 100  # denied calls that are named at the end
DENIAL_HINT = "--sandbox lets it do anything inside one; or allow the tool in the agent's own settings, or --no-sandbox"


def turn_line(reply: Turn, marks: Marks) -> Line:
    """How the turn ended and what it cost, in one line."""
    if reply.exit.why == "unstartable":
        return f"{marks.error}Failed: the agent could not be started: {reply.exit.error}", RED
    if not reply.errored:
        return f"{marks.ok}Complete ({_turn_figures(reply)})", GREEN
    how = "Stopped" if reply.exit.why in ("stopped", "killed") else "Failed"
    return f"{marks.error}{how} ({_turn_figures(reply)}): {reply.error or describe_exit(reply)}", RED


def denials_line(reply: Turn, marks: Marks) -> Line:
    """Denied tool calls, and how to allow them."""
    number = len(reply.denied)
    named = list(dict.fromkeys(one_line(call, NAME_CHARS, marks.cut) for call in reply.denied))
    names = "; ".join(named[:MAX_DENIALS]) + (f"; {marks.cut}" if len(named) > MAX_DENIALS else "")
    or_more = " or more" if number >= MAX_DENIALS_KEPT else ""
    calls = "1 tool call was" if number == 1 else f"{number}{or_more} tool calls were"
    return f"{marks.denied}{calls} denied ({names}): {DENIAL_HINT}", YELLOW


def blocked_hosts_line(reply: Turn, marks: Marks) -> Line:
    """Blocked hosts, and how to allow them."""
    hosts = [one_line(host, NAME_CHARS, marks.cut) for host in reply.exit.blocked]
    more = f" and {len(hosts) - MAX_DENIALS} more" if len(hosts) > MAX_DENIALS else ""
    names = ", ".join(hosts[:MAX_DENIALS]) + more
    return f"{marks.denied}blocked by the sandbox: {names}; --allow-host HOST lets one be reached", YELLOW


def warning_lines(reply: Turn, marks: Marks) -> list[Line]:
    """Lines about denied calls, blocked hosts, and lost output."""
    found = [denials_line(reply, marks)] if reply.denied else []
    found += [blocked_hosts_line(reply, marks)] if reply.exit.blocked else []
    return found + ([incomplete_log_line(reply.exit, marks)] if reply.exit.log_error else [])


def incomplete_log_line(end: Exit, marks: Marks) -> Line:
    """Why the agent's log is incomplete."""
    lost = f", {end.lost_bytes} bytes are lost" if end.lost_bytes else ""
    return f"{marks.denied}the agent's log is not whole{lost}: {one_line(end.log_error, PATH_CHARS, marks.cut)}", YELLOW


def _turn_figures(reply: Turn) -> str:
    paused = f", {format_short_duration(reply.exit.paused_s)} of it suspended" if reply.exit.paused_s else ""
    parts = [f"cost: {format_price(reply.spent)}"]
    if reply.usage is not None:
        parts.append(f"tokens: {format_tokens(reply.usage)}")
    if reply.usage is not None or reply.tools:
        parts += [f"tools: {reply.tools}", f"errors: {reply.errors}"]
    if reply.unparsed:
        parts.append(f"lines not understood: {reply.unparsed}")
    return ", ".join((*parts, f"time: {format_short_duration(reply.exit.seconds)}{paused}"))


def format_price(spent: Spent) -> str:
    """A cost, as far as it is known; unknown is not zero."""
    if spent.micro_usd is None:
        return "unknown"
    bound = "at least " if spent.at_least else ""
    return f"{bound}{format_usd(spent.micro_usd)}{' (notional)' if spent.notional else ''}"


def format_tokens(usage: Usage) -> str:
    """Input tokens, how many of them came from the cache, and output tokens."""
    cached = f" ({format_short_number(usage.cache_read)} cached)" if usage.cache_read else ""
    sent = format_short_number(usage.input + usage.cache_read + usage.cache_write)
    return f"{sent} in{cached} / {format_short_number(usage.output)} out"


def format_short_number(number: int) -> str:
    """`999`, `1.2K`, `45K`, `1.2M`."""
    for size, unit in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if number >= size * 0.9995:
            share = number / size
            return (f"{share:.1f}" if share < 9.95 else f"{share:.0f}").removesuffix(".0") + unit
    return str(number)


def format_short_duration(seconds: float) -> str:
    """`0.4s`, `45s`, `6m7s`, `2h3m`."""
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest}s" if minutes else f"{rest}s"
    return f"{minutes // 60}h{minutes % 60}m"


# Running tools.


MAX_RUNNING_CALLS = 256  # limits memory: an agent may never report the end of a call
ID_CHARS = 128

ToolCall = tuple[str, str, float]  # the tool's name, the name with its argument, when it began


class RunningTools:
    """The calls that have not ended, by id; beyond the limit the oldest are dropped."""

    def __init__(self) -> None:
        self._calls: dict[str, ToolCall] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def begin(self, id: str, call: ToolCall) -> None:
        """Add a call, in place of an earlier one with this id."""
        key = id[:ID_CHARS]
        self._calls.pop(key, None)
        if len(self._calls) >= MAX_RUNNING_CALLS:
            del self._calls[next(iter(self._calls))]
        self._calls[key] = call

    def end(self, id: str) -> ToolCall | None:
        """Remove and return the call with this id."""
        return self._calls.pop(id[:ID_CHARS], None)

    def longest(self) -> ToolCall | None:
        """The call that has run longest."""
        return next(iter(self._calls.values()), None)

    def clear(self) -> None:
        """Remove all calls, at the end of a turn."""
        self._calls.clear()


# Events as lines.


CALL_NAME_CHARS = 80
LABEL_CHARS = 120  # of a call in the line about its result
MAX_TODOS = 50  # of a list that are shown

Lines = tuple[Line, ...]


class EventFormatter:
    """Formats events as lines. It tracks running calls, so that a result names its tool, and repeated lines."""

    def __init__(self, style: Style, now: Callable[[], float] = time.time) -> None:
        self._marks, self._width, self._now = style.marks, style.width, now
        self._lines, self._chars = style.output_lines, style.output_chars
        self.running = RunningTools()
        self._last_remark: Lines = ()
        self._todos: Lines = ()
        self._last_call: str | None = None  # the id of a call, while its start is the last line shown

    def clear(self) -> None:
        """Drop the state of the last turn."""
        self.running.clear()
        self._last_remark = self._todos = ()
        self._last_call = None

    def interrupted(self) -> None:
        """Note that another line was shown, so that the next result names its call."""
        self._last_call = None
        self._last_remark = ()

    def lines(self, event: Event, now_s: float = 0.0, mask: Mask = str) -> Lines:
        """The lines about an event; none where they would repeat the last ones."""
        match event:
            case ToolStarted():
                return (self._began(event, now_s, mask),)
            case ToolEnded():
                return self._ended(event, mask)
            case TodosChanged(items):
                return self._listed(items, mask)
            case _:
                remark = self._remark(event, mask)
        if not remark or remark == self._last_remark:  # a retry may be reported ten times a second
            return ()
        self.interrupted()
        self._last_remark = remark
        return remark

    def note(self, event: Event, now_s: float) -> None:
        """Keep track of running calls without showing the event."""
        match event:
            case ToolStarted(id, name, summary):
                label = f"{name[:MARGIN_CHARS]}({summary[:MARGIN_CHARS]})"
                self.running.begin(id, (name[:MARGIN_CHARS], label, now_s))
            case ToolEnded(id):
                self.running.end(id)
            case _:
                pass

    def _began(self, event: ToolStarted, now_s: float, mask: Mask) -> Line:
        name = one_line(event.name, CALL_NAME_CHARS, self._marks.cut, mask)
        summary = self._one(event.summary, mask)
        call = f"{name}({summary})" if summary else name
        short = call if len(call) <= LABEL_CHARS else f"{name}({summary[: LABEL_CHARS - len(name)]}{self._marks.cut})"
        self.interrupted()
        self.running.begin(event.id, (name, short, now_s))
        self._last_call = event.id
        return self._marks.call + call, ""

    def _ended(self, event: ToolEnded, mask: Mask) -> Lines:
        marks = self._marks
        call = self.running.end(event.id)
        source = f" {marks.arrow} {call[0] if event.id == self._last_call else call[1]}" if call else ""
        self.interrupted()
        lines, chars = event.lines or len(event.output.splitlines()), event.chars or len(event.output)
        size = f"{format_count(lines, 'line')}, {format_count(chars, 'char')}" if chars else "no output"
        head = f"{marks.ok}Result{source} ({size})" if event.ok else f"{marks.error}Error{source} ({size})"
        return ((head, GREEN if event.ok else RED), *self._output(event.output, lines, chars, mask))

    def _output(self, output: str, lines: int, chars: int, mask: Mask) -> Lines:
        """The beginning and the end of a tool's output, and how much is left out between them."""
        if not output:
            return ()
        marks = self._marks
        first, last, whole = excerpt(excerpt_source(output, self._chars, mask), self._lines, self._chars, marks.cut)
        if not whole or chars > len(output):
            hidden = lines - len(first) - len(last) if self._lines > 1 else 0  # one line needs no count
            first += [f"{marks.cut} {format_count(hidden, 'more line')}"] if hidden > 0 else []
        shown = first + last
        return tuple((f"{marks.below if place else marks.first}{line}", DIM) for place, line in enumerate(shown))

    def _listed(self, items: tuple[Todo, ...], mask: Mask) -> Lines:
        """The whole list, only where it changed."""
        todos = (*(self._todo(item, mask) for item in items[:MAX_TODOS]), *self._counted(items)) if items else ()
        if todos == self._todos:
            return ()
        self.interrupted()
        self._todos = todos
        title = f"{self._marks.todos}Todo List" + ("" if items else " (empty)")
        return ("", ""), (title, ""), *todos, ("", "")

    def _todo(self, item: Todo, mask: Mask) -> Line:
        marks = self._marks
        text = self._one(item.text, mask)
        match item.state:
            case "done":
                return f"  {marks.done}{text}", DIM
            case "active":
                return f"  {marks.active}{text} {marks.arrow} ACTIVE", ""
            case _:
                return f"  {marks.pending}{text}", ""

    def _counted(self, items: tuple[Todo, ...]) -> Lines:
        done = sum(item.state == "done" for item in items)
        progress = f"  {self._marks.progress}Progress: {done}/{len(items)} ({100 * done // len(items)}%)"
        more = len(items) - MAX_TODOS
        return ((f"  {self._marks.cut} {more} more", DIM), (progress, "")) if more > 0 else ((progress, ""),)

    def _remark(self, event: Event, mask: Mask) -> Lines:
        marks = self._marks
        match event:
            case Denied(tool, why):
                reason = f" ({self._one(why, mask)})" if why else ""
                return ((f"{marks.denied}Denied: {self._one(tool, mask)}{reason}", YELLOW),)
            case Asked(question):
                return ((f"{marks.asked}Asked, and nobody is there to answer: {self._one(question, mask)}", YELLOW),)
            case Limited(message, resets_at):
                until = f" (until {format_time(resets_at, self._now())})" if resets_at else ""
                return ((f"{marks.limited}The service refuses for now: {self._one(message, mask)}{until}", YELLOW),)
            case Progress(text) if text.strip():
                return ((f"{marks.note}{self._one(text, mask)}", DIM),)
            case Started(session, model, version):
                facts = (("model", model), ("version", version), ("session", session))
                known = ", ".join(f"{name} {self._one(text, mask)}" for name, text in facts if text)
                return ((f"{marks.note}{known}", DIM),) if known else ()
            case _:
                return ()

    def _one(self, text: str, mask: Mask) -> str:
        return one_line(text, self._width, self._marks.cut, mask)


# Showing events as they come.


BATCH_S = 0.05  # events within this time are shown together
MAX_BATCH = 1000  # events
SILENT_EVENTS = (Spent, Ended, Unparsed)  # never shown, and there may be many


class AgentOutput:
    """Batches events for a moment, then shows them in order."""

    def __init__(self, screen: Screen, style: Style, mask: Callable[[str], str], epoch: Callable[[], float]) -> None:
        self._screen, self._style, self._mask = screen, style, mask
        self._formatter = EventFormatter(style, epoch)
        self._cleaner = StreamSanitizer(style.colour)
        self._pending: list[Event] = []
        self._shown_s = float("-inf")
        self._whole_messages = False  # each `Said` event is a message; else its text has its own line breaks

    @property
    def running(self) -> RunningTools:
        """The tools that run."""
        return self._formatter.running

    def add(self, events: list[Event], now_s: float) -> None:
        """Add events, and show the pending ones if it is time."""
        if not self._style.stream:
            for event in events if self._style.live else ():  # only the live line shows which tool runs
                if isinstance(event, ToolStarted | ToolEnded):
                    self._formatter.note(event, now_s)
            return
        self._pending += [event for event in events if not isinstance(event, SILENT_EVENTS)]
        if now_s - self._shown_s >= BATCH_S or len(self._pending) >= MAX_BATCH:
            self.show(now_s)

    def show(self, now_s: float) -> None:
        """Show the pending events."""
        if not self._pending:
            return
        events, self._pending = self._pending, []
        self._shown_s = now_s
        mask = self._mask_for(events)
        said: list[str] = []
        for event in events:
            if isinstance(event, Said):
                said.append(event.text)
                if self._whole_messages:
                    self._say(said, mask)
                continue
            self._say(said, mask)
            self._whole_messages = self._whole_messages or isinstance(event, Started)
            for line in self._formatter.lines(event, now_s, mask):
                self._screen.line(line)
        self._say(said, mask)
        self._screen.flush()

    def begin(self) -> None:
        """Begin a turn."""
        self._formatter.clear()
        self._whole_messages = False

    def end(self) -> None:
        """End a turn: show an incomplete escape sequence as text."""
        self._screen.text(self._cleaner.end())
        self._formatter.clear()

    def _say(self, said: list[str], mask: Callable[[str], str]) -> None:
        """Show a message, or text up to an incomplete escape sequence."""
        if not said:
            return
        text = self._cleaner.feed(mask("".join(said)))
        if self._whole_messages:
            text += self._cleaner.end()
            text += "\n" if text and not text.endswith("\n") else ""
        self._screen.text(text)
        self._formatter.interrupted()
        said.clear()

    def _mask_for(self, events: list[Event]) -> Callable[[str], str]:
        """The mask for these events: none where they hold no secret, which is tested for all of them at once.

        The keeper masks raw output, but a secret may become visible only when a line is decoded.
        """
        limit = self._style.width + MARGIN_CHARS
        joined = "".join(_shown_text(event, limit) for event in events)
        return str if self._mask(joined) == joined else self._mask


def _shown_text(event: Event, limit: int) -> str:
    """The texts of an event that may be shown. Consecutive `Said` events are one text."""
    match event:
        case Said(text):
            return text
        case ToolStarted(_, name, summary):
            return f"\0{name}\0{summary}\0"
        case ToolEnded(_, _, output):
            return f"\0{output}\0" if len(output) <= 2 * limit else f"\0{output[:limit]}\0{output[-limit:]}\0"
        case TodosChanged(items):
            return "\0".join(("", *(item.text for item in items[:MAX_TODOS]), ""))
        case _:
            return "\0".join(("", *(str(getattr(event, name)) for name in event.__match_args__), ""))
