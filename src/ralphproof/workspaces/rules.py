"""Ignore rules as they were at one moment, in one file that no later edit of a `.gitignore` changes."""

from __future__ import annotations

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

IGNORE_FILE = b".gitignore"


def is_ignore_file(path: bytes) -> bool:
    return path == IGNORE_FILE or path.endswith(b"/" + IGNORE_FILE)


def flat(files: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The rules of many `.gitignore` files (path, content) as one list from the root.

    git lets the deepest file decide, and within a file the last line; so the deepest come last.
    """
    lines: list[bytes] = []
    for path, content in sorted(files, key=lambda item: (item[0].count(b"/"), item[0])):
        folder = path[: -len(IGNORE_FILE)].rstrip(b"/")
        if b"\n" not in folder:  # such a folder cannot be written in a rule: its files are saved
            lines += (_moved(line, folder) for line in content.removeprefix(b"\xef\xbb\xbf").split(b"\n"))
    return b"\n".join(line for line in lines if line) + b"\n"


def _moved(line: bytes, folder: bytes) -> bytes:
    line = line.removesuffix(b"\r")
    if not line or line.startswith(b"#"):
        return b""
    if not folder:
        return line
    sign, pattern = (b"!", line[1:]) if line.startswith(b"!") else (b"", line)
    anchored = b"/" in pattern.rstrip(b" ").removesuffix(b"/")
    between = b"/" if anchored else b"/**/"
    return sign + b"/" + _literal(folder) + between + pattern.removeprefix(b"/")


def _literal(folder: bytes) -> bytes:
    for special in (b"\\", b"*", b"?", b"["):
        folder = folder.replace(special, b"\\" + special)
    return folder
