"""Backups of a repository outside the project, and the restore of a destroyed repository from one.

One folder serves all runs of a repository:

    pool/        the objects as packs, at the paths that they have in the repository
    RUN.start    a tar file with the repository at the start of a run, without its objects
    RUN.last     the same at the start of its latest turn, if refs had moved

Git never changes an object, so each one is copied once, however many runs there are. Packs are copied as they are. The
loose objects are packed by git, so that one fsync makes all of them durable.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping

from ralphproof.base.errors import Refused, wrap_os_error
from ralphproof.base.files import FileLock, make_private_folder, remove_tree, replace_file, sync_folders, write_all
from ralphproof.base.git_layout import find_blocking_files, git_folders, read_if_there, read_regular_file
from ralphproof.base.programs import ProgramResult, run_program
from ralphproof.base.value import TYPE_CHECKING, pack, replace, unpack, value
from ralphproof.workspace.git_command import (
    NO_HOOKS_OPTIONS,
    GitFailed,
    find_git,
    find_unsafe_path,
    isolated_git_environment,
)
from ralphproof.workspace.git_objects import CommitStore, decode_path, run_ref_name
from ralphproof.workspace.history_tripwires import SHORT_ID_CHARS, STASH, STASH_LOG, parse_ref_files

RunGit = Callable[..., ProgramResult]  # a question to git about the objects of a repository

if TYPE_CHECKING:
    from ralphproof.workspace.history_tripwires import Refs


MAX_COPIED_BYTES = 512 << 20  # of packs, copied at one start: about a second; more is linked if both are on one disk
MAX_LOOSE_OBJECTS = 50_000  # packed at one start: about two seconds; `git gc` makes one pack of them
MAX_METADATA_BYTES = 64 << 20  # of refs, index, settings and the like
MAX_INFLATED_BYTES = 4 << 30  # of one object
MAX_OWN_PACKS = 20  # in the pool; past this the loose objects are packed anew
MIN_FREE_BYTES = 256 << 20  # left free on the disk
START_SUFFIX, LAST_SUFFIX = ".start", ".last"
POOL, PACK_FOLDER = b"pool", b"objects/pack"
META_ENTRY, OBJECTS_ENTRY, REFS_ENTRY, GIT_PREFIX = "meta.json", "objects", "refs", "git/"
METADATA_FOLDERS = frozenset(
    (b"refs", b"reftable", b"hooks", b"info", b"logs", b"worktrees", b"rebase-merge", b"rebase-apply", b"sequencer")
)  # fmt: skip
ID_FILE, SHALLOW, INDEX, EXCLUDE = b"ralph-id", b"shallow", b"index", b"info/exclude"
HISTORY_HIDING_FILES = (SHALLOW, b"info/grafts", b"objects/info/alternates")  # history is missing, or from elsewhere
REPLACE_REFS, OWN_REFS = b"refs/replace/", "refs/ralph/"
FILE_MODE, PROGRAM_MODE, LINK_MODE = 0o644, 0o755, 0o777
CHUNK_BYTES = 1 << 20
FICLONE = 0x40049409  # the request that shares blocks (btrfs, xfs)
LOCK_TIMEOUT_S = 30.0
PACK_OPTIONS = ("-c", "pack.compression=1", "pack-objects", "-q", "--window=0", "--incremental", "--non-empty")
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class BackupFailed(Exception):
    """No backup could be made; the text is one line that says why and what to do."""


# Stored states.


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


@value
class RepositoryFiles:
    """The content of a stored state: paths of object files, refs, and all other files with their modes."""

    objects: list[bytes]
    refs: Refs
    files: dict[bytes, tuple[int, bytes]]

    def content(self, path: bytes) -> bytes | None:
        """The content of a plain file, if it was there."""
        mode, content = self.files.get(path, (0, b""))
        return content if mode == FILE_MODE else None


def list_backups(folder: str) -> list[BackupState]:
    """Every stored state in a folder, newest first. Unreadable ones are skipped."""
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    paths = (os.path.join(folder, name) for name in names if name.endswith((START_SUFFIX, LAST_SUFFIX)))
    states = [state for path in paths if (state := _read_state(path))]
    return sorted(states, key=lambda one: (one.created_at, one.path), reverse=True)


def _read_state(path: str) -> BackupState | None:
    try:
        _, _, text = next(_read_tar(path))
        state = unpack(json.loads(text))
    except (OSError, StopIteration, ValueError, TypeError):
        return None
    return replace(state, path=path) if isinstance(state, BackupState) else None


def read_files(state: BackupState) -> RepositoryFiles:
    """The content of a stored state. Raises OSError."""
    objects: list[bytes] = []
    table: bytes | None = None
    files: dict[bytes, tuple[int, bytes]] = {}
    for name, mode, content in _read_tar(state.path):
        if name.startswith(GIT_PREFIX):
            files[name.removeprefix(GIT_PREFIX).encode("utf-8", "surrogateescape")] = (mode, content)
        elif name == OBJECTS_ENTRY:
            objects = content.split(b"\0") if content else []
        elif name == REFS_ENTRY:
            table = content
    contents = {path: data for path, (mode, data) in files.items() if mode != LINK_MODE and path != STASH_LOG}
    return RepositoryFiles(objects, parse_ref_files(contents | ({b"packed-refs": table} if table else {})), files)


def _read_tar(path: str) -> Iterator[tuple[str, int, bytes]]:
    """Name, mode and content of each entry; of a link its target."""
    import tarfile

    try:
        with tarfile.open(path, "r:", encoding="utf-8", errors="surrogateescape") as tar:
            for entry in tar:
                if entry.issym():
                    yield entry.name, LINK_MODE, os.fsencode(entry.linkname)
                elif (file := tar.extractfile(entry)) is not None:
                    yield entry.name, entry.mode, file.read()
    except (tarfile.TarError, EOFError) as error:
        raise OSError(f"{path}: {error}") from error


def _tar_bytes(entries: Iterable[tuple[str, int, bytes]]) -> bytes:
    import tarfile

    data = io.BytesIO()
    with tarfile.open(
        fileobj=data, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape"
    ) as tar:
        for name, mode, content in entries:
            entry = tarfile.TarInfo(name)
            entry.mode = mode
            if mode == LINK_MODE:
                entry.type, entry.linkname = tarfile.SYMTYPE, os.fsdecode(content)
                tar.addfile(entry)
            else:
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    return data.getvalue()


class RepositoryBackup:
    """The backup, in a private folder, of the repository of `commits`. Several processes may use it at once."""

    def __init__(self, folder: str, root: str, commits: CommitStore) -> None:
        self._folder, self._root, self._commits, self._folders = folder, root, commits, commits.folders
        self._common, self._pool = os.fsencode(self._folders.common), os.path.join(os.fsencode(folder), POOL)
        self._lock_path = os.path.join(folder, "lock")

    def path(self, run: str, which: str = START_SUFFIX) -> str:
        return os.path.join(self._folder, run + which)

    def find_start(self, run: str) -> BackupState | None:
        """The stored state of the repository at the start of this run, read again at each call."""
        return _read_state(self.path(run))

    def of_other_runs(self, run: str) -> list[BackupState]:
        """The stored start states of other runs: those that are still running, and those that ended with a loss."""
        return [one for one in list_backups(self._folder) if one.path.endswith(START_SUFFIX) and one.run != run]

    def back_up(self, run: str) -> str:
        """Copy new objects and store the present state under the run's name. Returns a warning, or an empty text.

        If the start state is stored already, this one is stored as the last state. Raises BackupFailed.
        """
        which = LAST_SUFFIX if os.path.exists(self.path(run)) else START_SUFFIX
        try:
            with FileLock(self._lock_path, _wait_for_others()):
                return self._back_up(run, self.path(run, which))
        except GitFailed as error:
            raise BackupFailed(f"its objects could not be packed ({error}); see: git fsck") from error
        except OSError as error:
            raise BackupFailed(f"it could not be copied ({error.strerror or error}); see RALPH_STATE_DIR") from error

    def _back_up(self, run: str, path: str) -> str:
        os.utime(self._lock_path)
        began_ns = os.stat(self._lock_path).st_ctime_ns  # by the clock that stamps files
        state = BackupState(
            "", run, self._root, self._folders.common, time.time(), began_ns, self._folders.ref_files,
            self._folders.algorithm, os.path.islink(os.path.join(self._root, ".git")),
        )  # fmt: skip
        metadata = self._metadata()
        objects, loose, linked = self._copy_packs()
        self._pack_loose(loose)
        entries = [(META_ENTRY, FILE_MODE, json.dumps(pack(state)).encode())]
        entries.append((OBJECTS_ENTRY, FILE_MODE, b"\0".join(objects)))
        if not self._folders.ref_files:
            entries.append((REFS_ENTRY, FILE_MODE, self._commits.list_refs()))
        entries += [(GIT_PREFIX + decode_path(name), *rest) for name, rest in metadata.items()]
        replace_file(path, _tar_bytes(entries))
        if not linked:
            return ""
        return (
            f"{_format_size(linked)} of the repository are kept by links, not copies: they survive the deletion of "
            ".git, but not the overwriting of its files"
        )

    def _metadata(self) -> dict[bytes, tuple[int, bytes]]:
        """Every file of the repository that is not an object. Reflogs are left out if the total is too large."""
        files = dict(_metadata_files_below(self._common))
        if b"HEAD" not in files:
            raise BackupFailed("it has no HEAD")
        if _total_size(files) > MAX_METADATA_BYTES:
            files = {path: data for path, data in files.items() if not path.startswith(b"logs/")}
        if _total_size(files) > MAX_METADATA_BYTES:
            raise BackupFailed(
                f"its refs and index are larger than {_format_size(MAX_METADATA_BYTES)}; git pack-refs --all may help"
            )
        return files

    def _copy_packs(self) -> tuple[list[bytes], dict[bytes, list[bytes]], int]:
        """Copy the packs of the repository and its submodules into the pool.

        Returns the paths of all object files, the ids of loose objects by git folder, and the bytes that were only
        linked.
        """
        paths: list[bytes] = []
        loose: dict[bytes, list[bytes]] = {}
        linked, left = 0, MAX_COPIED_BYTES
        first = not list_backups(self._folder)
        for git_dir in (b"", *(module + b"/" for module in _submodules(self._common, b"modules"))):
            pool = os.path.join(self._pool, git_dir, PACK_FOLDER)
            make_private_folder(os.fsdecode(pool))
            source = os.path.join(self._common, git_dir, PACK_FOLDER)
            packs = {entry.name: entry.stat(follow_symlinks=False).st_size for entry in _pack_files(source)}
            known = set(os.listdir(pool))
            new = {name: size for name, size in packs.items() if name not in known}
            own = known - packs.keys()
            if first and own and (new or len(own) > 2 * MAX_OWN_PACKS):
                for name in own:  # no stored state needs them
                    os.unlink(os.path.join(pool, name))
            if new:
                self._refuse_too_large(sum(new.values()))
            for name in sorted(new, key=lambda one: (new[one], one)):  # the index of a pack before the pack
                how = _copy_pack_file(os.path.join(source, name), os.path.join(pool, name), new[name] <= left)
                left -= new[name] if how == "copied" else 0
                linked += new[name] if how == "linked" else 0
            loose[git_dir] = self._list_loose(git_dir)
            paths += [git_dir + PACK_FOLDER + b"/" + name for name in packs]
            paths += [_loose_path(git_dir, name) for name in loose[git_dir]]
        return paths, loose, linked

    def _list_loose(self, git_dir: bytes) -> list[bytes]:
        """The ids of the loose objects."""
        width = 62 if self._folders.algorithm == "sha256" else 38
        objects = os.path.join(self._common, git_dir, b"objects")
        folders = [entry for entry in _list_folder(objects) if len(entry.name) == 2 and _is_hex(entry.name)]
        ids = [
            folder.name + name
            for folder in folders
            if folder.is_dir(follow_symlinks=False)
            for name in os.listdir(folder.path)
            if len(name) == width and _is_hex(name)
        ]
        if len(ids) > MAX_LOOSE_OBJECTS:
            raise BackupFailed(f"it has {len(ids)} loose objects; git gc makes a few files of them")
        return ids

    def _pack_loose(self, loose: dict[bytes, list[bytes]]) -> None:
        """Pack those of the objects into the pool that are in no pack of it or of the repository."""
        for git_dir, ids in loose.items():
            if not ids:
                continue
            pool = os.path.join(self._pool, git_dir)
            source = os.fsdecode(os.path.join(self._common, git_dir, b"objects"))
            quoted = source.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            env = {
                "GIT_OBJECT_DIRECTORY": os.fsdecode(os.path.join(pool, b"objects")),
                "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{quoted}"',
            }
            folder = os.path.join(pool, PACK_FOLDER)
            target = os.fsdecode(os.path.join(folder, b"pack"))
            try:
                reply = self._commits.run(*PACK_OPTIONS, target, stdin=b"\n".join((*ids, b"")), more=env)
                if reply.code:
                    raise GitFailed(reply.said or f"git pack-objects: {reply.code}")
            finally:
                for name in os.listdir(folder):
                    if name.startswith(b"tmp_"):
                        os.unlink(os.path.join(folder, name))
            if reply.out:
                made = b"pack-" + reply.out.strip() + b"."
                for entry in _pack_files(folder):
                    if entry.name.startswith(made):
                        os.chmod(entry.path, 0o600)  # git gives packs to everybody to read
                sync_folders({folder})

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

    def delete(self, run: str) -> None:
        """Delete the states of a run. The copied objects stay for the next run."""
        for name in os.listdir(self._folder) if os.path.isdir(self._folder) else ():
            if name.startswith((run + LAST_SUFFIX, run + START_SUFFIX, f".{run}.")):
                os.unlink(os.path.join(self._folder, name))


def _wait_for_others() -> Callable[[], None]:
    """Raises BackupFailed once another process has held the lock for too long."""
    deadline = time.monotonic() + LOCK_TIMEOUT_S

    def wait() -> None:
        if time.monotonic() > deadline:
            raise BackupFailed("another run has been copying it for too long; is it stopped?")

    return wait


def _loose_path(git_dir: bytes, name: bytes) -> bytes:
    return git_dir + b"objects/" + name[:2] + b"/" + name[2:]


def _pack_files(folder: bytes) -> list[os.DirEntry[bytes]]:
    entries = _list_folder(folder)
    return [one for one in entries if one.name.startswith(b"pack-") and one.is_file(follow_symlinks=False)]


def _is_hex(name: bytes) -> bool:
    return not name.strip(b"0123456789abcdef")


def _submodules(top: bytes, folder: bytes) -> Iterator[bytes]:
    """The git folders of submodules."""
    for entry in _list_folder(os.path.join(top, folder)):
        if not entry.is_dir(follow_symlinks=False):
            continue
        path = folder + b"/" + entry.name
        if os.path.isfile(os.path.join(entry.path, b"HEAD")):
            yield path
            path += b"/modules"
        yield from _submodules(top, path)


def _metadata_files_below(top: bytes) -> Iterator[tuple[bytes, tuple[int, bytes]]]:
    """Every file of a repository and its submodules that is not an object, with its mode and content."""
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


def _files_below(folder: os.DirEntry[bytes], path: bytes) -> Iterator[tuple[bytes, tuple[int, bytes]]]:
    for entry in _list_folder(folder.path):
        inner = path + b"/" + entry.name
        yield from _files_below(entry, inner) if entry.is_dir(follow_symlinks=False) else _metadata_file(entry, inner)


def _metadata_file(entry: os.DirEntry[bytes], path: bytes) -> Iterator[tuple[bytes, tuple[int, bytes]]]:
    """One such file. Locks and samples are left out."""
    if entry.name.endswith((b".lock", b".sample")):
        return
    try:
        if entry.is_symlink():
            if b"hooks" in path.split(b"/"):
                yield path, (LINK_MODE, os.readlink(entry.path))
        elif entry.is_file(follow_symlinks=False):
            mode = PROGRAM_MODE if entry.stat(follow_symlinks=False).st_mode & 0o100 else FILE_MODE
            yield path, (mode, read_regular_file(entry.path, MAX_METADATA_BYTES))
    except OSError:
        return  # it went away, or is too large to be one of them


def _total_size(files: dict[bytes, tuple[int, bytes]]) -> int:
    return sum(len(content) for _, content in files.values())


def _copy_pack_file(source: bytes, target: bytes, may_copy: bool, links: bool = True) -> str:
    """Copy a file of a pack durably, or link it where it may not be copied and its blocks cannot be shared.

    Returns how. Raises BackupFailed where it is damaged.
    """
    new, how = target + b".new", "copied"
    file = os.open(source, READ_FLAGS)
    try:
        copy = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.ioctl(copy, FICLONE, file)
                how = "cloned"
            except OSError:
                if not may_copy and links:
                    os.unlink(new)
                    os.link(source, target, follow_symlinks=False)
                    return "linked"  # to read it all would take as long as to copy it
                for piece in _chunks(file):
                    write_all(copy, piece)
            os.fsync(copy)
        finally:
            os.close(copy)
    finally:
        os.close(file)
    if not _is_valid_file(new):
        os.unlink(new)
        raise BackupFailed(f"{os.fsdecode(source)} is damaged; see: git fsck")
    os.rename(new, target)
    return how


def _format_size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


# What a repository lacks of a stored state.


def describe_loss(state: BackupState, ask: RunGit, refs: Callable[[], bytes]) -> str:
    """What the repository lacks of a stored state, in words; empty only where it provably has all of it.

    `refs` returns all present refs as lines `id name`. Never raises: what cannot be determined counts as lost.
    """
    try:
        return describe_damage(state, ask, refs) or _lost_refs(state, read_files(state), ask, refs)
    except (OSError, GitFailed) as error:
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
        stored = read_files(state)
        known = stored.content(ID_FILE)  # a repository that may not be written to has none
        if known is not None and known != read_if_there(os.path.join(common, ID_FILE), MAX_METADATA_BYTES):
            return "the repository is another one"
        return (
            _describe_hidden_history(stored, common, refs)
            or _lost_objects(state, stored, common, ask)
            or _lost_index(state, stored, common)
        )
    except (OSError, GitFailed) as error:
        return f"it cannot be told whether all of its history is there ({error})"


def _describe_hidden_history(stored: RepositoryFiles, common: bytes, refs: Callable[[], bytes]) -> str:
    """New files or refs that show another history or one from elsewhere. A shallow clone may be deepened."""
    for path in HISTORY_HIDING_FILES:
        old, full = stored.content(path), os.path.join(common, path)
        if not os.path.lexists(full) or (path == SHALLOW and old is not None):
            continue
        if read_regular_file(full, MAX_METADATA_BYTES) != old:
            return f"git would not have all of its history from the repository ({os.fsdecode(path)} is new)"
    for line in refs().splitlines():
        name = line.partition(b" ")[2]
        if name.startswith(REPLACE_REFS) and os.fsdecode(name) not in stored.refs:
            return f"git would show another history ({os.fsdecode(name)} is new)"
    return ""


def _lost_index(state: BackupState, stored: RepositoryFiles, common: bytes) -> str:
    """Whether the index is missing or damaged. A checksum of zeros means that git was told to write none."""
    if stored.content(INDEX) is None:
        return ""
    width = 32 if state.algorithm == "sha256" else 20
    try:
        file = os.open(os.path.join(common, INDEX), READ_FLAGS)
    except OSError:
        return "the index is gone"
    try:
        size = os.fstat(file).st_size
        whole = os.pread(file, 4, 0) == b"DIRC" and size <= MAX_COPIED_BYTES
        plain = whole and not os.pread(file, width, size - width).strip(b"\0")
        return "" if plain or (whole and _has_valid_checksum(file, width)) else "the index is damaged"
    finally:
        os.close(file)


def _lost_objects(state: BackupState, stored: RepositoryFiles, common: bytes, ask: RunGit) -> str:
    missing = False
    for path in stored.objects:
        full = os.path.join(common, path)
        try:
            status = os.lstat(full)
        except FileNotFoundError:
            missing = True  # git may have packed it since
            continue
        untouched = stat.S_ISREG(status.st_mode) and status.st_ctime_ns < state.started_ns
        if not untouched and not _is_valid_file(full):
            return f"files of the repository are damaged ({os.fsdecode(path)})"
    if missing:
        tips = dict.fromkeys(_ref_tips(state, stored).values())
        reply = ask(*_rev_list_command(stored), "--stdin", stdin="".join(f"{tip}\n" for tip in tips).encode())
        if reply.code != 0:
            return f"history is missing ({reply.said})"
    return ""


def _ref_tips(state: BackupState, stored: RepositoryFiles) -> Refs:
    """The commits that refs and HEAD named, without the snapshots of other runs."""
    own = f"{OWN_REFS}{state.run}/"
    return {ref: name for ref, name in stored.refs.items() if not ref.startswith(OWN_REFS) or ref.startswith(own)}


def _rev_list_command(stored: RepositoryFiles) -> tuple[str, ...]:
    """The git command that checks that all objects exist. A partial clone need not have what its remote promised."""
    command = ("rev-list", "--quiet", "--objects")
    if not any(path.endswith(b".promisor") for path in stored.objects):
        return command
    return ("-c", "remote.promised.promisor=true", *command, "--missing=allow-promisor")


def _lost_refs(state: BackupState, stored: RepositoryFiles, ask: RunGit, refs: Callable[[], bytes]) -> str:
    """Whether a commit that had a ref has none any more, so that git would prune it some day."""
    now = {words[0].decode() for line in refs().splitlines() if len(words := line.split(b" ", 1)) == 2}
    tips = _ref_tips(state, stored)
    tips.pop("HEAD", None)  # the run's own ref holds it; another worktree may leave its own as it likes
    lost = [tip for tip in dict.fromkeys(tips.values()) if tip not in now]
    if not lost:
        return ""
    lines = [*lost, *(f"^{name}" for name in now)]
    reply = ask("rev-list", "--max-count=1", "--stdin", stdin="".join(f"{line}\n" for line in lines).encode())
    if reply.code != 0:
        return f"history is missing ({reply.said})"
    return f"commit {reply.out.split()[0].decode()[:SHORT_ID_CHARS]} has no name any more" if reply.out.strip() else ""


def _is_valid_file(path: bytes) -> bool:
    """Whether a file in an object folder is the object or the pack that its name says."""
    *_, above, name = path.removesuffix(b".new").split(b"/")
    try:
        file = os.open(path, READ_FLAGS)
    except OSError:
        return False
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return False
        if not name.startswith(b"pack-"):
            return _inflated_id(file, len(above + name)) == (above + name).decode()
        if not name.endswith((b".pack", b".idx")):
            return True  # git can do without it, or it is empty
        return _has_valid_checksum(file, 32 if len(name.partition(b".")[0]) == len("pack-") + 64 else 20)
    finally:
        os.close(file)


def _inflated_id(file: int, width: int) -> str:
    """The id of a loose object; empty where it is invalid. No more is inflated than a bound."""
    inflate, digest, size = zlib.decompressobj(), hashlib.new("sha256" if width == 64 else "sha1"), 0
    try:
        for piece in _chunks(file):
            data = piece
            while data and size <= MAX_INFLATED_BYTES:
                part = inflate.decompress(data, CHUNK_BYTES)
                data = inflate.unconsumed_tail
                digest.update(part)
                size += len(part)
    except zlib.error:
        return ""
    return digest.hexdigest() if inflate.eof else ""


def _chunks(file: int) -> Iterator[bytes]:
    at = 0
    while piece := os.pread(file, CHUNK_BYTES, at):
        yield piece
        at += len(piece)


def _has_valid_checksum(file: int, width: int) -> bool:
    """Whether a file ends with the digest of what is before it."""
    digest, tail = hashlib.new("sha256" if width == 32 else "sha1"), b""
    for piece in _chunks(file):
        whole = tail + piece
        digest.update(whole[:-width])
        tail = whole[-width:]
    return len(tail) == width and digest.digest() == tail


# Restore. The new repository is built and verified beside its target. Then the present one is renamed, and the new one
# takes its place. After a crash the restore can be repeated: the build starts again, and what was moved aside stays.


BUILD_SUFFIX, ASIDE_SUFFIX = ".restoring", ".before-restore-"
RESTORE_TIMEOUT_S = 600.0
LIST_REFS_COMMAND = ("for-each-ref", "--format=%(objectname) %(refname)")


@value
class NewerRef:
    """A ref of the present repository with a commit that the backup does not have."""

    ref: str
    commit: str


class RepositoryRestore:
    """Restores the repository of a run, whose backups are in `folder`. Raises Refused if the backup is incomplete."""

    def __init__(self, folder: str, start: BackupState, environ: Mapping[str, str]) -> None:
        self._folder, self.start = folder, start
        self.target = start.common
        self._build_path = self.target + BUILD_SUFFIX
        self._git, self._environ = find_git(environ, start.root), environ
        self.as_of_last_turn = False  # which of the two states is put back
        self.refs: Refs = {}  # of that state
        self.extra_refs: list[str] = []  # refs that hold what a later state has besides

    def build(self) -> None:
        """Build the repository beside its target, and verify it."""
        above = os.path.dirname(self.target)
        if not os.path.isdir(above):
            raise Refused(f"{above} is gone; make that folder first")
        if not os.access(above, os.W_OK | os.X_OK):
            raise Refused(f"{above} may not be written to, so nothing can be put there; chmod u+wx it first")
        try:
            remove_tree(self._build_path, strict=True)  # left by one that was killed
            self._assemble()
        except BackupFailed as error:
            raise self._incomplete(str(error)) from error
        except OSError as error:
            raise wrap_os_error(error) from error

    def _assemble(self) -> None:
        states = [one for one in list_backups(self._folder) if one.run == self.start.run]
        latest = next((one for one in states if one.path.endswith(LAST_SUFFIX)), None)
        self._copy_pool()
        start = read_files(self.start)
        self._write_metadata(start)
        if problem := self._missing_objects(start):
            raise self._incomplete(problem)
        self.refs = start.refs
        if latest is None:
            return
        last = read_files(latest)
        if not self._continues(start, last):
            self._name_extra_commits(start, last, latest)
            return
        self._write_metadata(last)
        if self._missing_objects(last):
            self._write_metadata(start)
        else:
            self.as_of_last_turn, self.refs = True, last.refs

    def _incomplete(self, problem: str) -> Refused:
        return Refused(f"the copy of {self.start.root} is not whole, so nothing was changed: {problem}")

    def _copy_pool(self) -> None:
        """Copy all packs, verified."""
        pool, build = os.path.join(os.fsencode(self._folder), POOL), os.fsencode(self._build_path)
        for folder, _, names in os.walk(pool):
            target = os.path.join(build, os.path.relpath(folder, pool))
            os.makedirs(target, exist_ok=True)
            for name in names:
                place = os.path.join(target, name)
                _copy_pack_file(os.path.join(folder, name), place, may_copy=True, links=False)
                os.chmod(place, 0o444)

    def _write_metadata(self, stored: RepositoryFiles) -> None:
        """Write refs, index, settings and the like of a state, replacing those of another one."""
        top = os.fsencode(self._build_path)
        for name in os.listdir(top):
            if name not in (b"objects", b"modules"):
                remove_tree(os.fsdecode(os.path.join(top, name)), strict=True)
        files, aside = (
            dict(stored.files),
            b"/%s%s*" % (os.path.basename(os.fsencode(self.target)), ASIDE_SUFFIX.encode()),
        )
        excluded = files.get(EXCLUDE, (FILE_MODE, b""))[1]
        if aside not in excluded.splitlines():  # else the next `git add -A` would take it
            files[EXCLUDE] = (FILE_MODE, excluded.rstrip(b"\n") + b"\n" + aside + b"\n")
        for folder in (PACK_FOLDER, b"refs/heads", b"refs/tags"):
            os.makedirs(os.path.join(top, folder), exist_ok=True)
        for name, (mode, content) in files.items():
            _write_file(os.path.join(top, name), mode, content)

    def _name_extra_commits(self, start: RepositoryFiles, last: RepositoryFiles, state: BackupState) -> None:
        """Give refs of the run to commits of the last state that do not descend from the start, so that they are not
        lost.
        """
        known = set(start.refs.values())
        others = {name for ref, name in last.refs.items() if name not in known and not ref.startswith(OWN_REFS)}
        for name in sorted(others) if state.ref_files else ():
            if self._run_git(*_rev_list_command(last), name).code == 0:
                ref = run_ref_name(state.run, f"last-{name[:SHORT_ID_CHARS]}")
                _write_file(os.fsencode(os.path.join(self._build_path, ref)), FILE_MODE, name.encode() + b"\n")
                self.extra_refs.append(ref)

    def _missing_objects(self, stored: RepositoryFiles) -> str:
        """What git misses in the build; empty where everything that refs name exists."""
        tips = "".join(f"{tip}\n" for tip in dict.fromkeys(stored.refs.values())).encode()
        reply = self._run_git(*_rev_list_command(stored), "--stdin", stdin=tips) if tips else None
        return reply.said or f"git rev-list: {reply.code}" if reply and reply.code else ""

    def _continues(self, start: RepositoryFiles, last: RepositoryFiles) -> bool:
        """Whether the last state has every branch and tag of the start, none of them rewritten."""
        for ref, old in start.refs.items():
            new = last.refs.get(ref)
            if ref.startswith((OWN_REFS, STASH)) or new == old:
                continue
            if new is None or ref.startswith("refs/tags/"):
                return False
            if self._run_git("merge-base", "--is-ancestor", old, new).code:
                return False
        return True

    def newer_refs(self) -> list[NewerRef]:
        """The refs of the present repository with commits that the backup does not have, without our snapshots."""
        if os.path.islink(self.target) or not os.path.isdir(os.path.join(self.target, "objects")):
            return []  # what a link leads to is not touched
        folders = git_folders(self.start.root)
        if any(find_blocking_files(self.target)) or (folders and find_unsafe_path(self.start.root, folders)):
            return []  # nobody can ask; it is moved aside as it is
        env = self._git_environment(self.target)
        listed = self._run_git(*LIST_REFS_COMMAND, env=env).out.decode("utf-8", "replace")
        refs = [NewerRef(ref, name) for name, _, ref in (line.partition(" ") for line in listed.splitlines())]
        head = self._run_git("rev-parse", "-q", "--verify", "HEAD", env=env).out.decode("ascii", "replace").strip()
        if head and head not in {one.commit for one in refs}:
            refs.append(NewerRef("HEAD", head))
        refs = [one for one in refs if not one.ref.startswith(OWN_REFS)]
        stdin = "".join(f"{one.commit}\n" for one in refs).encode()
        answers = self._run_git("cat-file", "--batch-check", stdin=stdin).out.splitlines() if refs else []
        return [one for one, line in zip(refs, answers, strict=False) if line.endswith(b" missing")]

    def describe_loss(self) -> str:
        """What the present repository lacks of the backup, in words; empty where it provably has all of it."""
        env = self._git_environment(self.target)

        def ask(*args: str, stdin: bytes = b"") -> ProgramResult:
            return self._run_git(*args, stdin=stdin, env=env)

        return describe_loss(self.start, ask, lambda: ask(*LIST_REFS_COMMAND).out)

    def install(self) -> str:
        """Put the build in place. Returns where the present repository was moved, empty where there was none."""
        try:
            self._give_to_owner()
            os.sync()
            aside = ""
            if os.path.lexists(self.target):
                aside = self._moved_aside_path()
                os.rename(self.target, aside)
            os.rename(self._build_path, self.target)
            sync_folders({os.fsencode(os.path.dirname(self.target))})
        except OSError as error:
            raise wrap_os_error(error) from error
        return aside

    def _give_to_owner(self) -> None:
        """When root restores, the files belong to the owner of the project."""
        owner = os.stat(self.start.root)
        if os.geteuid() or not owner.st_uid:
            return
        for folder, names, files in os.walk(self._build_path):
            for name in (*names, *files):
                os.lchown(os.path.join(folder, name), owner.st_uid, owner.st_gid)
        os.lchown(self._build_path, owner.st_uid, owner.st_gid)

    def _moved_aside_path(self) -> str:
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        name, number = f"{self.target}{ASIDE_SUFFIX}{stamp}", 1
        while os.path.lexists(name):
            number += 1
            name = f"{self.target}{ASIDE_SUFFIX}{stamp}-{number}"
        return name

    def list_moved_aside(self) -> list[str]:
        """The repositories that were moved aside here, now or before."""
        above, start = os.path.split(self.target + ASIDE_SUFFIX)
        return [os.path.join(above, name) for name in sorted(os.listdir(above)) if name.startswith(start)]

    def remove_build(self) -> None:
        """Remove a build that was not installed; what cannot be removed, the next one removes."""
        remove_tree(self._build_path)

    def _git_environment(self, git_dir: str) -> dict[str, str]:
        return isolated_git_environment(self._environ, git_dir, os.path.join(git_dir, "objects"), self.start.root)

    def _run_git(self, *args: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> ProgramResult:
        argv = [self._git, "-C", os.path.dirname(self.target), *NO_HOOKS_OPTIONS, *args]
        return run_program(argv, env or self._git_environment(self._build_path), stdin, timeout_s=RESTORE_TIMEOUT_S)


def _write_file(path: bytes, mode: int, content: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.lexists(path):
        os.unlink(path)
    if mode == LINK_MODE:
        os.symlink(content, path)
        return
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        write_all(file, content)
    finally:
        os.close(file)
