"""How records are put into words: masked JSON in plain ASCII, each record bound to the one before."""

from __future__ import annotations

import os

from ralphproof.errors import HarnessFailed, LedgerBroken, Refused
from ralphproof.value import TYPE_CHECKING, pack, unpack

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.record import Record
    from ralphproof.value import Json

    Mask = Callable[[str], str]
    Row = tuple[str, int, int, str, str, float, str]  # run, iteration, turn, step, kind, at, data


def rows(run: str, records: tuple[Record, ...], at: float, mask: Mask) -> list[Row]:
    """The rows that these records become."""
    from ralphproof.ledger import key_of

    made: list[Row] = []
    for record in records:
        iteration, turn, step = key_of(record)
        name = plain(mask(step))
        made.append((run, iteration, turn, name, type(record).__name__, at, to_json(pack(record), mask)))
    return made


def twice(row: Row) -> HarnessFailed:
    """The error for a second row of one key."""
    return HarnessFailed(f"run {row[0]} has {row[3]} of iteration {row[1]}, turn {row[2]} already: nothing was written")


def record_of(data: str, place: str) -> Record:
    """The record behind its JSON. `place` is how a damaged one is called."""
    import json

    import ralphproof.record

    try:
        record = unpack(json.loads(data))
    except (ValueError, TypeError) as error:
        raise LedgerBroken(f"{place} cannot be read: {error}") from error
    if not isinstance(record, ralphproof.record.Record):
        raise Refused(f"{place} is of a kind that this version does not know; use the newer ralph that wrote it")
    return record


def word_of(data: str, place: str) -> str:
    """The user's words behind their JSON."""
    import json

    try:
        return str(json.loads(data))
    except ValueError as error:
        raise LedgerBroken(f"{place} cannot be read: {error}") from error


def bound(previous: str, row: Row) -> str:
    """The digest of a row that follows the row with digest `previous`."""
    import hashlib
    import json

    return hashlib.sha256(json.dumps([previous, *row], default=repr).encode()).hexdigest()


def to_json(data: Json, mask: Mask, indent: int | None = None) -> str:
    """JSON in ASCII, so that undecodable bytes survive; each text in it is masked before it is quoted."""
    import json

    try:
        return json.dumps(masked(data, mask), allow_nan=False, sort_keys=indent is not None, indent=indent)
    except ValueError as error:
        raise HarnessFailed(f"a number that JSON does not have was to be recorded: {error}") from error


def masked(data: Json, mask: Mask) -> Json:
    """The same data with every text masked. Names of kinds and fields are ours and stay; other keys are data."""
    if isinstance(data, str):
        return mask(data)
    if isinstance(data, list):
        return [masked(item, mask) for item in data]
    if not isinstance(data, dict):
        return data
    if "is" in data:
        return {name: item if name == "is" else masked(item, mask) for name, item in data.items()}
    return {mask(name): masked(item, mask) for name, item in data.items()}


def plain(text: str) -> str:
    """The text itself, or, where UTF-8 has no form for it, one with escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def to_bytes(text: str) -> bytes:
    """The bytes behind a text. Half a character that never was a byte becomes a replacement mark."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def stored(path: str) -> str | bytes:
    """A path as SQLite takes it: one that is not UTF-8 goes in as its bytes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return os.fsencode(path)
    return path
