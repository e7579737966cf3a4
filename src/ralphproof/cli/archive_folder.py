"""The folder of an archive. As long as an archive, or its return, is under way, a mark in it says what is to do."""

from __future__ import annotations

import os

from ralphproof.cli.archiving import AWAY, BACK, MOVED, UNWIND, Transit
from ralphproof.cli.story_folder import ARCHIVES, folder_in, opened, tidy
from ralphproof.errors import Refused
from ralphproof.ledgers.files import read_start, remove, sync, write_whole
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

SUMMARY, MARK = "summary.md", ".unfinished"
PART = ".part"  # ends the name of a folder that is being made, or removed: nothing of the user's lies in it
MARK_BYTES = 1 << 20


def begin(root: str, name: str, transit: Transit, summary: bytes) -> None:
    """Make the folder with its page and its mark, at once. Nothing has been moved yet."""
    top = opened(root, ARCHIVES, make=True)
    try:
        part = f".{name}{PART}"
        os.mkdir(part, dir_fd=top)
        folder = opened(root, os.path.join(ARCHIVES, part))
        try:
            write_whole(folder, SUMMARY, summary, private=False)
            write_whole(folder, MARK, _text(transit), private=False)
        finally:
            os.close(folder)
        os.rename(part, name, src_dir_fd=top, dst_dir_fd=top)
        sync(top)
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
    folder = opened(root, os.path.join(ARCHIVES, name))
    try:
        write_whole(folder, MARK, _text(transit), private=False)
    finally:
        os.close(folder)


def unmark(root: str, name: str) -> None:
    """It is done."""
    folder = opened(root, os.path.join(ARCHIVES, name))
    try:
        tidy(folder, ours=True)
        remove(folder, MARK)
        sync(folder)
    finally:
        os.close(folder)


def drop(root: str, name: str, keep_summary: bool = False) -> bool:
    """Remove the folder of an archive that has nothing in it any more; False where something of the user's lies there.

    Its page is ours, unless somebody wrote in it.
    """
    ours = {MARK} if keep_summary else {MARK, SUMMARY}
    top, folder = opened(root, ARCHIVES), opened(root, os.path.join(ARCHIVES, name))
    try:
        tidy(folder, ours=True)
        if others := set(os.listdir(folder)) - ours:
            for one in ours if others.isdisjoint(MOVED) else ():
                remove(folder, one)
            return False
        os.rename(name, f".{name}{PART}", src_dir_fd=top, dst_dir_fd=top)
        sync(top)
    finally:
        os.close(folder)
        os.close(top)
    sweep(root)
    return True


def sweep(root: str) -> None:
    """Remove folders that were being made, or removed, and the one that they lie in, if that is all it has."""
    if not os.path.isdir(os.path.join(root, ARCHIVES)):
        return
    top = opened(root, ARCHIVES)
    try:
        for part in os.listdir(top):
            if part.startswith(".") and part.endswith(PART) and _is_folder(root, part):
                _clear(root, top, part)
        sync(top)
    finally:
        os.close(top)
    try:
        os.rmdir(os.path.join(root, ARCHIVES))
    except OSError:
        pass  # there are archives in it


def _clear(root: str, top: int, part: str) -> None:
    folder = opened(root, os.path.join(ARCHIVES, part))
    try:
        tidy(folder, ours=True)
        for file in (SUMMARY, MARK):
            remove(folder, file)
    finally:
        os.close(folder)
    try:
        os.rmdir(part, dir_fd=top)
    except OSError:
        pass  # something of the user's: it stays where it is


def unfinished(root: str) -> list[tuple[str, Transit]]:
    """Every archive that is under way, and what its mark says."""
    return [(name, _transit(root, name)) for name in marked(root)]


def marked(root: str) -> list[str]:
    """The names of those that are under way."""
    return [name for name in archives(root) if os.path.lexists(os.path.join(root, ARCHIVES, name, MARK))]


def archives(root: str) -> list[str]:
    """The names of all archives."""
    top = os.path.join(root, ARCHIVES)
    names = sorted(os.listdir(top)) if os.path.isdir(top) and not os.path.islink(top) else []
    return [name for name in names if not name.startswith(".") and _is_folder(root, name)]


def _is_folder(root: str, name: str) -> bool:
    path = os.path.join(root, ARCHIVES, name)
    return os.path.isdir(path) and not os.path.islink(path)


def _text(transit: Transit) -> bytes:
    import json

    said: dict[str, Any] = {"way": transit.way, "folder": transit.folder, "files": [*transit.files]}
    said |= {"fresh": {name: data.decode("utf-8", "surrogateescape") for name, data in transit.fresh.items()}}
    said |= {"commits": transit.commits, "label": transit.label, "said": [*transit.said]}
    return json.dumps(said, indent=1).encode() + b"\n"


def _transit(root: str, name: str) -> Transit:
    """What a mark says. Others may have written it: only what we could have is taken for true."""
    import json

    folder = opened(root, os.path.join(ARCHIVES, name))
    try:
        said = json.loads(read_start(folder, MARK, MARK_BYTES) or b"")
        fresh = {file: str(said["fresh"][file]).encode("utf-8", "surrogateescape") for file in said["fresh"]}
        files = tuple(file for file in MOVED if file in said["files"])
        if said["way"] in (AWAY, BACK, UNWIND) and {*fresh} <= {*MOVED}:
            inside, words = folder_in(root, str(said["folder"])), tuple(map(str, said["said"]))
            return Transit(said["way"], inside, files, fresh, said["commits"] is True, str(said["label"])[:200], words)
    except (ValueError, KeyError, TypeError, RecursionError, Refused):
        pass
    finally:
        os.close(folder)
    path = os.path.join(ARCHIVES, name, MARK)
    raise Refused(f"{path} says in no known way what is to be done; move the files by hand, then remove it")
