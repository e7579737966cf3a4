"""Scrolling widgets: text, table, card column."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Static

from ralphproof.base.escaping import sanitize
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.display.agent_output import excerpt
from ralphproof.tui.style import (
    BAD,
    DIM,
    GOOD,
    HEAD,
    LIVE,
    PLAIN,
    SELECTED,
    SELECTED_PLAIN,
    STRONG,
    TOOL,
    WARN,
    Symbols,
    fit_width,
    format_thousands,
    join_parts,
    plain_line,
    plain_lines,
)
from ralphproof.views.events import EventBatch

if TYPE_CHECKING:
    from textual import events
    from textual.app import ComposeResult


class VirtualScroll(ScrollView):
    """A scroll view that renders only visible lines, by number."""

    @property
    def line_width(self) -> int:
        """Width of a line in cells."""
        return self.scrollable_content_region.width

    def line(self, y: int) -> Text | None:
        """The line with this number; None beyond the end."""
        raise NotImplementedError

    def render_line(self, y: int) -> Strip:
        width, style = self.line_width, self.rich_style
        found = self.line(y + int(self.scroll_y)) if width > 0 else None
        if found is None:
            return Strip.blank(max(0, width), style)
        spans = Text(end="").append_text(found)  # rich leaves out the style of a text as a whole
        strip = Strip(list(spans.render(self.app.console))).adjust_cell_length(width, style)
        return strip.apply_style(style)


class TextView(VirtualScroll, can_focus=True):
    """Scrollable text. Long lines are folded; a view at its end stays there when lines are added."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", show=False),
        Binding("k", "scroll_up", show=False),
        Binding("space", "page_down", show=False),
        Binding("g", "scroll_home", show=False),
        Binding("G", "scroll_end", show=False),
    ]

    def __init__(self, *, id: str | None = None, max_lines: int | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[Text] = []
        self._rows: list[Text] = []
        self._width, self._max_lines = 0, max_lines

    def on_mount(self) -> None:
        self.anchor(bool(self._max_lines))

    def show(self, lines: Sequence[Text], end: bool = False) -> None:
        """Replace the text; with `end`, show its end and stay there until the user scrolls."""
        self._lines = list(lines)
        self._fold_all()
        self.anchor(end or bool(self._max_lines))

    def add(self, lines: Sequence[Text]) -> None:
        """Append lines; only the last `max_lines` are kept."""
        self._lines += lines
        if self._max_lines and len(self._lines) > self._max_lines:
            del self._lines[: -self._max_lines]
            self._fold_all()
        else:
            self._rows += [row for line in lines for row in self._fold(line)]
            self._update_size()

    def rows_of(self, lines: Sequence[Text]) -> int:
        """Number of rows these lines would take."""
        return sum(len(self._fold(line)) for line in lines)

    def line(self, y: int) -> Text | None:
        return self._rows[y] if y < len(self._rows) else None

    def on_resize(self, event: events.Resize) -> None:
        if self.line_width != self._width:
            self._fold_all()
        else:
            self._to_end()

    def _fold_all(self) -> None:
        self._width = self.line_width
        self._rows = [row for line in self._lines for row in self._fold(line)]
        self._update_size()

    def _update_size(self) -> None:
        self.virtual_size = Size(self._width, len(self._rows))
        self._to_end()
        self.refresh()

    def _to_end(self) -> None:
        if self.is_anchored and not self._anchor_released:
            self.scroll_end(animate=False, immediate=True)

    def _fold(self, line: Text) -> list[Text]:
        if self._width <= 1 or cell_len(line.plain) <= self._width:
            return [line]
        return list(line.wrap(self.app.console, self._width, overflow="fold"))


COLUMN_GAP = 2
MIN_FLEX_WIDTH = 16  # cells, at least, of the column that takes the rest


@value
class Column:
    """`width` cells, or the rest if it is 0. Columns of the lowest `priority` are dropped first; 9 always stays."""

    title: str
    width: int
    priority: int = 9
    align_right: bool = False


def fit_columns(columns: Sequence[Column], width: int, hidden: Sequence[str] = ()) -> list[tuple[int, int]]:
    """Indexes and widths of the columns that fit. A flexible column keeps a minimum width."""
    kept = [place for place, column in enumerate(columns) if column.title not in hidden]

    def room() -> int:
        return width - sum(columns[place].width + COLUMN_GAP for place in kept) + COLUMN_GAP

    elastic = any(not column.width for column in columns)
    while room() < (MIN_FLEX_WIDTH if elastic else 0):
        place = min(kept, key=lambda place: (columns[place].priority, -place))
        if columns[place].priority >= 9:
            break
        kept.remove(place)
    rest = max(0, room())
    return [(place, columns[place].width or rest) for place in kept]


class SelectionView(VirtualScroll, can_focus=True):
    """Items by key, one of them selected. The selected one stays selected when others come or go."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", show=False),
        Binding("k,up", "move(-1)", show=False),
        Binding("pagedown,space", "leap(1)", show=False),
        Binding("pageup", "leap(-1)", show=False),
        Binding("g,home", "move(-1000000)", show=False),
        Binding("G,end", "move(1000000)", show=False),
        Binding("enter", "choose", "open", key_display="Enter"),
    ]
    heading_lines = 0  # above the items; they stay where they are
    pitch = 1  # lines from one item to the next
    item_lines = 1  # of an item

    class Chosen(Message):
        """Somebody wants to see more of an item."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, symbols: Symbols, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._symbols = symbols
        self._items: list[tuple[str, Sequence[Text]]] = []
        self._cursor = 0

    @property
    def key(self) -> str:
        """Key of the selected item; empty if there is none."""
        return self._items[self._cursor][0] if self._items else ""

    def show(self, items: Sequence[tuple[str, Sequence[Text]]], to_end: bool = False) -> None:
        """Replace the items. With `to_end`, a selected last item is followed by the new last one."""
        before, was_last, last = self.key, self._cursor >= len(self._items) - 1, max(0, len(items) - 1)
        self._items = list(items)
        places = {key: place for place, (key, _) in enumerate(self._items)}
        self._cursor = last if to_end and was_last else places.get(before, min(self._cursor, last))
        self._update_size()

    def mark(self, text: Text) -> None:
        """Highlight the selected item."""
        text.stylize(SELECTED_PLAIN if self.app.no_color else SELECTED)

    def action_move(self, by: int) -> None:
        self._cursor = min(max(0, self._cursor + by), max(0, len(self._items) - 1))
        self._follow()

    def action_leap(self, pages: int) -> None:
        self.action_move(pages * max(1, (self.size.height - 2) // self.pitch))

    def action_choose(self) -> None:
        if self._items:
            self.post_message(self.Chosen(self.key))

    def on_click(self, event: events.Click) -> None:
        y = event.get_content_offset_capture(self).y - self.heading_lines
        place = (y + int(self.scroll_y)) // self.pitch
        if y >= 0 and place < len(self._items):
            again, self._cursor = place == self._cursor, place
            self._follow()
            if again:
                self.action_choose()

    def on_focus(self) -> None:
        self.scroll_visible(animate=False)
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def on_resize(self) -> None:
        self._update_size()

    def _update_size(self) -> None:
        self.virtual_size = Size(self.line_width, len(self._items) * self.pitch + self.heading_lines)
        self._follow()

    def _follow(self) -> None:
        """Scroll to the selected item."""
        room = max(self.pitch, self.size.height - self.heading_lines)
        top, at = int(self.scroll_y), self._cursor * self.pitch
        if at < top:
            self.scroll_to(y=at, animate=False, immediate=True)
        elif at + self.item_lines > top + room:
            self.scroll_to(y=at + self.item_lines - room, animate=False, immediate=True)
        self.refresh()


class TableView(SelectionView):
    """Rows below a heading."""

    heading_lines = 1

    def __init__(self, columns: Sequence[Column], symbols: Symbols, empty: str, *, id: str | None = None) -> None:
        super().__init__(symbols, id=id)
        self._columns, self._empty = columns, empty
        self.hidden: Sequence[str] = ()  # columns that say nothing here

    def line(self, y: int) -> Text | None:
        if y == int(self.scroll_y):
            return self._format_row([Text(column.title, HEAD, end="") for column in self._columns], " ")
        place = y - 1
        if not self._items and place == 0:
            return Text(f"  {self._empty}", DIM, end="")
        if not 0 <= place < len(self._items):
            return None
        chosen = place == self._cursor
        text = self._format_row(self._items[place][1], self._symbols.at if chosen else " ")
        if chosen and self.has_focus:
            self.mark(text)
        return text

    def _format_row(self, cells: Sequence[Text], first: str) -> Text:
        text = Text(f"{first} ", end="")
        for count, (place, width) in enumerate(fit_columns(self._columns, self.line_width - 2, self.hidden)):
            cell = fit_width(cells[place], width, self._symbols)
            fill = " " * max(0, width - cell.cell_len)
            text.append(" " * COLUMN_GAP if count else "")
            if self._columns[place].align_right:
                text.append(fill).append_text(cell)
            else:
                text.append_text(cell).append(fill)
        return text


class CardColumn(SelectionView):
    """A column of cards of three lines, with a blank line between two."""

    item_lines, pitch = 3, 4

    def __init__(self, name: str, symbols: Symbols) -> None:
        super().__init__(symbols, classes="lane")
        self._heading = name

    @property
    def cards(self) -> int:
        return len(self._items)

    def show(self, items: Sequence[tuple[str, Sequence[Text]]], to_end: bool = False) -> None:
        super().show(items, to_end)
        self.border_title = f"{self._heading} {len(items)}"

    def line(self, y: int) -> Text | None:
        place, part = divmod(y, self.pitch)
        if not self._items and y == 0:
            return Text(self._symbols.dash, DIM, end="")
        if place >= len(self._items) or part >= min(self.item_lines, len(self._items[place][1])):
            return None
        chosen = place == self._cursor and self.has_focus and part == 0
        card_line = fit_width(self._items[place][1][part], self.line_width - 1, self._symbols)
        text = Text(self._symbols.at if chosen else " ", end="").append_text(card_line)
        if chosen:
            text.append(" " * max(0, self.line_width - text.cell_len))
            self.mark(text)
        return text


# The panel that shows an agent at work: messages, tool calls, to-do list.


MAX_EVENT_LINES, MAX_EVENT_CHARS = 6, 1000  # of a tool's output
MAX_SUMMARY_CHARS = 300


TOKEN_FIELDS = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens")


def event_lines(event: Mapping[str, Any], symbols: Symbols) -> list[Text]:
    """Lines of an event; none if it only changes numbers or the to-do list."""
    match event:
        case {"kind": "said", "text": str(text)}:
            return plain_lines(text.strip("\n"))
        case {"kind": "toolStarted", "tool": name, "summary": summary}:
            call = join_parts((symbols.call, TOOL), " ", (name, f"bold {TOOL}"), " ")
            return [call.append_text(plain_line(str(summary)[:MAX_SUMMARY_CHARS], TOOL))]
        case {"kind": "toolEnded", "ok": ok, "output": str(output)}:
            return _tool_output_lines(bool(ok), output, symbols)
        case {"kind": "progress", "text": str(text)}:
            return [join_parts((f"{symbols.dot} ", DIM), (text, DIM))]
        case {"kind": "ended", "ok": True}:
            return [join_parts((f"{symbols.good} ended", GOOD))]
        case _:
            return _message_lines(event, symbols)


def _message_lines(event: Mapping[str, Any], symbols: Symbols) -> list[Text]:
    match event:
        case {"kind": "started"}:
            facts = [f"{name} {event[name]}" for name in ("model", "version", "session") if event.get(name)]
            return [join_parts((f"{symbols.dot} {', '.join(facts)}", DIM))] if facts else []
        case {"kind": "denied", "tool": tool}:
            why = f" ({event['reason']})" if event.get("reason") else ""
            return [join_parts((f"{symbols.lost} denied: {tool}{why}", WARN))]
        case {"kind": "asked", "question": question}:
            return [join_parts((f"? asked, and nobody is there to answer: {question}", WARN))]
        case {"kind": "limited", "message": message}:
            return [join_parts((f"{symbols.waits} the service refuses for now: {message}", WARN))]
        case {"kind": "ended"}:
            return [join_parts((f"{symbols.bad} ended with an error: {event.get('error') or 'unknown'}", BAD))]
        case {"kind": "unparsed", "raw": raw}:
            return [plain_line(raw, DIM)]
        case _:
            return []


def _tool_output_lines(ok: bool, output: str, symbols: Symbols) -> list[Text]:
    first, last, whole = excerpt(sanitize(output).strip("\n"), MAX_EVENT_LINES, MAX_EVENT_CHARS, symbols.cut)
    head = [] if ok else [join_parts((f"  {symbols.bad} failed", BAD))]
    shown = first + ([] if whole else [symbols.cut]) + last
    return [*head, *(join_parts((f"  | {line}", DIM)) for line in shown if line.strip())]


def todo_lines(items: Sequence[Mapping[str, Any]], max_lines: int, symbols: Symbols) -> list[Text]:
    """The agent's to-do list: its count and the part around the current item; in one line, only that item."""
    done = sum(item.get("state") == "done" for item in items)
    at = next((place for place, item in enumerate(items) if item.get("state") != "done"), len(items))
    if max_lines < 2:
        now = items[at].get("text", "") if at < len(items) else "all done"
        return [join_parts((f"to do: {done} of {len(items)} done, now: ", STRONG), (now, LIVE))]
    start = max(0, min(at - 1, len(items) - max_lines))
    lines = [join_parts((f"to do: {done} of {len(items)} done", STRONG))]
    for item in items[start : start + max_lines]:
        sign, style = {"done": (symbols.good, DIM), "active": (symbols.running, LIVE)}.get(
            str(item.get("state")), (symbols.todo, PLAIN)
        )
        lines.append(join_parts((f" {sign} ", ""), (item.get("text", ""), style)))
    return lines


MAX_PANEL_LINES = 300  # that are kept
MAX_PENDING = 20  # batches that wait to be shown; of a flood the last ones
DRAW_INTERVAL_S = 0.1
MAX_TODOS, ROOMY_HEIGHT = 6, 14  # lines of its list, in a panel of so many lines


class AgentPanel(Vertical):
    """One turn. Batches from another thread are queued and drawn at most ten times a second."""

    def __init__(self, symbols: Symbols) -> None:
        super().__init__(id="agent")
        self._symbols = symbols
        self._pending_batches: deque[EventBatch] = deque(maxlen=MAX_PENDING)
        self.turn = ""
        self._next = self._tools = 0
        self._tokens: int | None = None
        self._status_text = ""

    def compose(self) -> ComposeResult:
        yield Static(id="todos")
        yield TextView(max_lines=MAX_PANEL_LINES)

    def on_mount(self) -> None:
        self.border_title = "agent"
        self.set_interval(DRAW_INTERVAL_S, self._draw)

    def receive(self, batch: EventBatch) -> None:
        """Thread-safe."""
        self._pending_batches.append(batch)

    def _draw(self) -> None:
        if self._pruning or not self.app.is_running:
            return  # somebody has left the page, and its parts are gone
        lines: list[Text] = []
        while self._pending_batches:
            batch = self._pending_batches.popleft()
            lines += self._lines(batch.log, batch.first, batch.events)
        if lines:
            self.query_one(TextView).add(lines[-MAX_PANEL_LINES:])
        self._update_title()

    def show_turn(self, turn: str, events: Sequence[Mapping[str, Any]], words: str) -> None:
        """Show a turn that has ended."""
        self._pending_batches.clear()
        self._begin_turn(turn, words)
        first = int(events[0]["number"]) if events else 0
        lines = self._lines(turn, first, events)
        self.query_one(TextView).show(
            lines[-MAX_PANEL_LINES:] or [join_parts(("the agent said nothing", DIM))], end=True
        )
        self._update_title()

    def show_idle(self, words: str) -> None:
        """Show that no agent is working."""
        self._begin_turn("", "")
        self.query_one(TextView).show([plain_line(words, DIM)])
        self._update_title()

    def _begin_turn(self, turn: str, words: str) -> None:
        self.turn, self._next, self._tools, self._tokens, self._status_text = turn, 0, 0, None, words
        self._show_todos(())
        if self.is_mounted:
            self.query_one(TextView).show([])

    def _lines(self, turn: str, first: int, events: Sequence[Mapping[str, Any]]) -> list[Text]:
        """Lines of a batch without known events: batches may overlap."""
        if turn != self.turn:
            self._begin_turn(turn, "live")
        fresh = [event for event in events if int(event.get("number", first)) >= self._next]
        missed = int(fresh[0].get("number", first)) - self._next if fresh else 0
        lines = [join_parts((f"{self._symbols.cut} {missed} events before it", DIM))] if missed > 0 else []
        for event in fresh:
            self._track(event)
            lines += event_lines(event, self._symbols)
        if fresh:
            self._next = int(fresh[-1].get("number", first)) + 1
        return lines

    def _track(self, event: Mapping[str, Any]) -> None:
        match event:
            case {"kind": "toolStarted"}:
                self._tools += 1
            case {"kind": "todosChanged", "todos": list(items)}:
                self._show_todos(items)
            case {"kind": "spent", "usage": {**usage}}:
                self._tokens = sum(int(str(usage[name])) for name in TOKEN_FIELDS)

    def _show_todos(self, items: Sequence[Mapping[str, Any]]) -> None:
        if self.is_mounted:
            place = self.query_one("#todos", Static)
            place.display = bool(items)
            room = MAX_TODOS if self.size.height >= ROOMY_HEIGHT else 1
            place.update(Text("\n", end="").join(todo_lines(items, room, self._symbols)) if items else "")

    def _update_title(self) -> None:
        facts = [self._status_text, self.turn]
        facts += [f"{self._tools} tool{'s' * (self._tools != 1)}"] if self._tools else []
        facts += [f"{format_thousands(self._tokens)} tokens"] if self._tokens else []
        dot = f" {self._symbols.dot} "
        self.border_title = plain_line(dot.join(["agent", *filter(None, facts)])).plain.replace("[", "(")
