"""The turn file: lock, journal and result of one turn.

Its flock is held by the keeper that runs the turn. Its lines are JSON objects: `began` is written before the program is
started (alone it means "may have run"), `agent` names the process to kill if the keeper is found dead, `result` is
written at the end. A line counts only with its line break.
"""

from __future__ import annotations

import errno
import fcntl
import os
from _json import encode_basestring_ascii
from zlib import crc32

from ralphproof.base.processes import boot_id
from ralphproof.base.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

NO_PROCESS = (0, 0)
UNKNOWN_PROCESS = (-1, 0)  # not known, or from before a reboot: not alive in any case
# The types of a result's fields. A line that differs was not written by a keeper.
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
    """What a turn file says. `keeper` and `agent` are process ids with their start times, (0, 0) where unknown.

    Processes from before a reboot are not ours: then the two are (-1, 0) and (0, 0). `argv_checksum` is None where it
    is unknown.
    """

    keeper: tuple[int, int] = NO_PROCESS
    agent: tuple[int, int] = NO_PROCESS
    result: Mapping[str, Any] | None = None
    argv_checksum: int | None = None

    @property
    def began(self) -> bool:
        """The program may have run."""
        return self.keeper != NO_PROCESS


def argv_checksum(argv: Iterable[bytes]) -> int:
    """Identifies an argument list, so that a result is never taken for that of another command."""
    return crc32(b"\0".join(argv))


def lock_turn_file(path: str) -> int | None:
    """A descriptor that holds the turn's lock; None when another process holds it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def is_turn_locked(path: str) -> bool:
    """Whether a process holds the turn's lock. Any number may look at once; a keeper that comes meanwhile retries."""
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
    """Append one line and return it."""
    text = encode_entry(fields)
    if os.write(lock, text) < len(text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return text


def end_torn_line(lock: int) -> None:
    """Terminate a line that was torn by a crash, so that the next one is a line of its own. It never counts."""
    size = os.fstat(lock).st_size
    if size and os.pread(lock, 1, size - 1) != b"\n":
        os.write(lock, b" (torn)\n")


def read_turn_file(path: str) -> TurnHistory:
    """The history of a turn so far; an empty one for a missing file."""
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
    """The fields of one line; none if it is torn, or not a JSON object."""
    import json

    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def began_entry(argv: Iterable[bytes], pid: int, start: int) -> dict[str, object]:
    """The first line: which keeper will run which arguments. It is written before anything is started."""
    return {"began": pid, "start": start, "boot": boot_id(), "argv": argv_checksum(argv)}


def _parse_history(data: bytes) -> TurnHistory:
    keeper, agent = UNKNOWN_PROCESS, NO_PROCESS  # a file that is not empty was begun, even if its line is torn
    boot, checksum = boot_id(), None
    for line in data.split(b"\n")[:-1]:
        match parse_entry(line):
            case {"result": True, **result} if _is_valid_result(result):
                return TurnHistory(keeper, agent, result, checksum)
            case {"began": int(pid), "start": int(start), **rest} if pid > 0:
                keeper = (pid, start) if rest.get("boot", boot) == boot else UNKNOWN_PROCESS
                checksum = rest.get("argv")
            case {"agent": int(pid), "start": int(start)} if keeper != UNKNOWN_PROCESS:
                agent = (pid, start)
    return TurnHistory(keeper, agent, argv_checksum=checksum)


def _is_valid_result(result: Mapping[str, Any]) -> bool:
    kinds = ((name, kind) for name, kind in _RESULT_FIELDS.items() if name in result)
    return {"code", "why"} <= result.keys() and all(isinstance(result[name], kind) for name, kind in kinds)


def encode_entry(fields: Mapping[str, object]) -> bytes:
    """A line of JSON, without the json module: to import it would double the keeper's start-up time."""
    return ("{" + ",".join(f'"{name}":{_encode_json(item)}' for name, item in fields.items()) + "}\n").encode()


def _encode_json(item: object) -> str:
    if item is None or isinstance(item, bool):
        return "null" if item is None else "true" if item else "false"
    if isinstance(item, str):
        return encode_basestring_ascii(item)
    if isinstance(item, (list, tuple)):
        return "[" + ",".join(map(_encode_json, item)) + "]"
    return repr(round(item, 4) if isinstance(item, float) else item)
