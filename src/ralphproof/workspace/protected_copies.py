"""Copies of protected files in a private folder of the run, from which they are restored, also after a crash."""

from __future__ import annotations

import errno
import os

from ralphproof.base.files import sync_folders, write_all
from ralphproof.base.git_layout import read_regular_file
from ralphproof.base.value import TYPE_CHECKING, pack, unpack, value
from ralphproof.engine.workspace import TripwireReport
from ralphproof.workspace.git_objects import REF_CHARACTERS
from ralphproof.workspace.protected_paths import ProtectedPattern

if TYPE_CHECKING:
    from collections.abc import Container
    from typing import Any

    from ralphproof.base.value import Json
    from ralphproof.workspace.history_tripwires import UncommittedFiles
    from ralphproof.workspace.protected_paths import FileState, FileStates, Root

    RestorePlan = dict[
        str, dict[bytes, FileState | None]
    ]  # by place: what a path must become; None where nothing may be


# Contents share few files, because one fsync takes as long for a thousand contents as for one.


MAX_COPIED_BYTES = 1 << 30  # of all copies; what comes after is only known by its digest, and cannot be put back
PACK_PREFIX = "pack-"


class ContentStore:
    """Contents in a private folder, named by digest. `sync` makes them durable, and returns where they are."""

    def __init__(self, folder: str) -> None:
        import hashlib

        self._folder, self._hash = folder, hashlib.sha256
        self._index: dict[str, tuple[str, int, int]] = {}  # digest: file, offset, length
        self._bytes = 0
        self._pack_file: tuple[str, int] | None = None
        self.storing = False
        os.makedirs(folder, mode=0o700, exist_ok=True)

    def load_index(self, index: Any) -> None:
        """Load what `sync` returned. Raises ValueError and the like where the data is invalid."""
        self._index = {str(digest): (str(file), int(at), int(size)) for digest, (file, at, size) in index.items()}
        self._bytes = sum(size for _, _, size in self._index.values())

    def digest(self, content: bytes) -> str:
        return self._hash(content).hexdigest()

    def digest_or_store(self, content: bytes) -> str:
        """The digest of a content, which is stored too while `storing`."""
        return self.store(content) if self.storing else self.digest(content)

    def store(self, content: bytes) -> str:
        """Store a content; return its digest."""
        digest = self.digest(content)
        if digest not in self._index and self._bytes + len(content) <= MAX_COPIED_BYTES:
            name, descriptor = self._pack_file or self._new_pack_file()
            at = os.lseek(descriptor, 0, os.SEEK_CUR)
            write_all(descriptor, content)
            self._index[digest] = (name, at, len(content))
            self._bytes += len(content)
        return digest

    def has(self, digest: str) -> bool:
        return digest in self._index

    def _new_pack_file(self) -> tuple[str, int]:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        number = 1
        while os.path.lexists(os.path.join(self._folder, f"{PACK_PREFIX}{number}")):
            number += 1
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._pack_file = (
            f"{PACK_PREFIX}{number}",
            os.open(os.path.join(self._folder, f"{PACK_PREFIX}{number}"), flags, 0o600),
        )
        return self._pack_file

    def read(self, digest: str) -> bytes:
        """A stored content. Raises OSError where there is no valid copy."""
        if digest not in self._index:
            raise OSError(errno.ENOENT, "no copy of it was kept")
        name, at, size = self._index[digest]
        descriptor = os.open(os.path.join(self._folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            content = os.pread(descriptor, size, at)
        finally:
            os.close(descriptor)
        if self.digest(content) != digest:
            raise OSError(errno.EIO, "the copy of it was damaged")
        return content

    def sync(self, wanted: Container[str]) -> Json:
        """Make the wanted contents durable and forget the others. The caller stores the returned index next."""
        if self._pack_file:
            os.fsync(self._pack_file[1])
            os.close(self._pack_file[1])
            self._pack_file = None
        self.load_index({digest: place for digest, place in self._index.items() if digest in wanted})
        return {digest: list(place) for digest, place in self._index.items()}

    def remove_unused(self) -> None:
        """Remove files without wanted contents, after the index was stored."""
        needed = {file for file, _, _ in self._index.values()}
        for name in os.listdir(self._folder):
            if name.startswith(PACK_PREFIX) and name not in needed:
                os.unlink(os.path.join(self._folder, name))


def write_private_file(path: str, content: bytes) -> None:
    """Write a private file atomically and durably."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    descriptor = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        write_all(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(path + ".new", path)
    sync_folders({os.fsencode(os.path.dirname(path))})


# Baseline and results, out of the agent's reach, so that another process can continue after a crash.


BASELINE_FILE, RESULT_PREFIX = "index.json", "answer-"


@value
class RepositoryBaseline:
    """Whether the repository was missing, and the branches of other worktrees.

    `uncommitted` is the user's uncommitted work; None before the run's first turn.
    """

    missing: bool = False
    other_worktrees: tuple[tuple[str, str], ...] = ()
    uncommitted: UncommittedFiles | None = None


@value
class TripwireBaseline:
    """The watched files before a turn, by folder, with the patterns in force: a resumed run may have others."""

    states: dict[str, FileStates]
    roots: dict[str, tuple[Root, ...]]
    repository: RepositoryBaseline = RepositoryBaseline()
    patterns: dict[str, tuple[ProtectedPattern, ...]] = {}  # noqa: RUF012 (never changed)


@value
class TripwireResult:
    """What was found, what must be restored for it, and whether that was done.

    `lost_work_reported` says that the report mentions lost uncommitted work, which happens once in a run.
    """

    report: TripwireReport
    plan: RestorePlan
    lost_work_reported: bool = False
    restored: bool = False


class ProtectedCopies:
    """The private folder of one run: the baseline with its contents, and the results of checks."""

    def __init__(self, folder: str) -> None:
        self._folder, self.contents = folder, ContentStore(folder)

    @property
    def scratch_file(self) -> str:
        """The path of a temporary file."""
        return os.path.join(self._folder, "scratch")

    def load_baseline(self) -> TripwireBaseline | None:
        """The stored baseline; None where there is none, or it cannot be read."""
        data = self._read_json(BASELINE_FILE)
        try:
            self.contents.load_index(data["held"])
            states = {name: _states_from_json(item) for name, item in data["sights"].items()}
            roots = {name: _roots_from_json(item) for name, item in data["roots"].items()}
            repository = unpack(data["besides"])
            patterns = {name: _patterns_from_json(item) for name, item in data.get("wires", {}).items()}
            return (
                TripwireBaseline(states, roots, repository, patterns)
                if isinstance(repository, RepositoryBaseline)
                else None
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    def save_baseline(self, baseline: TripwireBaseline, plan: RestorePlan) -> None:
        """Store the baseline with every content that it or the plan names; forget all other contents."""
        wanted = {seen[1] for item in baseline.states.values() for seen in item.values()}
        wanted |= {seen[1] for planned in plan.values() for seen in planned.values() if seen}
        data: dict[str, Json] = {
            "held": self.contents.sync(wanted),
            "sights": {name: _states_to_json(item) for name, item in baseline.states.items()},
            "roots": {
                name: [[_path_to_text(path), number] for path, number in item] for name, item in baseline.roots.items()
            },
            "besides": pack(baseline.repository),
            "wires": {
                name: [[w.pattern, w.rule, w.stops] for w in patterns] for name, patterns in baseline.patterns.items()
            },
        }
        self._write_json(BASELINE_FILE, data)
        self.contents.remove_unused()

    def clear(self) -> None:
        """Delete everything."""
        for name in os.listdir(self._folder) if os.path.isdir(self._folder) else ():
            if not os.path.isdir(os.path.join(self._folder, name)):
                os.unlink(os.path.join(self._folder, name))
        self.contents.load_index({})

    def load_result(self, name: str) -> TripwireResult | None:
        """The stored result with this name, if any."""
        data = self._read_json(_result_name(name))
        try:
            plan = {place: _plan_from_json(states) for place, states in data["plan"].items()}
            report = unpack(data["sprung"])
            return (
                TripwireResult(report, plan, data["told"], data["done"]) if isinstance(report, TripwireReport) else None
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    def save_result(self, name: str, result: TripwireResult) -> None:
        plan: Json = {place: _states_to_json(states) for place, states in result.plan.items()}
        report = pack(result.report)
        self._write_json(
            _result_name(name),
            {"sprung": report, "plan": plan, "told": result.lost_work_reported, "done": result.restored},
        )

    def unfinished_results(self) -> list[str]:
        """The names of results whose restore was not finished."""
        if not os.path.isdir(self._folder):
            return []
        files = (file for file in os.listdir(self._folder) if file.startswith(RESULT_PREFIX) and file.endswith(".json"))
        results = {
            name: self.load_result(name) for name in (file[len(RESULT_PREFIX) : -len(".json")] for file in files)
        }
        return sorted(name for name, result in results.items() if result and not result.restored)

    def _read_json(self, name: str) -> Any:
        import json

        try:
            return json.loads(read_regular_file(os.fsencode(os.path.join(self._folder, name))))
        except (OSError, ValueError):
            return None

    def _write_json(self, name: str, data: Json) -> None:
        import json

        write_private_file(os.path.join(self._folder, name), json.dumps(data, separators=(",", ":")).encode())


def _result_name(name: str) -> str:
    if not name or set(name) - REF_CHARACTERS:
        raise ValueError(f"{name!r} cannot be the name of an answer")
    return f"{RESULT_PREFIX}{name}.json"


def _states_to_json(states: dict[bytes, FileState | None] | FileStates) -> Json:
    return {
        _path_to_text(path): [seen[0].decode(), seen[1], seen[2]] if seen else None for path, seen in states.items()
    }


def _plan_from_json(data: dict[str, Any]) -> dict[bytes, FileState | None]:
    return {_path_from_text(path): _state_from_json(seen) for path, seen in data.items()}


def _states_from_json(data: dict[str, Any]) -> FileStates:
    return {path: seen for path, seen in _plan_from_json(data).items() if seen}


def _roots_from_json(data: list[tuple[str, int]]) -> tuple[Root, ...]:
    return tuple((_path_from_text(path), int(number)) for path, number in data)


def _patterns_from_json(data: list[tuple[str, str, bool]]) -> tuple[ProtectedPattern, ...]:
    return tuple(ProtectedPattern(str(pattern), str(rule), bool(stops)) for pattern, rule, stops in data)


def _state_from_json(data: Any) -> FileState | None:
    return None if data is None else (str(data[0]).encode(), str(data[1]), int(data[2]))


def _path_to_text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def _path_from_text(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
