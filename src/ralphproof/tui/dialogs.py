"""Modal dialogs: help, confirmation, message input."""

from __future__ import annotations

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.tui.style import HEAD, STRONG, join_parts

if TYPE_CHECKING:
    from typing import ClassVar

    from textual import events
    from textual.app import App, ComposeResult


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
