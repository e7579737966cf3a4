"""Truncation, quoting and fencing of text, removal of escape sequences, and file-name slugs."""

from __future__ import annotations

import re

from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


MAX_TEXT_CHARS = 256 * 1024  # kept of what the agent said, half from its beginning and half from its end


MAX_QUOTE_CHARS = 200  # of a tag that is named in the next prompt
TRUNCATION_MARK = "... [truncated]"
# Compiled when the first text comes, and kept by `re`: not a thing to wait for at the start.
_ESCAPES = (
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"  # colours, and whatever else moves the cursor
    "|\x1b[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\)?"  # titles and links, up to their end
    "|\x1b[ -/]*[^ -/\n]?"
)


def quote_excerpt(words: str) -> str:
    """The agent's own words in quotes, short enough to stand in a sentence."""
    return repr(truncate(words, MAX_QUOTE_CHARS))


def strip_escapes(text: str) -> str:
    """Text as a reader sees it: no escape sequences, one kind of line end."""
    return re.sub(_ESCAPES, "", text).replace("\r\n", "\n").replace("\r", "\n")


def strip_control_characters(text: str) -> str:
    """Nothing in it but letters and ends of lines: half an escape sequence would swallow whatever is behind it."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "", strip_escapes(text))


def truncate(text: str, chars: int = MAX_TEXT_CHARS, mode: str = "ends") -> str:
    """At most `chars` characters of `text`: its beginning and end, or in mode "head" its beginning alone."""
    if len(text) <= chars:
        return text
    if mode == "head":
        return text[:chars] + TRUNCATION_MARK
    head = chars // 2
    return f"{text[:head]}\n{TRUNCATION_MARK}\n{text[len(text) - (chars - head) :]}"


def fence_code(text: str) -> str:
    """The text in a code fence that nothing in it can close."""
    longest = max((len(run) for run in re.findall(r"[`~]+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def slugify(command: str) -> str:
    """A file name's part for a command: runs of other characters become one `_`, at most 50 characters."""
    return re.sub(r"[^A-Za-z0-9]+", "_", command).strip("_")[:50].strip("_")


def unique_slugs(commands: tuple[str, ...]) -> tuple[str, ...]:
    """One slug for each command, with a number where two would be the same, also to a disk that ignores case."""
    taken: set[str] = set()
    made: list[str] = []
    for command in commands:
        name = slugify(command) or "check"
        numbered = (name if number == 1 else f"{name}_{number}" for number in range(1, len(commands) + 2))
        made.append(next(candidate for candidate in numbered if candidate.casefold() not in taken))
        taken.add(made[-1].casefold())
    return tuple(made)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing."""
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""
