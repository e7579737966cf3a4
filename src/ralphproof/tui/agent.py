"""The panel that shows an agent at work: what it says, the tools that it uses, and its list of things to do."""

from __future__ import annotations

from collections import deque

from rich.text import Text
from textual.containers import Vertical
from textual.widgets import Static

from ralphproof.tui.ink import DIM
from ralphproof.tui.sheet import Sheet
from ralphproof.tui.spoken import lines_of, todo_lines
from ralphproof.tui.texts import joined, one, thousands
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from textual.app import ComposeResult

    from ralphproof.tui.ink import Signs
    from ralphproof.views.overhear import Overheard

LINES = 300  # that are kept
HELD = 20  # batches that wait to be shown; of a flood the last ones
DRAWN_S = 0.1
TODOS, ROOMY = 6, 14  # lines of its list, in a panel of so many lines


class AgentPanel(Vertical):
    """One turn. What is heard in another thread waits here until it is drawn, at most ten times a second."""

    def __init__(self, signs: Signs) -> None:
        super().__init__(id="agent")
        self._signs = signs
        self._heard: deque[Overheard] = deque(maxlen=HELD)
        self.turn = ""
        self._next = self._tools = 0
        self._tokens: int | None = None
        self._words = ""

    def compose(self) -> ComposeResult:
        yield Static(id="todos")
        yield Sheet(most=LINES)

    def on_mount(self) -> None:
        self.border_title = "agent"
        self.set_interval(DRAWN_S, self._draw)

    def hear(self, heard: Overheard) -> None:
        """From any thread."""
        self._heard.append(heard)

    def _draw(self) -> None:
        if self._pruning or not self.app.is_running:
            return  # somebody has left the page, and its parts are gone
        lines: list[Text] = []
        while self._heard:
            heard = self._heard.popleft()
            lines += self._lines(heard.turn, heard.first, heard.events)
        if lines:
            self.query_one(Sheet).add(lines[-LINES:])
        self._title()

    def tell(self, turn: str, events: Sequence[Mapping[str, Any]], words: str) -> None:
        """What is known of a turn that is over."""
        self._heard.clear()
        self._begin(turn, words)
        first = int(events[0]["n"]) if events else 0
        lines = self._lines(turn, first, events)
        self.query_one(Sheet).show(lines[-LINES:] or [joined(("the agent said nothing", DIM))], end=True)
        self._title()

    def quiet(self, words: str) -> None:
        """Nobody is at work."""
        self._begin("", "")
        self.query_one(Sheet).show([one(words, DIM)])
        self._title()

    def _begin(self, turn: str, words: str) -> None:
        self.turn, self._next, self._tools, self._tokens, self._words = turn, 0, 0, None, words
        self._todos(())
        if self.is_mounted:
            self.query_one(Sheet).show([])

    def _lines(self, turn: str, first: int, events: Sequence[Mapping[str, Any]]) -> list[Text]:
        """The lines of a batch. What is known already is left out: a batch may overlap the one before."""
        if turn != self.turn:
            self._begin(turn, "live")
        fresh = [event for event in events if int(event.get("n", first)) >= self._next]
        missed = int(fresh[0].get("n", first)) - self._next if fresh else 0
        lines = [joined((f"{self._signs.cut} {missed} events before it", DIM))] if missed > 0 else []
        for event in fresh:
            self._count(event)
            lines += lines_of(event, self._signs)
        if fresh:
            self._next = int(fresh[-1].get("n", first)) + 1
        return lines

    def _count(self, event: Mapping[str, Any]) -> None:
        match event:
            case {"type": "toolstarted"}:
                self._tools += 1
            case {"type": "todoschanged", "items": list(items)}:
                self._todos(items)
            case {"type": "spent", "usage": {**usage}}:
                self._tokens = sum(count for count in usage.values() if isinstance(count, int))

    def _todos(self, items: Sequence[Mapping[str, Any]]) -> None:
        if self.is_mounted:
            place = self.query_one("#todos", Static)
            place.display = bool(items)
            room = TODOS if self.size.height >= ROOMY else 1
            place.update(Text("\n", end="").join(todo_lines(items, room, self._signs)) if items else "")

    def _title(self) -> None:
        facts = [self._words, self.turn]
        facts += [f"{self._tools} tool{'s' * (self._tools != 1)}"] if self._tools else []
        facts += [f"{thousands(self._tokens)} tokens"] if self._tokens else []
        dot = f" {self._signs.dot} "
        self.border_title = one(dot.join(["agent", *filter(None, facts)])).plain.replace("[", "(")
