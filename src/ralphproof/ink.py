"""Text that anybody may have written, put where people read it: no page and no terminal obeys anything in it."""

from __future__ import annotations

import re

from ralphproof.value import Protocol

_MEANT = re.compile(r"[\\`*_\[\]<>&#|~!$]")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "|": "&#124;", "`": "&#96;"}
_BEGINS = re.compile(r"^([-+=:]|\d{1,9}(?=[.)]))")
_CODE_BREAKS = re.compile(r"[`|\\]")
_ODD = "\ufffd"


def visible(text: str, keep: str = "") -> str:
    """The text without what hides, moves or turns round what it says. What `keep` holds stays."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in keep else " " if sign.isspace() else _ODD for sign in text)


def in_line(text: str) -> str:
    """The same in one line, with no space at its ends."""
    return " ".join(visible(text).split())


def _entity(sign: str) -> str:
    return sign if sign.isalnum() or sign in " -./" else f"&#{ord(sign)};"


class Ink(Protocol):
    """How a kind of page has text in it."""

    def text(self, words: str) -> str:
        """Words in a sentence."""

    def code(self, words: str) -> str:
        """A command, a path, a name."""

    def strong(self, words: str) -> str:
        """What must be seen first; only words of ours."""


class Markdown:
    """Words in a page that is shown as Markdown, in a table of it too."""

    def text(self, words: str) -> str:
        """Words that format nothing and open nothing."""
        safe = _MEANT.sub(lambda sign: _ENTITIES.get(sign[0], f"\\{sign[0]}"), in_line(words))
        return _BEGINS.sub(lambda start: f"&#{ord(start[1])};" if not start[1].isdigit() else f"{start[1]}\\", safe)

    def code(self, words: str) -> str:
        """Words as they are, in a span that they cannot close."""
        line = in_line(words)
        if not line:
            return ""
        if not _CODE_BREAKS.search(line):
            return f"`{line}`"
        return f"<code>{''.join(map(_entity, line))}</code>"

    def strong(self, words: str) -> str:
        return f"**{words}**"


class Bare:
    """Words in a line of a terminal."""

    def text(self, words: str) -> str:
        return in_line(words)

    def code(self, words: str) -> str:
        return in_line(words)

    def strong(self, words: str) -> str:
        return words
