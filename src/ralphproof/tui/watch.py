"""The program of the board: which pages there are, when they are read anew, and how one leaves."""

from __future__ import annotations

import asyncio

from textual.app import App
from textual.binding import Binding, BindingType
from textual.theme import Theme

from ralphproof.errors import RalphError, from_system
from ralphproof.tui.dialog import Help
from ralphproof.tui.ink import ASCII, BAD
from ralphproof.tui.lanes import BoardPage
from ralphproof.tui.page import Page
from ralphproof.tui.run import RunPage
from ralphproof.tui.runs import RunsPage
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, ClassVar

    from textual.screen import Screen
    from textual.worker import Worker

    from ralphproof.tui.page import Outlook

LOOK_S = 0.2  # between two looks at the ledger
MODES = ("runs", "board")
THEME = Theme(
    name="ralph", primary="#6cb6ff", secondary="#9fb3c8", accent="#c3a6ff", warning="#f0c674", error="#f2777a",
    success="#8fce7a", foreground="#d5dbe5", background="#0f141b", surface="#161d27", panel="#1b2430", dark=True,
    variables={"border-blurred": "#3a4a60"},
)  # fmt: skip


class Watch(App[None]):
    """Shows runs and tasks while they change. `opens` is the run that it begins with, if any."""

    TITLE = "ralph watch"
    CSS_PATH = "watch.tcss"
    ENABLE_COMMAND_PALETTE = False
    DEFAULT_MODE = "runs"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (110, "-wide")]  # noqa: RUF012 (Textual declares it so)
    VERTICAL_BREAKPOINTS = [(0, "-low"), (20, "-high")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("question_mark", "keys", "help", key_display="?"),
        Binding("q", "leave", "quit"),
        Binding("ctrl+c,ctrl+q", "leave", show=False, priority=True),
        Binding("1", "mode('runs')", show=False),
        Binding("2", "mode('board')", show=False),
    ]

    def __init__(self, outlook: Outlook, opens: str = "", colour: bool = True) -> None:
        # Without colour the terminal's own are used, and then taken out: Textual's other way leaves shades of grey.
        super().__init__(ansi_color=None if colour else True)
        self.animation_level = "none"  # a line may be slow, and a hand quick
        self._outlook, self._opens, self._colour = outlook, opens, colour
        pages: dict[str, Callable[[], Screen[Any]]] = {
            "runs": lambda: RunsPage(outlook),
            "board": lambda: BoardPage(outlook),
        }
        for name, page in pages.items():
            self.add_mode(name, page)

    def on_mount(self) -> None:
        if self._colour:
            self.register_theme(THEME)
            self.theme = "ralph"
        else:
            self.theme = "ansi-dark"
        self.set_class(self._outlook.signs is ASCII, "-ascii")
        self.set_interval(1.0, self._tick)
        _: Worker[None] = self.run_worker(self._look_on)
        if self._opens:
            self.push_screen(RunPage(self._outlook, self._opens))

    @property
    def page(self) -> Page | None:
        """The page that is seen, also where a window is before it."""
        return next((one for one in reversed(self.screen_stack) if isinstance(one, Page)), None)

    async def _look_on(self) -> None:
        """Have the page read anew whenever something has changed."""
        seen: object = None
        while True:
            page, now = self.page, seen
            try:
                now = await asyncio.to_thread(self._outlook.board.moment)
            except RalphError as error:
                now = f"{error}"
            except OSError as error:
                now = f"{from_system(error)}"
            if page and not page.left and now != seen:
                page.news(now, BAD) if isinstance(now, str) else page.stale()
            seen = now
            await asyncio.sleep(LOOK_S)

    def _tick(self) -> None:
        if self.page and not self.page.left:
            self.page.tick()

    def action_keys(self) -> None:
        self.push_screen(Help())

    def action_leave(self) -> None:
        self.exit()

    def action_mode(self, name: str) -> None:
        self.switch_mode(name)

    def action_other(self) -> None:
        self.switch_mode(MODES[(MODES.index(self.current_mode) + 1) % len(MODES)])

    def _print_error_renderables(self) -> None:
        """Nothing. Textual 8.2 would print a traceback with the values of variables, and agents' words among them.

        What went wrong is told in one line by whoever opened the board.
        """
        self._exit_renderables.clear()
