"""Protected paths: patterns, the present state of the files, and the copies from which they are restored."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Mapping
from re import Pattern
from typing import Any

from ralphproof.base.files import replace_file, write_all
from ralphproof.base.git_layout import read_descriptor, read_regular_file
from ralphproof.base.path_patterns import (
    GIT_FOLDER,
    compile_patterns,
    escape_pattern,
    is_glob,
    is_temporary_file,
    literal_path,
    pattern_covers,
    search_scope,
    skipped_folders,
)
from ralphproof.base.value import TYPE_CHECKING, pack, replace, unpack, value
from ralphproof.engine.workspace import TripwireReport
from ralphproof.workspace.files import MAX_FILE_BYTES, SETTLED_NS, FileReader, UnreadableFile, git_mode
from ralphproof.workspace.git_objects import MODE_LINK, REF_CHARACTERS, decode_path

FileState = tuple[bytes, str, int]  # mode, digest, permissions
FileStates = dict[bytes, FileState]
Root = tuple[bytes, int]  # a path that is watched with all below it, and the number of its wire
RestorePlan = dict[str, dict[bytes, FileState | None]]  # by place: what a path must become; None where nothing may be

if TYPE_CHECKING:
    from ralphproof.workspace.history_tripwires import UncommittedFiles


# Files in the project that only the user and the harness change.


@value
class ReservedPath:
    """A file, a folder or a pattern, from the project's root, and what it is. `.git/hooks/` is where git looks."""

    path: str
    rule: str


HOOKS_FOLDER = ".git/hooks/"
RESERVED_PATHS = (
    ReservedPath(".ralph/settings.json", "the settings of ralph"),
    ReservedPath(".ralph/settings.local.json", "the settings of ralph"),
    ReservedPath(".ralph/skills/", "skills"),
    ReservedPath(".ralph/templates/", "the prompts of stages"),
    ReservedPath(".ralph-active", "the marker of the run"),
    ReservedPath(".claude/skills/", "skills"),
    ReservedPath(".claude/settings*.json", "the settings of Claude Code"),
    ReservedPath(".claude/hooks/", "the hooks of Claude Code"),
    ReservedPath(".mcp.json", "the servers that offer tools"),
    ReservedPath(HOOKS_FOLDER, "the hooks of git"),
    ReservedPath(".git/commondir", "where git looks for its settings"),
)


def reserved_paths(root: str, more: Mapping[str, str]) -> tuple[ReservedPath, ...]:
    """The paths that every run restores, and files of this run that lie in the project, with what they are."""
    paths = list(RESERVED_PATHS)
    for file, rule in more.items():
        folder, name = os.path.split(os.path.join(root, file))
        path = os.path.relpath(os.path.join(os.path.realpath(folder), name), os.path.realpath(root))
        if path.split("/")[0] != "..":
            paths.append(ReservedPath(escape_pattern(path), rule))
    return tuple(paths)


@value
class ProtectedPattern:
    """A watched pattern, and the reason. A change of a match `stops` the run, or is only reverted."""

    pattern: str
    rule: str
    stops: bool = False


@value
class GlobSearch:
    """Compiled glob patterns with the same scope: all matches lie below `folder`, at most `max_depth` deep."""

    folder: bytes
    max_depth: int | None
    regex: Pattern[bytes]
    skipped_folders: frozenset[bytes]  # folders that are not looked into


class ProtectedMatcher:
    """Tells whether paths of a folder are protected."""

    def __init__(self, place: WatchedFolder) -> None:
        self._folders = tuple(root + b"/" for root, number in place.roots if place.patterns[number].stops)
        self._globs = [pattern.pattern for pattern in place.patterns if pattern.stops and is_glob(pattern.pattern)]

    def __bool__(self) -> bool:
        return bool(self._folders or self._globs)

    def __call__(self, path: bytes) -> bool:
        if (path + b"/").startswith(self._folders):
            return not is_temporary_file(path) and GIT_FOLDER not in path.split(b"/")
        return any(pattern_covers(pattern, decode_path(path)) for pattern in self._globs)


def compile_globs(patterns: list[str]) -> tuple[GlobSearch, ...]:
    """One search for all patterns with the same scope."""
    alike: dict[tuple[tuple[bytes, int | None], frozenset[bytes]], list[str]] = {}
    for pattern in patterns:
        alike.setdefault((search_scope(pattern), skipped_folders(pattern)), []).append(pattern)
    return tuple(GlobSearch(*where, compile_patterns(*those), skipped) for (where, skipped), those in alike.items())


NO_ACCESS = b"?"  # in the place of a mode: it is there and cannot be read; the digest is that of its signature
LARGE_PREFIX = "large:"  # before the digest of what is too large to keep a copy of
MAX_LINKS = 10  # that are followed one after the other
MISSING_ERRORS = (FileNotFoundError, NotADirectoryError)


class WatchedFolder:
    """A folder with watched patterns. `prefix` is put before its paths in messages.

    Links are never followed, but the target inside the folder of a link in a literal path is watched as well.
    """

    def __init__(
        self, folder: str, patterns: tuple[ProtectedPattern, ...], keep: Callable[[bytes], str], prefix: str = "",
        skips: Callable[[bytes], bool] = is_temporary_file,
    ) -> None:  # fmt: skip
        self.folder, self.prefix, self._is_skipped = folder, prefix, skips
        self._top = os.fsencode(folder)
        self._files = FileReader(folder, keep)
        self._cache: dict[bytes, tuple[tuple[int, ...], FileState]] = {}
        self.set_patterns(patterns)

    def set_patterns(self, patterns: tuple[ProtectedPattern, ...], roots: tuple[Root, ...] = ()) -> None:
        """Watch these patterns from now on. `roots` are the paths that they led to in the baseline."""
        self.patterns, self.roots = patterns, roots
        numbered = enumerate(pattern.pattern for pattern in patterns)
        self._literals = tuple((literal_path(pattern), number) for number, pattern in numbered if not is_glob(pattern))
        self._globs = compile_globs([pattern.pattern for pattern in patterns if is_glob(pattern.pattern)])

    def resolve_links(self) -> None:
        """Follow the links in literal paths, as they are now, link by link."""
        roots: list[Root] = []
        for path, number in self._literals:
            target: bytes | None = path
            for _ in range(MAX_LINKS):
                if target is None:
                    break
                roots.append((target, number))
                target = self._follow_link(target)
        self.roots = tuple(roots)

    def _follow_link(self, path: bytes) -> bytes | None:
        """The target of a path's first link; None where it has no link, or leads out of the folder."""
        link = self._first_link(path + b"/")
        if not link:
            return None
        full = os.path.join(self._top, link)
        target = os.path.join(os.path.dirname(full), os.readlink(full)) + path[len(link) :]
        for way in (os.path.normpath(target), os.path.realpath(target)):
            inside = os.path.relpath(way, self._top)
            if inside != b"." and not {b"..", GIT_FOLDER} & set(inside.split(b"/")):
                return inside
        return None

    def scan(self, known: FileStates | None = None) -> FileStates:
        """Every watched file that exists. `known` is an earlier scan, None where this is the first."""
        self._files.start_scan()
        states: FileStates = {}
        for path, _ in self.roots:
            if self._no_link_on_path(path, known, states):
                self._add_path(path, states)
        for glob in self._globs:
            if self._no_link_on_path(glob.folder + b"/", known, states):
                self._search(glob, states)
        return states

    def _no_link_on_path(self, path: bytes, known: FileStates | None, states: FileStates) -> bool:
        """Whether the path has no link. A link is recorded; a new one only if it leads to something watched."""
        link = self._first_link(path)
        if link and (known is None or link in known or os.path.lexists(os.path.join(self._top, path))):
            self._add_path(link, states)
        return not link

    def _first_link(self, path: bytes) -> bytes:
        """The first link in a path, or nothing."""
        at = path.find(b"/", 1)
        while at > 0:
            try:
                if stat.S_ISLNK(os.lstat(os.path.join(self._top, path[:at])).st_mode):
                    return path[:at]
            except OSError:
                return b""
            at = path.find(b"/", at + 1)
        return b""

    def _add_path(self, path: bytes, states: FileStates) -> None:
        try:
            state = os.lstat(os.path.join(self._top, path))
        except MISSING_ERRORS:
            return
        except OSError as error:
            states[path] = (NO_ACCESS, str(error.errno), 0)
            return
        if stat.S_ISDIR(state.st_mode):
            self._scan_below(path, states)
        else:
            self._add_file(path, state, states)

    def _scan_below(self, path: bytes, states: FileStates) -> None:
        folders, skips, see = [path], self._is_skipped, self._add_file
        while folders:
            folder = folders.pop()
            for entry in self._entries(folder, states):
                inner = folder + b"/" + entry.name
                if entry.is_dir(follow_symlinks=False):
                    folders.append(inner)
                elif not skips(inner):
                    try:
                        state = entry.stat(follow_symlinks=False)
                    except MISSING_ERRORS:
                        continue
                    see(inner, state, states)

    def _search(self, glob: GlobSearch, states: FileStates) -> None:
        folders = [(glob.folder, 1)]
        while folders:
            folder, depth = folders.pop()
            for entry in self._entries(folder, states):
                inner = folder + b"/" + entry.name if folder else entry.name
                if entry.name in glob.skipped_folders or self._is_skipped(inner):
                    continue
                if glob.regex.fullmatch(inner):
                    self._add_path(inner, states)
                elif (glob.max_depth is None or depth < glob.max_depth) and entry.is_dir(follow_symlinks=False):
                    folders.append((inner, depth + 1))

    def _entries(self, folder: bytes, states: FileStates) -> list[os.DirEntry[bytes]]:
        """The entries of a folder, without `.git`. A folder that cannot be read is recorded itself."""
        full = os.path.join(self._top, folder)
        try:
            with os.scandir(full) as entries:
                return [entry for entry in entries if entry.name != GIT_FOLDER]
        except MISSING_ERRORS:
            return []
        except OSError as error:
            states[folder] = (NO_ACCESS, str(error.errno), 0)
            return []

    def _add_file(self, path: bytes, state: os.stat_result, states: FileStates) -> None:
        # The ctime cannot be set back, so it reveals every change; the inode reveals a replacement.
        signature = (state.st_ctime_ns, state.st_ino, state.st_size, state.st_mode, state.st_dev)
        known = self._cache.get(path)
        if known is not None and known[0] == signature:
            states[path] = known[1]
            return
        started = time.time_ns()
        seen = self._read(path, state, signature)
        if seen is not None:
            states[path] = seen
            if started - state.st_ctime_ns > SETTLED_NS:
                self._cache[path] = (signature, seen)

    def _read(self, path: bytes, state: os.stat_result, signature: tuple[int, ...]) -> FileState | None:
        try:
            if state.st_size > MAX_FILE_BYTES and stat.S_ISREG(state.st_mode):
                digest = LARGE_PREFIX + _file_digest(os.path.join(self._top, path))
                return git_mode(state), digest, stat.S_IMODE(state.st_mode)
            entry = self._files.read_entry(path)
        except (UnreadableFile, OSError):
            return NO_ACCESS, ":".join(map(str, signature)), 0
        return None if entry is None else (*entry, stat.S_IMODE(state.st_mode))

    def changed_after(self, path: bytes, instant_ns: int) -> bool:
        """Whether the path was last changed after an instant; False where it does not exist."""
        try:
            return os.lstat(os.path.join(self._top, path)).st_ctime_ns > instant_ns
        except OSError:
            return False

    def read_state(self, path: bytes) -> FileState | None:
        """The present state of a path, watched or not."""
        states: FileStates = {}
        self._add_path(path, states)
        return states.get(path)

    def read_content(self, path: bytes, seen: FileState) -> bytes:
        """The content of a file that was just scanned, or the target of a link. Raises OSError."""
        full = os.path.join(self._top, path)
        if seen[0] == MODE_LINK:
            return os.readlink(full)
        descriptor = os.open(full, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return read_descriptor(descriptor, MAX_FILE_BYTES)
        finally:
            os.close(descriptor)

    def pattern_for(self, path: bytes) -> ProtectedPattern:
        """The first pattern that matches a path. For a link in a watched path: the pattern of that path."""
        below = (self.patterns[number] for root, number in self.roots if root.startswith(path + b"/"))
        return self.matching_pattern(path) or next(below, self.patterns[0])

    def matching_pattern(self, path: bytes) -> ProtectedPattern | None:
        """The first pattern that matches a path, or None."""
        shown = decode_path(path)
        numbers = {number for root, number in self.roots if path == root or path.startswith(root + b"/")}
        named = (
            pattern
            for number, pattern in enumerate(self.patterns)
            if number in numbers or pattern_covers(pattern.pattern, shown)
        )
        return next(named, None)


def differing_paths(before: FileStates, now: FileStates) -> list[bytes]:
    """The paths whose kind or content differs. Other permissions do not count."""
    if before == now:
        return []
    changed = [path for path, seen in now.items() if (old := before.get(path)) is None or old[:2] != seen[:2]]
    return sorted([*changed, *(before.keys() - now.keys())])


def _file_digest(full: bytes) -> str:
    """The digest of a file of any size."""
    digest = hashlib.sha256()
    descriptor = os.open(full, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while piece := os.read(descriptor, 1 << 20):
            digest.update(piece)
    finally:
        os.close(descriptor)
    return digest.hexdigest()


# Copies of protected files in a private folder of the run, from which they are restored, also after a crash.


MAX_COPIED_BYTES = 1 << 30  # of all copies; what comes after is only known by its digest, and cannot be put back
PACK_PREFIX, BASELINE_FILE, RESULT_PREFIX, RESULT_SUFFIX = "pack-", "index.json", "answer-", ".json"


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
    """The private folder of one run: the baseline with the contents of its files, and the results of checks.

    Contents are named by digest. They share few files, because one fsync takes as long for a thousand contents as for
    one. They are durable once the baseline that names them is saved.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._index: dict[str, tuple[str, int, int]] = {}  # digest: file, offset, length
        self._bytes = 0
        self._pack: tuple[str, int] | None = None  # the file that is being written
        self.storing = False
        os.makedirs(folder, mode=0o700, exist_ok=True)

    @property
    def scratch_file(self) -> str:
        """The path of a temporary file."""
        return self._path("scratch")

    def digest_or_store(self, content: bytes) -> str:
        """The digest of a content, which is stored too while `storing`."""
        return self.store(content) if self.storing else _digest(content)

    def store(self, content: bytes) -> str:
        """Store a content; return its digest."""
        digest = _digest(content)
        if digest not in self._index and self._bytes + len(content) <= MAX_COPIED_BYTES:
            name, descriptor = self._pack = self._pack or self._new_pack()
            at = os.lseek(descriptor, 0, os.SEEK_CUR)
            write_all(descriptor, content)
            self._index[digest] = (name, at, len(content))
            self._bytes += len(content)
        return digest

    def has(self, digest: str) -> bool:
        return digest in self._index

    def read(self, digest: str) -> bytes:
        """A stored content. Raises OSError where there is no valid copy."""
        if digest not in self._index:
            raise OSError(errno.ENOENT, "no copy of it was kept")
        name, at, size = self._index[digest]
        descriptor = os.open(self._path(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            content = os.pread(descriptor, size, at)
        finally:
            os.close(descriptor)
        if _digest(content) != digest:
            raise OSError(errno.EIO, "the copy of it was damaged")
        return content

    def load_baseline(self) -> TripwireBaseline | None:
        """The stored baseline; None where there is none, or it cannot be read."""
        data = self._read_json(BASELINE_FILE)
        try:
            self._set_index({digest: (str(file), int(at), int(size)) for digest, (file, at, size) in data[0].items()})
            baseline: TripwireBaseline = unpack(data[1])
            stored: dict[str, Any] = {**baseline.states}
            states = {name: _states_from_json(of) for name, of in stored.items()}
            stored = {**baseline.roots}
            roots = {name: tuple((_encode(path), number) for path, number in of) for name, of in stored.items()}
            return replace(baseline, states=states, roots=roots)
        except (LookupError, TypeError, ValueError, AttributeError):
            return None

    def save_baseline(self, baseline: TripwireBaseline, plan: RestorePlan) -> None:
        """Store the baseline with every content that it or the plan names; forget all other contents."""
        if self._pack:
            os.fsync(self._pack[1])
            os.close(self._pack[1])
            self._pack = None
        wanted = {seen[1] for states in baseline.states.values() for seen in states.values()}
        wanted |= {seen[1] for planned in plan.values() for seen in planned.values() if seen}
        self._set_index({digest: place for digest, place in self._index.items() if digest in wanted})
        states = {name: _states_to_json(states) for name, states in baseline.states.items()}
        roots = {name: tuple((decode_path(path), number) for path, number in of) for name, of in baseline.roots.items()}
        self._write_json(BASELINE_FILE, [self._index, pack(replace(baseline, states=states, roots=roots))])
        needed = {file for file, _, _ in self._index.values()}
        for name in os.listdir(self._folder):
            if name.startswith(PACK_PREFIX) and name not in needed:
                os.unlink(self._path(name))

    def load_result(self, name: str) -> TripwireResult | None:
        """The stored result with this name, if any."""
        try:
            result: TripwireResult = unpack(self._read_json(_result_file(name)))
            plan: dict[str, Any] = {**result.plan}
            return replace(result, plan={place: _states_from_json(states) for place, states in plan.items()})
        except (TypeError, ValueError, AttributeError):
            return None

    def save_result(self, name: str, result: TripwireResult) -> None:
        plan = {place: _states_to_json(states) for place, states in result.plan.items()}
        self._write_json(_result_file(name), pack(replace(result, plan=plan)))

    def unfinished_results(self) -> list[str]:
        """The names of results whose restore was not finished."""
        files = [file for file in self._files() if file.startswith(RESULT_PREFIX) and file.endswith(RESULT_SUFFIX)]
        names = sorted(file.removeprefix(RESULT_PREFIX).removesuffix(RESULT_SUFFIX) for file in files)
        return [name for name in names if (result := self.load_result(name)) and not result.restored]

    def clear(self) -> None:
        """Delete everything."""
        for name in self._files():
            if not os.path.isdir(self._path(name)):
                os.unlink(self._path(name))
        self._set_index({})

    def _new_pack(self) -> tuple[str, int]:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        name = PACK_PREFIX + os.urandom(8).hex()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return name, os.open(self._path(name), flags, 0o600)

    def _set_index(self, index: dict[str, tuple[str, int, int]]) -> None:
        self._index, self._bytes = index, sum(size for _, _, size in index.values())

    def _files(self) -> list[str]:
        return os.listdir(self._folder) if os.path.isdir(self._folder) else []

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)

    def _read_json(self, name: str) -> Any:
        try:
            return json.loads(read_regular_file(os.fsencode(self._path(name))))
        except (OSError, ValueError):
            return None

    def _write_json(self, name: str, data: object) -> None:
        write_private_file(self._path(name), json.dumps(data, separators=(",", ":")).encode())


def write_private_file(path: str, content: bytes) -> None:
    """Write a private file atomically and durably."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    replace_file(path, content)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _result_file(name: str) -> str:
    if not name or set(name) - REF_CHARACTERS:
        raise ValueError(f"{name!r} cannot be the name of an answer")
    return RESULT_PREFIX + name + RESULT_SUFFIX


def _encode(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def _states_to_json(states: Mapping[bytes, FileState | None]) -> dict[str, Any]:
    return {decode_path(path): seen and (seen[0].decode(), *seen[1:]) for path, seen in states.items()}


def _states_from_json(data: Mapping[str, Any]) -> dict[bytes, Any]:
    return {_encode(path): seen and (seen[0].encode(), *seen[1:]) for path, seen in data.items()}
