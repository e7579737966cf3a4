"""Unified diffs as text: added lines, files, shortening, and quotations from them."""

from __future__ import annotations

import re
from itertools import pairwise

from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_DIFF_FILES = 200  # of a patch that is too long; of the others only the names are known
MAX_LINE_CHARS = 2_000  # of one line of such a patch
MIN_QUOTE_CHARS = 8  # a shorter one stands in any work, unless it is a whole line

_FILE = "diff --git "
BINARY_PATCH_MARK = "\nGIT binary patch\n"
_HUNK = r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@"


def added_lines(diff: str) -> Iterator[tuple[str, str]]:
    """(file, line) of every line that is added. A header may look like one, so the lines of a hunk are counted."""
    file, old, new = "", 0, 0
    for line in diff.split("\n"):
        if line.startswith(_FILE):  # which no line of a hunk does
            file, old, new = path_in_diff_header(line), 0, 0
        elif old > 0 or new > 0:
            old -= line[:1] in ("-", " ", "")
            new -= line[:1] in ("+", " ", "")
            if line.startswith("+"):
                yield file, line[1:]
        elif hunk := re.match(_HUNK, line):
            old, new = (1 if count is None else int(count) for count in hunk.groups())


def files_without_line_diff(diff: str) -> tuple[str, ...]:
    """The files whose new content the patch does not show line by line: binary ones, and very large ones."""
    parts = [part for part in split_diff_by_file(diff) if "\ndeleted file mode " not in part.partition("\n@@ ")[0]]
    return tuple(
        path_in_diff_header(part)
        for part in parts
        if BINARY_PATCH_MARK in part or re.search(r"(?m)^Binary files .* differ$", part)
    )


def path_in_diff_header(header: str) -> str:
    """The file that a part of a patch tells of, by its first line. It is called the same before and after."""
    names = header.partition("\n")[0].removeprefix(_FILE)
    if names.endswith('"'):
        return names.rpartition(' "b/')[2][:-1]
    return names[2 : 2 + (len(names) - 5) // 2]


def shorten_diff(diff: str, most: int, mark: str) -> tuple[str, tuple[str, ...]]:
    """At most so many characters of a patch, and the files that are not whole in it.

    Every file has the same right to room: of a long one the beginning and the end are kept. What was left out, binary
    content too, is told in lines that begin with `[mark`.
    """
    parts = [_without_binary(part, mark) for part in split_diff_by_file(diff)]
    if sum(map(len, parts)) <= most:
        return "".join(parts), ()
    kept, gone = parts[:MAX_DIFF_FILES], parts[MAX_DIFF_FILES:]
    rooms = _share_space([len(part) for part in kept], most)
    cut = [
        part if len(part) <= room else _keep_both_ends(part, room, mark) for part, room in zip(kept, rooms, strict=True)
    ]
    torn = [part for part, whole in zip(kept, cut, strict=True) if part is not whole]
    return "".join(cut), tuple(map(path_in_diff_header, (*torn, *gone)))


def split_diff_by_file(diff: str) -> list[str]:
    """The patch, file by file. No line of a file's content begins as a header does: it has a sign before it."""
    starts = [0, *(found.start() for found in re.finditer(f"(?m)^{_FILE}", diff) if found.start()), len(diff)]
    return [diff[start:end] for start, end in pairwise(starts) if start < end]


def _without_binary(part: str, mark: str) -> str:
    head, binary, _ = part.partition(BINARY_PATCH_MARK)
    return f"{head}\n[{mark}: binary content is not shown]\n" if binary else part


def _share_space(sizes: list[int], most: int) -> list[int]:
    """How much of each may stay: what small ones do not need is left to the large ones."""
    rooms, left = [0] * len(sizes), most
    for served, place in enumerate(sorted(range(len(sizes)), key=sizes.__getitem__)):
        rooms[place] = min(sizes[place], left // (len(sizes) - served))
        left -= rooms[place]
    return rooms


def _keep_both_ends(part: str, room: int, mark: str) -> str:
    """Whole lines from the beginning and the end, as many as fit; the end of very long ones is missing."""
    lines = [line[:MAX_LINE_CHARS] for line in part.removesuffix("\n").split("\n")]
    note = f"[{mark}: a part of this file is left out here]\n"
    room -= len(note)
    first, last, head, tail = 0, len(lines), 0, 0  # lines from these on are left out; characters that are kept
    while first < last:
        at_head = head <= tail
        size = len(lines[first if at_head else last - 1]) + 1
        if head + tail + size > room:
            break
        first, head, last, tail = (
            (first + 1, head + size, last, tail) if at_head else (first, head, last - 1, tail + size)
        )
    return "".join([*(f"{line}\n" for line in lines[:first]), note, *(f"{line}\n" for line in lines[last:])])


class QuotableDiff:
    """What can be quoted from a patch, as it was shown. Lines that carry the mark are ours, and cannot.

    What the patch keeps or adds can be quoted with its signs or without them. A line that it removes is gone: it is
    quoted with its minus sign, or not at all. How much white space stands between two words does not matter.
    """

    def __init__(self, diff: str, mark: str) -> None:
        lines = [line for line in diff.split("\n") if mark not in line]
        new = [_collapse_whitespace(line[1:] if line[:1] in ("+", " ") else line) for line in lines if line[:1] != "-"]
        old = [_collapse_whitespace(line[1:]) for line in lines if line[:1] == "-"]
        self._new, self._old = (" ".join(filter(None, side)) for side in (new, old))
        self._new_lines, self._old_lines = frozenset(new), frozenset(old)

    def holds(self, quote: str) -> bool:
        """Whether this is a quotation, and long enough to tell something."""
        lines = [line.strip("\r") for line in quote.split("\n") if line.strip()]
        kept = _collapse_whitespace(
            " ".join(line[1:] if line[:1] in ("+", " ") else line for line in lines if line[:1] != "-")
        )
        gone = _collapse_whitespace(" ".join(line[1:] for line in lines if line[:1] == "-"))
        if self._in_new(_collapse_whitespace(quote)):
            return True
        sides = [side for side in ((kept, self._in_new), (gone, self._in_old)) if side[0]]
        return bool(sides) and all(holds(text) for text, holds in sides)

    def _in_new(self, text: str) -> bool:
        return _is_quoted(text, self._new, self._new_lines)

    def _in_old(self, text: str) -> bool:
        return _is_quoted(text, self._old, self._old_lines)


def _is_quoted(text: str, side: str, lines: frozenset[str]) -> bool:
    return bool(text) and (text in lines or (len(text) >= MIN_QUOTE_CHARS and text in side))


def _collapse_whitespace(text: str) -> str:
    return " ".join(text.split())
