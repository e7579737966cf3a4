"""What has to be remembered of a sandbox that keeps copies of the project's files.

A file that was copied into it once is never copied again: an edit made outside later is ignored there until the sandbox
is stopped (Docker Desktop 4.58).
"""

from __future__ import annotations

import os

from ralphproof.value import TYPE_CHECKING, pack, unpack, value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LEFT_OUT = ".git/objects"  # large, and never changed in place


@value
class SandboxNote:
    """One sandbox as we left it.

    `links` lie in the home of its user. `hosts` are what it may reach, by the agent that asked for them. `files` are
    those of the project, when it was quiet; None: nobody looked.
    """

    workspaces: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    hosts: Mapping[str, tuple[str, ...]] | None = None
    files: Mapping[str, str] | None = None


def read_note(path: str) -> SandboxNote | None:
    """What was remembered; None where nothing was, or nobody can read it."""
    import json

    try:
        with open(path, "rb") as file:
            note = unpack(json.load(file))
    except (OSError, ValueError, TypeError):
        return None
    return note if isinstance(note, SandboxNote) else None


def write_note(path: str, note: SandboxNote) -> None:
    """Whole or not at all, for the user's eyes alone."""
    import json

    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    draft = f"{path}.{os.getpid()}.tmp"
    made = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(made, "w", encoding="ascii") as file:
        json.dump(pack(note), file)
    os.replace(draft, path)


def look(root: str) -> dict[str, str]:
    """Every file of the project with its size and the time of its last change."""
    found: dict[str, str] = {}
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            entries = list(os.scandir(os.path.join(root, folder)))
        except OSError:
            continue
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if path == LEFT_OUT:
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(path)
                continue
            try:
                state = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            found[path] = f"{state.st_size}.{state.st_mtime_ns}"
    return found


def stale(then: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Files that the sandbox has, and that were changed or removed outside since. New ones are copied into it."""
    return tuple(path for path, state in then.items() if now.get(path) != state)


def quiet(root: str, pause_s: float, pauses: int, sleep: Callable[[float], None]) -> dict[str, str]:
    """The files, once two looks are the same; after so many pauses, as they are."""
    seen = look(root)
    for _ in range(pauses):
        sleep(pause_s)
        again = look(root)
        if again == seen:
            break
        seen = again
    return seen
