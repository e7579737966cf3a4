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

from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any


@value
class Past:
    """What a turn file tells. `keeper` and `agent` are process ids with their start times, (0, 0) where unknown.

    `what` tells one argument list from another; None where it is unknown.
    """

    keeper: tuple[int, int] = (0, 0)
    agent: tuple[int, int] = (0, 0)
    result: Mapping[str, Any] | None = None
    what: int | None = None

    @property
    def began(self) -> bool:
        """The program may have run."""
        return self.keeper[0] != 0


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


def append(lock: int, fields: Mapping[str, object]) -> bytes:
    """Add one line and return it."""
    text = encode(fields)
    if os.write(lock, text) < len(text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return text


def mend(lock: int) -> None:
    """End a line that was torn, so that the next one stands alone."""
    size = os.fstat(lock).st_size
    if size and os.pread(lock, 1, size - 1) != b"\n":
        os.write(lock, b"\n")


def read(path: str) -> Past:
    """What happened so far. A file that is not there tells nothing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return Past()
    try:
        data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    finally:
        os.close(descriptor)
    return _past(data) if data else Past()


def parse(line: bytes) -> dict[str, Any]:
    """The fields of one line; none if it is torn."""
    import json

    try:
        fields = json.loads(line)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _past(data: bytes) -> Past:
    keeper = agent = (0, 0)
    begun: int | None = None
    for line in data.split(b"\n")[:-1]:
        match parse(line):
            case {"result": True, **result}:
                return Past(keeper, agent, result, begun)
            case {"began": int(pid), "start": int(start), **more}:
                keeper, begun = (pid, start), more.get("what")
            case {"agent": int(pid), "start": int(start)}:
                agent = (pid, start)
    # A file that is not empty was begun, even if its first line is torn.
    return Past(keeper if keeper[0] else (-1, 0), agent, what=begun)


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
