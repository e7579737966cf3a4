"""Notes of plannings, and the recovery of stories that a dead one left half-written."""

from __future__ import annotations

import os

from ralphproof.base.errors import wrap_os_error
from ralphproof.base.files import read_file, write_atomically
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.planning.validation import stories_in
from ralphproof.runs.resume import PLANNING_NOTE, read_planning_notes
from ralphproof.store.locks import DirectoryLock
from ralphproof.stories.story_folder import TASKS

if TYPE_CHECKING:
    from typing import Any

    from ralphproof.store.project import Project


# What plannings leave in their folders: by it the next one mends what a dead one left half-written.


WHOLE, HALF = f"whole-{TASKS}", f"half-written-{TASKS}"


def mended(project: Project, folder: str) -> list[str]:
    """Put whole stories in the place of half-written ones that a dead planning left; what there is to say of it.

    Raises Busy where somebody is at work here.
    """
    lock = DirectoryLock(project.state_dir, project.root, "plan")
    lock.take()
    try:
        told = [lock.reclaimed] if lock.reclaimed else []
        for place, note in read_planning_notes(
            project.store
        ):  # nobody else plans now: whatever is open is a dead one's
            if note.get("open") is True and (note.get("root"), note.get("folder")) == (project.root, folder):
                told += _put_back(os.path.join(project.root, folder), folder, place)
                put_file(os.path.join(place, PLANNING_NOTE), note_text(note | {"open": False}), private=True)
        return told
    except OSError as error:
        raise wrap_os_error(error) from error
    finally:
        lock.release()


def _put_back(path: str, folder: str, place: str) -> list[str]:
    file = os.path.join(path, TASKS)
    now, whole = read_file(file), read_file(os.path.join(place, WHOLE))
    if now is None or now == whole or isinstance(stories_in(now), dict):
        return []
    put_file(os.path.join(place, HALF), now, private=True)
    if whole is None:
        os.unlink(file)
    else:
        put_file(file, whole, private=False)
    how = "taken away, as there was none before" if whole is None else "put back as it was last whole"
    return [f"{folder}/{TASKS} was left half-written by a plan that was cut off; it was {how} ({place} has a copy)"]


def note_text(note: dict[str, Any]) -> bytes:
    import json

    return json.dumps(note).encode()


def put_file(path: str, data: bytes, private: bool) -> None:
    """Write a file whole."""
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        write_atomically(folder, os.path.basename(path), data, private=private)
    finally:
        os.close(folder)
