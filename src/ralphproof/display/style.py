"""How lines for people look."""

from __future__ import annotations

from ralphproof.display.marks import EMOJI, TEXT, Marks
from ralphproof.value import value

LEAST_WIDTH = 200


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
        """So many characters of a stranger's text are shown in one line."""
        return max(LEAST_WIDTH, self.output_chars)
