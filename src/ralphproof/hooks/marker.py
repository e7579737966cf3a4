"""The marker of a run in its project: where it is, whether it holds for this session, and what it says."""

from __future__ import annotations

import json
import os
import stat

from ralphproof.hooks.given import say, text
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

NAME = ".ralph-active"
MOST_BYTES = 32 << 20


class Malformed(Exception):
    """The marker is there, and says nothing that can be understood."""


def in_a_run() -> str:
    """The run whose turn this session is; empty where it is none."""
    return os.environ.get("RALPH_RUN_ID", "")


def project_of(given: dict[str, Any]) -> str:
    """The folder that has the marker: the agent's project, else the nearest one around where it is; empty for none."""
    for start in (os.environ.get("CLAUDE_PROJECT_DIR", ""), text(given, "cwd") or _here()):
        if os.path.isabs(start) and (found := _around(start)):
            return found
    return ""


def _here() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""  # somebody removed it


def _around(start: str) -> str:
    """The nearest folder with a marker, no further up than to the root of the repository."""
    folder = os.path.realpath(start)
    while not os.path.lexists(os.path.join(folder, NAME)):
        above = os.path.dirname(folder)
        if above == folder or os.path.lexists(os.path.join(folder, ".git")):
            return ""
        folder = above
    return folder


def marker_in(project: str) -> dict[str, Any]:
    """What the marker says; empty where it is gone, or somebody else's. Raises Malformed."""
    try:
        file = os.open(os.path.join(project, NAME), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Malformed(f"{NAME} cannot be read: {error.strerror}") from error
    try:
        if _is_foreign(file, project):
            say(f"{NAME} in {project} belongs to somebody else; nothing is checked")
            return {}
        found = json.loads(_contents(file))
    except (ValueError, RecursionError, MemoryError) as error:
        raise Malformed(f"{NAME} is not valid JSON: {error or 'it is too much'}") from error
    except OSError as error:
        raise Malformed(f"{NAME} cannot be read: {error.strerror}") from error
    finally:
        os.close(file)
    if not isinstance(found, dict):
        raise Malformed(f"{NAME} holds no JSON object")
    return found


def _is_foreign(file: int, project: str) -> bool:
    """In a folder that everybody may write to, a marker of another user than the folder's and ours orders nothing."""
    return os.fstat(file).st_uid not in (os.geteuid(), os.stat(project).st_uid)


def _contents(file: int) -> bytes:
    state = os.fstat(file)
    if not stat.S_ISREG(state.st_mode):
        raise Malformed(f"{NAME} is no file")
    if state.st_size > MOST_BYTES:
        raise Malformed(f"{NAME} is larger than {MOST_BYTES >> 20} MiB")
    data = b""
    while len(data) <= MOST_BYTES and (piece := os.read(file, MOST_BYTES)):
        data += piece
    return data


def is_ours(marker: dict[str, Any]) -> bool:
    """Whether this session belongs to the run of the marker. One that names no run has every session of the folder."""
    run = marker.get("run")
    return run is None or (isinstance(run, str) and in_a_run() == run)


def lives(marker: dict[str, Any]) -> bool:
    """Whether the loop of the marker still runs, or this session is a turn of it.

    A turn outlives a loop that was killed, and in a sandbox it cannot see the process of its loop.
    """
    if marker.get("run") is not None and is_ours(marker):
        return True
    pid, start = marker.get("pid"), marker.get("pidStart")
    if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 0:
        return False
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return fields[0] not in (b"Z", b"X") and (not start or fields[19].decode() == start)
    except (OSError, IndexError):
        pass
    if os.path.exists("/proc/self/stat"):
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True
