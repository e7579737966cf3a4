"""Counts and test names as test runners print them."""

from __future__ import annotations

MAX_DIGITS = 9
MAX_NAMES = 500  # of all tests of a run, and so many letters in all: they are kept with every answer
MAX_NAME_CHARS = 100_000


def parse_count(text: str) -> int | None:
    """The number, or None for a text that no runner prints as one."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS else None


def parse_counts(text: str, between: str = ", ") -> dict[str, int] | None:
    """The numbers of a list such as "1 failed, 2 passed" by word; None where it is no such list."""
    counts: dict[str, int] = {}
    for part in text.split(between, 20):
        digits, _, word = part.partition(" ")
        count = parse_count(digits)
        if count is None or not word or word in counts:
            return None
        counts[word] = count
    return counts


def number_duplicates(names: list[str]) -> list[str]:
    """Unique names: repeated ones get a number."""
    seen: dict[str, int] = {}
    unique: list[str] = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return unique


def bounded_names(names: list[str]) -> tuple[str, ...]:
    """Unique names in order; empty where they are too many to store."""
    if len(names) > MAX_NAMES or sum(map(len, names)) > MAX_NAME_CHARS:
        return ()
    return tuple(sorted(set(number_duplicates(names))))
