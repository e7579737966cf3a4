"""What plannings leave in their folders: by it the next one mends what a dead one left half-written."""

from __future__ import annotations

import os

from ralphproof.cli.planning_rules import stories_in
from ralphproof.cli.story_folder import TASKS
from ralphproof.errors import from_system
from ralphproof.ledgers.files import read_whole, write_whole
from ralphproof.ledgers.lock import DirectoryLock
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ralphproof.views.project import Project

NOTE = "planning.json"
WHOLE, HALF = f"whole-{TASKS}", f"half-written-{TASKS}"


def plans_in(store: str) -> str:
    """The folder of all plannings of a repository."""
    return os.path.join(store, "plans")


def again_of(store: str, run: str) -> str:
    """The command that planned in this run; empty where none did."""
    return next((str(note.get("again", "")) for _, note in _notes(store) if note.get("run") == run), "")


def mended(project: Project, folder: str) -> list[str]:
    """Put whole stories in the place of half-written ones that a dead planning left; what there is to say of it.

    Raises Busy where somebody is at work here.
    """
    lock = DirectoryLock(project.state_dir, project.root, "plan")
    lock.take()
    try:
        told = [lock.reclaimed] if lock.reclaimed else []
        for place, note in _notes(project.store):  # nobody else plans now: whatever is open is a dead one's
            if note.get("open") is True and (note.get("root"), note.get("folder")) == (project.root, folder):
                told += _put_back(os.path.join(project.root, folder), folder, place)
                put_file(os.path.join(place, NOTE), note_text(note | {"open": False}), private=True)
        return told
    except OSError as error:
        raise from_system(error) from error
    finally:
        lock.release()


def _put_back(path: str, folder: str, place: str) -> list[str]:
    file = os.path.join(path, TASKS)
    now, whole = read_whole(file), read_whole(os.path.join(place, WHOLE))
    if now is None or now == whole or isinstance(stories_in(now), dict):
        return []
    put_file(os.path.join(place, HALF), now, private=True)
    if whole is None:
        os.unlink(file)
    else:
        put_file(file, whole, private=False)
    how = "taken away, as there was none before" if whole is None else "put back as it was last whole"
    return [f"{folder}/{TASKS} was left half-written by a plan that was cut off; it was {how} ({place} has a copy)"]


def _notes(store: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every planning's folder and what it says of itself, the newest first."""
    import json

    top = plans_in(store)
    for name in sorted(os.listdir(top), reverse=True) if os.path.isdir(top) else ():
        try:
            note = json.loads(read_whole(os.path.join(top, name, NOTE)) or b"")
        except ValueError:
            continue
        if isinstance(note, dict):
            yield os.path.join(top, name), note


def note_text(note: dict[str, Any]) -> bytes:
    import json

    return json.dumps(note).encode()


def put_file(path: str, data: bytes, private: bool) -> None:
    """Write a file whole."""
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        write_whole(folder, os.path.basename(path), data, private=private)
    finally:
        os.close(folder)
