"""How the parts of a log become one file, also where its keeper died over it."""

from __future__ import annotations

import os
import stat

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_BEFORE, _AFTER = b"\n... [truncated] ", b" bytes dropped\n"


def gap(dropped: int) -> bytes:
    """What stands in a log, and in what a reader gets, where bytes were dropped."""
    return b"%s%d%s" % (_BEFORE, dropped, _AFTER)


def segment(path: str, number: int) -> str:
    """The file of a segment; the first is number 1."""
    return f"{path}.{number}"


def leftover_segments(path: str) -> list[int]:
    """The numbers of segments that are on disk, in order."""
    folder, name = os.path.split(path)
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return []
    numbers = (other[len(name) + 1 :] for other in names if other.startswith(name + "."))
    return sorted(int(number) for number in numbers if number.isdigit())


def stitch(head_fd: int, segments: list[str], evicted: int) -> None:
    """Move the segments to the end of the head, one after the other. One that the disk refuses stays, and the rest."""
    if evicted:
        _add(head_fd, [gap(evicted)])
    for path in segments:
        _add(head_fd, _pieces(path))
        os.unlink(path)


def _add(to: int, pieces: Iterable[bytes]) -> None:
    """All of it or nothing."""
    size = os.fstat(to).st_size
    try:
        for piece in pieces:
            view = memoryview(piece)
            while view:
                view = view[os.write(to, view) :]
    except OSError:
        os.ftruncate(to, size)
        raise


def _pieces(path: str) -> Iterator[bytes]:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        while data := os.read(fd, 1 << 20):
            yield data
    finally:
        os.close(fd)


def close_abandoned(path: str, sizes: tuple[int, int, int]) -> tuple[int, int]:
    """Put a dead keeper's log together: how many bytes it had stored, and how many were evicted.

    The keeper may have died while it did this, and so may whoever did it after it.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return 0, 0
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return 0, 0
        numbers, (head, each, _) = leftover_segments(path), sizes
        evicted, noted = _begun(fd, head, each, numbers)
        if numbers:
            stitch(fd, [segment(path, number) for number in numbers], 0 if noted else evicted)
        size = os.fstat(fd).st_size
        return (size if size <= head else size + evicted - len(gap(evicted)) * bool(evicted)), evicted
    finally:
        os.close(fd)


def _begun(fd: int, head: int, each: int, numbers: list[int]) -> tuple[int, bool]:
    """How many bytes were evicted, and whether the log says so already. A segment that it has in part is cut off."""
    missing = (numbers[0] - 1) * each if numbers else 0
    if (size := os.fstat(fd).st_size) <= head:
        return missing, False
    evicted = noted(os.pread(fd, 64, head))
    moved = head + len(gap(evicted)) * bool(evicted) + missing - evicted
    if not numbers:
        return evicted, True
    if head <= moved <= size <= moved + each:
        os.ftruncate(fd, moved)
        return evicted, moved > head
    os.ftruncate(fd, head)  # no keeper leaves it so: what is not in a segment is lost
    return missing, False


def noted(text: bytes) -> int:
    """How many bytes a log says were dropped, where it says so."""
    number, _, _ = text.removeprefix(_BEFORE).partition(_AFTER)
    return int(number) if number.isdigit() and text.startswith(gap(int(number))) else 0
