"""Decoding a line of JSON into a typed form, as fast as can be; what a good line holds that is wrong is forgiven."""

from __future__ import annotations

from msgspec import Raw
from msgspec.json import Decoder

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, TypeVar

    T = TypeVar("T")

MENDED_BYTES = 1 << 20  # a longer line is mended at too high a price in memory
ANYTHING = Decoder()
DIGITS = 30  # no number of ours has more


def decode(line: bytes, decoder: Decoder[T]) -> T:
    """What the line says; raises ValueError or RecursionError where it is no JSON, or none of this form.

    A byte that is no UTF-8, half of a surrogate pair, NaN or a number out of all bounds costs that value, not the line.
    """
    try:
        return decoder.decode(line)
    except ValueError:
        if len(line) > MENDED_BYTES or not line.lstrip().startswith((b"{", b"[", b'"')):
            raise
        return decoder.decode(_mended(line))


def loaded(raw: Raw) -> Any:
    """What a part of a line holds that was left undecoded; None where it is not there."""
    try:
        return ANYTHING.decode(raw)
    except ValueError:
        return decode(bytes(raw), ANYTHING) if bytes(raw) else None


def _mended(line: bytes) -> bytes:
    import json

    said = json.loads(
        line.decode("utf-8", "replace"), parse_constant=_nothing, parse_int=_number, parse_float=_fraction, strict=False
    )
    return json.dumps(said, ensure_ascii=False).encode("utf-8", "replace")


def _nothing(_: str) -> None:
    return None


def _number(digits: str) -> int | None:
    return int(digits) if len(digits) <= DIGITS else None


def _fraction(digits: str) -> float | None:
    number = float(digits)
    return number if abs(number) != float("inf") else None
