"""How lines for people look: colours, marks and widths."""

from __future__ import annotations

import os

from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.settings.typed_settings import Settings

if TYPE_CHECKING:
    from argparse import Namespace
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
        output_lines=shown.output_lines,
        output_chars=shown.output_chars,
    )


def use_color(forbidden: bool, setting: str, at_terminal: bool) -> bool:
    """The flag beats NO_COLOR, which beats FORCE_COLOR, which beats the setting; else a terminal has colours."""
    if forbidden or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR") or os.environ.get("CLICOLOR_FORCE"):
        return True
    return setting == "always" or (setting == "auto" and at_terminal)
