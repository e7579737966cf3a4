"""Numbers as runners print them."""

from __future__ import annotations

MOST_DIGITS = 9


def number(text: str) -> int | None:
    """The number that this text is; None where it is none that a runner would print."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS else None


def counted(text: str, between: str = ", ") -> dict[str, int] | None:
    """The numbers of a list such as "1 failed, 2 passed" by their words; None where it is no such list."""
    found: dict[str, int] = {}
    for part in text.split(between, 20):
        digits, _, word = part.partition(" ")
        count = number(digits)
        if count is None or not word or word in found:
            return None
        found[word] = count
    return found
