"""A backup of a repository outside the project, from which a destroyed one is restored."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import time

from ralphproof.base.files import sync_folders, write_all
from ralphproof.base.git_layout import find_blocking_files, git_folders, read_regular_file
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.workspace.branches import STASH_LOG, parse_ref_files
from ralphproof.workspace.git_command import GitFailed
from ralphproof.workspace.unsafe_paths import find_unsafe_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Self

    from ralphproof.base.git_layout import GitFolders
    from ralphproof.base.run_program import ProgramResult
    from ralphproof.base.value import Json
    from ralphproof.workspace.branches import Refs

    Table = dict[bytes, tuple[int, int]]  # name: offset and size
    RunGit = Callable[..., ProgramResult]  # a question to git about the objects of a repository


# Bundles: many contents in one file with a table at its end, so that one fsync makes all of them durable.


MAGIC = b"RALPHBK1"
FOOTER_BYTES = 32 + 8 + len(MAGIC)  # digest of the table, its length, and the word that ends a whole file
MAX_TABLE_BYTES = 1 << 28


class InvalidBundle(Exception):
    """Not a bundle, or one that was not written completely."""


class BundleWriter:
    """Writes a bundle, which gets its final name only when it is complete. Entry names are any bytes but NUL."""

    def __init__(self, path: str) -> None:
        self._path = path
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(path + ".new", flags, 0o600)
        self.started_ns = os.fstat(self._file).st_ctime_ns  # by the clock that stamps files
        self._names: list[bytes] = []
        self._sizes: list[int] = []

    def add(self, name: bytes, content: bytes) -> None:
        write_all(self._file, content)
        self._names.append(name)
        self._sizes.append(len(content))

    @property
    def names(self) -> list[bytes]:
        return self._names

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Remove an unfinished file."""
        if self._file >= 0:
            os.close(self._file)
            os.unlink(self._path + ".new")

    def finish(self) -> None:
        """Write the table, sync, and rename to the final name."""
        table = b"\0".join(self._names) + b"\n" + b" ".join(b"%d" % size for size in self._sizes)
        write_all(self._file, table + hashlib.sha256(table).digest() + len(table).to_bytes(8, "big") + MAGIC)
        os.fsync(self._file)
        os.rename(self._path + ".new", self._path)
        os.close(self._file)
        self._file = -1
        sync_folders({os.fsencode(os.path.dirname(self._path))})


class Bundle:
    """Reads a complete bundle. Raises InvalidBundle."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._names, self._sizes = self._table()
        except (OSError, ValueError) as error:
            raise InvalidBundle(f"{path}: {error}") from error

    def _table(self) -> tuple[list[bytes], list[bytes]]:
        file = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            end = os.fstat(file).st_size
            footer = os.pread(file, FOOTER_BYTES, max(0, end - FOOTER_BYTES))
            size = int.from_bytes(footer[32:40], "big")
            if len(footer) < FOOTER_BYTES or not footer.endswith(MAGIC) or size > min(end, MAX_TABLE_BYTES):
                raise ValueError("not written to its end")
            table = os.pread(file, size, end - FOOTER_BYTES - size)
        finally:
            os.close(file)
        if hashlib.sha256(table).digest() != footer[:32]:
            raise ValueError("its table is damaged")
        names, _, sizes = table.rpartition(b"\n")
        return (names.split(b"\0") if sizes else []), sizes.split()

    @property
    def names(self) -> list[bytes]:
        return self._names

    def table(self) -> Table:
        """Offset and size of each entry."""
        locations, at = {}, 0
        for name, size in zip(self._names, map(int, self._sizes), strict=True):
            locations[name] = (at, size)
            at += size
        return locations

    def contents(self, wanted: Iterable[bytes] | None = None) -> dict[bytes, bytes]:
        """The content of these entries, or of all. Raises OSError, InvalidBundle."""
        return dict(self.iter_contents(wanted))

    def iter_contents(self, wanted: Iterable[bytes] | None = None) -> Iterator[tuple[bytes, bytes]]:
        """The same, one entry at a time."""
        table = self.table()
        file = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for name in table if wanted is None else (name for name in wanted if name in table):
                at, size = table[name]
                content = os.pread(file, size, at)
                if len(content) != size:
                    raise InvalidBundle(f"{self.path}: cut off")
                yield name, content
        finally:
            os.close(file)


# The backup. One folder serves all runs of a repository:
#
#     objects-N    loose objects, many in one file
#     files/       packs, and loose objects that are too large for a bundle
#     RUN.start    the repository at the start of a run: refs, index, settings, and the names of its objects
#     RUN.last     the same at the start of the run's latest turn, if refs had moved
#
# Git never changes an object, so each one is copied once, however many runs there are. Every object is verified by its
# id (a pack by its checksum) when it is copied, so that damage does not get in, and again when it is restored.


MAX_COPIED_BYTES = 512 << 20  # copied at one start: about a second. Larger files are linked where both lie on one disk
MAX_LOOSE_OBJECTS = 50_000  # loose objects copied at one start: about two seconds; `git gc` makes one pack of them
LARGE_OBJECT_BYTES = 8 << 20  # a loose object from here on has a file of its own
MAX_METADATA_BYTES = 64 << 20  # bytes of refs, index, settings and the like
MAX_INFLATED_BYTES = 4 << 30  # of one object
MIN_FREE_BYTES = 256 << 20  # left free on the disk
START_SUFFIX, LAST_SUFFIX = ".start", ".last"
META_ENTRY, OBJECTS_ENTRY, TABLE_ENTRY, GIT_PREFIX = b"meta", b"objects", b"table", b"git/"
BUNDLE_PREFIX, FILES_FOLDER = "objects-", "files"
METADATA_FOLDERS = frozenset(
    (b"refs", b"reftable", b"hooks", b"info", b"logs", b"worktrees", b"rebase-merge", b"rebase-apply", b"sequencer")
)  # fmt: skip
ID_FILE = b"ralph-id"
SHALLOW, INDEX = b"shallow", b"index"
HISTORY_HIDING_FILES = (
    SHALLOW,
    b"info/grafts",
    b"objects/info/alternates",
)  # git takes history for missing, or from elsewhere
REPLACE_REFS = b"refs/replace/"
EXECUTABLE_MARK, PLAIN_MARK, LINK_MARK = b"x ", b"- ", b"l "  # what stands before the path of a small file
CHUNK_BYTES = 1 << 20
FICLONE = 0x40049409  # the request that shares blocks (btrfs, xfs)
LOCK_TIMEOUT_S = 30.0


class BackupFailed(Exception):
    """No backup could be made; the text is one line that says why and what to do."""


@value
class BackupState:
    """One stored state of a repository. `root` is the work tree, `common` the folder of the repository."""

    path: str
    run: str
    root: str
    common: str
    created_at: float  # epoch seconds
    started_ns: int  # objects with an older ctime are as they were copied
    ref_files: bool
    algorithm: str
    git_is_link: bool  # .git was a link


def list_backups(folder: str) -> list[BackupState]:
    """Every stored state in a folder, newest first. Unreadable ones are skipped."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    states = [
        state
        for name in names
        if name.endswith((START_SUFFIX, LAST_SUFFIX)) and (state := _read_backup(os.path.join(folder, name)))
    ]
    return sorted(states, key=lambda one: (one.created_at, one.path), reverse=True)


def _read_backup(path: str) -> BackupState | None:
    import json

    try:
        meta = json.loads(Bundle(path).contents((META_ENTRY,))[META_ENTRY])
        return BackupState(
            path, str(meta["run"]), str(meta["root"]), str(meta["common"]), float(meta["at"]), int(meta["mark"]),
            bool(meta["refFiles"]), str(meta["algorithm"]), bool(meta["linked"]),
        )  # fmt: skip
    except (OSError, InvalidBundle, ValueError, KeyError, TypeError):
        return None


def list_bundles(folder: str) -> list[Bundle]:
    """The bundles of loose objects in a folder. Unreadable ones are skipped."""
    bundles = []
    for name in os.listdir(folder):
        if name.startswith(BUNDLE_PREFIX) and name[len(BUNDLE_PREFIX) :].isdigit():
            try:
                bundles.append(Bundle(os.path.join(folder, name)))
            except InvalidBundle:
                continue  # a machine that stopped may leave such
    return bundles


def metadata_files(state: BackupState) -> dict[bytes, bytes]:
    """Refs, index, settings and the like of a state: content by path, which begins with the mark of the file's kind."""
    bundle = Bundle(state.path)
    return {
        name[len(GIT_PREFIX) :]: data
        for name, data in bundle.iter_contents(one for one in bundle.names if one.startswith(GIT_PREFIX))
    }


def backup_refs(state: BackupState) -> Refs:
    """The commits that the refs and HEAD named."""
    files = {
        name[2:]: data for name, data in metadata_files(state).items() if name.startswith((PLAIN_MARK, EXECUTABLE_MARK))
    }
    contents = {path: data for path, data in files.items() if path != STASH_LOG}
    if not state.ref_files:
        contents[b"packed-refs"] = Bundle(state.path).contents((TABLE_ENTRY,)).get(TABLE_ENTRY, b"")
    return parse_ref_files(contents)


class RepositoryBackup:
    """The backup, in a private folder, of the repository behind `folders`. Several processes may use it at once."""

    def __init__(self, folder: str, root: str, folders: GitFolders) -> None:
        self._folder, self._root, self._folders = folder, root, folders
        self._common = os.fsencode(folders.common)

    def path(self, run: str, which: str = START_SUFFIX) -> str:
        return os.path.join(self._folder, run + which)

    def find_start(self, run: str) -> BackupState | None:
        """The stored state of the repository at the start of this run, read again at each call."""
        return _read_backup(self.path(run))

    def of_other_runs(self, run: str) -> list[BackupState]:
        """The stored start states of other runs: those that are still running, and those that ended with a loss."""
        return [one for one in list_backups(self._folder) if one.path.endswith(START_SUFFIX) and one.run != run]

    def back_up(self, run: str, table: Callable[[], bytes]) -> str:
        """Copy new objects and store the present state under the run's name. Returns warnings, or an empty text.

        `table` returns the refs where they are not files. If the start state is stored already, this one is stored as
        the last state. Raises BackupFailed.
        """
        which = LAST_SUFFIX if os.path.exists(self.path(run)) else START_SUFFIX
        try:
            for folder in (self._folder, os.path.join(self._folder, FILES_FOLDER)):
                os.makedirs(folder, mode=0o700, exist_ok=True)
            with _BackupLock(self._folder):
                return self._back_up(run, which, self._metadata(), table)
        except OSError as error:
            raise BackupFailed(f"it could not be copied ({error.strerror or error}); see RALPH_STATE_DIR") from error

    def _back_up(self, run: str, which: str, small: dict[bytes, bytes], table: Callable[[], bytes]) -> str:
        import json

        with BundleWriter(self.path(run, which)) as writing:
            objects, pool = list(self._objects()), self._copied_keys()
            new = {key: path for key, path in objects if key not in pool}
            linked = self._copy_objects(new)
            meta: dict[str, Json] = {
                "run": run, "root": self._root, "common": self._folders.common, "at": time.time(),
                "mark": writing.started_ns, "refFiles": self._folders.ref_files, "algorithm": self._folders.algorithm,
                "linked": os.path.islink(os.path.join(self._root, ".git")),
            }  # fmt: skip
            writing.add(META_ENTRY, json.dumps(meta).encode())
            writing.add(OBJECTS_ENTRY, b"\0".join(path for key, path in objects if key not in new))
            if not self._folders.ref_files:
                writing.add(TABLE_ENTRY, table())
            for path, content in small.items():
                writing.add(GIT_PREFIX + path, content)
            writing.finish()
        present = {key for key, _ in objects}
        if which == START_SUFFIX and not pool <= present:
            self._remove_unused(present)
        warnings = []
        if linked:
            warnings.append(
                f"{_format_size(linked)} of the repository are kept by links, not copies: they survive the deletion of "
                ".git, but not the overwriting of its files"
            )
        if new:
            warnings.append(f"{len(new)} files of the repository are damaged, and are not copied; see: git fsck")
        return "; ".join(warnings)

    def _metadata(self) -> dict[bytes, bytes]:
        """Every file of the repository that is not an object. Reflogs are left out if the total is too large."""
        files = dict(_metadata_files_below(self._common))
        if PLAIN_MARK + b"HEAD" not in files:
            raise BackupFailed("it has no HEAD")
        if sum(map(len, files.values())) > MAX_METADATA_BYTES:
            files = {path: data for path, data in files.items() if not path[2:].startswith(b"logs/")}
        if sum(map(len, files.values())) > MAX_METADATA_BYTES:
            raise BackupFailed(
                f"its refs and index are larger than {_format_size(MAX_METADATA_BYTES)}; git pack-refs --all may help"
            )
        return files

    def _objects(self) -> Iterator[tuple[bytes, bytes]]:
        """Key and path of every object file of the repository and of its submodules."""
        width = (62 if self._folders.algorithm == "sha256" else 38,)
        yield from _list_objects(self._common, b"objects", width)
        for module in _submodules(self._common, b"modules"):
            yield from _list_objects(self._common, module + b"/objects", (38, 62))

    def _copied_keys(self) -> set[bytes]:
        """The keys of all objects that are already copied."""
        keys = {
            os.fsencode(name)
            for name in os.listdir(os.path.join(self._folder, FILES_FOLDER))
            if not name.endswith(".new")
        }
        return keys.union(*(bundle.names for bundle in list_bundles(self._folder)))

    def _copy_objects(self, new: dict[bytes, bytes]) -> int:
        """Copy these objects, by key; those that could not be copied remain in `new`. Returns the bytes that were only
        linked.
        """
        if not new:
            return 0
        loose = [key for key in new if not _has_own_file(key)]
        if len(loose) > MAX_LOOSE_OBJECTS:
            raise BackupFailed(f"it has {len(loose)} loose objects; git gc makes a few files of them")
        sizes = {key: _size_of(os.path.join(self._common, path)) for key, path in new.items() if _has_own_file(key)}
        self._refuse_too_large(sum(sizes.values()))
        left = MAX_COPIED_BYTES - self._copy_loose_objects(new, loose, sizes)
        linked = 0
        for key in sorted(sizes, key=lambda one: (sizes[one], one)):  # a pack is larger than its index, and comes after
            source, target = (
                os.path.join(self._common, new[key]),
                os.path.join(self._folder, FILES_FOLDER, os.fsdecode(key)),
            )
            how = _add_file(source, os.fsencode(target), key, sizes[key] <= left)
            left -= sizes[key] if how == "copied" else 0
            linked += sizes[key] if how == "linked" else 0
            if how:
                del new[key]
        return linked

    def _refuse_too_large(self, size: int) -> None:
        same_disk = os.stat(self._folder).st_dev == os.stat(self._common).st_dev
        if size > MAX_COPIED_BYTES and not same_disk:
            raise BackupFailed(
                f"{_format_size(size)} are too much to copy to another disk; "
                "set RALPH_STATE_DIR to a folder on the same disk"
            )
        disk = os.statvfs(self._folder)
        if min(size, MAX_COPIED_BYTES) + MIN_FREE_BYTES > disk.f_bavail * disk.f_frsize:
            raise BackupFailed(f"the disk of {self._folder} is almost full; make room, or set RALPH_STATE_DIR")

    def _copy_loose_objects(self, new: dict[bytes, bytes], keys: Iterable[bytes], large: dict[bytes, int]) -> int:
        """Copy small loose objects into one bundle and add the large ones to `large`. Returns the bytes copied."""
        size = 0
        with BundleWriter(self._next_bundle_path()) as writing:
            for key in keys:
                content = _read_loose_object(os.path.join(self._common, new[key]))
                if content is None:
                    continue
                if len(content) >= LARGE_OBJECT_BYTES or size > MAX_COPIED_BYTES:
                    large[key] = _size_of(os.path.join(self._common, new[key]))
                elif _is_valid_object(key, content):
                    writing.add(key, content)
                    size += len(content)
            if writing.names:
                writing.finish()
        for key in writing.names:
            del new[key]
        return size

    def _next_bundle_path(self) -> str:
        numbers = [
            int(name[len(BUNDLE_PREFIX) :]) for name in os.listdir(self._folder) if name[len(BUNDLE_PREFIX) :].isdigit()
        ]
        return os.path.join(self._folder, f"{BUNDLE_PREFIX}{max(numbers, default=0) + 1}")

    def _remove_unused(self, present: set[bytes]) -> None:
        """Remove copies that neither the repository nor any stored state has."""
        wanted = present.union(*map(_object_keys, list_backups(self._folder)))
        for bundle in list_bundles(self._folder):
            if not wanted.intersection(bundle.names):
                os.unlink(bundle.path)
        for name in os.listdir(os.path.join(self._folder, FILES_FOLDER)):
            if os.fsencode(name) not in wanted:
                os.unlink(os.path.join(self._folder, FILES_FOLDER, name))

    def delete(self, run: str) -> None:
        """Delete the states of a run. The copied objects stay for the next run."""
        for which in (LAST_SUFFIX, START_SUFFIX):
            for ending in ("", ".new"):
                try:
                    os.unlink(self.path(run, which) + ending)
                except FileNotFoundError:
                    continue


class CopiedObjects:
    """The copied objects by key."""

    def __init__(self, folder: str) -> None:
        self._files = os.path.join(folder, FILES_FOLDER)
        self._locations: dict[bytes, tuple[str, int, int]] = {}
        for bundle in list_bundles(folder):
            self._locations |= {key: (bundle.path, *place) for key, place in bundle.table().items()}
        self._open: dict[str, int] = {}

    def write_to(self, key: bytes, target: bytes) -> bool:
        """Write an object to this path; False where there is no valid copy of it."""
        if key not in self._locations:
            source = os.path.join(os.fsencode(self._files), key)
            if not _add_file(source, target, key, may_copy=True, links=False):
                return False
            os.chmod(target, 0o444)
            return True
        path, at, size = self._locations[key]
        if path not in self._open:
            self._open[path] = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        content = os.pread(self._open[path], size, at)
        if not _is_valid_object(key, content):
            return False
        file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
        try:
            write_all(file, content)
        finally:
            os.close(file)
        return True

    def close(self) -> None:
        for file in self._open.values():
            os.close(file)


def backup_objects(state: BackupState) -> list[bytes]:
    """The paths of all objects of a state."""
    listed = Bundle(state.path).contents((OBJECTS_ENTRY,))[OBJECTS_ENTRY]
    return listed.split(b"\0") if listed else []


def _object_keys(state: BackupState) -> set[bytes]:
    return set(map(object_key, backup_objects(state)))


def describe_loss(state: BackupState, ask: RunGit, refs: Callable[[], bytes]) -> str:
    """What the repository lacks of a stored state, in words; empty only where it provably has all of it.

    `refs` returns all present refs as lines `id name`. Never raises: what cannot be determined counts as lost.
    """
    try:
        return describe_damage(state, ask, refs) or _lost_refs(state, ask, refs)
    except (OSError, InvalidBundle, GitFailed) as error:
        return f"it cannot be told whether all of its history is there ({error})"


def describe_damage(state: BackupState, ask: RunGit, refs: Callable[[], bytes]) -> str:
    """The same without commits that only lost their ref: users may delete branches during a run, and its work still
    counts.
    """
    folders = git_folders(state.root)
    if os.path.islink(os.path.join(state.root, ".git")) and not state.git_is_link:
        return "a link stands in the place of .git"
    if blocking := next(find_blocking_files(state.common), ""):
        return f"git cannot read the repository: no file stands at {blocking}"
    if folders is None or os.path.realpath(folders.common) != os.path.realpath(state.common):
        return "the repository is gone"
    if unsafe := find_unsafe_path(state.root, folders):
        return f"git would look elsewhere than in the repository ({unsafe})"
    common = os.fsencode(state.common)
    try:
        files = metadata_files(state)
        known = files.get(PLAIN_MARK + ID_FILE)  # a repository that may not be written to has none
        if known is not None and known != read_regular_file(os.path.join(common, ID_FILE), 100):
            return "the repository is another one"
    except OSError:
        return "the repository is another one"
    except InvalidBundle as error:
        return f"what it was cannot be read ({error})"
    try:
        return (
            _describe_hidden_history(state, files, common, refs)
            or _lost_objects(state, common, ask)
            or _lost_index(state, files, common)
        )
    except (OSError, InvalidBundle, GitFailed) as error:
        return f"it cannot be told whether all of its history is there ({error})"


def _describe_hidden_history(
    state: BackupState, files: dict[bytes, bytes], common: bytes, refs: Callable[[], bytes]
) -> str:
    """New files or refs that show another history or one from elsewhere. A shallow clone may be deepened."""
    for path in HISTORY_HIDING_FILES:
        old, full = files.get(PLAIN_MARK + path), os.path.join(common, path)
        if not os.path.lexists(full) or (path == SHALLOW and old is not None):
            continue
        if read_regular_file(full, MAX_METADATA_BYTES) != old:
            return f"git would not have all of its history from the repository ({os.fsdecode(path)} is new)"
    known = backup_refs(state)
    for line in refs().splitlines():
        name = line.partition(b" ")[2]
        if name.startswith(REPLACE_REFS) and os.fsdecode(name) not in known:
            return f"git would show another history ({os.fsdecode(name)} is new)"
    return ""


def _lost_index(state: BackupState, files: dict[bytes, bytes], common: bytes) -> str:
    """Whether the index is missing or damaged. A checksum of zeros means that git was told to write none."""
    if PLAIN_MARK + INDEX not in files:
        return ""
    width = 32 if state.algorithm == "sha256" else 20
    try:
        file = os.open(os.path.join(common, INDEX), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return "the index is gone"
    try:
        size = os.fstat(file).st_size
        whole = os.pread(file, 4, 0) == b"DIRC" and size <= MAX_COPIED_BYTES
        plain = whole and not os.pread(file, width, size - width).strip(b"\0")
        return "" if plain or (whole and _has_valid_checksum(file, width)) else "the index is damaged"
    finally:
        os.close(file)


def _lost_objects(state: BackupState, common: bytes, ask: RunGit) -> str:
    missing = False
    for path in backup_objects(state):
        full = os.path.join(common, path)
        try:
            status = os.lstat(full)
        except FileNotFoundError:
            missing = True  # git may have packed it since
            continue
        untouched = stat.S_ISREG(status.st_mode) and status.st_ctime_ns < state.started_ns
        if not untouched and not _is_valid_file(full, object_key(path)):
            return f"files of the repository are damaged ({os.fsdecode(path)})"
    if missing:
        tips = dict.fromkeys(_ref_tips(state).values())
        reply = ask(*rev_list_command(state), "--stdin", stdin="".join(f"{tip}\n" for tip in tips).encode())
        if reply.code != 0:
            return f"history is missing ({reply.said})"
    return ""


def _ref_tips(state: BackupState) -> Refs:
    """The commits that refs and HEAD named, without the snapshots of other runs."""
    own, refs = f"refs/ralph/{state.run}/", backup_refs(state)
    return {ref: name for ref, name in refs.items() if not ref.startswith("refs/ralph/") or ref.startswith(own)}


def rev_list_command(state: BackupState) -> tuple[str, ...]:
    """The git command that checks that all objects exist. A partial clone need not have what its remote promised."""
    command = ("rev-list", "--quiet", "--objects")
    if not any(path.endswith(b".promisor") for path in backup_objects(state)):
        return command
    return ("-c", "remote.promised.promisor=true", *command, "--missing=allow-promisor")


def _lost_refs(state: BackupState, ask: RunGit, refs: Callable[[], bytes]) -> str:
    """Whether a commit that had a ref has none any more, so that git would prune it some day."""
    now = {words[0].decode() for line in refs().splitlines() if len(words := line.split(b" ", 1)) == 2}
    tips = _ref_tips(state)
    tips.pop("HEAD", None)  # the run's own ref holds it; another worktree may leave its own as it likes
    lost = [tip for tip in dict.fromkeys(tips.values()) if tip not in now]
    if not lost:
        return ""
    lines = [*lost, *(f"^{name}" for name in now)]
    reply = ask("rev-list", "--max-count=1", "--stdin", stdin="".join(f"{line}\n" for line in lines).encode())
    if reply.code != 0:
        return f"history is missing ({reply.said})"
    return f"commit {reply.out.split()[0].decode()[:12]} has no name any more" if reply.out.strip() else ""


class _BackupLock:
    """Only one process at a time writes into the folder."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, "lock")

    def __enter__(self) -> None:
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(self._file)
                    raise BackupFailed("another run has been copying it for too long; is it stopped?") from None
                time.sleep(0.01)

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def object_key(path: bytes) -> bytes:
    """The key of a copied object: its id, or the file name of a pack."""
    folder, _, name = path.rpartition(b"/")
    above = folder.rpartition(b"/")[2]
    return name if above == b"pack" else above + name


def _has_own_file(key: bytes) -> bool:
    """Whether the object is always copied as a file of its own."""
    return key.startswith(b"pack-")


def _list_objects(top: bytes, folder: bytes, widths: tuple[int, ...]) -> Iterator[tuple[bytes, bytes]]:
    """Keys and paths of the loose objects and packs in one object store. Links are not followed."""
    for entry in _list_folder(os.path.join(top, folder)):
        if len(entry.name) == 2 and _is_hex(entry.name) and entry.is_dir(follow_symlinks=False):
            start, above = entry.name, folder + b"/" + entry.name + b"/"
            names = [name for name in os.listdir(entry.path) if len(name) in widths and _is_hex(name)]
            yield from [(start + name, above + name) for name in names]
        elif entry.name == b"pack" and entry.is_dir(follow_symlinks=False):
            names = [name for name in os.listdir(entry.path) if name.startswith(b"pack-")]
            yield from [(name, folder + b"/pack/" + name) for name in names]


def _is_hex(name: bytes) -> bool:
    return not name.strip(b"0123456789abcdef")


def _submodules(top: bytes, folder: bytes) -> Iterator[bytes]:
    """The git folders of submodules."""
    try:
        with os.scandir(os.path.join(top, folder)) as listed:
            entries = [entry for entry in listed if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for entry in entries:
        path = folder + b"/" + entry.name
        if os.path.isfile(os.path.join(entry.path, b"HEAD")):
            yield path
            yield from _submodules(top, path + b"/modules")
        else:
            yield from _submodules(top, path)


def _metadata_files_below(top: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Every file of a repository and its submodules that is not an object, with its content."""
    for git_dir in (b"", *(module + b"/" for module in _submodules(top, b"modules"))):
        for entry in _list_folder(os.path.join(top, git_dir)):
            if not entry.is_dir(follow_symlinks=False):
                yield from _metadata_file(entry, git_dir + entry.name)
            elif entry.name in METADATA_FOLDERS:
                yield from _files_below(entry, git_dir + entry.name)
        for entry in _list_folder(os.path.join(top, git_dir, b"objects", b"info")):
            yield from _metadata_file(entry, git_dir + b"objects/info/" + entry.name)


def _list_folder(folder: bytes) -> list[os.DirEntry[bytes]]:
    try:
        with os.scandir(folder) as listed:
            return list(listed)
    except OSError:
        return []


def _files_below(folder: os.DirEntry[bytes], path: bytes) -> Iterator[tuple[bytes, bytes]]:
    for entry in _list_folder(folder.path):
        inner = path + b"/" + entry.name
        yield from _files_below(entry, inner) if entry.is_dir(follow_symlinks=False) else _metadata_file(entry, inner)


def _metadata_file(entry: os.DirEntry[bytes], path: bytes) -> Iterator[tuple[bytes, bytes]]:
    """One such file. Locks and samples are left out."""
    if entry.name.endswith((b".lock", b".sample")):
        return
    try:
        if entry.is_symlink():
            if b"hooks" in path.split(b"/"):
                yield LINK_MARK + path, os.readlink(entry.path)
        elif entry.is_file(follow_symlinks=False):
            executed = entry.stat(follow_symlinks=False).st_mode & 0o100
            yield (
                (EXECUTABLE_MARK if executed else PLAIN_MARK) + path,
                read_regular_file(entry.path, MAX_METADATA_BYTES),
            )
    except OSError:
        return  # it went away, or is too large to be one of them


def _size_of(path: bytes) -> int:
    return os.lstat(path).st_size


def _read_loose_object(path: bytes) -> bytes | None:
    """The bytes of a loose object, or its beginning where it is large; None where it is not a regular file."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        state = os.fstat(file)
        return os.read(file, LARGE_OBJECT_BYTES) if stat.S_ISREG(state.st_mode) else None
    finally:
        os.close(file)


def _is_valid_object(key: bytes, content: bytes) -> bool:
    """Whether the content is the loose object with this id."""
    return _inflated_id(iter((content,)), len(key)) == key.decode("ascii", "replace")


def _inflated_id(pieces: Iterator[bytes], width: int) -> str:
    """The id of a loose object; empty where it is invalid. No more is inflated than its header announces."""
    import hashlib
    import zlib

    inflate, digest = zlib.decompressobj(), hashlib.new("sha256" if width == 64 else "sha1")
    size, announced = 0, -1
    try:
        for piece in pieces:
            data = piece
            while data:
                part = inflate.decompress(data, CHUNK_BYTES)
                data = inflate.unconsumed_tail
                if announced < 0:
                    head, end, _ = part.partition(b"\0")
                    if not end or not head.rpartition(b" ")[2].isdigit():
                        return ""
                    announced = len(head) + 1 + int(head.rpartition(b" ")[2])
                size += len(part)
                if size > min(announced, MAX_INFLATED_BYTES):
                    return ""
                digest.update(part)
                if not part and not data:
                    break
    except zlib.error:
        return ""
    return digest.hexdigest() if inflate.eof and size == announced else ""


def _chunks(file: int) -> Iterator[bytes]:
    at = 0
    while piece := os.pread(file, CHUNK_BYTES, at):
        yield piece
        at += len(piece)


def _is_valid_file(path: bytes, key: bytes) -> bool:
    """Whether the file at a path is the object or the pack that the key names."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return stat.S_ISREG(os.fstat(file).st_mode) and _is_valid_content(file, key)
    finally:
        os.close(file)


def _is_valid_content(file: int, key: bytes) -> bool:
    if not _has_own_file(key):
        return _inflated_id(_chunks(file), len(key)) == key.decode("ascii", "replace")
    if not key.endswith((b".pack", b".idx")):
        return True  # git can do without it, or it is empty
    return _has_valid_checksum(file, 32 if len(key.partition(b".")[0]) == len("pack-") + 64 else 20)


def _has_valid_checksum(file: int, width: int) -> bool:
    import hashlib

    digest, tail = hashlib.new("sha256" if width == 32 else "sha1"), b""
    for piece in _chunks(file):
        whole = tail + piece
        digest.update(whole[:-width])
        tail = whole[-width:]
    return len(tail) == width and digest.digest() == tail


def _add_file(source: bytes, target: bytes, key: bytes, may_copy: bool, links: bool = True) -> str:
    """Copy a file, or link it where it may not be copied. Returns how, or nothing where its content is not valid."""
    try:
        file = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return ""
        how = "cloned" if _copy_beside(file, target, may_copy) == "cloned" else "copied" if may_copy else "linked"
        if how == "linked":
            if not links:
                return ""
            if os.path.lexists(target):
                os.unlink(target)
            os.link(source, target, follow_symlinks=False)
            return how  # to read it all would take as long as to copy it
    finally:
        os.close(file)
    new = target + b".new"
    if not _is_valid_file(new, key):
        os.unlink(new)
        return ""
    os.rename(new, target)
    return how


def _copy_beside(file: int, target: bytes, may_copy: bool) -> str:
    """Copy to a temporary file beside the target: a reflink, or else a plain copy where `may_copy`."""
    new = target + b".new"
    copy = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.ioctl(copy, FICLONE, file)
            return "cloned"
        except OSError:
            pass
        if may_copy:
            for piece in _chunks(file):
                write_all(copy, piece)
            os.fsync(copy)
    finally:
        os.close(copy)
    if not may_copy:
        os.unlink(new)
    return ""


def _format_size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
