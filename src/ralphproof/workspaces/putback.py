"""Putting files back: each one whole or not at all, and nothing outside the root."""

from __future__ import annotations

import errno
import os
import stat
from zlib import crc32

from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.durable import write_all
from ralphproof.workspaces.trees import LINK, PROGRAM

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ralphproof.workspaces.trees import Entry

TEMPORARY = b".ralph-put-"  # the same for a file each time: one that somebody left who died is written anew
INTO = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def put_back(
    root: str, wanted: Mapping[bytes, Entry | None], read: Callable[[str], bytes],
    permissions: Mapping[bytes, int] | None = None, failures: dict[bytes, str] | None = None,
) -> tuple[list[bytes], list[bytes]]:  # fmt: skip
    """Make these paths what is wanted; return what was written or removed, and what could not be.

    Removals come first, so that a link or file makes room for a folder. Folders that become empty go. A file has the
    `permissions` given for it, else those of the file that it replaces. `failures` gets the reason of each failure.
    """
    done: list[bytes] = []
    failed: list[bytes] = []
    top = os.open(root, INTO)
    try:
        for path, entry in sorted(wanted.items(), key=lambda item: item[1] is not None):
            try:
                if entry is None:
                    _remove(top, path)
                else:
                    _write(top, path, entry[0], read(entry[1]), (permissions or {}).get(path))
                done.append(path)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise
                failed.append(path)
                if failures is not None:
                    failures[path] = error.strerror or str(error)
    finally:
        os.close(top)
    return sorted(done), sorted(failed)


def _folder(top: int, parts: list[bytes], make: bool) -> int:
    """A descriptor of the folder, reached without passing a symbolic link."""
    here = os.dup(top)
    try:
        for part in parts:
            below = _into(here, part, make)
            os.close(here)
            here = below
    except OSError:
        os.close(here)
        raise
    return here


def _into(here: int, part: bytes, make: bool) -> int:
    try:
        return os.open(part, INTO, dir_fd=here)
    except FileNotFoundError:
        if not make:
            raise
    os.mkdir(part, 0o777, dir_fd=here)
    return os.open(part, INTO, dir_fd=here)


def _remove(top: int, path: bytes) -> None:
    *parts, name = path.split(b"/")
    try:
        here = _folder(top, parts, make=False)
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
        here = _folder(top, parts, make=False)
        try:
            os.rmdir(last, dir_fd=here)
        except OSError:
            return
        finally:
            os.close(here)


def _write(top: int, path: bytes, mode: bytes, content: bytes, permissions: int | None) -> None:
    *parts, name = path.split(b"/")
    here = _folder(top, parts, make=True)
    temporary = TEMPORARY + b"%08x" % crc32(name)
    try:
        _drop(here, temporary)
        if mode == LINK:
            os.symlink(content, temporary, dir_fd=here)
        else:
            wanted = _like_the_old(here, name, mode == PROGRAM) if permissions is None else permissions & 0o777
            _write_file(here, temporary, wanted, mode == PROGRAM, content)
        os.rename(temporary, name, src_dir_fd=here, dst_dir_fd=here)
    except OSError:
        _drop(here, temporary)
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


def _like_the_old(here: int, name: bytes, program: bool) -> int | None:
    """The permissions of the file that is replaced, but for whether it is a program: a private file stays private."""
    try:
        state = os.stat(name, dir_fd=here, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(state.st_mode):
        return None
    kept = stat.S_IMODE(state.st_mode) & 0o777
    return kept | (kept & 0o444) >> 2 if program else kept & ~0o111


def _drop(here: int, temporary: bytes) -> None:
    try:
        os.unlink(temporary, dir_fd=here)
    except FileNotFoundError:
        return
