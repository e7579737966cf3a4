"""The logs of a run: which there are, and one of them, read in parts from its end."""

from __future__ import annotations

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import Static

from ralphproof.tui.ink import DIM, LIVE, STRONG
from ralphproof.tui.listing import Column, Listing
from ralphproof.tui.page import Page
from ralphproof.tui.sheet import Sheet
from ralphproof.tui.texts import fitted, joined, many, one, size_of
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, ClassVar

    from textual.app import ComposeResult

    from ralphproof.tui.page import Outlook, Work

COLUMNS = (
    Column("log", 0),
    Column("kind", 10, need=5),
    Column("iter", 5, right=True),
    Column("output", 10, right=True),
    Column("errors", 10, need=3, right=True),
    Column("prompt", 10, need=2, right=True),
)
PARTS = ("out", "stderr", "prompt")
NAMES = {"out": "output", "stderr": "errors", "prompt": "prompt"}
PIECE = 64 * 1024  # bytes of one read
HELD = 4 * PIECE  # characters that are shown at once


class LogsPage(Page):
    """What every command of a run printed; with a number, those of one iteration."""

    def __init__(self, outlook: Outlook, run: str, number: int | None = None) -> None:
        super().__init__(outlook)
        self._run, self._number = run, number

    @property
    def run(self) -> str:
        return self._run

    @property
    def path(self) -> str:
        return f"{self._run} {self.signs.at} logs" + (f" of {self._number}" if self._number else "")

    def body(self) -> ComposeResult:
        yield Listing(COLUMNS, self.signs, "no log", id="logs")

    async def load(self) -> None:
        told = (await self.aside(self.board.logs, self._run))["logs"]
        shown = [log for log in told if self._number in (None, log["iteration"])]
        self.query_one(Listing).show([(str(log["name"]), self._row(log)) for log in shown])

    def _row(self, log: dict[str, Any]) -> list[Text]:
        sizes = [log["bytes"], log["stderr"], log["prompt"]]
        name = joined(
            (log["name"], LIVE if log["live"] else ""), (f" {self.signs.running} live", LIVE) if log["live"] else ""
        )
        cells = [Text(self.signs.dash if size is None else size_of(size), DIM, end="") for size in sizes]
        return [name, one(log["kind"], DIM), one(log["iteration"] or self.signs.dash), *cells]

    def on_listing_chosen(self, event: Listing.Chosen) -> None:
        self.app.push_screen(LogPage(self.outlook, self._run, event.key))


class LogPage(Page):
    """One log. Only a window of it is ever held: its end, and what is before that as somebody pages up."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "part", "part", priority=True),
        Binding("pageup", "page(-1)", "earlier", priority=True),
        Binding("pagedown", "page(1)", show=False, priority=True),
        Binding("f", "follow", "follow"),
    ]

    def __init__(self, outlook: Outlook, run: str, log: str) -> None:
        super().__init__(outlook)
        self._run, self._log, self._part = run, log, PARTS[0]
        self._window = Window()
        self._following, self._turning = True, False

    @property
    def run(self) -> str:
        return self._run

    @property
    def path(self) -> str:
        return f"{self._run} {self.signs.at} {self._log}"

    def body(self) -> ComposeResult:
        yield Static(id="head")
        yield Sheet()

    # Content

    async def load(self) -> None:
        """The end, the first time; then what has come since."""
        if self._following:
            window = self._window
            told = await self._read(window.end if window.text else None)
            if told["bytes"] - window.end > HELD or told["bytes"] < window.end:  # far behind, or another file
                window = Window()
                told = await self._read(None)
            if told["text"] or not self._window.text:
                self._window = window.and_then(told)
                self.query_one(Sheet).show(many(self._window.text), end=True)
        self._put_head()

    def tick(self) -> None:
        if self._following:
            self.stale()  # a log grows without any record

    async def _read(self, offset: int | None, most: int = PIECE) -> dict[str, Any]:
        told: dict[str, Any] = await self.aside(self.board.log, self._run, self._log, self._part, offset, most)
        return told

    def _put_head(self) -> None:
        window = self._window
        shown = f"{size_of(window.end - window.start)} of {size_of(window.size)}"
        before = f"; PgUp: {size_of(window.start)} before it" if window.start else ""
        follows = joined((f" {self.signs.running} follows", LIVE)) if self._following else ""
        parts = joined(*((f" {NAMES[part]} ", "bold reverse" if part == self._part else DIM) for part in PARTS))
        made = joined(parts, "   ", (shown, STRONG), follows, (before, DIM))
        self.query_one("#head", Static).update(fitted(made, max(1, self.size.width - 2), self.signs))

    # Keys

    def action_part(self) -> None:
        self._part = PARTS[(PARTS.index(self._part) + 1) % len(PARTS)]
        self._window, self._following = Window(), True
        self.stale()

    def action_follow(self) -> None:
        self._following = not self._following
        if self._following:
            self._window = Window()
        self.stale()

    def action_page(self, by: int) -> None:
        """A page up or down; at the edge of what is held, the part beyond it."""
        sheet, window = self.query_one(Sheet), self._window
        self._following = self._following and by > 0
        if by < 0 and sheet.scroll_y <= 0 and window.start:
            self._turn_to(self._earlier)
        elif by > 0 and sheet.scroll_y >= sheet.max_scroll_y and window.end < window.size:
            self._turn_to(self._later)
        else:
            sheet.action_page_up() if by < 0 else sheet.action_page_down()
        self._put_head()

    def _turn_to(self, part: Work) -> None:
        """One part at a time, however often the key is pressed."""
        if not self._turning:
            self._turning = True
            self.attempt(part)

    async def _earlier(self) -> None:
        start = max(0, self._window.start - PIECE)
        try:
            told = await self._read(start, self._window.start - start)
        finally:
            self._turning = False
        self._window = self._window.after(told)
        sheet = self.query_one(Sheet)
        sheet.show(many(self._window.text))
        above = sheet.rows_of(many(told["text"]))
        sheet.scroll_to(y=max(0, above - sheet.size.height), animate=False, immediate=True)
        self._put_head()

    async def _later(self) -> None:
        try:
            told = await self._read(self._window.end)
        finally:
            self._turning = False
        self._window = self._window.and_then(told)
        self.query_one(Sheet).show(many(self._window.text), end=True)
        self._put_head()


@value
class Window:
    """The part of a log that is held, in the pieces in which it was read: no text tells how many bytes it was."""

    pieces: tuple[Mapping[str, Any], ...] = ()
    size: int = 0

    @property
    def text(self) -> str:
        return "".join(piece["text"] for piece in self.pieces)

    @property
    def start(self) -> int:
        """Where it begins among all bytes."""
        return int(self.pieces[0]["offset"]) if self.pieces else 0

    @property
    def end(self) -> int:
        return int(self.pieces[-1]["next"]) if self.pieces else 0

    def and_then(self, told: Mapping[str, Any]) -> Window:
        """With the piece that follows it; what is too much goes at the beginning."""
        kept = _held((told, *reversed(self.pieces)) if told["text"] or not self.pieces else self.pieces[::-1])
        return Window(kept[::-1], told["bytes"])

    def after(self, told: Mapping[str, Any]) -> Window:
        """With the piece before it; what is too much goes at the end."""
        return Window(_held((told, *self.pieces)), told["bytes"])


def _held(pieces: tuple[Mapping[str, Any], ...]) -> tuple[Mapping[str, Any], ...]:
    """As many of them as are shown at once, and the first in any case."""
    length = count = 0
    for piece in pieces:
        length += len(piece["text"])
        if count and length > HELD:
            break
        count += 1
    return pieces[:count]
