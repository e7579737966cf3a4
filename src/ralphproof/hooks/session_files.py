"""Small state files of a session in the temporary folder: alerts and refusals so far."""

from __future__ import annotations

import fcntl
import os
import stat
import time

from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

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
