"""The terminal dashboard: pages, refresh, and a clean exit."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import termios
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, ClassVar

from textual.app import App
from textual.binding import Binding, BindingType
from textual.theme import Theme
from textual.worker import WorkerFailed

from ralphproof.base.errors import HarnessFailed, RalphError, wrap_os_error
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.tui.page import DashboardContext, HelpDialog, Page
from ralphproof.tui.runs_pages import RunPage, RunsPage
from ralphproof.tui.style import ASCII, BAD
from ralphproof.tui.task_pages import BoardPage

if TYPE_CHECKING:
    from textual.screen import Screen
    from textual.worker import Worker


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_INTERRUPTED = 130
EXIT_TIMEOUT_S = 3.0  # for the board to end by itself
POLL_MS = 500
# Restore keys, mouse, focus and pasting; wrap lines; leave the alternate screen; show the cursor.
RESTORE_SEQUENCES = (
    b"\x1b[<u\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[?7h\x1b[?1049l\x1b[?25h\n"
)


class TerminalSession:
    """Runs the dashboard at a terminal, which is restored however the dashboard ends."""

    def __init__(self, app: Dashboard) -> None:
        self._app = app
        self._modes = termios.tcgetattr(0)
        self._signal = 0
        self._ended = threading.Event()

    def run(self) -> int:
        """Show the dashboard until the user leaves; 0, or 130 after a signal. Raises what failed in it."""
        before = {number: signal.getsignal(number) for number in SIGNALS}
        for number, known in before.items():
            if known is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        threading.Thread(target=self._watch_terminal, daemon=True, name="terminal").start()
        try:
            self._app.run()
        finally:
            self._ended.set()
            for number, known in before.items():
                signal.signal(number, known)
        self._raise_fault()
        return EXIT_INTERRUPTED if self._signal else 0

    def _raise_fault(self) -> None:
        fault = self._app._exception
        if isinstance(fault, WorkerFailed):
            fault = fault.error if isinstance(fault.error, Exception) else fault
        if fault is not None:
            raise fault
        if self._app.return_code and not self._signal:
            raise HarnessFailed("the terminal could not be read")

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._signal = number
        loop: Any = self._app._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._app.exit)
        threading.Thread(target=self._force_exit, daemon=True, name="leaving").start()

    def _force_exit(self) -> None:
        """Exit without the dashboard if it does not end because nobody reads its output."""
        if not self._ended.wait(EXIT_TIMEOUT_S):
            self._restore()
            os._exit(EXIT_INTERRUPTED)

    def _watch_terminal(self) -> None:
        """Leave when the terminal is gone, also without a signal."""
        poll = select.poll()
        poll.register(0, select.POLLHUP | select.POLLERR)
        while not self._ended.is_set():
            if poll.poll(POLL_MS):
                self._on_signal(signal.SIGHUP, None)
                return

    def _restore(self) -> None:
        try:
            termios.tcsetattr(0, termios.TCSANOW, self._modes)
            os.set_blocking(2, False)
            os.write(2, RESTORE_SEQUENCES)
        except (OSError, termios.error):
            pass  # it is gone


REFRESH_S = 0.2  # between two looks at the ledger
PAGE_NAMES = ("runs", "board")
THEME = Theme(
    name="ralph", primary="#6cb6ff", secondary="#9fb3c8", accent="#c3a6ff", warning="#f0c674", error="#f2777a",
    success="#8fce7a", foreground="#d5dbe5", background="#0f141b", surface="#161d27", panel="#1b2430", dark=True,
    variables={"border-blurred": "#3a4a60"},
)  # fmt: skip


class Dashboard(App[None]):
    """Shows runs and tasks while they change. `initial_run` is opened first, if given."""

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

    def __init__(self, context: DashboardContext, initial_run: str = "", colour: bool = True) -> None:
        # Without colour the terminal's own colours are used and then removed: Textual's other way leaves shades of
        # grey.
        super().__init__(ansi_color=None if colour else True)
        self.animation_level = "none"  # a line may be slow, and a hand quick
        self._dashboard, self._initial_run, self._colour = context, initial_run, colour
        pages: dict[str, Callable[[], Screen[Any]]] = {
            "runs": lambda: RunsPage(context),
            "board": lambda: BoardPage(context),
        }
        for name, page in pages.items():
            self.add_mode(name, page)

    def on_mount(self) -> None:
        if self._colour:
            self.register_theme(THEME)
            self.theme = "ralph"
        else:
            self.theme = "ansi-dark"
        self.set_class(self._dashboard.symbols is ASCII, "-ascii")
        self.set_interval(1.0, self._tick)
        _: Worker[None] = self.run_worker(self._watch_changes)
        if self._initial_run:
            self.push_screen(RunPage(self._dashboard, self._initial_run))

    @property
    def page(self) -> Page | None:
        """The visible page, also behind a dialog."""
        return next((one for one in reversed(self.screen_stack) if isinstance(one, Page)), None)

    async def _watch_changes(self) -> None:
        """Reload the page whenever something has changed."""
        seen: object = None
        while True:
            page, now = self.page, seen
            try:
                now = await asyncio.to_thread(self._dashboard.read_model.moment)
            except RalphError as error:
                now = f"{error}"
            except OSError as error:
                now = f"{wrap_os_error(error)}"
            if page and not page.is_left and now != seen:
                page.show_notice(now, BAD) if isinstance(now, str) else page.mark_stale()
            seen = now
            await asyncio.sleep(REFRESH_S)

    def _tick(self) -> None:
        if self.page and not self.page.is_left:
            self.page.tick()

    def action_keys(self) -> None:
        self.push_screen(HelpDialog())

    def action_leave(self) -> None:
        self.exit()

    def action_mode(self, name: str) -> None:
        self.switch_mode(name)

    def action_other(self) -> None:
        self.switch_mode(PAGE_NAMES[(PAGE_NAMES.index(self.current_mode) + 1) % len(PAGE_NAMES)])

    def _print_error_renderables(self) -> None:
        """Print nothing: Textual 8.2 would print a traceback with values of variables, and agents' output among them.

        The caller reports the error in one line.
        """
        self._exit_renderables.clear()
