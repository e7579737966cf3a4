"""One lane of the board: cards below each other, of which one is chosen."""

from __future__ import annotations

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message

from ralphproof.tui.ink import CHOSEN, CHOSEN_PLAIN, DIM
from ralphproof.tui.sheet import Drawn
from ralphproof.tui.texts import fitted
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import ClassVar

    from textual import events

    from ralphproof.tui.ink import Signs

LINES = 3  # of a card; a blank one follows
HEIGHT = LINES + 1


class Lane(Drawn, can_focus=True):
    """Cards by their keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", show=False),
        Binding("k,up", "move(-1)", show=False),
        Binding("g,home", "move(-100000)", show=False),
        Binding("G,end", "move(100000)", show=False),
        Binding("enter", "choose", "open", key_display="Enter"),
    ]

    class Chosen(Message):
        """Somebody wants to see more of a card."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, name: str, signs: Signs) -> None:
        super().__init__(classes="lane")
        self._called, self._signs = name, signs
        self._cards: list[tuple[str, Sequence[Text]]] = []
        self._cursor = 0

    @property
    def key(self) -> str:
        return self._cards[self._cursor][0] if self._cards else ""

    @property
    def cards(self) -> int:
        return len(self._cards)

    def show(self, cards: Sequence[tuple[str, Sequence[Text]]]) -> None:
        before = self.key
        self._cards = list(cards)
        places = {key: place for place, (key, _) in enumerate(self._cards)}
        self._cursor = places.get(before, min(self._cursor, max(0, len(cards) - 1)))
        self.border_title = f"{self._called} {len(cards)}"
        self.virtual_size = Size(self.room, len(cards) * HEIGHT)
        self._follow()

    def line(self, y: int) -> Text | None:
        place, part = divmod(y, HEIGHT)
        if not self._cards and y == 0:
            return Text(self._signs.dash, DIM, end="")
        if place >= len(self._cards) or part >= LINES or part >= len(self._cards[place][1]):
            return None
        chosen = place == self._cursor and self.has_focus
        first = self._signs.at if chosen and part == 0 else " "
        made = Text(first, end="").append_text(fitted(self._cards[place][1][part], self.room - 1, self._signs))
        if chosen and part == 0:
            made.append(" " * max(0, self.room - made.cell_len))
            made.stylize(CHOSEN_PLAIN if self.app.no_color else CHOSEN)
        return made

    def action_move(self, by: int) -> None:
        self._cursor = min(max(0, self._cursor + by), max(0, len(self._cards) - 1))
        self._follow()

    def action_choose(self) -> None:
        if self._cards:
            self.post_message(self.Chosen(self.key))

    def on_click(self, event: events.Click) -> None:
        place = (event.y - 1 + int(self.scroll_y)) // HEIGHT
        if 0 <= place < len(self._cards):
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
        self.virtual_size = Size(self.room, len(self._cards) * HEIGHT)

    def _follow(self) -> None:
        top, room, at = int(self.scroll_y), max(HEIGHT, self.size.height), self._cursor * HEIGHT
        if at < top:
            self.scroll_to(y=at, animate=False, immediate=True)
        elif at + LINES > top + room:
            self.scroll_to(y=at + LINES - room, animate=False, immediate=True)
        self.refresh()
