"""What a hook knows about its session: the event on standard input, the marker of its run, and its state files."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import sys
import time

from ralphproof.base.processes import ProcessIdentity
from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


MAX_EVENT_BYTES = 32 << 20  # an event may contain the whole output of a tool
MAX_DRAINED_BYTES = 1 << 30
CHUNK_BYTES = 1 << 20


def read_event() -> dict[str, Any]:
    """The event on standard input; empty, with a log line, where it cannot be understood."""
    event = read_event_or_none()
    if event is None:
        log_line("no event on standard input that can be understood; nothing is done")
        return {}
    return event


def read_event_or_none() -> dict[str, Any] | None:
    """The event on standard input; None where it cannot be understood."""
    try:
        data = _read_stdin()
        event = json.loads(data) if len(data) <= MAX_EVENT_BYTES else None
    except (ValueError, RecursionError, MemoryError, OSError):
        return None
    return event if isinstance(event, dict) else None


def _read_stdin() -> bytes:
    """Standard input to its end. Data over the limit is drained and dropped: closing early would fail the writer."""
    if os.isatty(0):
        return b""
    chunks, total = [], 0
    while total < MAX_DRAINED_BYTES and (data := os.read(0, CHUNK_BYTES)):
        total += len(data)
        if total <= MAX_EVENT_BYTES + CHUNK_BYTES:
            chunks.append(data)
    return b"".join(chunks)


def text_field(event: dict[str, Any], name: str) -> str:
    """A text field of the event; empty where it is no text, or text that no file name could hold."""
    text = event.get(name)
    if not isinstance(text, str) or "\0" in text:
        return ""
    try:
        text.encode()
    except UnicodeEncodeError:
        return ""
    return text


def read_regular_file(path: str, max_bytes: int) -> bytes:
    """The content of a regular file, at most one byte more than this. Never blocks on a pipe; raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "it is no file")
        with open(file, "rb", closefd=False) as opened:
            return opened.read(max_bytes + 1)
    finally:
        os.close(file)


def log_line(line: str) -> None:
    """Print a line on standard error, which agents write to their log."""
    try:
        print(f"ralph hook: {to_single_line(line)}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass  # the reader is gone


def to_single_line(line: str) -> str:
    """The text with line breaks and control characters escaped: file names in it are not trusted."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in line)


# The marker file `.ralph-active` of a run in its project: finding it, reading it, and whether it is current.


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
    if not isinstance(pid, int) or isinstance(pid, bool):
        return False
    return ProcessIdentity(pid, start if isinstance(start, str) else "").alive


# Small state files of a session in the temporary folder: alerts and refusals so far.


ALERTS_PREFIX, REFUSALS_PREFIX = "claude-context-alerts", "ralph-stop-blocks"
MAX_BYTES = 64 << 10
MAX_PLAIN_CHARS = 100
LOCK_TIMEOUT_S, LOCK_POLL_S = 1.0, 0.005  # hooks of one session hold it briefly; a stopped one must not block us


def session_file_path(kind: str, session: str) -> str:
    """The path of a session's file. Session ids are not trusted: one that is no plain word becomes its digest."""
    plain = (
        session.isascii() and session.replace("-", "").replace("_", "").isalnum() and len(session) <= MAX_PLAIN_CHARS
    )
    return os.path.join(_temporary_folder(), f"{kind}-{session if plain else text_digest(session)}")


def text_digest(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def _temporary_folder() -> str:
    """The folder for temporary files. `tempfile` would take longer to import than the whole hook."""
    named = (os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP"))
    return next((folder for folder in named if os.path.isabs(folder) and os.path.isdir(folder)), "/tmp")  # noqa: S108


def update_session_file(path: str, change: Callable[[str], str]) -> bool:
    """Replace the file's content under a lock; False where that fails, or it is not our own regular file."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    try:
        file = os.open(path, flags, 0o600)
    except OSError:
        return False
    try:
        return _is_own_file(file) and _lock_file(file) and _replace_contents(file, change)
    except OSError:
        return False
    finally:
        os.close(file)


def _is_own_file(file: int) -> bool:
    """Whether it is a regular file of ours with one name; a second hard link could make us overwrite another file."""
    state = os.fstat(file)
    return stat.S_ISREG(state.st_mode) and state.st_uid == os.geteuid() and state.st_nlink <= 1


def _lock_file(file: int) -> bool:
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(LOCK_POLL_S)
        else:
            return True


def _replace_contents(file: int, change: Callable[[str], str]) -> bool:
    after = change(os.pread(file, MAX_BYTES, 0).decode("utf-8", "replace")).encode("utf-8", "replace")
    os.pwrite(file, after, 0)
    os.ftruncate(file, len(after))
    return True


def remove_session_file(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
