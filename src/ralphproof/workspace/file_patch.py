"""The unified diff of one file."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.workspace.git_objects import Entry

MAX_DIFF_BYTES = 1 << 20  # difflib takes quadratic time


def file_patch(path: bytes, old: Entry | None, new: Entry | None, read: Callable[[str], bytes]) -> bytes:
    """Header and hunks; binary or large content is only named."""
    head = b"diff --git a/%s b/%s\n" % (path, path) + _mode_lines(old, new)
    before, after = read(old[1]) if old else b"", read(new[1]) if new else b""
    if before == after:
        return head
    if b"\0" in before + after or len(before) + len(after) > MAX_DIFF_BYTES:
        return head + b"Binary files a/%s and b/%s differ\n" % (path, path)
    return head + _hunks(before, after, b"a/" + path if old else b"/dev/null", b"b/" + path if new else b"/dev/null")


def _mode_lines(old: Entry | None, new: Entry | None) -> bytes:
    if old is None and new is not None:
        return b"new file mode %s\n" % new[0]
    if new is None and old is not None:
        return b"deleted file mode %s\n" % old[0]
    if old is not None and new is not None and old[0] != new[0]:
        return b"old mode %s\nnew mode %s\n" % (old[0], new[0])
    return b""


def _hunks(before: bytes, after: bytes, old_name: bytes, new_name: bytes) -> bytes:
    import difflib

    lines = difflib.diff_bytes(difflib.unified_diff, _split_lines(before), _split_lines(after), old_name, new_name)
    return b"".join(line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n" for line in lines)


def _split_lines(content: bytes) -> list[bytes]:
    """As git does: at newlines only."""
    *whole, last = content.split(b"\n")
    return [line + b"\n" for line in whole] + ([last] if last else [])
