"""A page whose list is narrowed down by what somebody types."""

from __future__ import annotations

from textual.binding import Binding, BindingType
from textual.widgets import Input

from ralphproof.tui.page import Page
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import ClassVar


class FilterLine(Input):
    """Where the words are typed; not there before somebody wants it."""

    def __init__(self) -> None:
        super().__init__(placeholder="filter", id="filter", disabled=True)


class Filtered(Page):
    """A page with a list that can be narrowed down."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("slash", "filter", "filter", key_display="/")]

    words = ""

    def put(self) -> None:
        """Show what is known, as far as it fits the words."""
        raise NotImplementedError

    def action_filter(self) -> None:
        line = self.query_one(FilterLine)
        line.disabled, line.display = False, True
        line.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.words = event.value
        self.put()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self._close(event.input, keep=bool(self.words.strip()))

    def settle(self) -> None:
        """Give the keys back to the list."""
        raise NotImplementedError

    def action_back(self) -> None:
        line = self.query_one(FilterLine)
        if line.display:
            line.value = ""
            self._close(line, keep=False)
        else:
            super().action_back()

    def _close(self, line: Input, keep: bool) -> None:
        line.disabled, line.display = True, keep
        self.settle()
