"""Untrusted text made safe for terminals and Markdown pages."""

from __future__ import annotations

import re

from ralphproof.base.value import Protocol

# Only text and colours may reach a terminal; everything else in untrusted output is removed.


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
_INCOMPLETE = re.compile(
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])(?:(?!\x07|\x1b\\|\x9c).)*\Z"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*\Z"
    r"|\x1b[ -/]*\Z"
    r"|\r\Z",
    re.DOTALL,
)
_LINE_BREAK = re.compile(r"[ \t]*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+\s*")
MAX_PENDING_CHARS = 4096


def sanitize(text: str, colour: bool = False) -> str:
    """`text` without anything that moves the cursor, sets the title, or hides content."""
    if is_sanitized(text):
        return text
    safe = _UNSAFE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return (safe if colour else _COLOUR.sub("", safe)).encode("utf-8", "replace").decode()


def is_sanitized(text: str) -> bool:
    """Whether there is nothing to remove. True for most text, and fifty times as fast as `sanitize`."""
    return text.replace("\n", "").replace("\t", "").isprintable()


class StreamSanitizer:
    """`sanitize` for text in pieces: an incomplete sequence is held back, at most 4096 characters."""

    def __init__(self, colour: bool = False) -> None:
        self._colour, self._held = colour, ""

    def feed(self, piece: str) -> str:
        """The text that can be shown now."""
        text = self._held + piece if self._held else piece
        if is_sanitized(text):  # nothing is kept back that is
            return text
        start = max(0, len(text) - MAX_PENDING_CHARS)
        found = _INCOMPLETE.search(text, start)
        at = found.start() if found else len(text)
        self._held = text[at:]
        return sanitize(text[:at], self._colour)

    def end(self) -> str:
        """The rest, at the end of the stream."""
        rest, self._held = self._held, ""
        return sanitize(rest, self._colour)


def collapse_lines(text: str) -> str:
    """`text` in one line: line breaks become spaces."""
    return _LINE_BREAK.sub(" ", text)


def truncate_to_columns(text: str, columns: int) -> str:
    """A line cut to this many terminal columns, with a mark where something is cut."""
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


# Untrusted text for people: nothing in it may act as markup or as a terminal sequence.


_MARKDOWN_SYNTAX = re.compile(r"[\\`*_\[\]<>&#|~!$]")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "|": "&#124;", "`": "&#96;"}
_BLOCK_START = re.compile(r"^([-+=:]|\d{1,9}(?=[.)]))")
_CODE_BREAKS = re.compile(r"[`|\\]")
_REPLACEMENT = "\ufffd"


def replace_invisible(text: str, keep: str = "") -> str:
    """The text without characters that hide, move or reverse content, except those in `keep`."""
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() or sign in keep else " " if sign.isspace() else _REPLACEMENT for sign in text
    )


def to_single_line(text: str) -> str:
    """The same in one line, with no space at its ends."""
    return " ".join(replace_invisible(text).split())


def _html_entity(sign: str) -> str:
    return sign if sign.isalnum() or sign in " -./" else f"&#{ord(sign)};"


class TextMarkup(Protocol):
    """How a kind of page marks up text."""

    def text(self, words: str) -> str:
        """Words in a sentence."""

    def code(self, words: str) -> str:
        """A command, a path, a name."""

    def strong(self, words: str) -> str:
        """Emphasis; only for the program's own words."""


class MarkdownMarkup:
    """Text in a Markdown page, also inside a table."""

    def text(self, words: str) -> str:
        """Text escaped so that it formats nothing."""
        safe = _MARKDOWN_SYNTAX.sub(lambda sign: _ENTITIES.get(sign[0], f"\\{sign[0]}"), to_single_line(words))
        return _BLOCK_START.sub(
            lambda start: f"&#{ord(start[1])};" if not start[1].isdigit() else f"{start[1]}\\", safe
        )

    def code(self, words: str) -> str:
        """Text verbatim, in a code span that it cannot close."""
        line = to_single_line(words)
        if not line:
            return ""
        if not _CODE_BREAKS.search(line):
            return f"`{line}`"
        return f"<code>{''.join(map(_html_entity, line))}</code>"

    def strong(self, words: str) -> str:
        return f"**{words}**"


class PlainMarkup:
    """Text in a line of a terminal."""

    def text(self, words: str) -> str:
        return to_single_line(words)

    def code(self, words: str) -> str:
        return to_single_line(words)

    def strong(self, words: str) -> str:
        return words
