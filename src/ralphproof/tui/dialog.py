"""What is asked or told in a window of its own: whether to cancel, what to say, which keys there are."""

from __future__ import annotations

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from ralphproof.tui.ink import HEAD, STRONG
from ralphproof.tui.steady import Steady
from ralphproof.tui.texts import joined
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import ClassVar

    from textual.app import ComposeResult

KEYS = (
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


class Help(Steady, ModalScreen[None]):
    """The keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,enter", "dismiss", "close")]

    def compose(self) -> ComposeResult:
        made = Text(end="")
        for section, keys in KEYS:
            made.append(f"{section}\n", HEAD)
            for key, what in keys:
                made.append(f"  {key:<13}", STRONG).append(f"{what}\n")
        made.rstrip()
        with VerticalScroll(classes="window"):
            yield Static(made)


class Sure(Steady, ModalScreen[bool]):
    """Whether a run is to end. Only `y` is a yes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "end it"),
        Binding("n,escape,enter,q", "answer(False)", "no"),
    ]

    def __init__(self, run: str) -> None:
        super().__init__()
        self._about = run

    def compose(self) -> ComposeResult:
        with Vertical(classes="window"):
            yield Static(joined((f"End run {self._about}, and the runs that it began?", STRONG)))
            yield Static("Its work is saved. Nothing takes a cancel back.", markup=False)
            yield Static(joined("\n", ("y", STRONG), "  end it      ", ("n, Esc", STRONG), "  no"))

    def action_answer(self, sure: bool) -> None:
        self.dismiss(sure)


class Say(Steady, ModalScreen[str]):
    """Words for a run."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "nothing")]

    def __init__(self, run: str) -> None:
        super().__init__()
        self._about = run

    def compose(self) -> ComposeResult:
        with Vertical(classes="window"):
            yield Static(joined((f"Say to run {self._about}", STRONG)))
            yield Static("The agent is told it once, in its next prompt.", markup=False)
            yield Input(placeholder="leave the public interface as it is", select_on_focus=False)
            yield Static(joined(("Enter", STRONG), "  say it      ", ("Esc", STRONG), "  nothing"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())

    def action_leave(self) -> None:
        self.dismiss("")
