"""Reads JSON that people wrote: bounded, never blocking, and each fault is one line that says where it is."""

from __future__ import annotations

import os

from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    import json

MOST_BYTES = 1 << 20
MOST_LEVELS = 32
TOO_DEEP = "is nested too deeply"
_FLAGS = os.O_RDONLY
for _name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):  # no system has them all
    _FLAGS |= getattr(os, _name, 0)


@value
class Unusable:
    """A file that is there and cannot be used, and why."""

    why: str


@value
class Parsed:
    """The data, or what is wrong with its text: each fault begins with its line and column where it has one.

    Of a doubled key `data` has the last value, and `other` the first.
    """

    data: object = None
    faults: tuple[str, ...] = ()
    other: object = None


def contents(path: str, most_bytes: int = MOST_BYTES) -> bytes | Unusable | None:
    """The bytes of a regular file; None where there is none. Pipes and devices are never waited for."""
    import stat

    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            return Unusable("is a directory, not a file")
        if not stat.S_ISREG(mode):
            return Unusable("is not a regular file")
        with open(os.open(path, _FLAGS), "rb") as file:
            data = file.read(most_bytes + 1)
    except FileNotFoundError:
        return Unusable("is a link to a file that does not exist") if os.path.islink(path) else None
    except OSError as error:
        return Unusable(_reason(error))
    return data if len(data) <= most_bytes else Unusable(f"is larger than {most_bytes >> 20} MiB")


def _reason(error: OSError) -> str:
    import errno

    match error.errno:
        case errno.ELOOP:
            return "is a link that leads to itself"
        case errno.EACCES | errno.EPERM:
            return "may not be read: permission denied"
        case errno.ENOTDIR:
            return "cannot be read: a part of its path is not a directory"
        case _:
            return f"cannot be read: {error.strerror}"


def decode(data: bytes) -> str | Unusable:
    """Text from UTF-8, with or without a byte order mark."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in data[:4]:
        return Unusable("1:1: is UTF-16 or UTF-32; save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
        return Unusable(f"{line}:{column}: is not UTF-8")


def parse(text: str) -> Parsed:
    """The JSON value of a text. Doubled keys, NaN and Infinity are faults."""
    import json

    if not text.strip():
        return Parsed(faults=("1:1: is empty; write {} or remove it",))
    doubled: list[str] = []
    try:
        data = json.loads(text, object_pairs_hook=lambda pairs: _once(pairs, doubled), parse_constant=_constant)
    except json.JSONDecodeError as error:
        return Parsed(faults=(f"{error.lineno}:{error.colno}: {_hint(error)}",))
    except RecursionError:
        return Parsed(faults=(TOO_DEEP,))
    except ValueError as error:
        return Parsed(faults=(f"holds a number that cannot be read: {error}",))
    if _deep(data):
        return Parsed(faults=(TOO_DEEP,))
    other = json.loads(text, object_pairs_hook=lambda pairs: dict(reversed(pairs))) if doubled else data
    return Parsed(data, tuple(f"the key {name} is given twice" for name in doubled[:20]), other)


def _once(pairs: list[tuple[str, object]], doubled: list[str]) -> dict[str, object]:
    made: dict[str, object] = {}
    for name, inner in pairs:
        if name in made and name not in doubled[-20:]:
            doubled.append(name)
        made[name] = inner
    return made


def _deep(data: object) -> bool:
    level = [data]
    for _ in range(MOST_LEVELS):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return bool(level)


def _constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _hint(error: json.JSONDecodeError) -> str:
    before, rest = error.doc[: error.pos].rstrip(), error.doc[error.pos :].lstrip()
    if rest.startswith(("//", "/*", "#")):
        return "JSON has no comments"
    if before.endswith(",") and rest[:1] in ("}", "]"):
        return "JSON has no comma after the last entry"
    return f"is not JSON: {error.msg[:1].lower()}{error.msg[1:]}"
