"""What an agent says and does, shown as it comes: many events at a time where they come fast, none lost, none late."""

from __future__ import annotations

from ralphproof.display.clean import Cleaner
from ralphproof.display.excerpt import MARGIN_CHARS
from ralphproof.display.formatter import TODOS, Formatter
from ralphproof.display.screen import Screen
from ralphproof.display.style import Style
from ralphproof.event import Ended, Event, Said, Spent, Started, TodosChanged, ToolEnded, ToolStarted, Unparsed
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.display.running import Running

SHOW_S = 0.05  # events that come faster are shown together
MOST = 1000  # and at most so many
SILENT = (Spent, Ended, Unparsed)  # there may be many, and none is shown


class Stream:
    """Holds events back for a moment, then shows them in order."""

    def __init__(self, screen: Screen, style: Style, mask: Callable[[str], str], epoch: Callable[[], float]) -> None:
        self._screen, self._style, self._mask = screen, style, mask
        self._formatter = Formatter(style, epoch)
        self._cleaner = Cleaner(style.colour)
        self._held: list[Event] = []
        self._shown_s = float("-inf")
        self._messages = False  # the agent tells of whole messages; else its text breaks its lines itself

    @property
    def running(self) -> Running:
        """The tools that run."""
        return self._formatter.running

    def heard(self, events: list[Event], now_s: float) -> None:
        """More of what the agent said and did."""
        if not self._style.stream:
            for event in events if self._style.live else ():  # else nobody is told which tool runs
                if isinstance(event, ToolStarted | ToolEnded):
                    self._formatter.note(event, now_s)
            return
        self._held += [event for event in events if not isinstance(event, SILENT)]
        if now_s - self._shown_s >= SHOW_S or len(self._held) >= MOST:
            self.show(now_s)

    def show(self, now_s: float) -> None:
        """Show everything that was held back."""
        if not self._held:
            return
        events, self._held = self._held, []
        self._shown_s = now_s
        mask = self._mask_for(events)
        said: list[str] = []
        for event in events:
            if isinstance(event, Said):
                said.append(event.text)
                if self._messages:
                    self._say(said, mask)
                continue
            self._say(said, mask)
            self._messages = self._messages or isinstance(event, Started)
            for line in self._formatter.lines(event, now_s, mask):
                self._screen.line(line)
        self._say(said, mask)
        self._screen.flush()

    def begin(self) -> None:
        """A turn begins."""
        self._formatter.clear()
        self._messages = False

    def end(self) -> None:
        """A turn is over: what might have become a sequence does not any more."""
        self._screen.text(self._cleaner.end())
        self._formatter.clear()

    def _say(self, said: list[str], mask: Callable[[str], str]) -> None:
        """Show a message, or as much of a text as is known not to be the beginning of a sequence."""
        if not said:
            return
        text = self._cleaner.feed(mask("".join(said)))
        if self._messages:
            text += self._cleaner.end()
            text += "\n" if text and not text.endswith("\n") else ""
        self._screen.text(text)
        self._formatter.interrupted()
        said.clear()

    def _mask_for(self, events: list[Event]) -> Callable[[str], str]:
        """How to mask these. The keeper did it before; what only unfolding showed is looked for in all at once."""
        most = self._style.width + MARGIN_CHARS
        joined = "".join(_texts(event, most) for event in events)
        return str if self._mask(joined) == joined else self._mask


def _texts(event: Event, most: int) -> str:
    """The texts of an event that may be shown. What is said in several pieces is one text."""
    match event:
        case Said(text):
            return text
        case ToolStarted(_, name, summary):
            return f"\0{name}\0{summary}\0"
        case ToolEnded(_, _, output):
            return f"\0{output}\0" if len(output) <= 2 * most else f"\0{output[:most]}\0{output[-most:]}\0"
        case TodosChanged(items):
            return "\0".join(("", *(item.text for item in items[:TODOS]), ""))
        case _:
            return "\0".join(("", *(str(getattr(event, name)) for name in event.__match_args__), ""))
