"""What a hook is handed: the event on standard input, and the marker of the run in the project."""

from __future__ import annotations

import json
import os
import sys

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

MARKER = ".ralph-active"
MOST_BYTES = 32 << 20  # of an event; a tool's whole output may stand in it
MOST_MARKER = 4 << 20


class Malformed(Exception):
    """The marker is there, and says nothing that can be understood."""


def event() -> dict[str, Any]:
    """The event; empty where there is none that can be understood."""
    try:
        data = sys.stdin.buffer.read(MOST_BYTES + 1)
        found = json.loads(data) if len(data) <= MOST_BYTES else None
    except (ValueError, RecursionError, OSError):
        found = None
    if not isinstance(found, dict):
        print("ralph hook: no event on standard input that can be understood; nothing is done", file=sys.stderr)
        return {}
    return found


def text(given: dict[str, Any], name: str) -> str:
    """A field of the event that is text; empty where it is none."""
    found = given.get(name)
    return found if isinstance(found, str) and "\0" not in found else ""


def project_of(given: dict[str, Any]) -> str:
    """The folder that has the marker: the agent's project, else the nearest one around where it is; empty for none."""
    here = os.environ.get("CLAUDE_PROJECT_DIR") or text(given, "cwd") or os.getcwd()
    for start in dict.fromkeys((here, text(given, "cwd") or here)):
        folder = os.path.realpath(start)
        while True:
            if os.path.lexists(os.path.join(folder, MARKER)):
                return folder
            above = os.path.dirname(folder)
            if above == folder or os.path.lexists(os.path.join(folder, ".git")):
                break
            folder = above
    return ""


def marker_in(project: str) -> dict[str, Any]:
    """What the marker says; raises Malformed."""
    try:
        file = os.open(os.path.join(project, MARKER), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(file, "rb") as opened:
            found = json.loads(opened.read(MOST_MARKER))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError, OSError) as error:
        raise Malformed(f"{MARKER} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise Malformed(f"{MARKER} holds no JSON object")
    return found


def is_ours(marker: dict[str, Any]) -> bool:
    """Whether this session belongs to the run of the marker. One that names no run has every session of the folder."""
    run = marker.get("run")
    return run is None or os.environ.get("RALPH_RUN_ID") == run


def lives(marker: dict[str, Any]) -> bool:
    """Whether the loop that wrote the marker still runs."""
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
