"""Small state files of a session in the temporary folder: alerts given, refusals counted."""

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
LOCK_TIMEOUT_S, LOCK_POLL_S = (
    1.0,
    0.005,
)  # another hook of this session needs a moment; one that was stopped is not waited for


def session_file_path(kind: str, session: str) -> str:
    """Where such a file lies. A session's name is anybody's: one that is no plain word is named by its digest."""
    plain = (
        session.isascii() and session.replace("-", "").replace("_", "").isalnum() and len(session) <= MAX_PLAIN_CHARS
    )
    return os.path.join(_temporary_folder(), f"{kind}-{session if plain else text_digest(session)}")


def text_digest(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def _temporary_folder() -> str:
    """The folder for temporary files; the module that knows it better takes longer to load than all of us."""
    named = (os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP"))
    return next((folder for folder in named if os.path.isabs(folder) and os.path.isdir(folder)), "/tmp")  # noqa: S108


def update_session_file(path: str, make: Callable[[str], str]) -> bool:
    """Replace what the file says, one process at a time; False where it cannot be had: it is not ours, or no file."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    try:
        file = os.open(path, flags, 0o600)
    except OSError:
        return False
    try:
        return _is_own_file(file) and _lock_file(file) and _replace_contents(file, make)
    except OSError:
        return False
    finally:
        os.close(file)


def _is_own_file(file: int) -> bool:
    """A second name would be somebody's who has us write to another file of ours."""
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


def _replace_contents(file: int, make: Callable[[str], str]) -> bool:
    after = make(os.pread(file, MAX_BYTES, 0).decode("utf-8", "replace")).encode("utf-8", "replace")
    os.pwrite(file, after, 0)
    os.ftruncate(file, len(after))
    return True


def remove_session_file(path: str) -> None:
    """Begin anew."""
    try:
        os.unlink(path)
    except OSError:
        pass
