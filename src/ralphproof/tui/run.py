"""One run: its head, its iterations, and its agent at work."""

from __future__ import annotations

import time

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import ModalScreen
from textual.widgets import Static

from ralphproof.tui.agent import AgentPanel
from ralphproof.tui.diff import DiffPage
from ralphproof.tui.iteration import IterationPage
from ralphproof.tui.iteration_row import COLUMNS, row_of
from ralphproof.tui.lanes import StoriesPage
from ralphproof.tui.listing import Listing
from ralphproof.tui.logs import LogsPage
from ralphproof.tui.page import Page
from ralphproof.tui.run_head import head
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, ClassVar

    from textual.app import ComposeResult

    from ralphproof.tui.page import Listener, Outlook

LIVES = ("running", "orphaned")


class RunPage(Page):
    """Follows one run. Its agent is overheard only while this page is on top."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "diff", "diff"),
        Binding("l", "logs", "logs"),
        Binding("b", "lanes", "board"),
    ]

    def __init__(self, outlook: Outlook, run: str) -> None:
        super().__init__(outlook)
        self._run = run
        self._told: dict[str, Any] = {}
        self._iterations: dict[int, dict[str, Any]] = {}
        self._cells: dict[int, list[Text]] = {}  # of iterations that are over
        self._retold = ""
        self._listener: Listener | None = None

    @property
    def run(self) -> str:
        return self._run

    @property
    def path(self) -> str:
        return self._run

    def body(self) -> ComposeResult:
        yield Static(id="head")
        with Container(id="halves"):
            table = Listing(COLUMNS, self.signs, "no iteration yet", id="iterations")
            table.border_title = "iterations"
            yield table
            yield AgentPanel(self.signs)

    # Content

    async def load(self) -> None:
        told = await self.aside(self.board.run, self._run, int(self._told.get("seq", 0)))
        self._iterations |= {one["number"]: one for one in told["iterations"]}
        for one in told["iterations"]:
            self._cells.pop(one["number"], None)
        self._told = told
        self.put()
        await self._listen()

    def tick(self) -> None:
        if self._told and self._told["state"] != "ended":
            self.put()

    def resized(self) -> None:
        super().resized()
        if self._told and not self.left:
            self.put()

    def put(self) -> None:
        now, width = time.time(), max(20, self.size.width - 2)
        lines = head(self._told, width, self.signs, now)
        self.query_one("#head", Static).update(Text("\n", end="").join(lines))
        rows = [(str(number), self._row(number, now)) for number in sorted(self._iterations)]
        table = self.query_one("#iterations", Listing)
        table.hidden = () if len(self._told["stages"]) > 1 or self._told["stories"] else ("stage",)
        table.show(rows, to_end=True)

    def _row(self, number: int, now_s: float) -> list[Text]:
        """The cells of an iteration; of one that is over they are made once."""
        if number in self._cells:
            return self._cells[number]
        told = self._iterations[number]
        cells = row_of(told, self.signs, now_s)
        if told["endedAt"] is not None:
            self._cells[number] = cells
        return cells

    async def _listen(self) -> None:
        """Hear the agent while the run lives; of one that is over, show its last turn."""
        panel = self.query_one(AgentPanel)
        if self._told["state"] in LIVES:
            self._retold = ""
            if self._listener is None and self.is_current:
                self._listener = self.outlook.listen(self._run, panel.hear)
                self._listener.start()
            return
        self._deaf()
        turns = [turn for _, one in sorted(self._iterations.items()) for turn in one["turns"]]
        if not turns:
            panel.quiet("no agent was asked yet")
        elif self._retold != (name := str(turns[-1]["name"])):
            self._retold = name
            words = "rests" if self._told["state"] == "paused" else "its last turn"
            panel.tell(name, await self.heard(self._run, turns[-1]), words)

    def on_screen_suspend(self) -> None:
        if not isinstance(self.app.screen, ModalScreen):  # behind a window it is still seen
            self._deaf()

    def on_unmount(self) -> None:
        self._deaf()

    def _deaf(self) -> None:
        if self._listener is not None:
            self._listener.stop()
            self._listener = None

    # Keys

    def on_listing_chosen(self, event: Listing.Chosen) -> None:
        self.app.push_screen(IterationPage(self.outlook, self._run, int(event.key)))

    def action_diff(self) -> None:
        self.app.push_screen(DiffPage(self.outlook, self._run))

    def action_logs(self) -> None:
        self.app.push_screen(LogsPage(self.outlook, self._run))

    def action_lanes(self) -> None:
        if self._told.get("stories"):
            self.app.push_screen(StoriesPage(self.outlook, self._run))
        else:
            self.app.switch_mode("board")
