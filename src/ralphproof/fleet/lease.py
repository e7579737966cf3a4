"""The lease of a loop: the exclusive right to write its record on the remote.

Refs below refs/ralph/fleet/<loop>/:
    record       a chain of commits; each has all records so far, and what the next worker needs
    work/<name>  the saved trees
    lost/<name>  unpublished work of workers that lost the lease

Every push of the record is a compare-and-swap on its current commit, and carries the epoch. The record is untrusted
input: whoever may push to the remote can change it.
"""

from __future__ import annotations

import json
from _thread import allocate_lock
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ralphproof.base.errors import LedgerBroken, Refused
from ralphproof.base.git_layout import is_object_id
from ralphproof.base.value import pack, replace, unpack, value
from ralphproof.fleet.loop_spec import is_plain_name, result_branch, without_password
from ralphproof.fleet.mirror import Mirror
from ralphproof.store.serialization import chain_digest

ChainRow = tuple[str, int, int, str, str, float, str, str]


# The record's files: append-only ones of bounded size, and one with metadata.


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


def changed_files(rows: tuple[ChainRow, ...], before: tuple[ChainRow, ...]) -> dict[str, bytes]:
    """The record files that change when these rows follow the previous ones."""
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
    return meta


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
    if not sound or not all(map(isinstance, found, _ROW_TYPES)) or found[0] != loop:
        raise LedgerBroken(f"record {number} of loop {loop} on the remote cannot be read")
    row: Any = tuple(found)
    return row  # type: ignore[no-any-return]


# The lease


REF_ROOT = "refs/ralph/fleet/"
RECORD_REF, WORK_REF, LOST_REF, BASE_REF = "record", "work", "lost", "base"


class LeaseLost(Exception):
    """Another worker has the loop now. Not a RalphError: Loop would record it as a failure of the run."""


@value
class RemoteRecord:
    """The record as it was last seen on the remote."""

    commit: str
    meta: RecordMeta
    rows: tuple[ChainRow, ...] = ()
    notes: dict[str, bytes] = {}  # noqa: RUF012 (never changed)


class LoopLease:
    """The right to write one loop's record until a worker with a higher epoch takes it."""

    def __init__(self, mirror: Mirror, loop: str, epoch: int, worker: str, place: str) -> None:
        """`place` is the unique id of the work folder; `worker` is the display name."""
        self.mirror, self.loop, self._epoch, self._worker, self._place = mirror, loop, epoch, worker, place
        self.home = f"{REF_ROOT}{loop}/"
        self.record: RemoteRecord | None = None
        self._refs: dict[str, str] = {}
        self._writing = allocate_lock()

    @property
    def branch(self) -> str:
        """The ref of the result."""
        return f"refs/heads/{result_branch(self.loop)}"

    @property
    def head(self) -> str:
        """The commit of the record; empty before the first one."""
        return self.record.commit if self.record else ""

    def read(self) -> RemoteRecord | None:
        """Read the loop's record from the remote; None if there is none. Raises LeaseLost if another worker has the
        loop.
        """
        self._refs = self.mirror.refs(f"{self.home}*", self.branch)
        record = self._refs.get(self.home + RECORD_REF, "")
        if not record:
            self.record = None
            return None
        if not self.record or self.record.commit != record:
            if not self.mirror.resolve_commit(record):  # else it is our own
                self.mirror.fetch([f"+{self.home}{RECORD_REF}:{self.home}{RECORD_REF}"])
            files = self.mirror.read_files(record)
            self.record = RemoteRecord(record, parse_meta(files), parse_rows(files, self.loop), _note_files(files))
        meta = self.record.meta
        if meta.epoch > self._epoch or (meta.epoch == self._epoch and meta.place != self._place):
            raise LeaseLost
        return self.record

    def claim(self, base: str) -> None:
        """Write our epoch to the record on the remote unless it is there; `base` is where the work starts."""
        record = self.record
        if record and (record.meta.epoch, record.meta.place) == (self._epoch, self._place):
            return
        meta = replace(record.meta if record else RecordMeta(base=base), **self._own_fields)
        files = {META_FILE: encode_meta(meta)}
        more = [] if record else [(base, f"{self.home}{WORK_REF}/{BASE_REF}")]
        self._push(meta, files, record.rows if record else (), more, f"epoch {self._epoch}: taken by {self._worker}")

    def publish(
        self, rows: tuple[ChainRow, ...], notes: Mapping[str, bytes], trees: Mapping[str, str],
        also: Iterable[tuple[str, str]] = (), result: str = "",
    ) -> None:  # fmt: skip
        """Push rows, notes and saved trees to the remote; `also` are further (commit, ref) pairs for the same push.

        Raises LeaseLost if another worker has the loop, RemoteUnreachable if the remote does not answer.
        """
        assert self.record
        meta = replace(self.record.meta, **self._own_fields, records=len(rows), last=rows[-1][-1] if rows else "")
        meta = replace(meta, result=result or meta.result)
        files = {f"notes/{name}": data for name, data in notes.items() if self.record.notes.get(name) != data}
        files |= changed_files(rows, self.record.rows)
        fresh = [(commit, ref) for name, commit in trees.items() if self._differs(ref := self.tree_ref(name), commit)]
        fresh += also
        if not files and not fresh and meta == self.record.meta:
            return
        files[META_FILE] = encode_meta(meta)
        self._push(meta, files, rows, fresh, f"epoch {self._epoch}: {len(rows)} records", dict(notes))

    def fetch_trees(self) -> None:
        """Fetch the saved trees."""
        self.mirror.fetch(f"+{ref}:{ref}" for ref in self._refs if ref.startswith(f"{self.home}{WORK_REF}/"))

    def tree_ref(self, name: str) -> str:
        """The ref of a saved tree."""
        return f"{self.home}{WORK_REF}/{name}"

    def has_tree(self, name: str, commit: str) -> bool:
        """Whether the remote has this saved tree."""
        return not self._differs(self.tree_ref(name), commit)

    def _differs(self, ref: str, commit: str) -> bool:
        return self._refs.get(ref) != commit

    def save_lost(self, rows: tuple[ChainRow, ...], trees: Mapping[str, str]) -> tuple[str, ...]:
        """Push work that will not be continued to lost/ refs, and return these. The record does not change."""
        prefix = f"{self.home}{LOST_REF}/{_ref_component(self._worker or self._place)}-{self._epoch}-{self._place[:8]}"
        record, meta = f"{prefix}-{RECORD_REF}", replace(RecordMeta(records=len(rows)), **self._own_fields)
        files = {META_FILE: encode_meta(meta)} | changed_files(rows, ())
        commit = self.mirror.create_commit(record, "", files, f"epoch {self._epoch}: lost by {self._worker}")
        updates = [(commit, record), *((tree, f"{prefix}-{name}") for name, tree in trees.items())]
        for _ in self.mirror.attempts():
            if self.mirror.push(updates, {}):
                return tuple(ref for _, ref in updates)
        raise self.mirror.unreachable_error()

    @property
    def _own_fields(self) -> dict[str, object]:
        return {"epoch": self._epoch, "worker": self._worker, "place": self._place}

    def _push(
        self, meta: RecordMeta, files: Mapping[str, bytes], rows: tuple[ChainRow, ...], more: list[tuple[str, str]],
        message: str, notes: dict[str, bytes] | None = None,
    ) -> None:  # fmt: skip
        record, before = self.home + RECORD_REF, self.head
        commit = self.mirror.create_commit(record, before, files, message)
        expected = {record: before}
        if any(ref == self.branch for _, ref in more):
            expected[self.branch] = ""  # created once; an existing one is somebody else's
        old_notes = self.record.notes if self.record else {}
        with self._writing:
            self._swap(commit, [(commit, record), *more], expected)
            self.record = RemoteRecord(commit, meta, rows, old_notes if notes is None else notes)
        self._refs |= {ref: new for new, ref in more} | {record: commit}

    def _swap(self, commit: str, updates: list[tuple[str, str]], expected: dict[str, str]) -> None:
        """Compare-and-swap by push. After a failed push the remote's refs are read; git's messages are not parsed."""
        record = self.home + RECORD_REF
        for _ in self.mirror.attempts():
            if self.mirror.push(updates, expected):
                return
            now = self.mirror.refs_once(record, self.branch)
            if now is None:
                continue
            if now.get(record, "") == commit:
                return  # the push succeeded, and its answer was lost
            if now.get(record, "") != expected[record]:
                raise LeaseLost
            if now.get(self.branch, "") != expected.get(self.branch, now.get(self.branch, "")):
                place = without_password(self.mirror.url)
                raise Refused(f"there is a branch ralph/{self.loop} on {place} that this loop did not make; remove it")
        raise self.mirror.unreachable_error()

    def has_moved(self) -> bool:
        """Whether another worker has written the record since. One attempt, from any thread; False if there is no
        answer.
        """
        with self._writing:
            now = self.mirror.refs_once(self.home + RECORD_REF)
            return now is not None and now.get(self.home + RECORD_REF, "") != self.head


def _note_files(files: Mapping[str, bytes]) -> dict[str, bytes]:
    start = "notes/"
    named = ((path.removeprefix(start), data) for path, data in files.items() if path.startswith(start))
    return {name: data for name, data in named if is_plain_name(name) and _is_json(data)}


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def _ref_component(name: str) -> str:
    """A name escaped as a component of a ref."""
    letters = "".join(letter if is_plain_name(f"a{letter}a") else "-" for letter in name)[:40].strip(".-")
    return letters if is_plain_name(letters) and not is_object_id(letters) else "worker"
