"""Screens that come to rest, however often the terminal changes its size."""

from __future__ import annotations

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from textual import events
    from textual.app import App


class Steady:
    """Heeds only the size that the terminal has now.

    Textual 8.2 lays a screen out by every size that it is told, also by one that holds no longer, and tells those
    behind it, which tell it again: three sizes in a row can chase each other for ever.
    """

    app: App[object]

    def on_resize(self, event: events.Resize) -> None:
        if event.size != self.app.size:
            event.prevent_default()
        else:
            self.resized()

    def resized(self) -> None:
        """There is more room, or less."""
