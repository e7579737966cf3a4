"""Reading, restoring and comparing the files of a work tree."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from zlib import crc32

from ralphproof.base.errors import DiskFull, HarnessFailed
from ralphproof.base.files import NO_SPACE_ERRNOS, remove_file, write_all
from ralphproof.base.git_layout import read_descriptor
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.workspace.git_objects import MODE_EXECUTABLE, MODE_FILE, MODE_LINK, decode_path

Signature = tuple[int, ...]

if TYPE_CHECKING:
    from ralphproof.workspace.git_objects import Entry
    from ralphproof.workspace.protected_paths import FileState


TEMPORARY_PREFIX = b".ralph-put-"  # the same for a file each time: one that somebody left who died is written anew
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def restore_files(
    root: str, wanted: Mapping[bytes, Entry | None], read: Callable[[str], bytes],
    permissions: Mapping[bytes, int] | None = None, failures: dict[bytes, str] | None = None,
) -> tuple[list[bytes], list[bytes]]:  # fmt: skip
    """Write or remove these paths; return those that were done, and those that failed.

    Removals come first, so that a link or file makes room for a folder. Folders that become empty are removed. A file
    gets the `permissions` given for it, else those of the file that it replaces. `failures` receives the reason of each
    failure.
    """
    done: list[bytes] = []
    failed: list[bytes] = []
    top = os.open(root, FOLDER_FLAGS)
    try:
        for path, entry in sorted(wanted.items(), key=lambda item: item[1] is not None):
            try:
                if entry is None:
                    _remove(top, path)
                else:
                    _write_entry(top, path, entry[0], read(entry[1]), (permissions or {}).get(path))
                done.append(path)
            except OSError as error:
                if error.errno in NO_SPACE_ERRNOS:
                    raise
                failed.append(path)
                if failures is not None:
                    failures[path] = error.strerror or str(error)
    finally:
        os.close(top)
    return sorted(done), sorted(failed)


def restore_snapshot_files(
    root: str, wanted: Mapping[bytes, Entry | None], read: Callable[[str], bytes]
) -> tuple[str, ...]:
    """The same for the files of a snapshot: all of them, or a DiskFull or HarnessFailed that says what failed."""
    try:
        done, failed = restore_files(root, wanted, read)
    except OSError as error:
        kind = DiskFull if error.errno in NO_SPACE_ERRNOS else HarnessFailed
        raise kind(f"cannot put files back: {error}") from error
    if failed:
        raise HarnessFailed("cannot put back " + ", ".join(map(repr, map(decode_path, failed[:10]))))
    return tuple(map(decode_path, done))


def _open_folder(top: int, parts: list[bytes], make: bool) -> int:
    """A descriptor of the folder, opened without following symbolic links."""
    here = os.dup(top)
    try:
        for part in parts:
            below = _open_child(here, part, make)
            os.close(here)
            here = below
    except OSError:
        os.close(here)
        raise
    return here


def _open_child(here: int, part: bytes, make: bool) -> int:
    try:
        return os.open(part, FOLDER_FLAGS, dir_fd=here)
    except FileNotFoundError:
        if not make:
            raise
    os.mkdir(part, 0o777, dir_fd=here)
    return os.open(part, FOLDER_FLAGS, dir_fd=here)


def _remove(top: int, path: bytes) -> None:
    *parts, name = path.split(b"/")
    try:
        here = _open_folder(top, parts, make=False)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return  # where a folder was is something else now: the file is gone
        raise
    try:
        os.unlink(name, dir_fd=here)
    except FileNotFoundError:
        pass
    finally:
        os.close(here)
    _prune(top, parts)


def _prune(top: int, parts: list[bytes]) -> None:
    while parts:
        *parts, last = parts
        here = _open_folder(top, parts, make=False)
        try:
            os.rmdir(last, dir_fd=here)
        except OSError:
            return
        finally:
            os.close(here)


def _write_entry(top: int, path: bytes, mode: bytes, content: bytes, permissions: int | None) -> None:
    *parts, name = path.split(b"/")
    here = _open_folder(top, parts, make=True)
    temporary = TEMPORARY_PREFIX + b"%08x" % crc32(name)
    try:
        remove_file(here, temporary)
        if mode == MODE_LINK:
            os.symlink(content, temporary, dir_fd=here)
        else:
            wanted = (
                _permissions_of_old(here, name, mode == MODE_EXECUTABLE) if permissions is None else permissions & 0o777
            )
            _write_file(here, temporary, wanted, mode == MODE_EXECUTABLE, content)
        os.rename(temporary, name, src_dir_fd=here, dst_dir_fd=here)
    except OSError:
        remove_file(here, temporary)
        raise
    finally:
        os.close(here)


def _write_file(here: int, temporary: bytes, permissions: int | None, program: bool, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    usual = 0o777 if program else 0o666
    descriptor = os.open(temporary, flags, usual if permissions is None else permissions & usual, dir_fd=here)
    try:
        write_all(descriptor, content)
        if permissions is not None:
            os.fchmod(descriptor, permissions)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _permissions_of_old(here: int, name: bytes, program: bool) -> int | None:
    """The permissions of the replaced file, apart from the executable bits: a private file stays private."""
    try:
        state = os.stat(name, dir_fd=here, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(state.st_mode):
        return None
    permissions = stat.S_IMODE(state.st_mode) & 0o777
    return permissions | (permissions & 0o444) >> 2 if program else permissions & ~0o111


# Restore of protected files: obstacles are removed or moved aside.


def find_obstacles(folder: str, paths: Iterable[bytes]) -> set[bytes]:
    """Links and files that stand where the parent folders of these paths must be."""
    return {
        above
        for path in paths
        for above in _parent_paths(path)
        if _is_obstacle(os.path.join(os.fsencode(folder), above))
    }


def _parent_paths(path: bytes) -> Iterator[bytes]:
    at = path.find(b"/")
    while at >= 0:
        yield path[:at]
        at = path.find(b"/", at + 1)


def _is_obstacle(full: bytes) -> bool:
    try:
        return not stat.S_ISDIR(os.lstat(full).st_mode)
    except OSError:
        return False


def restore_protected_files(
    folder: str, wanted: Mapping[bytes, FileState | None], read: Callable[[str], bytes]
) -> tuple[dict[bytes, str], list[str]]:
    """Restore these paths; return the reasons of failures, and notes on what was moved aside.

    May be repeated after a crash.
    """
    trouble: dict[bytes, str] = {}
    there = {path: seen for path, seen in wanted.items() if seen is not None}
    folders = {above for path in there for above in _parent_paths(path)} - find_obstacles(folder, there)
    gone = {path: None for path, seen in wanted.items() if seen is None and path not in folders}
    closed = _make_folders_writable(folder, wanted)
    restore_files(folder, gone, read, failures=trouble)
    moved = [_move_aside(folder, path) for path in there if not find_obstacles(folder, (path,))]
    permissions = {path: seen[2] for path, seen in there.items()}
    restore_files(folder, {path: seen[:2] for path, seen in there.items()}, read, permissions, trouble)
    for full, mode in closed:
        os.chmod(full, mode)
    return trouble, [note for note in moved if note]


def _make_folders_writable(folder: str, paths: Iterable[bytes]) -> list[tuple[bytes, int]]:
    """Make parent folders writable for their owner; return those that were not, with their modes.

    Temporary files of an interrupted restore are removed.
    """
    closed: list[tuple[bytes, int]] = []
    for above in sorted({above for path in paths for above in (b"", *_parent_paths(path))}):
        full = os.path.join(os.fsencode(folder), above)
        try:
            state = os.lstat(full)
            if not stat.S_ISDIR(state.st_mode):
                continue
            if state.st_mode & stat.S_IRWXU != stat.S_IRWXU:
                os.chmod(full, stat.S_IMODE(state.st_mode) | stat.S_IRWXU)
                closed.append((full, stat.S_IMODE(state.st_mode)))
            for name in os.listdir(full):
                if name.startswith(TEMPORARY_PREFIX):
                    os.unlink(os.path.join(full, name))
        except OSError:
            continue  # then putting back fails, and says so
    return closed


def _move_aside(folder: str, path: bytes) -> str:
    """Make room where a folder stands in the place of a file. Its unwatched content is kept beside it."""
    full = os.path.join(os.fsencode(folder), path)
    if os.path.islink(full) or not os.path.isdir(full):
        return ""
    aside = path + b".aside-" + os.urandom(4).hex().encode()
    try:
        os.rmdir(full)
    except OSError:
        try:
            os.rename(full, os.path.join(os.fsencode(folder), aside))
        except OSError:
            return ""  # then putting back fails, and says so
        return f"a folder that stood in the place of {decode_path(path)} is now {decode_path(aside)}"
    return ""


# Reading of work tree files, again only where they may have changed, and their change times.


OWN_NAMES = (b".ralph", b".ralph-active")  # at the top of a project; never saved
MAX_FILE_BYTES = 50 * 1024 * 1024
SETTLED_NS = 2_000_000_000  # a file changed less than this before we read it may change again unseen (coarse clocks)


class UnreadableFile(Exception):
    """The path exists and cannot be read; `signature` tells whether it is unchanged."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature


class FileReader:
    """Reads paths below `root` as git entries; `keep` stores a content and returns its id."""

    def __init__(self, root: str, keep: Callable[[bytes], str]) -> None:
        self.root, self._keep = os.fsencode(root), keep
        self._seen: dict[bytes, tuple[Signature, Entry, int]] = {}
        self._folders: dict[bytes, bool] = {b"": True}
        self.too_large: set[bytes] = set()

    def start_scan(self) -> None:
        """Begin a new pass over all files."""
        self._folders = {b"": True}
        self.too_large = set()

    def read_entry(self, path: bytes) -> Entry | None:
        """The entry at the path; None where there is nothing to save. A file over the size limit is added to
        `too_large`.
        """
        full = self.root + b"/" + path
        try:
            state = os.lstat(full) if self._is_inside_root(os.path.dirname(path)) else None
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError:
            raise UnreadableFile(()) from None
        if state is None or not (stat.S_ISREG(state.st_mode) or stat.S_ISLNK(state.st_mode)):
            return None
        if state.st_size > MAX_FILE_BYTES:
            self.too_large.add(path)
            return None
        return self._entry(path, full, state)

    def _is_inside_root(self, folder: bytes) -> bool:
        """Whether no symbolic link is among the parent folders: behind one are files outside the root."""
        if folder not in self._folders:
            above = self._is_inside_root(os.path.dirname(folder))
            self._folders[folder] = above and stat.S_ISDIR(os.lstat(self.root + b"/" + folder).st_mode)
        return self._folders[folder]

    def _entry(self, path: bytes, full: bytes, state: os.stat_result) -> Entry | None:
        signature = _signature(state)
        seen = self._seen.get(path)
        if seen and seen[0] == signature and seen[2] - state.st_ctime_ns > SETTLED_NS:
            return seen[1]
        started = time.time_ns()
        try:
            read = _read_stable(full)
        except PermissionError:
            raise UnreadableFile(signature) from None
        if read is None:
            return None
        entry = (read[0], self._keep(read[1]))
        if read[2] == signature:
            self._seen[path] = (signature, entry, started)
        return entry

    def clear_cache(self) -> None:
        """Read every file again."""
        self._seen.clear()


def _signature(state: os.stat_result) -> Signature:
    return (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_mode)


def _read_stable(full: bytes) -> tuple[bytes, bytes, Signature] | None:
    """Mode, content, and the signature of both. A file that keeps changing is taken as last read."""
    last = None
    for _ in range(3):
        try:
            last, steady = _read_once(full)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.EINVAL):
                raise
            continue  # it became something else between two calls
        if steady:
            return last
    return last


def _read_once(full: bytes) -> tuple[tuple[bytes, bytes, Signature], bool]:
    before = os.lstat(full)
    if stat.S_ISLNK(before.st_mode):
        return (MODE_LINK, os.readlink(full), _signature(before)), True
    descriptor = os.open(full, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        content = read_descriptor(descriptor, MAX_FILE_BYTES)
        after = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    steady = _signature(before) == _signature(after) and len(content) == after.st_size
    return (git_mode(after), content, _signature(after) if steady else ()), steady


def git_mode(state: os.stat_result) -> bytes:
    return MODE_EXECUTABLE if state.st_mode & 0o100 else MODE_FILE


# Separation of a turn's changes from earlier ones by ctime.
#
# The ctime of a file cannot be set back. A changed file whose ctime lies before the turn was changed by a check or by a
# person, not by this turn. The mark is the ctime of a file too, because the clock that stamps files is coarser than the
# one that programs read.


IGNORED_FOLDERS = frozenset((b".git", b".ralph", b".ralph-active", b"node_modules", b".venv", b"__pycache__"))
CLOCK_STEP_S = 0.001  # well under a step of that clock, which takes some milliseconds


class ChangeTimes:
    """A mark in time, and which files were changed after it."""

    def __init__(self, root: str, private: str) -> None:
        self._root, self._stamp = os.fsencode(root), os.path.join(os.fsencode(private), b"instant")
        self._mark_ns = self._last_look_ns = self._stored_mark()

    def mark_now(self) -> None:
        """Set the mark to now. Waits for the next step of the coarse file clock, so that it is later than any earlier
        change.
        """
        before = self._touch(self._stamp)
        while (instant := self._touch(self._stamp)) == before:
            time.sleep(CLOCK_STEP_S)
        self._mark_ns = self._last_look_ns = instant

    def unchanged_since_mark(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Those of the paths that were not changed since the mark; for a deleted path its folder counts."""
        return tuple(path for path in paths if self._ctime_ns(path.encode("utf-8", "surrogateescape")) < self._mark_ns)

    def changed_since(self, paths: Iterable[str], instant_ns: int) -> tuple[str, ...]:
        """Those of the paths that were last changed after this instant, without our own temporary files."""
        names = ((path, path.encode("utf-8", "surrogateescape")) for path in paths)
        others = ((path, name) for path, name in names if not os.path.basename(name).startswith(TEMPORARY_PREFIX))
        return tuple(path for path, name in others if self._ctime_ns(name) > instant_ns)

    def has_activity(self) -> bool:
        """Whether any file or folder was changed since the mark, or since the last call."""
        before, self._last_look_ns = self._last_look_ns, self._touch(self._stamp + b"-looked")
        return any(changed >= before for changed in _ctimes_below(self._root))

    def _stored_mark(self) -> int:
        """The mark that another process set last: this process may continue its run."""
        try:
            return os.stat(self._stamp).st_ctime_ns
        except OSError:
            return 0

    def _touch(self, stamp: bytes) -> int:
        file = os.open(stamp, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.utime(file)
            return os.fstat(file).st_ctime_ns
        finally:
            os.close(file)

    def _ctime_ns(self, path: bytes) -> int:
        while True:
            try:
                return os.lstat(os.path.join(self._root, path)).st_ctime_ns
            except OSError:
                if not path:
                    return self._mark_ns  # the root itself is gone: that is news
                path = os.path.dirname(path)


def _ctimes_below(folder: bytes) -> Iterable[int]:
    folders = [folder]
    while folders:
        here = folders.pop()
        try:
            yield os.lstat(here).st_ctime_ns
            entries = list(os.scandir(here))
        except OSError:
            continue  # it went away while we looked
        for entry in entries:
            if entry.name in IGNORED_FOLDERS:
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
                continue
            try:
                yield entry.stat(follow_symlinks=False).st_ctime_ns
            except OSError:
                continue


# The unified diff of one file.


MAX_DIFF_BYTES = 1 << 20  # difflib takes quadratic time


def file_patch(path: bytes, old: Entry | None, new: Entry | None, read: Callable[[str], bytes]) -> bytes:
    """Header and hunks; binary or large content is only named."""
    head = b"diff --git a/%s b/%s\n" % (path, path) + _mode_lines(old, new)
    before, after = read(old[1]) if old else b"", read(new[1]) if new else b""
    if before == after:
        return head
    if b"\0" in before + after or len(before) + len(after) > MAX_DIFF_BYTES:
        return head + b"Binary files a/%s and b/%s differ\n" % (path, path)
    return head + _hunks(before, after, b"a/" + path if old else b"/dev/null", b"b/" + path if new else b"/dev/null")


def _mode_lines(old: Entry | None, new: Entry | None) -> bytes:
    if old is None and new is not None:
        return b"new file mode %s\n" % new[0]
    if new is None and old is not None:
        return b"deleted file mode %s\n" % old[0]
    if old is not None and new is not None and old[0] != new[0]:
        return b"old mode %s\nnew mode %s\n" % (old[0], new[0])
    return b""


def _hunks(before: bytes, after: bytes, old_name: bytes, new_name: bytes) -> bytes:
    from difflib import diff_bytes, unified_diff

    lines = diff_bytes(unified_diff, _split_lines(before), _split_lines(after), old_name, new_name)
    return b"".join(line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n" for line in lines)


def _split_lines(content: bytes) -> list[bytes]:
    """As git does: at newlines only."""
    *whole, last = content.split(b"\n")
    return [line + b"\n" for line in whole] + ([last] if last else [])
