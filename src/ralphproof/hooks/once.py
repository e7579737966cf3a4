"""Small files about a session, in the folder for temporary files: what was told, how often an end was refused."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import stat
import tempfile

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_BYTES = 64 << 10


def path_of(kind: str, session: str) -> str:
    """Where such a file lies. A session's name is anybody's: one that is no plain word is named by its digest."""
    plain = session if re.fullmatch(r"[A-Za-z0-9._-]{1,100}", session) else hashlib.sha256(session.encode()).hexdigest()
    return os.path.join(tempfile.gettempdir(), f"{kind}-{plain}")


def change(path: str, make: Callable[[str], str]) -> bool:
    """Replace what the file says, one process at a time; False where it cannot be had: it is not ours, or no file."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    except OSError:
        return False
    try:
        state = os.fstat(file)
        if not stat.S_ISREG(state.st_mode) or state.st_uid != os.geteuid():
            return False
        fcntl.flock(file, fcntl.LOCK_EX)
        before = os.pread(file, MOST_BYTES, 0).decode("utf-8", "replace")
        after = make(before).encode()
        os.pwrite(file, after, 0)
        os.ftruncate(file, len(after))
    except OSError:
        return False
    finally:
        os.close(file)
    return True


def forget(path: str) -> None:
    """Begin anew."""
    try:
        os.unlink(path)
    except OSError:
        pass
