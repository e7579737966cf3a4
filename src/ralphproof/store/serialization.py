"""Records as masked JSON rows, chained by digest."""

from __future__ import annotations

import os

from ralphproof.base.errors import HarnessFailed, LedgerBroken, Refused
from ralphproof.base.value import TYPE_CHECKING, pack, unpack

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.base.value import Json
    from ralphproof.engine.records import Record

    Mask = Callable[[str], str]
    Row = tuple[str, int, int, str, str, float, str]  # run, iteration, turn, step, kind, at, data


def record_rows(run: str, records: tuple[Record, ...], at: float, mask: Mask) -> list[Row]:
    """The rows that these records become."""
    from ralphproof.engine.records import record_key

    made: list[Row] = []
    for record in records:
        iteration, turn, step = record_key(record)
        name = to_valid_utf8(mask(step))
        made.append((run, iteration, turn, name, type(record).__name__, at, dump_masked_json(pack(record), mask)))
    return made


def duplicate_record_error(row: Row) -> HarnessFailed:
    """The error for a second record with the same key."""
    return HarnessFailed(f"run {row[0]} has {row[3]} of iteration {row[1]}, turn {row[2]} already: nothing was written")


def parse_record(data: str, place: str) -> Record:
    """The record behind its JSON. `place` names it in errors."""
    import json

    from ralphproof.engine.records import Record

    try:
        record = unpack(json.loads(data))
    except (ValueError, TypeError) as error:
        raise LedgerBroken(f"{place} cannot be read: {error}") from error
    if not isinstance(record, Record):
        raise Refused(f"{place} is of a kind that this version does not know; use the newer ralph that wrote it")
    return record


def parse_user_message(data: str, place: str) -> str:
    """The user's message behind its JSON."""
    import json

    try:
        return str(json.loads(data))
    except ValueError as error:
        raise LedgerBroken(f"{place} cannot be read: {error}") from error


def chain_digest(previous: str, row: Row) -> str:
    """The digest of a row that follows the row with digest `previous`."""
    import hashlib
    import json

    return hashlib.sha256(json.dumps([previous, *row], default=repr).encode()).hexdigest()


def dump_masked_json(data: Json, mask: Mask, indent: int | None = None) -> str:
    """JSON in ASCII, so that undecodable bytes survive; each text in it is masked before it is quoted."""
    import json

    try:
        return json.dumps(mask_json(data, mask), allow_nan=False, sort_keys=indent is not None, indent=indent)
    except ValueError as error:
        raise HarnessFailed(f"a number that JSON does not have was to be recorded: {error}") from error


def mask_json(data: Json, mask: Mask) -> Json:
    """The same data with every text masked. Names of kinds and fields stay; other keys are data."""
    if isinstance(data, str):
        return mask(data)
    if isinstance(data, list):
        return [mask_json(item, mask) for item in data]
    if not isinstance(data, dict):
        return data
    if "is" in data:
        return {name: item if name == "is" else mask_json(item, mask) for name, item in data.items()}
    return {mask(name): mask_json(item, mask) for name, item in data.items()}


def to_valid_utf8(text: str) -> str:
    """The text itself, or one with escapes where UTF-8 cannot encode it."""
    return text.encode("utf-8", "backslashreplace").decode()


def encode_text(text: str) -> bytes:
    """The bytes behind a text. A lone surrogate that never was a byte becomes a replacement character."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def path_for_sqlite(path: str) -> str | bytes:
    """A path as SQLite accepts it: one that is not UTF-8 as bytes."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return os.fsencode(path)
    return path
