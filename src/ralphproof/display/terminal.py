"""The terminal: colours, widths and writing lines."""

from __future__ import annotations

import io
import os
import time
from _thread import allocate_lock

from ralphproof.base.escaping import truncate_to_columns
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.settings.keys import Settings

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable
    from typing import TextIO


GREEN, RED, YELLOW, DIM, PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[2m", "\x1b[0m"

Line = tuple[str, str]  # a line for people, and its colour


# Marks at the beginning of lines: emoji, or ASCII for any terminal and log.


@value
class Marks:
    """One sign for each kind of line, with the space that follows it."""

    call: str
    ok: str
    error: str
    denied: str
    asked: str
    limited: str
    note: str
    todos: str
    done: str
    active: str
    pending: str
    progress: str
    first: str  # before the first line of a tool's output
    below: str  # before the others
    arrow: str
    cut: str


EMOJI = Marks(
    call="⏺ ", ok="✅ ", error="❌ ", denied="🚫 ", asked="❓ ", limited="⏳ ", note="· ", todos="📋 ", done="✅ ",
    active="🔄 ", pending="⏸️ ", progress="📊 ", first="  ⎿  ", below="     ", arrow="←", cut="…",
)  # fmt: skip
TEXT = Marks(
    call="> ", ok="[OK] ", error="[ERR] ", denied="[!] ", asked="[?] ", limited="[!] ", note="- ", todos="",
    done="[x] ", active="[>] ", pending="[ ] ", progress="", first="  |  ", below="     ", arrow="<-", cut="...",
)  # fmt: skip


MIN_WIDTH = 200


@value
class Style:
    """`live` allows a line that is rewritten in place; `stream` shows what the agent says and does.

    Of a tool's output so many lines and characters are shown.
    """

    colour: bool = False
    emoji: bool = False
    live: bool = False
    stream: bool = True
    quiet: bool = False
    maximum: int | None = None
    timestamps: bool = False
    output_lines: int = 10
    output_chars: int = 1000

    @property
    def marks(self) -> Marks:
        """The signs that lines begin with."""
        return EMOJI if self.emoji else TEXT

    @property
    def width(self) -> int:
        """The length limit of text of any origin in one line."""
        return max(MIN_WIDTH, self.output_chars)


def stream_style(out: TextIO, args: Namespace, settings: Settings) -> Style:
    """How lines look on this stream."""
    shown = settings.display
    at_terminal = out.isatty() and os.environ.get("TERM") != "dumb"
    unicode = (out.encoding or "").lower().replace("-", "") == "utf8"
    return Style(
        colour=use_color(args.no_color, shown.color, at_terminal),
        emoji=shown.emoji and not args.no_emoji and at_terminal and unicode,
        live=at_terminal,
        stream=settings.stream_agent_output,
        quiet=args.quiet,
        maximum=settings.maximum_iterations,
        timestamps=shown.timestamps,
        output_lines=shown.max_output_lines,
        output_chars=shown.max_output_chars,
    )


def use_color(forbidden: bool, setting: str, at_terminal: bool) -> bool:
    """The flag beats NO_COLOR, which beats FORCE_COLOR, which beats the setting; else a terminal has colours."""
    if forbidden or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR") or os.environ.get("CLICOLOR_FORCE"):
        return True
    return setting == "always" or (setting == "auto" and at_terminal)


# Writing to a terminal: whole lines, a live line below them, and lines of several runs with prefixes.


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
