"""Decoder of the JSON lines that agents print."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from msgspec import Raw
from msgspec.json import Decoder

from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    T = TypeVar("T")

MAX_REPAIR_BYTES = 1 << 20  # repairing a longer line would take too much memory
ANY_DECODER = Decoder()
MAX_DIGITS = 30  # of a number; a longer one is dropped


def decode_line(line: bytes, decoder: Decoder[T]) -> T:
    """The decoded line; raises ValueError or RecursionError where it is not JSON or not of this type.

    Invalid UTF-8, half of a surrogate pair, NaN and numbers out of bounds lose that value, not the line.
    """
    try:
        return decoder.decode(line)
    except ValueError:
        if len(line) > MAX_REPAIR_BYTES or not line.lstrip().startswith((b"{", b"[", b'"')):
            raise
        return decoder.decode(_repair_line(line))


def decode_raw(raw: Raw) -> Any:
    """The value of an undecoded part of a line; None where it is missing."""
    try:
        return ANY_DECODER.decode(raw)
    except ValueError:
        return decode_line(bytes(raw), ANY_DECODER) if bytes(raw) else None


def _repair_line(line: bytes) -> bytes:
    decoded = json.loads(
        line.decode("utf-8", "replace"),
        parse_constant=_parse_constant,
        parse_int=_parse_int,
        parse_float=_parse_float,
        strict=False,
    )
    return json.dumps(decoded, ensure_ascii=False).encode("utf-8", "replace")


def _parse_constant(_: str) -> None:
    return None


def _parse_int(digits: str) -> int | None:
    return int(digits) if len(digits) <= MAX_DIGITS else None


def _parse_float(digits: str) -> float | None:
    number = float(digits)
    return number if abs(number) != float("inf") else None
