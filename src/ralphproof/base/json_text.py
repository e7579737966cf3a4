"""Reading JSON that people wrote: bounded, non-blocking, with the line of each error."""

from __future__ import annotations

import os

from ralphproof.base.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    import json
    from typing import Never

MAX_JSON_BYTES = 1 << 20
MAX_JSON_DEPTH = 32
TOO_DEEP = "is nested too deeply"
_FLAGS = os.O_RDONLY
for _name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):  # no system has them all
    _FLAGS |= getattr(os, _name, 0)


@value
class UnusableFile:
    """A file that is there and cannot be used, and why."""

    why: str


@value
class ParsedJson:
    """The data, or what is wrong with its text: each fault begins with its line and column where it has one.

    Of a doubled key `data` has the last value, and `other` the first.
    """

    data: object = None
    faults: tuple[str, ...] = ()
    other: object = None


def read_bounded_file(path: str, most_bytes: int = MAX_JSON_BYTES) -> bytes | UnusableFile | None:
    """The bytes of a regular file; None where there is none. Pipes and devices are never waited for."""
    import stat

    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            return UnusableFile("is a directory, not a file")
        if not stat.S_ISREG(mode):
            return UnusableFile("is not a regular file")
        with open(os.open(path, _FLAGS), "rb") as file:
            data = file.read(most_bytes + 1)
    except FileNotFoundError:
        return UnusableFile("is a link to a file that does not exist") if os.path.islink(path) else None
    except OSError as error:
        return UnusableFile(_os_error_reason(error))
    return data if len(data) <= most_bytes else UnusableFile(f"is larger than {most_bytes >> 20} MiB")


def _os_error_reason(error: OSError) -> str:
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


def decode_utf8(data: bytes) -> str | UnusableFile:
    """Text from UTF-8, with or without a byte order mark."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in data[:4]:
        return UnusableFile("1:1: is UTF-16 or UTF-32; save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
        return UnusableFile(f"{line}:{column}: is not UTF-8")


def parse_json(text: str) -> ParsedJson:
    """The JSON value of a text. Doubled keys, NaN and Infinity are faults."""
    import json

    if not text.strip():
        return ParsedJson(faults=("1:1: is empty; write {} or remove it",))
    doubled: list[str] = []
    try:
        data = json.loads(
            text,
            object_pairs_hook=lambda pairs: _reject_duplicates(pairs, doubled),
            parse_constant=_reject_constant,
            parse_float=_finite_number,
        )
    except json.JSONDecodeError as error:
        return ParsedJson(faults=(f"{error.lineno}:{error.colno}: {_syntax_hint(error)}",))
    except RecursionError:
        return ParsedJson(faults=(TOO_DEEP,))
    except ValueError as error:
        return ParsedJson(faults=(f"holds a number that cannot be read: {error}",))
    if _is_too_deep(data):
        return ParsedJson(faults=(TOO_DEEP,))
    other = json.loads(text, object_pairs_hook=lambda pairs: dict(reversed(pairs))) if doubled else data
    return ParsedJson(data, tuple(f"the key {name} is given twice" for name in doubled[:20]), other)


def _reject_duplicates(pairs: list[tuple[str, object]], doubled: list[str]) -> dict[str, object]:
    made: dict[str, object] = {}
    for name, inner in pairs:
        if name in made and name not in doubled[-20:]:
            doubled.append(name)
        made[name] = inner
    return made


def _is_too_deep(data: object) -> bool:
    level = [data]
    for _ in range(MAX_JSON_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return bool(level)


def _reject_constant(name: str) -> Never:
    raise ValueError(f"{name} is not JSON")


def _finite_number(digits: str) -> float:
    number = float(digits)
    return number if number - number == 0 else _reject_constant(digits[:40])


def _syntax_hint(error: json.JSONDecodeError) -> str:
    before, rest = error.doc[: error.pos].rstrip(), error.doc[error.pos :].lstrip()
    if rest.startswith(("//", "/*", "#")):
        return "JSON has no comments"
    if before.endswith(",") and rest[:1] in ("}", "]"):
        return "JSON has no comma after the last entry"
    return f"is not JSON: {error.msg[:1].lower()}{error.msg[1:]}"
