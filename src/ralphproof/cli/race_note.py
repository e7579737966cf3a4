"""What is written down of a race, before anybody begins: who takes it up again reads it there."""

from __future__ import annotations

import json
import os

from ralphproof.contest import Entrant
from ralphproof.errors import HarnessFailed, Refused
from ralphproof.ledgers.files import private_folder, read_whole, write_whole
from ralphproof.value import TYPE_CHECKING, pack, unpack, value

if TYPE_CHECKING:
    from ralphproof.views.project import Project

FOLDER, ENDING, LATEST = "races", ".json", "latest"


@value
class RaceNote:
    """A race: its name, who takes part as which run, what decides, and what all may spend together.

    `criteria` is empty where the first one wins.
    """

    id: str
    entrants: tuple[Entrant, ...]
    runs: tuple[str, ...]
    criteria: tuple[str, ...] = ()
    total_micro_usd: int | None = None
    parallel: int = 0

    def place(self, entrant: Entrant) -> str:
        """The name of its work tree."""
        return f"{self.id}-{entrant.number}"


def keep_race(project: Project, note: RaceNote) -> None:
    """Write it down, durably."""
    folder = os.path.join(project.store, FOLDER)
    try:
        private_folder(folder)
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            write_whole(opened, note.id + ENDING, json.dumps(pack(note)).encode() + b"\n")
        finally:
            os.close(opened)
    except OSError as error:
        raise HarnessFailed(f"{folder} cannot be written: {error.strerror}") from error


def kept_race(project: Project, name: str) -> RaceNote:
    """The race of this name, or whose name begins so; raises Refused where there is none."""
    folder = os.path.join(project.store, FOLDER)
    known = sorted(file.removesuffix(ENDING) for file in (os.listdir(folder) if os.path.isdir(folder) else ()))
    found = known[-1:] if name == LATEST else [one for one in known if one.startswith(name)]
    if len(found) != 1:
        raise Refused(f"{'several races begin with' if found else 'there is no race'} {name}; see ralph runs")
    try:
        note = unpack(json.loads(read_whole(os.path.join(folder, found[0] + ENDING)) or b""))
    except (ValueError, TypeError):
        note = None
    if not isinstance(note, RaceNote):
        raise Refused(f"what race {found[0]} was about cannot be read; begin a new one")
    return note
