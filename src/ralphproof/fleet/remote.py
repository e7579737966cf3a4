"""A loop's record on the git remote, the lease to write it, and the mirror through which a worker reaches the remote.

Refs below refs/ralph/fleet/<loop>/:
    record       a chain of commits; each has all records so far, and what the next worker needs
    work/<name>  the saved trees
    lost/<name>  unpublished work of workers that lost the lease

Every push of the record is a compare-and-swap on its current commit, and carries the epoch. The record is untrusted
input: whoever may push to the remote can change it.

Fetches and pushes use the git settings and credentials of the worker's user. They run in the mirror, so that what an
agent writes into the settings of its own clone has no effect; the clone's objects are borrowed as alternates. No hook
runs.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from _thread import allocate_lock
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ralphproof.base.errors import HarnessFailed, LedgerBroken, Refused
from ralphproof.base.git_layout import is_object_id
from ralphproof.base.programs import ProgramResult, find_program, run_program
from ralphproof.base.value import pack, replace, unpack, value
from ralphproof.fleet.messages import is_plain_name, result_branch, without_password
from ralphproof.store.serialization import chain_digest
from ralphproof.workspace.git_command import NO_HOOKS_OPTIONS, user_git_environment

FETCH_TIMEOUT_S, LS_REMOTE_TIMEOUT_S, LOCAL_TIMEOUT_S = 900.0, 60.0, 120.0
PATIENCE_S = 90.0  # an unreachable remote is retried for this long
FIRST_RETRY_S, MAX_RETRY_S = 0.2, 10.0  # pause between two attempts
MAX_REFS_BYTES, MAX_BLOB_BYTES = 1 << 26, 1 << 26
REF_BATCH = 200  # refs per argument list
ISOLATED_OPTIONS = ("-c", "protocol.ext.allow=never", "-c", "submodule.recurse=false",
                    "-c", "push.recurseSubmodules=no", "-c", "fetch.recurseSubmodules=false",
                    "-c", "push.followTags=false", "-c", "push.gpgSign=false")  # fmt: skip


class RemoteUnreachable(Exception):
    """The remote did not answer for the whole retry period.

    Not a RalphError: Loop would end the run over it. The next step continues from the local records.
    """


class Mirror:
    """A bare clone of one repository that also sees the objects of one loop's clone."""

    def __init__(self, path: str, url: str, environ: Mapping[str, str], patience_s: float = PATIENCE_S) -> None:
        """Create the mirror if it is missing. Raises Refused if git is missing."""
        git = find_program("git", environ.get("PATH", os.defpath))
        if git is None:
            raise Refused("there is no git on PATH; install it")
        self.path, self.url, self.git, self._patience_s = path, url, git, patience_s
        self.env = user_git_environment(environ)
        self._objects = ""
        if not os.path.isdir(os.path.join(path, "objects")):
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            self.run_checked("init", "-q", "--bare", path)

    def add_objects_of(self, clone: str) -> None:
        """Make a clone's objects available for pushes. Fetches never depend on them: the clone may be deleted."""
        folder = os.path.join(clone, ".git", "objects")
        self._objects = f'"{folder}"' if ":" in folder or folder.startswith('"') else folder

    def run(
        self, *args: str, stdin: bytes = b"", timeout_s: float = LOCAL_TIMEOUT_S, most: int = 1 << 28
    ) -> ProgramResult:
        """Result of a git command in the mirror."""
        argv = [self.git, "--git-dir", self.path, *NO_HOOKS_OPTIONS, *ISOLATED_OPTIONS, *args]
        lent = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": self._objects} if self._objects and args[0] == "push" else {}
        return run_program(argv, self.env | lent, stdin, timeout_s=timeout_s, most_bytes=most)

    def run_checked(self, *args: str, stdin: bytes = b"", most: int = 1 << 28) -> bytes:
        """Output of a git command that only touches the mirror; raises HarnessFailed if it fails."""
        reply = self.run(*args, stdin=stdin, most=most)
        if reply.code:
            raise HarnessFailed(f"git {args[0]}: {reply.said or reply.code}")
        return reply.out

    def refs(self, *patterns: str) -> dict[str, str]:
        """The remote's refs that match the patterns, with their commits; retried while the remote is unreachable."""
        for _ in self.attempts():
            refs = self.refs_once(*patterns)
            if refs is not None:
                return refs
        raise RemoteUnreachable(self._last_error)

    def refs_once(self, *patterns: str) -> dict[str, str] | None:
        """Like `refs`, with one attempt; None if there was no answer."""
        reply = self.run("ls-remote", "--refs", self.url, *patterns, timeout_s=LS_REMOTE_TIMEOUT_S, most=MAX_REFS_BYTES)
        if reply.code:
            self._last_error = self._describe_error(reply)
            return None
        lines = (line.split(None, 1) for line in reply.out.decode("utf-8", "surrogateescape").splitlines())
        return {words[1]: words[0] for words in lines if len(words) == 2 and is_object_id(words[0])}

    def fetch(self, specs: Iterable[str]) -> None:
        """Fetch SOURCE:REF refspecs; retried while the remote is unreachable."""
        wanted = list(specs)
        while wanted:
            some, wanted = wanted[:REF_BATCH], wanted[REF_BATCH:]
            words = ("fetch", "-q", "--no-tags", "--no-write-fetch-head", "--no-auto-gc", self.url, *some)
            for _ in self.attempts():
                with _FetchLock(self.path):
                    reply = self.run(*words, timeout_s=FETCH_TIMEOUT_S)
                if not reply.code:
                    break
                self._last_error = self._describe_error(reply)
            else:
                raise RemoteUnreachable(self._last_error)

    def push(self, updates: Iterable[tuple[str, str]], expected: Mapping[str, str]) -> bool:
        """Push refs atomically, with one attempt. `expected` is what each ref must name before, "" for a missing ref.

        False means that the push did not succeed as far as this call can tell; the caller finds out why.
        """
        leases = [f"--force-with-lease={ref}:{commit}" for ref, commit in expected.items()]
        specs = [f"{commit}:{ref}" if ref in expected else f"+{commit}:{ref}" for commit, ref in updates]
        words = ("push", "-q", "--porcelain", "--atomic", "--no-verify", "--no-signed", *leases, self.url, *specs)
        reply = self.run(*words, timeout_s=FETCH_TIMEOUT_S)
        if reply.code:
            self._last_error = self._describe_error(reply)
        return reply.code == 0

    _last_error = ""

    def unreachable_error(self) -> RemoteUnreachable:
        """The error to raise when retries are exhausted."""
        return RemoteUnreachable(self._last_error)

    def attempts(self) -> Iterable[int]:
        """Numbers of attempts until `patience_s` is over, with growing pauses in between."""
        pause_s, number, deadline = FIRST_RETRY_S, 0, time.monotonic() + self._patience_s
        while True:
            yield number
            if time.monotonic() + pause_s > deadline:
                return
            time.sleep(pause_s)
            pause_s, number = min(pause_s * 2, MAX_RETRY_S), number + 1

    def _describe_error(self, reply: ProgramResult) -> str:
        place = without_password(self.url)
        return f"{place} did not answer: {reply.said.replace(self.url, place) or reply.code}"

    def resolve_commit(self, name: str) -> str:
        """The commit that a name means in the mirror; empty if there is none."""
        reply = self.run("rev-parse", "-q", "--verify", "--end-of-options", f"{name}^{{commit}}")
        commit = reply.out.strip().decode("ascii", "replace")
        return commit if reply.code == 0 and is_object_id(commit) else ""

    def read_files(self, commit: str) -> dict[str, bytes]:
        """Files of a commit, which is untrusted input; raises Refused if they are too many or too large."""
        rows = self.run_checked("ls-tree", "-r", "-z", "--long", commit).split(b"\0")
        names: dict[str, int] = {}
        for row in filter(None, rows):
            facts, _, path = row.partition(b"\t")
            mode, kind, blob, length = facts.split()
            sound = mode == b"100644" and kind == b"blob" and length.isdigit()
            names[f"{os.fsdecode(path)}\0{blob.decode()}"] = int(length) if sound else MAX_BLOB_BYTES + 1
        if sum(names.values()) > MAX_BLOB_BYTES:
            raise Refused(f"the record of the loop on {without_password(self.url)} is not one that ralph wrote")
        ids = "".join(f"{name.partition(chr(0))[2]}\n" for name in names)
        out = self.run_checked("cat-file", "--batch", stdin=ids.encode())
        files: dict[str, bytes] = {}
        for name, size in names.items():
            start = out.index(b"\n") + 1
            files[name.partition("\0")[0]], out = out[start : start + size], out[start + size + 1 :]
        return files

    def create_commit(self, ref: str, parent: str, files: Mapping[str, bytes], message: str) -> str:
        """Create a commit with these files on top of its parent's, in ralph's name; `ref` keeps it in the mirror."""
        who = b"committer ralph <ralph@localhost> %d +0000\n" % time.time()
        text = message.encode("utf-8", "replace")
        head = b"commit %s\nmark :1\n%sdata %d\n%s\n" % (ref.encode(), who, len(text), text)
        head += b"from %s\n" % parent.encode() if parent else b""
        body = b"".join(b"M 100644 inline %s\ndata %d\n%s\n" % (os.fsencode(path), len(data), data)
                        for path, data in files.items())  # fmt: skip
        reset = b"" if parent else b"reset %s\n\n" % ref.encode()
        out = self.run_checked("fast-import", "--quiet", "--force", stdin=reset + head + body + b"\nget-mark :1\n")
        commit = out.strip().decode("ascii", "replace")
        if not is_object_id(commit):
            raise HarnessFailed(f"git fast-import: {commit[:200]}")
        return commit


class _FetchLock:
    """Serializes fetches into a mirror: concurrent ones would interfere."""

    def __init__(self, path: str) -> None:
        self._file = os.path.join(path, "ralph-fetch.lock")

    def __enter__(self) -> None:
        self._held = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._held, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        os.close(self._held)


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
