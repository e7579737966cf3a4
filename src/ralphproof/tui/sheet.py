"""Lines of text that are drawn only where they are seen, however many there are."""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import ClassVar

    from textual import events


class Drawn(ScrollView):
    """Something that knows its lines by number, and is asked only for those that are seen."""

    @property
    def room(self) -> int:
        """How many cells a line may take."""
        return self.scrollable_content_region.width

    def line(self, y: int) -> Text | None:
        """The line at this place of the whole; None beyond its end."""
        raise NotImplementedError

    def render_line(self, y: int) -> Strip:
        width, style = self.room, self.rich_style
        found = self.line(y + int(self.scroll_y)) if width > 0 else None
        if found is None:
            return Strip.blank(max(0, width), style)
        spans = Text(end="").append_text(found)  # rich leaves out the style of a text as a whole
        strip = Strip(list(spans.render(self.app.console))).adjust_cell_length(width, style)
        return strip.apply_style(style)


class Sheet(Drawn, can_focus=True):
    """Text to read. Long lines go on below; where the end is seen, it stays seen when more is added."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", show=False),
        Binding("k", "scroll_up", show=False),
        Binding("space", "page_down", show=False),
        Binding("g", "scroll_home", show=False),
        Binding("G", "scroll_end", show=False),
    ]

    def __init__(self, *, id: str | None = None, most: int | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[Text] = []
        self._rows: list[Text] = []
        self._width, self._most = 0, most

    def on_mount(self) -> None:
        self.anchor(bool(self._most))

    def show(self, lines: Sequence[Text], end: bool = False) -> None:
        """Show these instead; where the `end` is wanted, it is seen, and stays so until somebody scrolls."""
        self._lines = list(lines)
        self._fold_all()
        self.anchor(end or bool(self._most))

    def add(self, lines: Sequence[Text]) -> None:
        """Show these too; of all the last `most` are kept."""
        self._lines += lines
        if self._most and len(self._lines) > self._most:
            del self._lines[: -self._most]
            self._fold_all()
        else:
            self._rows += [row for line in lines for row in self._folded(line)]
            self._measured()

    def rows_of(self, lines: Sequence[Text]) -> int:
        """How many rows these would take."""
        return sum(len(self._folded(line)) for line in lines)

    def line(self, y: int) -> Text | None:
        return self._rows[y] if y < len(self._rows) else None

    def on_resize(self, event: events.Resize) -> None:
        if self.room != self._width:
            self._fold_all()
        else:
            self._to_end()

    def _fold_all(self) -> None:
        self._width = self.room
        self._rows = [row for line in self._lines for row in self._folded(line)]
        self._measured()

    def _measured(self) -> None:
        self.virtual_size = Size(self._width, len(self._rows))
        self._to_end()
        self.refresh()

    def _to_end(self) -> None:
        if self.is_anchored and not self._anchor_released:
            self.scroll_end(animate=False, immediate=True)

    def _folded(self, line: Text) -> list[Text]:
        if self._width <= 1 or cell_len(line.plain) <= self._width:
            return [line]
        return list(line.wrap(self.app.console, self._width, overflow="fold"))
