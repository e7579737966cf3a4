"""What an agent does, as lines: tool calls with their results, its list of things to do, and what held it up."""

from __future__ import annotations

import time

from ralphproof.display.colours import DIM, GREEN, RED, YELLOW, Line
from ralphproof.display.excerpt import MARGIN_CHARS, excerpt, one_line, window
from ralphproof.display.running import Running
from ralphproof.display.style import Style
from ralphproof.display.words import count, moment
from ralphproof.event import (
    Asked,
    Denied,
    Event,
    Limited,
    Progress,
    Started,
    Todo,
    TodosChanged,
    ToolEnded,
    ToolStarted,
)
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Mask = Callable[[str], str]

NAME_CHARS = 80
LABEL_CHARS = 120  # of a call where it is named again
TODOS = 50  # shown of a list

Lines = tuple[Line, ...]


class Formatter:
    """Event in, lines out. It knows which calls run, so that a result names its tool, and what it told last."""

    def __init__(self, style: Style, now: Callable[[], float] = time.time) -> None:
        self._marks, self._width, self._now = style.marks, style.width, now
        self._lines, self._chars = style.output_lines, style.output_chars
        self.running = Running()
        self._told: Lines = ()
        self._todos: Lines = ()
        self._open: str | None = None  # the call whose start is the last thing that was shown

    def clear(self) -> None:
        """Another turn begins: what the last one left open is over."""
        self.running.clear()
        self._told = self._todos = ()
        self._open = None

    def interrupted(self) -> None:
        """Something else was shown: a result must say again what it is the result of."""
        self._open = None
        self._told = ()

    def lines(self, event: Event, now_s: float = 0.0, mask: Mask = str) -> Lines:
        """What there is to show of an event; nothing where it changes nothing that is seen."""
        match event:
            case ToolStarted():
                return (self._began(event, now_s, mask),)
            case ToolEnded():
                return self._ended(event, mask)
            case TodosChanged(items):
                return self._listed(items, mask)
            case _:
                told = self._remark(event, mask)
        if not told or told == self._told:  # a retry that is told ten times a second is one line
            return ()
        self.interrupted()
        self._told = told
        return told

    def note(self, event: Event, now_s: float) -> None:
        """Know which calls run, and show nothing."""
        match event:
            case ToolStarted(id, name, summary):
                label = f"{name[:MARGIN_CHARS]}({summary[:MARGIN_CHARS]})"
                self.running.begin(id, (name[:MARGIN_CHARS], label, now_s))
            case ToolEnded(id):
                self.running.end(id)
            case _:
                pass

    def _began(self, event: ToolStarted, now_s: float, mask: Mask) -> Line:
        name = one_line(event.name, NAME_CHARS, self._marks.cut, mask)
        summary = self._one(event.summary, mask)
        call = f"{name}({summary})" if summary else name
        short = call if len(call) <= LABEL_CHARS else f"{name}({summary[: LABEL_CHARS - len(name)]}{self._marks.cut})"
        self.interrupted()
        self.running.begin(event.id, (name, short, now_s))
        self._open = event.id
        return self._marks.call + call, ""

    def _ended(self, event: ToolEnded, mask: Mask) -> Lines:
        marks = self._marks
        call = self.running.end(event.id)
        source = f" {marks.arrow} {call[0] if event.id == self._open else call[1]}" if call else ""
        self.interrupted()
        lines, chars = event.lines or len(event.output.splitlines()), event.chars or len(event.output)
        size = f"{count(lines, 'line')}, {count(chars, 'char')}" if chars else "no output"
        head = f"{marks.ok}Result{source} ({size})" if event.ok else f"{marks.error}Error{source} ({size})"
        return ((head, GREEN if event.ok else RED), *self._output(event.output, lines, chars, mask))

    def _output(self, output: str, lines: int, chars: int, mask: Mask) -> Lines:
        """What a tool gave back: the beginning and the end of it, and how much is between."""
        if not output:
            return ()
        marks = self._marks
        first, last, whole = excerpt(window(output, self._chars, mask), self._lines, self._chars, marks.cut)
        if not whole or chars > len(output):
            hidden = lines - len(first) - len(last) if self._lines > 1 else 0  # of one line the head says enough
            first += [f"{marks.cut} {count(hidden, 'more line')}"] if hidden > 0 else []
        shown = first + last
        return tuple((f"{marks.below if place else marks.first}{line}", DIM) for place, line in enumerate(shown))

    def _listed(self, items: tuple[Todo, ...], mask: Mask) -> Lines:
        """The whole list, but only where it is another than before."""
        todos = (*(self._todo(item, mask) for item in items[:TODOS]), *self._counted(items)) if items else ()
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
        more = len(items) - TODOS
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
                until = f" (until {moment(resets_at, self._now())})" if resets_at else ""
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
