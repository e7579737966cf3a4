"""What a run changed, or one of its iterations: a patch, with its signs and in colours."""

from __future__ import annotations

import re

from rich.text import Text
from textual.binding import Binding, BindingType

from ralphproof.display.words import count
from ralphproof.tui.ink import BAD, DIM, GOOD, HEAD, LIVE, PLAIN, STRONG, WARN
from ralphproof.tui.page import Page
from ralphproof.tui.sheet import Sheet
from ralphproof.tui.texts import joined, many
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, ClassVar

    from textual.app import ComposeResult

    from ralphproof.tui.ink import Signs
    from ralphproof.tui.page import Outlook

_HASH = re.compile(r"(?<=[ .])([0-9a-f]{10})[0-9a-f]{30}(?=\.\.| |$)", re.MULTILINE)  # ten digits tell as much
STYLES = (
    ("+++", STRONG),
    ("---", STRONG),
    ("diff ", HEAD),
    ("@@", LIVE),
    ("+", GOOD),
    ("-", "#f2777a"),
    ("index ", DIM),
)


def style_of(line: str) -> str:
    """The style of a line of a patch; its first character tells the same."""
    return next((style for start, style in STYLES if line.startswith(start)), PLAIN)


def diff_lines(told: Mapping[str, Any], signs: Signs) -> Iterator[Text]:
    """The files with their figures, then the patch."""
    files = told["files"]
    added, removed = (sum(one[name] or 0 for one in files) for name in ("added", "removed"))
    total = joined((count(len(files), "file"), HEAD), "  ", (f"+{added}", GOOD), " ", (f"-{removed}", BAD))
    yield total
    for one in files:
        figures = "binary" if one["binary"] else f"+{one['added']} -{one['removed']}"
        yield joined((f"  {figures:<12}", DIM), (one["path"], PLAIN))
    yield Text("", end="")
    for line in many(_HASH.sub(r"\1", told["patch"])):
        line.stylize(style_of(line.plain))
        yield line
    if told["truncated"]:
        yield joined((f"{signs.cut} more is left out; ralph diff shows all of it", WARN))


class DiffPage(Page):
    """Changes; without a number those of the whole run."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left_square_bracket", "step(-1)", "before", key_display="["),
        Binding("right_square_bracket", "step(1)", "after", key_display="]"),
    ]

    def __init__(self, outlook: Outlook, run: str, number: int | None = None) -> None:
        super().__init__(outlook)
        self._run, self._number, self._last, self._seq = run, number, 0, 0
        self._shown: int | None = -1

    @property
    def run(self) -> str:
        return self._run

    @property
    def path(self) -> str:
        what = "diff" if self._number is None else f"diff of {self._number}"
        return f"{self._run} {self.signs.at} {what}"

    def body(self) -> ComposeResult:
        yield Sheet()

    async def load(self) -> None:
        run = await self.aside(self.board.run, self._run, self._seq)
        self._last = max((one["number"] for one in run["iterations"]), default=self._last)
        self._seq = run["seq"]
        if run["iterations"] or self._shown != self._number:
            self._shown = number = self._number
            told = await self.aside(self.board.diff, self._run, number)
            nothing = [joined(("nothing was changed", DIM))]
            self.query_one(Sheet).show(list(diff_lines(told, self.signs)) if told["files"] else nothing)
        self._put_top()

    def action_step(self, by: int) -> None:
        """Through the iterations; before the first one comes the whole."""
        number = (self._number or 0) + by
        if 0 <= number <= self._last:
            self._number = number or None
            self.query_one(Sheet).scroll_home(animate=False)
            self.stale()
