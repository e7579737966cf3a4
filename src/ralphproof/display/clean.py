"""What may reach a terminal: text and colours. Everything else that a stranger's output can hold is taken out."""

from __future__ import annotations

import re

# String sequences (OSC, DCS, SOS, PM, APC) with their content, CSI but for colour, other escapes, control characters.
_UNSAFE = re.compile(
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f]).*?(?:\x07|\x1b\\|\x9c|\Z)"
    r"|(?:\x1b\[|\x9b)(?![0-9;:]*m)[0-?]*[ -/]*[@-~]?"
    r"|\x9b[0-9;:]*m"
    r"|\x1b(?!\[)[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]",
    re.DOTALL,
)
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
# A sequence, or a line break, whose end may be in the next piece.
_OPEN = re.compile(
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])(?:(?!\x07|\x1b\\|\x9c).)*\Z"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*\Z"
    r"|\x1b[ -/]*\Z"
    r"|\r\Z",
    re.DOTALL,
)
_BREAK = re.compile(r"[ \t]*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+\s*")
HELD_CHARS = 4096


def clean(text: str, colour: bool = False) -> str:
    """`text` with nothing in it that moves the cursor, sets the title, or hides what it says."""
    if harmless(text):
        return text
    safe = _UNSAFE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return (safe if colour else _COLOUR.sub("", safe)).encode("utf-8", "replace").decode()


def harmless(text: str) -> bool:
    """Whether there is nothing to clean. Most text is so, and this is fifty times as fast to see."""
    return text.replace("\n", "").replace("\t", "").isprintable()


class Cleaner:
    """The same for text that comes in pieces: what may yet become a sequence is kept back, 4096 characters at most."""

    def __init__(self, colour: bool = False) -> None:
        self._colour, self._held = colour, ""

    def feed(self, piece: str) -> str:
        """What can be shown now."""
        text = self._held + piece if self._held else piece
        if harmless(text):  # nothing is kept back that is
            return text
        start = max(0, len(text) - HELD_CHARS)
        found = _OPEN.search(text, start)
        at = found.start() if found else len(text)
        self._held = text[at:]
        return clean(text[:at], self._colour)

    def end(self) -> str:
        """What is left when no more comes."""
        rest, self._held = self._held, ""
        return clean(rest, self._colour)


def flat(text: str) -> str:
    """`text` in one line: what breaks it is shown as a space."""
    return _BREAK.sub(" ", text)


def fitted(text: str, columns: int) -> str:
    """As much of a line as fits into so many columns of a terminal, with a sign where something is cut."""
    if len(text) <= columns and text.isascii():
        return text
    import unicodedata

    used, kept = 0, 0  # `kept` characters leave a column for the sign
    for place, letter in enumerate(text):
        used += 0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if used > columns:
            return text[:kept] + "…" if columns > 0 else ""
        if used < columns:
            kept = place + 1
    return text
