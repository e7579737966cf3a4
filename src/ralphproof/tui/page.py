"""Base classes of pages: title line, notices, keys, refresh, filter."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer, Input, Static

from ralphproof.base.errors import RalphError, wrap_os_error
from ralphproof.base.value import TYPE_CHECKING, Protocol, value
from ralphproof.runs.control import RunControl
from ralphproof.tui.style import BAD, DIM, GOOD, HEAD, STRONG, WARN, Badge, Symbols, fit_width, join_parts, plain_line
from ralphproof.views.events import EventBatch
from ralphproof.views.read_model import ReadModel

Work = Callable[[], Awaitable[None]]

if TYPE_CHECKING:
    from textual import events
    from textual.app import App, ComposeResult
    from textual.worker import Worker


class ResizeSafe:
    """Handles only the current size of the terminal.

    Textual 8.2 lays a screen out for every reported size, also outdated ones, and notifies the screens behind it, which
    notify it again: three sizes in a row can loop forever.
    """

    app: App[object]

    def on_resize(self, event: events.Resize) -> None:
        if event.size != self.app.size:
            event.prevent_default()
        else:
            self.after_resize()

    def after_resize(self) -> None:
        """Called after the size has changed."""


KEY_HELP = (
    ("everywhere", (
        ("1  2  Tab", "runs, board"),
        ("Enter  Esc", "open what is chosen; back"),
        ("j k, arrows", "up, down; PgUp, PgDn, Space by pages; g, G to the ends"),
        ("?", "these keys"),
        ("q, Ctrl-C", "leave; every run goes on"),
    )),
    ("a run", (
        ("p  r", "pause before its next turn; resume"),
        ("c", "cancel, after a question"),
        ("s", "say something for its next prompt"),
        ("d  l  b", "what it changed; its logs; its stories, or all tasks"),
    )),
    ("lists and board", (
        ("/", "filter; Enter keeps it, Esc clears it"),
        ("h l, arrows", "to the next lane of the board"),
        ("o", "from a task to its run"),
    )),
    ("logs and changes", (
        ("Tab", "in a log: output, errors, prompt"),
        ("PgUp", "at the top of what is shown: the part before it"),
        ("f", "follow the end of a log"),
        ("[  ]", "the iteration before, and after"),
    )),
)  # fmt: skip


class HelpDialog(ResizeSafe, ModalScreen[None]):
    """List of keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,enter", "dismiss", "close")]

    def compose(self) -> ComposeResult:
        text = Text(end="")
        for section, keys in KEY_HELP:
            text.append(f"{section}\n", HEAD)
            for key, what in keys:
                text.append(f"  {key:<13}", STRONG).append(f"{what}\n")
        text.rstrip()
        with VerticalScroll(classes="window"):
            yield Static(text)


class ConfirmDialog(ResizeSafe, ModalScreen[bool]):
    """Confirmation of a cancel. Only `y` confirms."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "end it"),
        Binding("n,escape,enter,q", "answer(False)", "no"),
    ]

    def __init__(self, run: str) -> None:
        super().__init__()
        self._subject = run

    def compose(self) -> ComposeResult:
        with Vertical(classes="window"):
            yield Static(join_parts((f"End run {self._subject}, and the runs that it began?", STRONG)))
            yield Static("Its work is saved. Nothing takes a cancel back.", markup=False)
            yield Static(join_parts("\n", ("y", STRONG), "  end it      ", ("n, Esc", STRONG), "  no"))

    def action_answer(self, sure: bool) -> None:
        self.dismiss(sure)


class MessageDialog(ResizeSafe, ModalScreen[str]):
    """Input of a message for a run."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "nothing")]

    def __init__(self, run: str) -> None:
        super().__init__()
        self._subject = run

    def compose(self) -> ComposeResult:
        with Vertical(classes="window"):
            yield Static(join_parts((f"Say to run {self._subject}", STRONG)))
            yield Static("The agent is told it once, in its next prompt.", markup=False)
            yield Input(placeholder="leave the public interface as it is", select_on_focus=False)
            yield Static(join_parts(("Enter", STRONG), "  say it      ", ("Esc", STRONG), "  nothing"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())

    def action_leave(self) -> None:
        self.dismiss("")


NOTICE_S = 15.0


class EventListener(Protocol):
    """Receives the events of a run's agent between `start` and `stop`."""

    def start(self) -> None:
        """Start, in a thread of its own."""

    def stop(self) -> None:
        """No longer."""


@value
class DashboardContext:
    """What the dashboard reads from, controls runs with, and draws with."""

    read_model: ReadModel
    control: RunControl
    listen: Callable[[str, Callable[[EventBatch], None]], EventListener]
    symbols: Symbols


class Page(ResizeSafe, Screen[None]):
    """A page. `run` is the run that keys control, `path` the location for the title line; empty if there is none."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "back", show=False),
        Binding("tab,shift+tab", "app.other", show=False),
        Binding("p", "steer('pause')", "pause"),
        Binding("r", "steer('resume')", "resume"),
        Binding("c", "cancel_run", "cancel"),
        Binding("s", "say", "say"),
    ]

    def __init__(self, context: DashboardContext, run: str = "", path: str = "") -> None:
        super().__init__()
        self.context, self._run, self._path = context, run, path
        self.read_model, self.symbols = context.read_model, context.symbols
        self._loading = self._reload = False

    @property
    def run(self) -> str:
        return self._run

    @property
    def path(self) -> str:
        return self._path

    def compose(self) -> ComposeResult:
        yield Static(id="top")
        yield from self.body()
        yield Static(id="news")
        yield Footer(show_command_palette=False, compact=True)

    def body(self) -> ComposeResult:
        """Widgets between title line and keys."""
        yield from ()

    async def load(self) -> None:
        """Read the data and show it."""

    def tick(self) -> None:
        """Called every second."""

    # Content

    def on_screen_resume(self) -> None:
        if not self.is_left:
            self._draw_title()
            self.mark_stale()

    def after_resize(self) -> None:
        """Called after the size has changed."""
        if not self.is_left:
            self._draw_title()

    def mark_stale(self) -> None:
        """Reload; calls during a reload cause one more."""
        if self._loading:
            self._reload = True
        elif self.is_attached:
            self._loading = True
            self.run_guarded(self._load)

    async def _load(self) -> None:
        try:
            self._reload = True
            while self._reload:
                self._reload = False
                await self.load()
        finally:
            self._loading = False

    def run_guarded(self, work: Work) -> None:
        """Run this; expected errors are shown as a notice.

        The coroutine is created when it starts, so that a dashboard that ends before leaves none unawaited.
        """
        _: Worker[None] = self.run_worker(partial(self._attempt, work))

    async def _attempt(self, work: Work) -> None:
        try:
            await work()
        except RalphError as error:
            self.show_notice(f"{error}", BAD)
        except OSError as error:
            self.show_notice(f"{wrap_os_error(error)}", BAD)

    async def in_thread(self, call: Callable[..., Any], *args: object) -> Any:
        """The result of a blocking call, made in a thread.

        If the page was left meanwhile, nothing follows: its widgets are gone.
        """
        result = await asyncio.to_thread(call, *args)
        if self.is_left:
            raise asyncio.CancelledError
        return result

    async def turn_events(self, run: str, turn: Mapping[str, Any]) -> list[Any]:
        """Events of an agent's turn; if they cannot be read, the reason and its last text."""
        try:
            data = await self.in_thread(self.read_model.activity, run, turn["log"])
        except RalphError as error:
            return [
                {"number": 0, "kind": "progress", "text": f"{error}"},
                {"number": 1, "kind": "said", "text": turn["text"]},
            ]
        return list(data["events"])

    @property
    def is_left(self) -> bool:
        """Whether the user has left this page or the dashboard."""
        return self._pruning or not self.app.is_running

    # Lines around it

    def _draw_title(self) -> None:
        mode, project = self.app.current_mode, self.read_model.project.root.rstrip("/").rpartition("/")[2]
        text = join_parts((" ralph", HEAD), "  ", (project, STRONG), "   ")
        for number, name in enumerate(("runs", "board"), 1):
            style = "bold reverse" if name == mode else DIM
            text.append(f" {number} {name} ", style).append(" ")
        if self.path:
            text.append(f"  {self.symbols.at} " if len(self.app.screen_stack) > 1 else "  ", DIM).append_text(
                plain_line(self.path, DIM)
            )
        self.query_one("#top", Static).update(fit_width(text, max(1, self.size.width), self.symbols))

    def show_notice(self, sentence: str, style: str = GOOD) -> None:
        """Show a notice for a while, unless the page was left."""
        if self.is_left:
            return
        symbols = self.symbols
        mark = {GOOD: symbols.good, BAD: symbols.bad, WARN: symbols.dot}.get(style, symbols.dot)
        line = self.query_one("#news", Static)
        line.update(join_parts((f" {mark} ", ""), (sentence, style)))
        line.display = True
        self._notice_at = time.monotonic()
        self.set_timer(NOTICE_S + 0.1, self._hide_notice)

    _notice_at = 0.0

    def _hide_notice(self) -> None:
        if not self.is_left and time.monotonic() - self._notice_at >= NOTICE_S:
            self.query_one("#news", Static).display = False

    # Keys

    def action_back(self) -> None:
        if len(self.app.screen_stack) > 1:
            self.app.pop_screen()

    def action_steer(self, how: str) -> None:
        if self._has_run(how):
            self.run_guarded(partial(self._steer, how, self.run))

    def action_cancel_run(self) -> None:
        run = self.run

        def decide(sure: bool | None) -> None:
            if sure:
                self.show_notice(f"run {run} is asked to end", WARN)
                self.run_guarded(partial(self._steer, "cancel", run))

        if self._has_run("cancel"):
            self.app.push_screen(ConfirmDialog(run), decide)

    def action_say(self) -> None:
        run = self.run

        def tell(words: str | None) -> None:
            if words:
                self.run_guarded(partial(self._steer, "say", run, words))

        if self._has_run("tell anything"):
            self.app.push_screen(MessageDialog(run), tell)

    def _has_run(self, what: str) -> bool:
        if not self.run:
            self.show_notice(f"there is no run here to {what}", WARN)
        return bool(self.run)

    async def _steer(self, how: str, run: str, *words: str) -> None:
        """Call the run control; its answer or refusal is shown."""
        self.show_notice(await self.in_thread(getattr(self.context.control, how), run, *words))
        self.mark_stale()


def badge_text(mark: Badge) -> Text:
    """A symbol and its word."""
    sign, word, style = mark
    return join_parts((sign, style), " ", (word, style))


class FilterInput(Input):
    """The filter line, hidden until it is used."""

    def __init__(self) -> None:
        super().__init__(placeholder="filter", id="filter", disabled=True)


class FilteredPage(Page):
    """A page with a list that can be filtered."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("slash", "filter", "filter", key_display="/")]

    filter_text = ""

    def redraw(self) -> None:
        """Show the loaded data that match the filter."""
        raise NotImplementedError

    def matches_filter(self, *texts: object) -> bool:
        """Whether every word of the filter occurs in these texts."""
        known = " ".join(str(text or "") for text in texts).casefold()
        return all(word in known for word in self.filter_text.casefold().split())

    def action_filter(self) -> None:
        line = self.query_one(FilterInput)
        line.disabled, line.display = False, True
        line.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.filter_text = event.value
        self.redraw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._close(event.input, keep=bool(self.filter_text.strip()))

    def focus_list(self) -> None:
        """Give the focus back to the list."""
        raise NotImplementedError

    def action_back(self) -> None:
        line = self.query_one(FilterInput)
        if line.display:
            line.value = ""
            self._close(line, keep=False)
        else:
            super().action_back()

    def _close(self, line: Input, keep: bool) -> None:
        line.disabled, line.display = True, keep
        self.focus_list()
