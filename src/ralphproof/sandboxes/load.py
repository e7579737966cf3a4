"""What the outer program of a boxed command is told, and what it reports; both are small files beside the turn's."""

from __future__ import annotations

import os

from ralphproof.sandboxes.box import Box, Way
from ralphproof.value import pack, unpack, value


@value
class Load:
    """A box, how it is entered, and where things are written: what was called (`audit`), and how it went (`report`).

    `lock` is held for as long as the program lives.
    """

    box: Box
    way: Way
    audit: str
    report: str
    lock: str = ""


@value
class Stay:
    """How it went: whether the program inside was reached at all, and the limit that it reached."""

    entered: bool
    full: str = ""


def write_load(path: str, load: Load) -> None:
    """For the owner's eyes alone; whole or not at all."""
    import json

    _write(path, json.dumps(pack(load), ensure_ascii=True).encode())


def read_load(path: str) -> Load:
    import json

    with open(path, "rb") as file:
        load = unpack(json.load(file))
    if not isinstance(load, Load):
        raise TypeError(f"{path} is no load")
    return load


def write_report(path: str, entered: bool, full: str) -> None:
    import json

    _write(path, json.dumps(pack(Stay(entered, full))).encode())


def read_report(path: str) -> Stay | None:
    """How it went; None where the outer program was ended before it could say so."""
    import json

    try:
        with open(path, "rb") as file:
            stay = unpack(json.load(file))
    except (OSError, ValueError, TypeError):
        return None
    return stay if isinstance(stay, Stay) else None


def clear(folder: str) -> None:
    """Remove the temporary folder of a command, whatever its program made of it. Nobody uses it any more."""
    import shutil

    if folder and os.path.isdir(folder):
        shutil.rmtree(folder, ignore_errors=True)
        for top, folders, _ in os.walk(folder):  # what is left could not be entered
            for path in (top, *(os.path.join(top, name) for name in folders)):
                if not os.path.islink(path):
                    os.chmod(path, 0o700)
        shutil.rmtree(folder, ignore_errors=True)


def _write(path: str, data: bytes) -> None:
    draft = f"{path}.{os.getpid()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with open(os.open(draft, flags, 0o600), "wb") as file:
        file.write(data)  # all of it, or an error: a full disk takes a part
    os.replace(draft, path)
