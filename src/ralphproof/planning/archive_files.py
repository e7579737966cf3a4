"""The folder of an archive, and moving story files into it and back so that a cut-off move can be continued."""

from __future__ import annotations

import hashlib
import os

from ralphproof.base.errors import Refused
from ralphproof.base.files import read_file_start, remove_file, sync_file, write_atomically
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.stories.story_folder import (
    ARCHIVE_MARK,
    ARCHIVE_SUMMARY,
    ARCHIVES,
    PRD,
    PROGRESS,
    TASKS,
    create_file,
    is_archive_folder,
    open_folder,
    remove_temporary_files,
    stat_name,
    stories_folder,
    unfinished_archives,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self


# Putting stories away and bringing them back, file by file. Cut off in the middle, it can be gone on with.
#
# A file that lies in the archive was moved, one that does not was not. Nothing of the user's is ever written over.


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
        self.home = open_folder(root, transit.folder, make=True)
        try:
            self.away = open_folder(root, os.path.join(ARCHIVES, name))
        except BaseException:
            os.close(self.home)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.home)
        os.close(self.away)

    def sync(self) -> None:
        sync_file(self.away)
        sync_file(self.home)


def put_away(root: str, name: str, transit: Transit) -> None:
    """Move what is not moved yet, then put fresh files where there are none. What somebody put there stays."""
    with Places(root, transit, name) as places:
        for file in transit.files:
            if not stat_name(places.away, file) and stat_name(places.home, file):
                os.rename(file, file, src_dir_fd=places.home, dst_dir_fd=places.away)
        places.sync()
        for file, data in transit.fresh.items():
            create_file(places.home, file, data)
        remove_temporary_files(places.home)


def bring_back(
    root: str, name: str, transit: Transit, pristine: Callable[[str, bytes], bool], asides: list[tuple[str, str]]
) -> None:
    """Move back what is in the archive. What is not `pristine` in its place is set aside: (file, its new name)."""
    with Places(root, transit, name) as places:
        for file in MOVED:
            archived, present = stat_name(places.away, file), stat_name(places.home, file)
            unchanged = present is not None and pristine(file, read_file_start(places.home, file, MOST_BYTES) or b"")
            if archived and present and not unchanged:
                asides.append((file, _aside(places.home, file)))
            if archived:
                os.rename(file, file, src_dir_fd=places.away, dst_dir_fd=places.home)
            elif unchanged and file not in transit.files:
                remove_file(places.home, file)  # there had been none
        places.sync()
        remove_temporary_files(places.home)


def _aside(home: int, file: str) -> str:
    name, number = f"{file}.set-aside", 1
    while stat_name(home, name):
        number += 1
        name = f"{file}.set-aside-{number}"
    os.rename(file, name, src_dir_fd=home, dst_dir_fd=home)
    return name


def from_aside(root: str, transit: Transit, asides: list[tuple[str, str]]) -> None:
    """Give those that were set aside their place again, where it is free."""
    home = open_folder(root, transit.folder, make=True)
    try:
        for file, name in asides:
            if not stat_name(home, file) and stat_name(home, name):
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
        return read_file_start(inside, file, MOST_BYTES) or b""
    finally:
        os.close(inside)


def digest(data: bytes) -> str:
    """A name for what a file says, however its lines end: tools of the user's may have a way of their own there."""
    return hashlib.sha256(b"\n".join(line.rstrip() for line in data.splitlines()).rstrip()).hexdigest()


# The folder of an archive. As long as an archive, or its return, is under way, a mark in it says what is to do.


PART = ".part"  # ends the name of a folder that is being made, or removed: nothing of the user's lies in it
MARK_BYTES = 1 << 20


def begin(root: str, name: str, transit: Transit, summary: bytes) -> None:
    """Make the folder with its page and its mark, at once. Nothing has been moved yet."""
    top = open_folder(root, ARCHIVES, make=True)
    try:
        part = f".{name}{PART}"
        os.mkdir(part, dir_fd=top)
        folder = open_folder(root, os.path.join(ARCHIVES, part))
        try:
            write_atomically(folder, ARCHIVE_SUMMARY, summary, private=False)
            write_atomically(folder, ARCHIVE_MARK, _text(transit), private=False)
        finally:
            os.close(folder)
        os.rename(part, name, src_dir_fd=top, dst_dir_fd=top)
        sync_file(top)
    finally:
        os.close(top)


def free_name(root: str, wanted: str) -> str:
    """A name for a new archive that none has."""
    name, number = wanted, 1
    while any(os.path.lexists(os.path.join(root, ARCHIVES, one)) for one in (name, f".{name}{PART}")):
        number += 1
        name = f"{wanted}-{number}"
    return name


def mark(root: str, name: str, transit: Transit) -> None:
    """Say what is under way."""
    folder = open_folder(root, os.path.join(ARCHIVES, name))
    try:
        write_atomically(folder, ARCHIVE_MARK, _text(transit), private=False)
    finally:
        os.close(folder)


def unmark(root: str, name: str) -> None:
    """It is done."""
    folder = open_folder(root, os.path.join(ARCHIVES, name))
    try:
        remove_temporary_files(folder, ours=True)
        remove_file(folder, ARCHIVE_MARK)
        sync_file(folder)
    finally:
        os.close(folder)


def drop(root: str, name: str, keep_summary: bool = False) -> bool:
    """Remove the folder of an archive that has nothing in it any more; False where something of the user's lies there.

    Its page is ours, unless somebody wrote in it.
    """
    ours = {ARCHIVE_MARK} if keep_summary else {ARCHIVE_MARK, ARCHIVE_SUMMARY}
    top, folder = open_folder(root, ARCHIVES), open_folder(root, os.path.join(ARCHIVES, name))
    try:
        remove_temporary_files(folder, ours=True)
        if others := set(os.listdir(folder)) - ours:
            for one in ours if others.isdisjoint(MOVED) else ():
                remove_file(folder, one)
            return False
        os.rename(name, f".{name}{PART}", src_dir_fd=top, dst_dir_fd=top)
        sync_file(top)
    finally:
        os.close(folder)
        os.close(top)
    sweep(root)
    return True


def sweep(root: str) -> None:
    """Remove folders that were being made, or removed, and the one that they lie in, if that is all it has."""
    if not os.path.isdir(os.path.join(root, ARCHIVES)):
        return
    top = open_folder(root, ARCHIVES)
    try:
        for part in os.listdir(top):
            if part.startswith(".") and part.endswith(PART) and is_archive_folder(root, part):
                _clear(root, top, part)
        sync_file(top)
    finally:
        os.close(top)
    try:
        os.rmdir(os.path.join(root, ARCHIVES))
    except OSError:
        pass  # there are archives in it


def _clear(root: str, top: int, part: str) -> None:
    folder = open_folder(root, os.path.join(ARCHIVES, part))
    try:
        remove_temporary_files(folder, ours=True)
        for file in (ARCHIVE_SUMMARY, ARCHIVE_MARK):
            remove_file(folder, file)
    finally:
        os.close(folder)
    try:
        os.rmdir(part, dir_fd=top)
    except OSError:
        pass  # something of the user's: it stays where it is


def unfinished(root: str) -> list[tuple[str, Transit]]:
    """Every archive that is under way, and what its mark says."""
    return [(name, _transit(root, name)) for name in unfinished_archives(root)]


def _text(transit: Transit) -> bytes:
    import json

    said: dict[str, Any] = {"way": transit.way, "folder": transit.folder, "files": [*transit.files]}
    said |= {"fresh": {name: data.decode("utf-8", "surrogateescape") for name, data in transit.fresh.items()}}
    said |= {"commits": transit.commits, "label": transit.label, "said": [*transit.said]}
    return json.dumps(said, indent=1).encode() + b"\n"


def _transit(root: str, name: str) -> Transit:
    """What a mark says. Others may have written it: only what we could have is taken for true."""
    import json

    folder = open_folder(root, os.path.join(ARCHIVES, name))
    try:
        said = json.loads(read_file_start(folder, ARCHIVE_MARK, MARK_BYTES) or b"")
        fresh = {file: str(said["fresh"][file]).encode("utf-8", "surrogateescape") for file in said["fresh"]}
        files = tuple(file for file in MOVED if file in said["files"])
        if said["way"] in (AWAY, BACK, UNWIND) and {*fresh} <= {*MOVED}:
            inside, words = stories_folder(root, str(said["folder"])), tuple(map(str, said["said"]))
            return Transit(said["way"], inside, files, fresh, said["commits"] is True, str(said["label"])[:200], words)
    except (ValueError, KeyError, TypeError, RecursionError, Refused):
        pass
    finally:
        os.close(folder)
    path = os.path.join(ARCHIVES, name, ARCHIVE_MARK)
    raise Refused(f"{path} says in no known way what is to be done; move the files by hand, then remove it")
