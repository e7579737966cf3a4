"""Putting stories away and bringing them back, file by file. Cut off in the middle, it can be gone on with.

A file that lies in the archive was moved, one that does not was not. Nothing of the user's is ever written over.
"""

from __future__ import annotations

import hashlib
import os

from ralphproof.cli.story_folder import ARCHIVES, PRD, PROGRESS, TASKS, opened, place, there, tidy
from ralphproof.ledgers.files import read_start, remove, sync
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

MOVED = (TASKS, PRD, PROGRESS)  # first what a run cannot begin without
AWAY, BACK = "archive", "undo"
UNWIND = "unwind"  # the way back of an archive that could not be made
MOST_BYTES = 1 << 24  # of a file that is looked at


@value
class Transit:
    """What is under way with an archive: which way, from which folder, and which files there were to move.

    `fresh` has what lies in their place meanwhile. `commits` says whether it ends with a commit. `said` has digests of
    what the files say that are brought back.
    """

    way: str
    folder: str
    files: tuple[str, ...]
    fresh: dict[str, bytes]
    commits: bool
    label: str
    said: tuple[str, ...] = ()


class Places:
    """Descriptors of a stories folder, and of an archive of it."""

    def __init__(self, root: str, transit: Transit, name: str) -> None:
        self.home = opened(root, transit.folder, make=True)
        try:
            self.away = opened(root, os.path.join(ARCHIVES, name))
        except BaseException:
            os.close(self.home)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.home)
        os.close(self.away)

    def sync(self) -> None:
        sync(self.away)
        sync(self.home)


def put_away(root: str, name: str, transit: Transit) -> None:
    """Move what is not moved yet, then put fresh files where there are none. What somebody put there stays."""
    with Places(root, transit, name) as places:
        for file in transit.files:
            if not there(places.away, file) and there(places.home, file):
                os.rename(file, file, src_dir_fd=places.home, dst_dir_fd=places.away)
        places.sync()
        for file, data in transit.fresh.items():
            place(places.home, file, data)
        tidy(places.home)


def bring_back(
    root: str, name: str, transit: Transit, pristine: Callable[[str, bytes], bool], asides: list[tuple[str, str]]
) -> None:
    """Move back what is in the archive. What is not `pristine` in its place is set aside: (file, its new name)."""
    with Places(root, transit, name) as places:
        for file in MOVED:
            archived, present = there(places.away, file), there(places.home, file)
            unchanged = present is not None and pristine(file, read_start(places.home, file, MOST_BYTES) or b"")
            if archived and present and not unchanged:
                asides.append((file, _aside(places.home, file)))
            if archived:
                os.rename(file, file, src_dir_fd=places.away, dst_dir_fd=places.home)
            elif unchanged and file not in transit.files:
                remove(places.home, file)  # there had been none
        places.sync()
        tidy(places.home)


def _aside(home: int, file: str) -> str:
    name, number = f"{file}.set-aside", 1
    while there(home, name):
        number += 1
        name = f"{file}.set-aside-{number}"
    os.rename(file, name, src_dir_fd=home, dst_dir_fd=home)
    return name


def from_aside(root: str, transit: Transit, asides: list[tuple[str, str]]) -> None:
    """Give those that were set aside their place again, where it is free."""
    home = opened(root, transit.folder, make=True)
    try:
        for file, name in asides:
            if not there(home, file) and there(home, name):
                os.rename(name, file, src_dir_fd=home, dst_dir_fd=home)
    finally:
        os.close(home)


def look(root: str, folder: str, file: str) -> bytes | None:
    """What a file in a folder of the project says, as far as it can be read; None where there is none."""
    path = os.path.join(root, folder)
    if not os.path.lexists(os.path.join(path, file)):
        return None
    inside = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return read_start(inside, file, MOST_BYTES) or b""
    finally:
        os.close(inside)


def digest(data: bytes) -> str:
    """A name for what a file says, however its lines end: tools of the user's may have a way of their own there."""
    return hashlib.sha256(b"\n".join(line.rstrip() for line in data.splitlines()).rstrip()).hexdigest()
