"""Formats of a loop's record: files on the remote, and shortened records for the scheduler."""

from __future__ import annotations

import json

from ralphproof.base.errors import LedgerBroken
from ralphproof.base.text import TRUNCATION_MARK
from ralphproof.base.value import TYPE_CHECKING, pack, replace, unpack, value
from ralphproof.engine.check import failure_fingerprint
from ralphproof.engine.records import Record
from ralphproof.store.serialization import chain_digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ralphproof.base.value import Json

    ChainRow = tuple[str, int, int, str, str, float, str, str]


# The record on the remote: append-only files of bounded size, and one metadata file.


MAX_FILE_BYTES = 1 << 18  # a file of this size gets no more records
META_FILE = "meta.json"
_ROW_TYPES: tuple[tuple[type, ...], ...] = ((str,), (int,), (int,), (str,), (str,), (int, float), (str,), (str,))


@value
class RecordMeta:
    """Last writer, contents, and the commit that the work started from. `result` is the commit of the finished work."""

    epoch: int = 0
    worker: str = ""
    place: str = ""
    records: int = 0
    last: str = ""
    base: str = ""
    result: str = ""
    version: int = 1

    @staticmethod
    def files(rows: tuple[ChainRow, ...], before: tuple[ChainRow, ...]) -> dict[str, bytes]:
        """The files that change when these rows are appended to the previous ones."""
        old = dict(_record_files(before))
        return {path: data for path, data in _record_files(rows) if old.get(path) != data}


def _record_files(rows: tuple[ChainRow, ...]) -> Iterator[tuple[str, bytes]]:
    number, lines, size = 1, list[bytes](), 0
    for row in rows:
        lines.append(json.dumps(row).encode() + b"\n")
        size += len(lines[-1])
        if size >= MAX_FILE_BYTES:
            yield f"records/{number:05d}.jsonl", b"".join(lines)
            number, lines, size = number + 1, [], 0
    if lines:
        yield f"records/{number:05d}.jsonl", b"".join(lines)


def encode_meta(meta: RecordMeta) -> bytes:
    """The content of the metadata file."""
    data = pack(meta)
    assert isinstance(data, dict)
    return json.dumps({name: part for name, part in data.items() if name != "is"}, indent=1).encode() + b"\n"


def parse_meta(files: Mapping[str, bytes]) -> RecordMeta:
    """Parse the metadata file; raises LedgerBroken if it is malformed."""
    try:
        data = json.loads(files[META_FILE])
        meta = unpack({**data, "is": "RecordMeta"})
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise LedgerBroken(f"the record of the loop on the remote has no page that can be read: {error}") from error
    blank = RecordMeta()
    for name in RecordMeta.__match_args__:
        if not isinstance(getattr(meta, name), type(getattr(blank, name))):
            raise LedgerBroken(f"the record of the loop on the remote says no usable {name}")
    assert isinstance(meta, RecordMeta)
    return replace(meta)


def parse_rows(files: Mapping[str, bytes], loop: str) -> tuple[ChainRow, ...]:
    """Parse the records and verify their hash chain; raises LedgerBroken at the first bad one."""
    rows: list[ChainRow] = []
    previous = ""
    for path in sorted(path for path in files if path.startswith("records/")):
        for line in files[path].splitlines():
            row = _parse_row(line, loop, len(rows) + 1)
            if chain_digest(previous, row[:-1]) != row[-1]:
                raise LedgerBroken(f"record {len(rows) + 1} of loop {loop} on the remote was changed")
            rows.append(row)
            previous = row[-1]
    meta = parse_meta(files)
    if (len(rows), previous) != (meta.records, meta.last):
        raise LedgerBroken(f"loop {loop} has {len(rows)} records on the remote, and should have {meta.records}")
    return tuple(rows)


def _parse_row(line: bytes, loop: str, number: int) -> ChainRow:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    sound = isinstance(found, list) and len(found) == len(_ROW_TYPES)
    if (
        not sound
        or not all(isinstance(one, kind) for one, kind in zip(found, _ROW_TYPES, strict=True))
        or found[0] != loop
    ):
        raise LedgerBroken(f"record {number} of loop {loop} on the remote cannot be read")
    run, iteration, turn, step, kind, at, data, digest = found
    return run, iteration, turn, step, kind, at, data, digest


# Compact records for the scheduler: they lead to the same decisions as the full ones.


MAX_TEXT_CHARS, MAX_SHORT_TEXT_CHARS = 2_000, 500  # of one text; of one that is recorded elsewhere too
MAX_LIST_ITEMS = 50  # per list
_SHORT_FIELDS = (
    "output",
    "text",
    "patch",
    "prompt",
    "template",
    "message",
    "why",
    "notes",
)  # fields that may be shortened further


def compact_record(record: Record) -> Json:
    """The packed record with long texts and lists shortened.

    Shortened errors of turns and broken rules compare equal exactly when the full ones do, because pattern detection
    compares them. A check's finding keeps its fingerprint, and the prompt is a digest already. Long lists of test names
    are dropped: the verdict, a record of its own, includes what they showed.
    """
    return _shorten_json(pack(record), "")


def _shorten_json(data: Json, name: str) -> Json:
    match data:
        case str():
            return _shorten_text(data, name)
        case list():
            return (
                [_shorten_json(item, name) for item in data[:MAX_LIST_ITEMS]]
                if name != "names" or len(data) <= MAX_LIST_ITEMS
                else []
            )
        case dict():
            whole = _shorten_change(data) if data.get("is") == "Change" else data
            return {field: _shorten_json(item, field) for field, item in whole.items()}
        case _:
            return data


def _shorten_text(text: str, name: str) -> str:
    most = MAX_SHORT_TEXT_CHARS if name in _SHORT_FIELDS else MAX_TEXT_CHARS
    if len(text) <= most:
        return text
    mark = f" {failure_fingerprint('', None, text)}" if name in ("error", "illegal") else ""
    return f"{text[: most // 2]}\n{TRUNCATION_MARK}{mark}\n{text[-most // 2 :]}"


def _shorten_change(data: dict[str, Json]) -> dict[str, Json]:
    """Keep the iteration's own paths first: whether there are any decides about a stall."""
    paths, older = data.get("paths", []), data.get("older", [])
    assert isinstance(paths, list)
    assert isinstance(older, list)
    if len(paths) <= MAX_LIST_ITEMS:
        return data
    before = {str(path) for path in older}
    own = [path for path in paths if str(path) not in before][: MAX_LIST_ITEMS // 2]
    shortened = older[: MAX_LIST_ITEMS // 2]
    return {**data, "paths": [*own, *shortened], "older": list(shortened)}
