"""What a patch comes to: which files, and how many lines of each."""

from __future__ import annotations

import os

from ralphproof.display.words import count
from ralphproof.value import value


@value
class Counted:
    """How much of one file changed."""

    path: str
    added: int
    removed: int
    binary: bool


def counted(patch: bytes) -> list[Counted]:
    """The files of a patch. Inside a hunk each line has a sign before it, so a header is never mistaken."""
    made: list[Counted] = []
    for section in (b"\n" + patch).split(b"\ndiff --git ")[1:]:
        head, *lines = section.split(b"\n")
        hunks = _after_first_hunk(lines)
        binary = not hunks and any(line.startswith((b"GIT binary patch", b"Binary files")) for line in lines)
        added = sum(line.startswith(b"+") for line in hunks)
        made.append(Counted(_path(head), added, sum(line.startswith(b"-") for line in hunks), binary))
    return made


def _after_first_hunk(lines: list[bytes]) -> list[bytes]:
    start = next((place for place, line in enumerate(lines) if line.startswith(b"@@ ")), len(lines))
    return lines[start:]


def _path(head: bytes) -> str:
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


def stat_lines(files: list[Counted]) -> list[str]:
    """One line a file, and the sum."""
    width = max((len(file.path) for file in files), default=0)
    lines = [
        f" {file.path.ljust(width)} | " + ("binary" if file.binary else f"+{file.added} -{file.removed}")
        for file in files
    ]
    added, removed = sum(file.added for file in files), sum(file.removed for file in files)
    return [*lines, f" {count(len(files), 'file')} changed, +{added} -{removed}"]
