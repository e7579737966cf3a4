"""A worker's folder: one worker at a time, and a name that no other folder has."""

from __future__ import annotations

import fcntl
import os

from ralphproof.errors import Busy, Refused
from ralphproof.fleet.order import is_name
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from io import TextIOWrapper

LOCK, NAME = "worker.lock", "worker.name"
_HELD: list[TextIOWrapper] = []  # for as long as this process lives


def taken(folder: str) -> None:
    """Make the folder, for its owner alone, and hold it; raises Busy where another worker does."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        lock = open(os.path.join(folder, LOCK), "a", encoding="utf-8")  # noqa: SIM115 (it stays open)
    except OSError as error:
        raise Refused(f"{folder} cannot be a work folder ({error.strerror}); give --work-dir") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise Busy(f"another worker is at work in {folder}; give this one another --work-dir") from None
    _HELD.append(lock)


def name_of(folder: str, given: str | None) -> str:
    """The worker's name. One that was made up is kept in the folder: turns there wait for a worker of that name."""
    if given is not None:
        if not is_name(given):
            raise Refused(f"--name {given!r} is no name; letters, digits, '-', '_' and '.' make one")
        return given
    path = os.path.join(folder, NAME)
    try:
        with open(path, encoding="utf-8") as file:
            kept = file.read().strip()
    except OSError:
        kept = ""
    if is_name(kept):
        return kept
    import socket

    host = "".join(letter if letter.isalnum() else "-" for letter in socket.gethostname()).strip("-")[:40]
    name = f"{host or 'worker'}-{os.urandom(3).hex()}"
    fresh = f"{path}.new"
    with open(fresh, "w", encoding="utf-8") as file:
        file.write(f"{name}\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
    return name
