"""Writing to a terminal: whole lines, a live line below them, and lines of several runs with prefixes."""

from __future__ import annotations

import io
import os
import time
from _thread import allocate_lock

from ralphproof.base.escaping import truncate_to_columns
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.display.style import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from ralphproof.display.style import Line


# Lines, and on a terminal a live line below them.


CLEAR_LINE = "\r\x1b[K"


class Screen:
    """Collects sanitized text and writes it at `flush`. It tracks the cursor."""

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
        self._parts.append(f"{CLEAR_LINE}{truncate_to_columns(text, self._columns() - 1)}")
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
            self._parts.insert(0, CLEAR_LINE)
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


# Several runs on one terminal, each line with a prefix.


MAX_LINE_CHARS = 1 << 16  # characters of a line that are waited for

_WRITE_LOCK = allocate_lock()


class PrefixedStream(io.TextIOBase):
    """A stream that writes whole lines with a prefix, from any thread."""

    def __init__(self, out: TextIO, name: str) -> None:
        self._out, self._start, self._rest = out, f"{name}  ", ""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._out.encoding or "utf-8"

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        if len(self._rest) > MAX_LINE_CHARS:
            lines, self._rest = [*lines, self._rest], ""
        if told := "".join(f"{self._start}{line}\n" for line in lines if line.strip()):
            with _WRITE_LOCK:
                self._out.write(told)
        return len(text)

    def flush(self) -> None:
        if self._out and not self._out.closed:
            self._out.flush()
