"""Folders in the store for a landing's throw-away files. Their names tell whose they are, so the dead leave none."""

from __future__ import annotations

import os

from ralphproof.errors import from_system
from ralphproof.keeper.tree import alive, start_time
from ralphproof.ledgers.landings import FOLDER
from ralphproof.workspaces.clean_place import remove

ROOMS = "rooms"


def new_room(store: str) -> str:
    """A folder of this process alone; whoever has it removes it. Those of processes that died are gone then."""
    place, pid = os.path.join(store, FOLDER, ROOMS), os.getpid()
    _clear_dead(place)
    room = os.path.join(place, f"{pid}-{start_time(pid)}-{os.urandom(4).hex()}")
    try:
        os.makedirs(room, mode=0o700)
    except OSError as error:
        raise from_system(error) from error
    return room


def _clear_dead(place: str) -> None:
    for name in os.listdir(place) if os.path.isdir(place) else ():
        pid, _, rest = name.partition("-")
        start = rest.partition("-")[0]
        if pid.isdigit() and start.isdigit() and not alive(int(pid), int(start)):
            remove(os.path.join(place, name))
