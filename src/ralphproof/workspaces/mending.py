"""Putting watched files back: what stands in their way is removed or moved aside, and nothing outside is touched."""

from __future__ import annotations

import os
import stat

from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.putback import TEMPORARY, put_back
from ralphproof.workspaces.trees import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ralphproof.workspaces.watched import Seen


def in_the_way(folder: str, paths: Iterable[bytes]) -> set[bytes]:
    """Links and files that stand where the folders of these paths must be."""
    return {above for path in paths for above in _above(path) if _is_other(os.path.join(os.fsencode(folder), above))}


def _above(path: bytes) -> Iterator[bytes]:
    at = path.find(b"/")
    while at >= 0:
        yield path[:at]
        at = path.find(b"/", at + 1)


def _is_other(full: bytes) -> bool:
    try:
        return not stat.S_ISDIR(os.lstat(full).st_mode)
    except OSError:
        return False


def mend(
    folder: str, wanted: Mapping[bytes, Seen | None], read: Callable[[str], bytes]
) -> tuple[dict[bytes, str], list[str]]:
    """Make these paths what is wanted; return why the rest could not be, and what was moved aside for them.

    May be done again after a crash in the middle of it.
    """
    trouble: dict[bytes, str] = {}
    there = {path: seen for path, seen in wanted.items() if seen is not None}
    folders = {above for path in there for above in _above(path)} - in_the_way(folder, there)
    gone = {path: None for path, seen in wanted.items() if seen is None and path not in folders}
    closed = _opened(folder, wanted)
    put_back(folder, gone, read, failures=trouble)
    moved = [_moved(folder, path) for path in there if not in_the_way(folder, (path,))]
    permissions = {path: seen[2] for path, seen in there.items()}
    put_back(folder, {path: seen[:2] for path, seen in there.items()}, read, permissions, trouble)
    for full, mode in closed:
        os.chmod(full, mode)
    return trouble, [note for note in moved if note]


def _opened(folder: str, paths: Iterable[bytes]) -> list[tuple[bytes, int]]:
    """Open folders to their owner where something must be put back; return those that were not, and how they were.

    What a put-back that was killed left in them is swept away.
    """
    closed: list[tuple[bytes, int]] = []
    for above in sorted({above for path in paths for above in (b"", *_above(path))}):
        full = os.path.join(os.fsencode(folder), above)
        try:
            state = os.lstat(full)
            if not stat.S_ISDIR(state.st_mode):
                continue
            if state.st_mode & stat.S_IRWXU != stat.S_IRWXU:
                os.chmod(full, stat.S_IMODE(state.st_mode) | stat.S_IRWXU)
                closed.append((full, stat.S_IMODE(state.st_mode)))
            for name in os.listdir(full):
                if name.startswith(TEMPORARY):
                    os.unlink(os.path.join(full, name))
        except OSError:
            continue  # then putting back fails, and says so
    return closed


def _moved(folder: str, path: bytes) -> str:
    """Make room where a folder stands in the place of a file. What was not watched in it is kept beside it."""
    full = os.path.join(os.fsencode(folder), path)
    if os.path.islink(full) or not os.path.isdir(full):
        return ""
    aside = path + b".aside-" + os.urandom(4).hex().encode()
    try:
        os.rmdir(full)
    except OSError:
        try:
            os.rename(full, os.path.join(os.fsencode(folder), aside))
        except OSError:
            return ""  # then putting back fails, and says so
        return f"a folder that stood in the place of {decode(path)} is now {decode(aside)}"
    return ""
