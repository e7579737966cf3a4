"""Diffstat of a patch: files, lines added and removed."""

from __future__ import annotations

import os

from ralphproof.base.value import value
from ralphproof.display.phrases import format_count

FILE_HEADER = b"diff --git "
BINARY_MARKERS = (b"GIT binary patch", b"Binary files")


@value
class FileStat:
    """How much of one file changed."""

    path: str
    added: int
    removed: int
    binary: bool


def parse_diffstat(patch: bytes) -> list[FileStat]:
    """The files of a patch. Inside a hunk each line has a sign before it, so a header is never mistaken.

    A patch may be very large: it is looked through where it lies, and no part of it is taken out.
    """
    made: list[FileStat] = []
    start = 0 if patch.startswith(FILE_HEADER) else patch.find(b"\n" + FILE_HEADER) + 1
    while patch.startswith(FILE_HEADER, start):
        end = _find_or_end(patch, b"\n" + FILE_HEADER, start, len(patch))
        made.append(_file_stat(patch, start + len(FILE_HEADER), end))
        start = end + 1
    return made


def _file_stat(patch: bytes, start: int, end: int) -> FileStat:
    """One file, whose part of the patch lies there."""
    path = _header_path(patch[start : _find_or_end(patch, b"\n", start, end)])
    hunk = patch.find(b"\n@@ ", start, end)
    if hunk < 0:
        return FileStat(path, 0, 0, any(patch.find(b"\n" + mark, start, end) >= 0 for mark in BINARY_MARKERS))
    return FileStat(path, patch.count(b"\n+", hunk, end), patch.count(b"\n-", hunk, end), False)


def _find_or_end(patch: bytes, wanted: bytes, start: int, end: int) -> int:
    """Where something is; the end where it is not."""
    found = patch.find(wanted, start, end)
    return found if found >= 0 else end


def _header_path(head: bytes) -> str:
    """The path in `a/PATH b/PATH`; git quotes one that is not plain."""
    import re

    name = head[(len(head) + 1) // 2 :]
    if name.startswith(b'"'):
        escapes = {b"n": b"\n", b"t": b"\t", b"a": b"\a", b"b": b"\b", b"v": b"\v", b"f": b"\f", b"r": b"\r"}
        name = re.sub(
            rb"\\([0-7]{3}|.)",
            lambda found: bytes([int(found[1], 8)]) if len(found[1]) == 3 else escapes.get(found[1], found[1]),
            name.strip(b'"'),
        )
    return os.fsdecode(name[2:])


def format_diffstat(files: list[FileStat]) -> list[str]:
    """One line a file, and the sum."""
    width = max((len(file.path) for file in files), default=0)
    lines = [
        f" {file.path.ljust(width)} | " + ("binary" if file.binary else f"+{file.added} -{file.removed}")
        for file in files
    ]
    added, removed = sum(file.added for file in files), sum(file.removed for file in files)
    return [*lines, f" {format_count(len(files), 'file')} changed, +{added} -{removed}"]
