"""A table in which one row is chosen. Columns that there is no room for are left out, the least needed first."""

from __future__ import annotations

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message

from ralphproof.tui.ink import CHOSEN, CHOSEN_PLAIN, DIM, HEAD
from ralphproof.tui.sheet import Drawn
from ralphproof.tui.texts import fitted
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import ClassVar

    from textual import events

    from ralphproof.tui.ink import Signs

GAP = 2
ELASTIC = 16  # cells, at least, of the column that takes the rest


@value
class Column:
    """`width` cells, or what is left where it is 0. Those with the lowest `need` go first; 9 always stays."""

    title: str
    width: int
    need: int = 9
    right: bool = False


def fitting(columns: Sequence[Column], width: int, hidden: Sequence[str] = ()) -> list[tuple[int, int]]:
    """The columns that fit, each by its place, and how wide it is. What takes the rest has some cells at least."""
    kept = [place for place, column in enumerate(columns) if column.title not in hidden]

    def room() -> int:
        return width - sum(columns[place].width + GAP for place in kept) + GAP

    elastic = any(not column.width for column in columns)
    while room() < (ELASTIC if elastic else 0):
        place = min(kept, key=lambda place: (columns[place].need, -place))
        if columns[place].need >= 9:
            break
        kept.remove(place)
    rest = max(0, room())
    return [(place, columns[place].width or rest) for place in kept]


class Listing(Drawn, can_focus=True):
    """Rows by their keys. The chosen one stays chosen when others come or go."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", show=False),
        Binding("k,up", "move(-1)", show=False),
        Binding("pagedown,space", "leap(1)", show=False),
        Binding("pageup", "leap(-1)", show=False),
        Binding("g,home", "move(-1000000)", show=False),
        Binding("G,end", "move(1000000)", show=False),
        Binding("enter", "choose", "open", key_display="Enter"),
    ]

    class Chosen(Message):
        """Somebody wants to see more of a row."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, columns: Sequence[Column], signs: Signs, empty: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._columns, self._signs, self._empty = columns, signs, empty
        self._rows: list[tuple[str, Sequence[Text]]] = []
        self._cursor = 0
        self.hidden: Sequence[str] = ()  # columns that say nothing here

    @property
    def key(self) -> str:
        """That of the chosen row; empty where there is none."""
        return self._rows[self._cursor][0] if self._rows else ""

    def show(self, rows: Sequence[tuple[str, Sequence[Text]]], to_end: bool = False) -> None:
        """Show these rows instead. Where the last one was chosen, and `to_end`, the new last one is."""
        before, was_last = self.key, self._cursor >= len(self._rows) - 1
        self._rows = list(rows)
        places = {key: place for place, (key, _) in enumerate(self._rows)}
        here = places.get(before, min(self._cursor, max(0, len(rows) - 1)))
        self._cursor = max(0, len(rows) - 1) if to_end and was_last else here
        self.virtual_size = Size(self.room, len(rows) + 1)
        self._follow()

    def choose(self, key: str) -> None:
        """Put the cursor on this row."""
        found = (place for place, (known, _) in enumerate(self._rows) if known == key)
        self._cursor = next(found, self._cursor)
        self._follow()

    def line(self, y: int) -> Text | None:
        above = int(self.scroll_y)
        if y == above:  # the heading stays where it is
            return self._laid([Text(column.title, HEAD, end="") for column in self._columns], " ")
        place = y - 1
        if not self._rows and place == 0:
            return Text(f"  {self._empty}", DIM, end="")
        if not 0 <= place < len(self._rows):
            return None
        chosen = place == self._cursor
        made = self._laid(self._rows[place][1], self._signs.at if chosen else " ")
        if chosen and self.has_focus:
            made.stylize(CHOSEN_PLAIN if self.app.no_color else CHOSEN)
        return made

    def _laid(self, cells: Sequence[Text], first: str) -> Text:
        made = Text(f"{first} ", end="")
        for count, (place, width) in enumerate(fitting(self._columns, self.room - 2, self.hidden)):
            cell = fitted(cells[place], width, self._signs)
            fill = " " * max(0, width - cell.cell_len)
            made.append(" " * GAP if count else "")
            if self._columns[place].right:
                made.append(fill).append_text(cell)
            else:
                made.append_text(cell).append(fill)
        return made

    def action_move(self, by: int) -> None:
        self._cursor = min(max(0, self._cursor + by), max(0, len(self._rows) - 1))
        self._follow()

    def action_leap(self, pages: int) -> None:
        self.action_move(pages * max(1, self.size.height - 2))

    def action_choose(self) -> None:
        if self._rows:
            self.post_message(self.Chosen(self.key))

    def on_click(self, event: events.Click) -> None:
        place = event.y + int(self.scroll_y) - 1
        if event.y > 0 and 0 <= place < len(self._rows):
            again = place == self._cursor
            self._cursor = place
            self._follow()
            if again:
                self.action_choose()

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def on_resize(self) -> None:
        self.virtual_size = Size(self.room, len(self._rows) + 1)
        self._follow()

    def _follow(self) -> None:
        """Scroll so that the chosen row is seen."""
        room = max(1, self.size.height - 1)
        top = int(self.scroll_y)
        if self._cursor < top:
            self.scroll_to(y=self._cursor, animate=False, immediate=True)
        elif self._cursor >= top + room:
            self.scroll_to(y=self._cursor - room + 1, animate=False, immediate=True)
        self.refresh()
