"""Terminal output: colours, marks, lines with a live line below them, and prefixed lines of several runs."""

from __future__ import annotations

import io
import os
import time
from _thread import allocate_lock
from collections.abc import Callable
from typing import Any, TextIO

from ralphproof.base.escaping import truncate_to_columns
from ralphproof.base.value import value
from ralphproof.settings.declarations import Settings

GREEN, RED, YELLOW, DIM, PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[2m", "\x1b[0m"

Line = tuple[str, str]  # a line of text and its colour


# Marks at the beginning of lines: emoji, or ASCII.


@value
class Marks:
    """The mark of each kind of line, with the space that follows it."""

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
    """Display options. `live` allows a line that is rewritten in place; `stream` shows the events of the agent.

    `output_lines` and `output_chars` limit how much of a tool's output is shown.
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
        """The marks that lines begin with."""
        return EMOJI if self.emoji else TEXT

    @property
    def width(self) -> int:
        """The length limit of untrusted text in one line."""
        return max(MIN_WIDTH, self.output_chars)


@value
class DisplayFlags:
    """What the command line says about the display."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False
    no_color: bool = False
    no_emoji: bool = False

    @classmethod
    def of(cls, args: Any) -> DisplayFlags:
        """Those among the parsed flags of a verb."""
        return cls(args.json, args.quiet, args.verbose, args.no_color, args.no_emoji)


def stream_style(out: TextIO, flags: DisplayFlags, settings: Settings) -> Style:
    """The display options for this stream."""
    display = settings.display
    at_terminal = out.isatty() and os.environ.get("TERM") != "dumb"
    unicode = (out.encoding or "").lower().replace("-", "") == "utf8"
    return Style(
        colour=use_color(flags.no_color, display.color, at_terminal),
        emoji=display.emoji and not flags.no_emoji and at_terminal and unicode,
        live=at_terminal,
        stream=settings.stream_agent_output,
        quiet=flags.quiet,
        maximum=settings.maximum_iterations,
        timestamps=display.timestamps,
        output_lines=display.max_output_lines,
        output_chars=display.max_output_chars,
    )


def use_color(forbidden: bool, setting: str, at_terminal: bool) -> bool:
    """Whether to use colours: by the flag, else NO_COLOR, else FORCE_COLOR, else the setting, else on a terminal."""
    if forbidden or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR") or os.environ.get("CLICOLOR_FORCE"):
        return True
    return setting == "always" or (setting == "auto" and at_terminal)


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
        self._second, self._shown = -1, ""  # the last second, and its time of day
        self._empty = True  # the last line is empty, or there is none

    def line(self, line: Line, stamp: str = "") -> None:
        """Add a whole line; an empty one only after one that is not. `stamp` replaces the time of day."""
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
        """Add text that has its own line breaks."""
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
        """Show this line below all others, in place of the last live line."""
        self._end_line()
        self._parts.append(f"{CLEAR_LINE}{truncate_to_columns(text, self._columns() - 1)}")
        self._write()
        self._live_shown = True

    def flush(self) -> None:
        """Write pending lines, if any, in place of the live line."""
        if self._parts:
            self.settle()

    def discard(self) -> None:
        """Drop pending lines."""
        self._parts.clear()
        self.mid_line = self._tinted = False
        self._empty = True

    def settle(self) -> None:
        """Write pending lines and remove the live line, so that other output can follow."""
        if self._live_shown:
            self._parts.insert(0, CLEAR_LINE)
            self._live_shown = False
        self._write()

    def _write(self) -> None:
        parts, self._parts = self._parts, []  # before writing, so that lines are not kept after an error
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
        """The current width of the terminal: a line that wraps cannot be rewritten."""
        try:
            return os.get_terminal_size(self._out.fileno()).columns or 80
        except (OSError, ValueError):
            return 80


# Several runs on one terminal, each line with a prefix.


MAX_LINE_CHARS = 1 << 16  # a longer line is written before it ends

_WRITE_LOCK = allocate_lock()


class PrefixedStream(io.TextIOBase):
    """A stream that writes whole lines with a prefix, from any thread."""

    def __init__(self, out: TextIO, name: str) -> None:
        self._out, self._prefix, self._rest = out, f"{name}  ", ""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._out.encoding or "utf-8"

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        if len(self._rest) > MAX_LINE_CHARS:
            lines, self._rest = [*lines, self._rest], ""
        if prefixed := "".join(f"{self._prefix}{line}\n" for line in lines if line.strip()):
            with _WRITE_LOCK:
                self._out.write(prefixed)
        return len(text)

    def flush(self) -> None:
        if self._out and not self._out.closed:
            self._out.flush()
