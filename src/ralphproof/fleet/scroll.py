"""The form of a loop's record on the remote: files of bounded size, which only grow, and a page that tells of them."""

from __future__ import annotations

import json

from ralphproof.errors import LedgerBroken
from ralphproof.ledgers.text import bound
from ralphproof.value import TYPE_CHECKING, pack, replace, unpack, value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    # run, iteration, turn, step, kind, at, data, digest: as the ledger keeps it
    ChainRow = tuple[str, int, int, str, str, float, str, str]

FILE_BYTES = 1 << 18  # a file that has so many gets no more records
META = "meta.json"
_KINDS: tuple[tuple[type, ...], ...] = ((str,), (int,), (int,), (str,), (str,), (int, float), (str,), (str,))


@value
class Scroll:
    """Who wrote last, what is there, and the commit that the work began on. `result` is the commit that came of it."""

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
        """The files that differ where these rows follow those before."""
        old = dict(_pages(before))
        return {path: data for path, data in _pages(rows) if old.get(path) != data}


def _pages(rows: tuple[ChainRow, ...]) -> Iterator[tuple[str, bytes]]:
    number, lines, size = 1, list[bytes](), 0
    for row in rows:
        lines.append(json.dumps(row).encode() + b"\n")
        size += len(lines[-1])
        if size >= FILE_BYTES:
            yield f"records/{number:05d}.jsonl", b"".join(lines)
            number, lines, size = number + 1, [], 0
    if lines:
        yield f"records/{number:05d}.jsonl", b"".join(lines)


def written(scroll: Scroll) -> bytes:
    """The page that tells of it."""
    data = pack(scroll)
    assert isinstance(data, dict)
    return json.dumps({name: part for name, part in data.items() if name != "is"}, indent=1).encode() + b"\n"


def meta_in(files: Mapping[str, bytes]) -> Scroll:
    """What that page says; raises LedgerBroken where it cannot be one of ours."""
    try:
        data = json.loads(files[META])
        found = unpack({**data, "is": "Scroll"})
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise LedgerBroken(f"the record of the loop on the remote has no page that can be read: {error}") from error
    blank = Scroll()
    for name in Scroll.__match_args__:
        if not isinstance(getattr(found, name), type(getattr(blank, name))):
            raise LedgerBroken(f"the record of the loop on the remote says no usable {name}")
    assert isinstance(found, Scroll)
    return replace(found)


def rows_in(files: Mapping[str, bytes], loop: str) -> tuple[ChainRow, ...]:
    """The records, each bound to the one before; raises LedgerBroken where one is not as it was written."""
    rows: list[ChainRow] = []
    previous = ""
    for path in sorted(path for path in files if path.startswith("records/")):
        for line in files[path].splitlines():
            row = _row(line, loop, len(rows) + 1)
            if bound(previous, row[:-1]) != row[-1]:
                raise LedgerBroken(f"record {len(rows) + 1} of loop {loop} on the remote was changed")
            rows.append(row)
            previous = row[-1]
    scroll = meta_in(files)
    if (len(rows), previous) != (scroll.records, scroll.last):
        raise LedgerBroken(f"loop {loop} has {len(rows)} records on the remote, and should have {scroll.records}")
    return tuple(rows)


def _row(line: bytes, loop: str, number: int) -> ChainRow:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    sound = isinstance(found, list) and len(found) == len(_KINDS)
    if not sound or not all(isinstance(one, kind) for one, kind in zip(found, _KINDS, strict=True)) or found[0] != loop:
        raise LedgerBroken(f"record {number} of loop {loop} on the remote cannot be read")
    run, iteration, turn, step, kind, at, data, digest = found
    return run, iteration, turn, step, kind, at, data, digest
