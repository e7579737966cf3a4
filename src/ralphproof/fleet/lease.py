"""The lease of a loop: the exclusive right to write its record on the remote.

Refs below refs/ralph/fleet/<loop>/:
    record       a chain of commits; each has all records so far, and what the next worker needs
    work/<name>  the saved trees
    lost/<name>  unpublished work of workers that lost the lease

Every push of the record is a compare-and-swap on its current commit, and carries the epoch.
"""

from __future__ import annotations

import json
from _thread import allocate_lock

from ralphproof.base.errors import Refused
from ralphproof.base.git_layout import is_object_id
from ralphproof.base.value import TYPE_CHECKING, replace, value
from ralphproof.fleet.record_format import RecordMeta, encode_meta, parse_meta, parse_rows
from ralphproof.fleet.submission import is_plain_name, without_password

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ralphproof.fleet.mirror import Mirror
    from ralphproof.fleet.record_format import ChainRow

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
        return f"refs/heads/ralph/{self.loop}"

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
        files = {"meta.json": encode_meta(meta)}
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
        files |= RecordMeta.files(rows, self.record.rows)
        fresh = [(commit, ref) for name, commit in trees.items() if self._differs(ref := self.tree_ref(name), commit)]
        fresh += also
        if not files and not fresh and meta == self.record.meta:
            return
        files["meta.json"] = encode_meta(meta)
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
        files = {
            "meta.json": encode_meta(replace(RecordMeta(records=len(rows)), **self._own_fields))
        } | RecordMeta.files(rows, ())
        commit = self.mirror.create_commit(
            f"{prefix}-{RECORD_REF}", "", files, f"epoch {self._epoch}: lost by {self._worker}"
        )
        updates = [(commit, f"{prefix}-{RECORD_REF}"), *((tree, f"{prefix}-{name}") for name, tree in trees.items())]
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
