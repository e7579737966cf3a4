"""The panel that shows an agent at work: messages, tool calls, to-do list."""

from __future__ import annotations

from collections import deque

from rich.text import Text
from textual.containers import Vertical
from textual.widgets import Static

from ralphproof.base.escaping import sanitize
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.display.agent_output import excerpt
from ralphproof.tui.style import (
    BAD,
    DIM,
    GOOD,
    LIVE,
    PLAIN,
    STRONG,
    TOOL,
    WARN,
    format_thousands,
    join_parts,
    plain_line,
    plain_lines,
)
from ralphproof.tui.widgets import TextView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from textual.app import ComposeResult

    from ralphproof.tui.style import Symbols
    from ralphproof.views.live_events import EventBatch


MAX_EVENT_LINES, MAX_EVENT_CHARS = 6, 1000  # of a tool's output
MAX_SUMMARY_CHARS = 300


def event_lines(event: Mapping[str, Any], symbols: Symbols) -> list[Text]:
    """Lines of an event; none if it only changes numbers or the to-do list."""
    match event:
        case {"type": "said", "text": str(text)}:
            return plain_lines(text.strip("\n"))
        case {"type": "toolstarted", "name": name, "summary": summary}:
            call = join_parts((symbols.call, TOOL), " ", (name, f"bold {TOOL}"), " ")
            return [call.append_text(plain_line(str(summary)[:MAX_SUMMARY_CHARS], TOOL))]
        case {"type": "toolended", "ok": ok, "output": str(output)}:
            return _tool_output_lines(bool(ok), output, symbols)
        case {"type": "progress", "text": str(text)}:
            return [join_parts((f"{symbols.dot} ", DIM), (text, DIM))]
        case {"type": "ended", "ok": True}:
            return [join_parts((f"{symbols.good} ended", GOOD))]
        case _:
            return _message_lines(event, symbols)


def _message_lines(event: Mapping[str, Any], symbols: Symbols) -> list[Text]:
    match event:
        case {"type": "started"}:
            facts = [f"{name} {event[name]}" for name in ("model", "version", "session") if event.get(name)]
            return [join_parts((f"{symbols.dot} {', '.join(facts)}", DIM))] if facts else []
        case {"type": "denied", "tool": tool}:
            why = f" ({event['why']})" if event.get("why") else ""
            return [join_parts((f"{symbols.lost} denied: {tool}{why}", WARN))]
        case {"type": "asked", "question": question}:
            return [join_parts((f"? asked, and nobody is there to answer: {question}", WARN))]
        case {"type": "limited", "message": message}:
            return [join_parts((f"{symbols.waits} the service refuses for now: {message}", WARN))]
        case {"type": "ended"}:
            return [join_parts((f"{symbols.bad} ended with an error: {event.get('error') or 'unknown'}", BAD))]
        case {"type": "unparsed", "raw": raw}:
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
            lines += self._lines(batch.turn, batch.first, batch.events)
        if lines:
            self.query_one(TextView).add(lines[-MAX_PANEL_LINES:])
        self._update_title()

    def show_turn(self, turn: str, events: Sequence[Mapping[str, Any]], words: str) -> None:
        """Show a turn that has ended."""
        self._pending_batches.clear()
        self._begin_turn(turn, words)
        first = int(events[0]["n"]) if events else 0
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
        fresh = [event for event in events if int(event.get("n", first)) >= self._next]
        missed = int(fresh[0].get("n", first)) - self._next if fresh else 0
        lines = [join_parts((f"{self._symbols.cut} {missed} events before it", DIM))] if missed > 0 else []
        for event in fresh:
            self._track(event)
            lines += event_lines(event, self._symbols)
        if fresh:
            self._next = int(fresh[-1].get("n", first)) + 1
        return lines

    def _track(self, event: Mapping[str, Any]) -> None:
        match event:
            case {"type": "toolstarted"}:
                self._tools += 1
            case {"type": "todoschanged", "items": list(items)}:
                self._show_todos(items)
            case {"type": "spent", "usage": {**usage}}:
                self._tokens = sum(count for count in usage.values() if isinstance(count, int))

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
