"""The pages that list and show logs of a run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import Static

from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.display.phrases import format_count
from ralphproof.tui.page import DashboardContext, Page
from ralphproof.tui.style import (
    BAD,
    DIM,
    GOOD,
    HEAD,
    LIVE,
    PLAIN,
    STRONG,
    WARN,
    Symbols,
    fit_width,
    format_bytes,
    join_parts,
    plain_line,
    plain_lines,
)
from ralphproof.tui.widgets import Column, SelectionView, TableView, TextView

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from ralphproof.tui.page import Work


_LONG_HASH = re.compile(r"(?<=[ .])([0-9a-f]{10})[0-9a-f]{30}(?=\.\.| |$)", re.MULTILINE)  # ten digits tell as much
PATCH_STYLES = (
    ("+++", STRONG),
    ("---", STRONG),
    ("diff ", HEAD),
    ("@@", LIVE),
    ("+", GOOD),
    ("-", "#f2777a"),
    ("index ", DIM),
)


def patch_line_style(line: str) -> str:
    """Style of a patch line by its first characters."""
    return next((style for start, style in PATCH_STYLES if line.startswith(start)), PLAIN)


def diff_lines(data: Mapping[str, Any], symbols: Symbols) -> Iterator[Text]:
    """Files with their counts, then the patch."""
    files = data["changes"]
    added, removed = (sum(one[name] or 0 for one in files) for name in ("addedLines", "removedLines"))
    total = join_parts((format_count(len(files), "file"), HEAD), "  ", (f"+{added}", GOOD), " ", (f"-{removed}", BAD))
    yield total
    for one in files:
        figures = "binary" if one["binary"] else f"+{one['addedLines']} -{one['removedLines']}"
        yield join_parts((f"  {figures:<12}", DIM), (one["path"], PLAIN))
    yield Text("", end="")
    for line in plain_lines(_LONG_HASH.sub(r"\1", data["patch"])):
        line.stylize(patch_line_style(line.plain))
        yield line
    if data["truncated"]:
        yield join_parts((f"{symbols.cut} more is left out; ralph diff shows all of it", WARN))


class DiffPage(Page):
    """Changes of an iteration; without a number, of the whole run."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left_square_bracket", "step(-1)", "before", key_display="["),
        Binding("right_square_bracket", "step(1)", "after", key_display="]"),
    ]

    def __init__(self, context: DashboardContext, run: str, number: int | None = None) -> None:
        super().__init__(context, run)
        self._number, self._last, self._seq = number, 0, 0
        self._shown: int | None = -1

    @property
    def path(self) -> str:
        what = "diff" if self._number is None else f"diff of {self._number}"
        return f"{self._run} {self.symbols.at} {what}"

    def body(self) -> ComposeResult:
        yield TextView()

    async def load(self) -> None:
        run = await self.in_thread(self.read_model.run, self._run, self._seq)
        self._last = max((one["number"] for one in run["timeline"]), default=self._last)
        self._seq = run["seq"]
        if run["timeline"] or self._shown != self._number:
            self._shown = number = self._number
            data = await self.in_thread(self.read_model.diff, self._run, number)
            nothing = [join_parts(("nothing was changed", DIM))]
            self.query_one(TextView).show(list(diff_lines(data, self.symbols)) if data["changes"] else nothing)
        self._draw_title()

    def action_step(self, by: int) -> None:
        """Step through the iterations; before the first comes the whole run."""
        number = (self._number or 0) + by
        if 0 <= number <= self._last:
            self._number = number or None
            self.query_one(TextView).scroll_home(animate=False)
            self.mark_stale()


LOG_COLUMNS = (
    Column("log", 0),
    Column("kind", 10, priority=5),
    Column("iter", 5, align_right=True),
    Column("output", 10, align_right=True),
    Column("errors", 10, priority=3, align_right=True),
    Column("prompt", 10, priority=2, align_right=True),
)
LOG_PARTS = ("out", "stderr", "prompt")
LOG_PART_NAMES = {"out": "output", "stderr": "errors", "prompt": "prompt"}
CHUNK_BYTES = 64 * 1024  # bytes of one read
WINDOW_BYTES = 4 * CHUNK_BYTES  # characters that are shown at once


class LogsPage(Page):
    """Logs of all commands of a run; with a number, of one iteration."""

    def __init__(self, context: DashboardContext, run: str, number: int | None = None) -> None:
        super().__init__(context, run, f"{run} {context.symbols.at} logs" + (f" of {number}" if number else ""))
        self._number = number

    def body(self) -> ComposeResult:
        yield TableView(LOG_COLUMNS, self.symbols, "no log", id="logs")

    async def load(self) -> None:
        data = (await self.in_thread(self.read_model.logs, self._run))["logs"]
        shown = [log for log in data if self._number in (None, log["iteration"])]
        self.query_one(TableView).show([(str(log["name"]), self._row(log)) for log in shown])

    def _row(self, log: dict[str, Any]) -> list[Text]:
        sizes = [log["bytes"], log["stderrBytes"], log["promptBytes"]]
        name = join_parts(
            (log["name"], LIVE if log["live"] else ""), (f" {self.symbols.running} live", LIVE) if log["live"] else ""
        )
        cells = [Text(self.symbols.dash if size is None else format_bytes(size), DIM, end="") for size in sizes]
        return [name, plain_line(log["kind"], DIM), plain_line(log["iteration"] or self.symbols.dash), *cells]

    def on_selection_view_chosen(self, event: SelectionView.Chosen) -> None:
        self.app.push_screen(LogPage(self.context, self._run, event.key))


class LogPage(Page):
    """One log. Only a window of it is loaded: its end, and earlier parts as the user pages up."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "part", "part", priority=True),
        Binding("pageup", "page(-1)", "earlier", priority=True),
        Binding("pagedown", "page(1)", show=False, priority=True),
        Binding("f", "follow", "follow"),
    ]

    def __init__(self, context: DashboardContext, run: str, log: str) -> None:
        super().__init__(context, run, f"{run} {context.symbols.at} {log}")
        self._log, self._part = log, LOG_PARTS[0]
        self._window = LogWindow()
        self._following, self._loading_part = True, False

    def body(self) -> ComposeResult:
        yield Static(id="head")
        yield TextView()

    # Content

    async def load(self) -> None:
        """Load the end at first, then what was appended."""
        if self._following:
            window = self._window
            data = await self._read(window.end if window.text else None)
            if data["bytes"] - window.end > WINDOW_BYTES or data["bytes"] < window.end:  # far behind, or another file
                window = LogWindow()
                data = await self._read(None)
            if data["text"] or not self._window.text:
                self._window = window.append(data)
                self.query_one(TextView).show(plain_lines(self._window.text), end=True)
        self._draw_head()

    def tick(self) -> None:
        if self._following:
            self.mark_stale()  # a log grows without any record

    async def _read(self, offset: int | None, most: int = CHUNK_BYTES) -> dict[str, Any]:
        data: dict[str, Any] = await self.in_thread(self.read_model.log, self._run, self._log, self._part, offset, most)
        return data

    def _draw_head(self) -> None:
        window = self._window
        shown = f"{format_bytes(window.end - window.start)} of {format_bytes(window.size)}"
        before = f"; PgUp: {format_bytes(window.start)} before it" if window.start else ""
        follows = join_parts((f" {self.symbols.running} follows", LIVE)) if self._following else ""
        parts = join_parts(
            *((f" {LOG_PART_NAMES[part]} ", "bold reverse" if part == self._part else DIM) for part in LOG_PARTS)
        )
        text = join_parts(parts, "   ", (shown, STRONG), follows, (before, DIM))
        self.query_one("#head", Static).update(fit_width(text, max(1, self.size.width - 2), self.symbols))

    # Keys

    def action_part(self) -> None:
        self._part = LOG_PARTS[(LOG_PARTS.index(self._part) + 1) % len(LOG_PARTS)]
        self._window, self._following = LogWindow(), True
        self.mark_stale()

    def action_follow(self) -> None:
        self._following = not self._following
        if self._following:
            self._window = LogWindow()
        self.mark_stale()

    def action_page(self, by: int) -> None:
        """Page up or down; at the edge of the window, load the next part."""
        view, window = self.query_one(TextView), self._window
        self._following = self._following and by > 0
        if by < 0 and view.scroll_y <= 0 and window.start:
            self._load_part(self._earlier)
        elif by > 0 and view.scroll_y >= view.max_scroll_y and window.end < window.size:
            self._load_part(self._later)
        else:
            view.action_page_up() if by < 0 else view.action_page_down()
        self._draw_head()

    def _load_part(self, part: Work) -> None:
        """One part at a time, however often the key is pressed."""
        if not self._loading_part:
            self._loading_part = True
            self.run_guarded(part)

    async def _earlier(self) -> None:
        start = max(0, self._window.start - CHUNK_BYTES)
        try:
            data = await self._read(start, self._window.start - start)
        finally:
            self._loading_part = False
        self._window = self._window.prepend(data)
        view = self.query_one(TextView)
        view.show(plain_lines(self._window.text))
        above = view.rows_of(plain_lines(data["text"]))
        view.scroll_to(y=max(0, above - view.size.height), animate=False, immediate=True)
        self._draw_head()

    async def _later(self) -> None:
        try:
            data = await self._read(self._window.end)
        finally:
            self._loading_part = False
        self._window = self._window.append(data)
        self.query_one(TextView).show(plain_lines(self._window.text), end=True)
        self._draw_head()


@value
class LogWindow:
    """The loaded part of a log, in the pieces in which it was read, because text does not tell its size in bytes."""

    pieces: tuple[Mapping[str, Any], ...] = ()
    size: int = 0

    @property
    def text(self) -> str:
        return "".join(piece["text"] for piece in self.pieces)

    @property
    def start(self) -> int:
        """Offset of the window in bytes."""
        return int(self.pieces[0]["offset"]) if self.pieces else 0

    @property
    def end(self) -> int:
        return int(self.pieces[-1]["nextOffset"]) if self.pieces else 0

    def append(self, data: Mapping[str, Any]) -> LogWindow:
        """With the next piece; surplus is dropped at the start."""
        kept = _trim_window((data, *reversed(self.pieces)) if data["text"] or not self.pieces else self.pieces[::-1])
        return LogWindow(kept[::-1], data["bytes"])

    def prepend(self, data: Mapping[str, Any]) -> LogWindow:
        """With the piece before it; surplus is dropped at the end."""
        return LogWindow(_trim_window((data, *self.pieces)), data["bytes"])


def _trim_window(pieces: tuple[Mapping[str, Any], ...]) -> tuple[Mapping[str, Any], ...]:
    """As many pieces as fit the window, at least the first."""
    length = count = 0
    for piece in pieces:
        length += len(piece["text"])
        if count and length > WINDOW_BYTES:
            break
        count += 1
    return pieces[:count]
