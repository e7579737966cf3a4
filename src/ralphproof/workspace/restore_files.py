"""Restore of files in a work tree: each one atomically, none outside the root."""

from __future__ import annotations

import errno
import os
import stat
from zlib import crc32

from ralphproof.base.files import write_all
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.workspace.git_objects import MODE_EXECUTABLE, MODE_LINK, decode_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ralphproof.workspace.git_objects import Entry
    from ralphproof.workspace.protected_paths import FileState


TEMPORARY_PREFIX = b".ralph-put-"  # the same for a file each time: one that somebody left who died is written anew
DISK_FULL_ERRNOS = (errno.ENOSPC, errno.EDQUOT)
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
                if error.errno in DISK_FULL_ERRNOS:
                    raise
                failed.append(path)
                if failures is not None:
                    failures[path] = error.strerror or str(error)
    finally:
        os.close(top)
    return sorted(done), sorted(failed)


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
        _remove_temporary(here, temporary)
        if mode == MODE_LINK:
            os.symlink(content, temporary, dir_fd=here)
        else:
            wanted = (
                _permissions_of_old(here, name, mode == MODE_EXECUTABLE) if permissions is None else permissions & 0o777
            )
            _write_file(here, temporary, wanted, mode == MODE_EXECUTABLE, content)
        os.rename(temporary, name, src_dir_fd=here, dst_dir_fd=here)
    except OSError:
        _remove_temporary(here, temporary)
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


def _remove_temporary(here: int, temporary: bytes) -> None:
    try:
        os.unlink(temporary, dir_fd=here)
    except FileNotFoundError:
        return


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
