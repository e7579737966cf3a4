"""The turn file: lock, journal and result of one turn, in that order.

Its flock says that somebody is responsible. Its lines say what happened: `began` before the program is started (alone
it means "may have run"), `agent` for whom to end when the keeper is found dead, `result` at the end. A line counts only
with its line break.
"""

from __future__ import annotations

import errno
import fcntl
import os
from _json import encode_basestring_ascii
from zlib import crc32

from ralphproof.keeper.tree import boot
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

NOBODY = (0, 0)
SOMEBODY = (-1, 0)  # who began it is not known, or was of another start of the machine: not alive in any case
# What a result may hold. One that holds anything else was not written by a keeper.
_RESULT: dict[str, Any] = {
    "code": int | None,
    "signal": int | None,
    "why": str,
    "seconds": int | float,
    "out_bytes": int,
    "dropped_bytes": int,
    "lost_bytes": int,
    "cpu_s": int | float,
    "error": str,
    "survivors": list,
    "paused_s": int | float,
    "log_error": str,
}


@value
class Past:
    """What a turn file tells. `keeper` and `agent` are process ids with their start times, (0, 0) where unknown.

    No process of ours is one of another start of the machine: then the two are (-1, 0) and (0, 0).
    `what` tells one argument list from another; None where it is unknown.
    """

    keeper: tuple[int, int] = NOBODY
    agent: tuple[int, int] = NOBODY
    result: Mapping[str, Any] | None = None
    what: int | None = None

    @property
    def began(self) -> bool:
        """The program may have run."""
        return self.keeper != NOBODY


def what(argv: Iterable[bytes]) -> int:
    """A number for an argument list: a turn's result must never be taken for that of another command."""
    return crc32(b"\0".join(argv))


def take(path: str) -> int | None:
    """A descriptor that holds the turn's lock; None when somebody else is responsible."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def held(path: str) -> bool:
    """Whether somebody is responsible. Any number may look at once; a keeper that comes meanwhile tries again."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(file, fcntl.LOCK_UN)  # a program that is just being started may still have a copy of it
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def append(lock: int, fields: Mapping[str, object]) -> bytes:
    """Add one line and return it."""
    text = encode(fields)
    if os.write(lock, text) < len(text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return text


def mend(lock: int) -> None:
    """End a line that was torn, so that the next one stands alone. Even if only its end is missing, it never counts."""
    size = os.fstat(lock).st_size
    if size and os.pread(lock, 1, size - 1) != b"\n":
        os.write(lock, b" (torn)\n")


def read(path: str) -> Past:
    """What happened so far. A file that is not there tells nothing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return Past()
    try:
        data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    finally:
        os.close(descriptor)
    return _past(data) if data else Past()


def parse(line: bytes) -> dict[str, Any]:
    """The fields of one line; none if it is torn, or no line of ours."""
    import json

    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def began(argv: Iterable[bytes], pid: int, start: int) -> dict[str, object]:
    """The first line: who will run what. It stands there before anything is started."""
    return {"began": pid, "start": start, "boot": boot(), "what": what(argv)}


def _past(data: bytes) -> Past:
    keeper, agent, here = SOMEBODY, NOBODY, boot()  # a file that is not empty was begun, even if its line is torn
    begun: int | None = None
    for line in data.split(b"\n")[:-1]:
        match parse(line):
            case {"result": True, **result} if _credible(result):
                return Past(keeper, agent, result, begun)
            case {"began": int(pid), "start": int(start), **more} if pid > 0:
                keeper, begun = (pid, start) if more.get("boot", here) == here else SOMEBODY, more.get("what")
            case {"agent": int(pid), "start": int(start)} if keeper != SOMEBODY:
                agent = (pid, start)
    return Past(keeper, agent, what=begun)


def _credible(result: Mapping[str, Any]) -> bool:
    kinds = ((name, kind) for name, kind in _RESULT.items() if name in result)
    return {"code", "why"} <= result.keys() and all(isinstance(result[name], kind) for name, kind in kinds)


def encode(fields: Mapping[str, object]) -> bytes:
    """JSON by hand: the json module costs the keeper as much as all the rest of its start."""
    return ("{" + ",".join(f'"{name}":{_json(item)}' for name, item in fields.items()) + "}\n").encode()


def _json(item: object) -> str:
    if item is None or isinstance(item, bool):
        return "null" if item is None else "true" if item else "false"
    if isinstance(item, str):
        return encode_basestring_ascii(item)
    if isinstance(item, (list, tuple)):
        return "[" + ",".join(map(_json, item)) + "]"
    return repr(round(item, 4) if isinstance(item, float) else item)
