"""The turn file: lock, journal and result of one turn.

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

from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.process.tree import current_boot_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

NO_PROCESS = (0, 0)
UNKNOWN_PROCESS = (-1, 0)  # who began it is not known, or was of another start of the machine: not alive in any case
# What a result may hold. One that holds anything else was not written by a keeper.
_RESULT_FIELDS: dict[str, Any] = {
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
class TurnHistory:
    """What a turn file tells. `keeper` and `agent` are process ids with their start times, (0, 0) where unknown.

    No process of ours is one of another start of the machine: then the two are (-1, 0) and (0, 0).
    `what` tells one argument list from another; None where it is unknown.
    """

    keeper: tuple[int, int] = NO_PROCESS
    agent: tuple[int, int] = NO_PROCESS
    result: Mapping[str, Any] | None = None
    what: int | None = None

    @property
    def began(self) -> bool:
        """The program may have run."""
        return self.keeper != NO_PROCESS


def argv_checksum(argv: Iterable[bytes]) -> int:
    """A number for an argument list: a turn's result must never be taken for that of another command."""
    return crc32(b"\0".join(argv))


def lock_turn_file(path: str) -> int | None:
    """A descriptor that holds the turn's lock; None when somebody else is responsible."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def is_turn_locked(path: str) -> bool:
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


def append_entry(lock: int, fields: Mapping[str, object]) -> bytes:
    """Add one line and return it."""
    text = encode_entry(fields)
    if os.write(lock, text) < len(text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return text


def end_torn_line(lock: int) -> None:
    """End a line that was torn, so that the next one stands alone. Even if only its end is missing, it never counts."""
    size = os.fstat(lock).st_size
    if size and os.pread(lock, 1, size - 1) != b"\n":
        os.write(lock, b" (torn)\n")


def read_turn_file(path: str) -> TurnHistory:
    """What happened so far. A file that is not there tells nothing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return TurnHistory()
    try:
        data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    finally:
        os.close(descriptor)
    return _parse_history(data) if data else TurnHistory()


def parse_entry(line: bytes) -> dict[str, Any]:
    """The fields of one line; none if it is torn, or no line of ours."""
    import json

    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def began_entry(argv: Iterable[bytes], pid: int, start: int) -> dict[str, object]:
    """The first line: who will run what. It stands there before anything is started."""
    return {"began": pid, "start": start, "boot": current_boot_id(), "what": argv_checksum(argv)}


def _parse_history(data: bytes) -> TurnHistory:
    keeper, agent, here = (
        UNKNOWN_PROCESS,
        NO_PROCESS,
        current_boot_id(),
    )  # a file that is not empty was begun, even if its line is torn
    begun: int | None = None
    for line in data.split(b"\n")[:-1]:
        match parse_entry(line):
            case {"result": True, **result} if _is_valid_result(result):
                return TurnHistory(keeper, agent, result, begun)
            case {"began": int(pid), "start": int(start), **more} if pid > 0:
                keeper, begun = (pid, start) if more.get("boot", here) == here else UNKNOWN_PROCESS, more.get("what")
            case {"agent": int(pid), "start": int(start)} if keeper != UNKNOWN_PROCESS:
                agent = (pid, start)
    return TurnHistory(keeper, agent, what=begun)


def _is_valid_result(result: Mapping[str, Any]) -> bool:
    kinds = ((name, kind) for name, kind in _RESULT_FIELDS.items() if name in result)
    return {"code", "why"} <= result.keys() and all(isinstance(result[name], kind) for name, kind in kinds)


def encode_entry(fields: Mapping[str, object]) -> bytes:
    """JSON by hand: the json module costs the keeper as much as all the rest of its start."""
    return ("{" + ",".join(f'"{name}":{_encode_json(item)}' for name, item in fields.items()) + "}\n").encode()


def _encode_json(item: object) -> str:
    if item is None or isinstance(item, bool):
        return "null" if item is None else "true" if item else "false"
    if isinstance(item, str):
        return encode_basestring_ascii(item)
    if isinstance(item, (list, tuple)):
        return "[" + ",".join(map(_encode_json, item)) + "]"
    return repr(round(item, 4) if isinstance(item, float) else item)
