"""The marker file `.ralph-active` of a run in its project: finding it, reading it, and whether it is current."""

from __future__ import annotations

import json
import os
import stat

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.hooks.hook_input import log_line, text_field

if TYPE_CHECKING:
    from typing import Any

MARKER_NAME = ".ralph-active"
MAX_MARKER_BYTES = 32 << 20


class MalformedMarker(Exception):
    """The marker exists, but cannot be read or understood."""


def current_run_id() -> str:
    """The run that this session is a turn of; empty outside a run."""
    return os.environ.get("RALPH_RUN_ID", "")


def find_project(event: dict[str, Any]) -> str:
    """The nearest folder with a marker, above the agent's project or above its working directory; empty for none."""
    for start in (os.environ.get("CLAUDE_PROJECT_DIR", ""), text_field(event, "cwd") or _current_folder()):
        if os.path.isabs(start) and (folder := _find_marker_above(start)):
            return folder
    return ""


def _current_folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""  # it was removed


def _find_marker_above(start: str) -> str:
    """The nearest folder with a marker, at most up to the root of the repository."""
    folder = os.path.realpath(start)
    while not os.path.lexists(os.path.join(folder, MARKER_NAME)):
        above = os.path.dirname(folder)
        if above == folder or os.path.lexists(os.path.join(folder, ".git")):
            return ""
        folder = above
    return folder


def read_marker(project: str) -> dict[str, Any]:
    """The marker's content; empty where it is gone or owned by another user. Raises MalformedMarker."""
    try:
        file = os.open(os.path.join(project, MARKER_NAME), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise MalformedMarker(f"{MARKER_NAME} cannot be read: {error.strerror}") from error
    try:
        if _is_foreign(file, project):
            log_line(f"{MARKER_NAME} in {project} belongs to somebody else; nothing is checked")
            return {}
        marker = json.loads(_read_marker_file(file))
    except (ValueError, RecursionError, MemoryError) as error:
        raise MalformedMarker(f"{MARKER_NAME} is not valid JSON: {error or 'it is too much'}") from error
    except OSError as error:
        raise MalformedMarker(f"{MARKER_NAME} cannot be read: {error.strerror}") from error
    finally:
        os.close(file)
    if not isinstance(marker, dict):
        raise MalformedMarker(f"{MARKER_NAME} holds no JSON object")
    return marker


def _is_foreign(file: int, project: str) -> bool:
    """Whether the marker is owned by neither us nor the folder's owner: in a shared folder anybody may write one."""
    return os.fstat(file).st_uid not in (os.geteuid(), os.stat(project).st_uid)


def _read_marker_file(file: int) -> bytes:
    state = os.fstat(file)
    if not stat.S_ISREG(state.st_mode):
        raise MalformedMarker(f"{MARKER_NAME} is no file")
    if state.st_size > MAX_MARKER_BYTES:
        raise MalformedMarker(f"{MARKER_NAME} is larger than {MAX_MARKER_BYTES >> 20} MiB")
    data = b""
    while len(data) <= MAX_MARKER_BYTES and (piece := os.read(file, MAX_MARKER_BYTES)):
        data += piece
    return data


def is_for_this_session(marker: dict[str, Any]) -> bool:
    """Whether this session belongs to the run of the marker. A marker that names no run applies to every session."""
    run = marker.get("run")
    return run is None or (isinstance(run, str) and current_run_id() == run)


def is_loop_alive(marker: dict[str, Any]) -> bool:
    """Whether the loop of the marker still runs, or this session is a turn of it.

    A turn outlives a loop that was killed, and in a sandbox it cannot see the process of its loop.
    """
    if marker.get("run") is not None and is_for_this_session(marker):
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
