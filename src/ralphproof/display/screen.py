"""Where lines for people go: each on its own, and below them, on a terminal, one that is rewritten in place."""

from __future__ import annotations

import os
import time

from ralphproof.display.clean import fitted
from ralphproof.display.colours import PLAIN
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from ralphproof.display.colours import Line

WIPE = "\r\x1b[K"


class Screen:
    """Collects clean text and writes it at `flush`. It knows where the cursor stands."""

    def __init__(self, out: TextIO, colour: bool, stamp: Callable[[], float] | None) -> None:
        """With `stamp`, the time now in epoch seconds, every line begins with its time of day."""
        self._out, self._colour, self._now = out, colour, stamp
        self._parts: list[str] = []
        self.mid_line = False  # the last line has no end yet
        self._tinted = False  # the agent's own text may have left a colour on
        self._live_shown = False
        self._second, self._shown = -1, ""  # a second, and how it is shown
        self._empty = True  # the last line is empty, or there is none

    def line(self, line: Line, stamp: str = "") -> None:
        """A line of its own; an empty one only where none is. A `stamp` stands in for the time of day."""
        text, colour = line
        if self.mid_line or self._tinted:
            self._end_line()
        if text:
            stamp = stamp or (self._stamp() if self._now is not None else "")
            self._parts.append(f"{colour}{stamp}{text}{PLAIN}\n" if colour and self._colour else f"{stamp}{text}\n")
        elif not self._empty:
            self._parts.append("\n")
        self._empty = not text

    def text(self, piece: str) -> None:
        """More of a text that breaks its lines itself."""
        if not piece:
            return
        self._tinted = self._tinted or "\x1b" in piece
        if self._now is not None:
            stamp = self._stamp()
            body, end = (piece[:-1], "\n") if piece.endswith("\n") else (piece, "")
            piece = ("" if self.mid_line else stamp) + body.replace("\n", "\n" + stamp) + end
        self._parts.append(piece)
        self.mid_line, self._empty = not piece.endswith("\n"), False

    def live(self, text: str) -> None:
        """Show this below everything else, in place of what was there before."""
        self._end_line()
        self._parts.append(f"{WIPE}{fitted(text, self._columns() - 1)}")
        self._write()
        self._live_shown = True

    def flush(self) -> None:
        """Write what has come, if anything; then the live line gives way."""
        if self._parts:
            self.settle()

    def forget(self) -> None:
        """Write nothing of what has come."""
        self._parts.clear()
        self.mid_line = self._tinted = False
        self._empty = True

    def settle(self) -> None:
        """Write what has come, and leave the cursor where others can go on."""
        if self._live_shown:
            self._parts.insert(0, WIPE)
            self._live_shown = False
        self._write()

    def _write(self) -> None:
        parts, self._parts = self._parts, []  # first: what cannot be written is not kept
        if parts:
            self._out.write("".join(parts))
            self._out.flush()

    def _end_line(self) -> None:
        if self._tinted:
            self._parts.append(PLAIN)
        if self.mid_line:
            self._parts.append("\n")
        self.mid_line = self._tinted = False

    def _stamp(self) -> str:
        assert self._now is not None
        if (second := int(self._now())) != self._second:
            self._second, self._shown = second, time.strftime("[%H:%M:%S] ", time.localtime(second))
        return self._shown

    def _columns(self) -> int:
        """How wide the terminal is now: a line that wraps cannot be rewritten."""
        try:
            return os.get_terminal_size(self._out.fileno()).columns or 80
        except (OSError, ValueError):
            return 80
