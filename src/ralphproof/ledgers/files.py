"""Files that only their owner may read, written whole or not at all."""

from __future__ import annotations

import errno
import os
import stat

from ralphproof.errors import DiskFull, HarnessFailed, RalphError, Refused
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_MACHINE = (errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # no other path would help
_NO_FOLDER = (errno.ELOOP, errno.ENOTDIR, errno.EEXIST)


def explain(error: OSError, where: str, remedy: str) -> RalphError:
    """The error to raise for a failed call at a path that follows from the user's own words, with what to do."""
    why = os.strerror(error.errno) if error.errno else str(error)
    if error.errno in NO_SPACE:
        return DiskFull(f"cannot write {where}: {why}")
    if error.errno in _MACHINE:
        return HarnessFailed(f"cannot write {where}: {why}")
    if error.errno in _NO_FOLDER:
        return Refused(f"{where} is a symbolic link or not a directory; move it away, or {remedy}")
    return Refused(f"cannot write {where}: {why}; {remedy}")


def private_folder(path: str) -> None:
    """Make a directory and those above it, 0700 whatever the umask. One that exists stays as it is."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    if parent != path:
        private_folder(parent)
    try:
        os.mkdir(path, 0o700)
        os.chmod(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def enter(folder: int, name: str) -> tuple[int, bool]:
    """A descriptor of a directory inside `folder`, and whether it had to be made. Never follows a symbolic link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        return os.open(name, flags, dir_fd=folder), False
    except FileNotFoundError:
        made = _make(folder, name)
    return os.open(name, flags, dir_fd=folder), made


def _make(folder: int, name: str) -> bool:
    try:
        os.mkdir(name, 0o700, dir_fd=folder)
        os.chmod(name, 0o700, dir_fd=folder)
    except FileExistsError:
        return False
    return True


def write_whole(
    folder: int, name: str, data: bytes, durable: bool = True, private: bool = True, by: int | None = None
) -> None:
    """Put a file of mode 0600 in its place at once: a reader sees all of the old one or all of the new one.

    Whoever has the old one open keeps it. `durable` also survives a loss of power. One that is not `private`, because
    it is to be committed, has the mode that the user's umask gives it. It comes into being in the folder `by`, which
    is on the same disk, where nothing half-done may be seen in its own.
    """
    _put(folder, name, lambda file: _write_all(file, data), durable, private, by)


def copy_whole(folder: int, name: str, path: str) -> None:
    """The same with the bytes of another file, which a loss of power may undo. Only a file is copied, never a link."""
    if (source := _source(path)) is None:
        return
    try:
        _put(folder, name, lambda file: _copy_all(source, file), durable=False)
    finally:
        os.close(source)


def read_whole(path: str) -> bytes | None:
    """The bytes of a file; None where there is none that may be read. A link is none, and nothing is waited for."""
    if (source := _source(path)) is None:
        return None
    with open(source, "rb", buffering=0) as file:
        try:
            return file.read()
        except OSError:
            return None


def read_start(folder: int, name: str, most_bytes: int) -> bytes | None:
    """The same with the first bytes of a file in `folder`."""
    if (source := _source(name, folder)) is None:
        return None
    try:
        return os.read(source, most_bytes)
    except OSError:
        return None
    finally:
        os.close(source)


def _source(path: str, folder: int | None = None) -> int | None:
    """A descriptor of a file to read from; None where there is none, or it is anything else than a file."""
    try:
        source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(source).st_mode):
        return source
    os.close(source)
    return None


def _put(
    folder: int, name: str, fill: Callable[[int], None], durable: bool, private: bool = True, by: int | None = None
) -> None:
    """A new file takes the place of whatever stood there, when it is complete."""
    new, by = f".{name}.{os.getpid()}.tmp", folder if by is None else by
    _clear(by, new)
    mode = 0o600 if private else 0o666
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode, dir_fd=by)
    try:
        if private:
            os.fchmod(file, mode)  # whatever the umask
        fill(file)
        if durable:
            sync(file)
        try:
            os.rename(new, name, src_dir_fd=by, dst_dir_fd=folder)
        except IsADirectoryError:
            _clear(folder, name)
            os.rename(new, name, src_dir_fd=by, dst_dir_fd=folder)
    except OSError:
        remove(by, new)
        raise
    finally:
        os.close(file)
    if durable:
        sync(folder)


def _clear(folder: int, name: str) -> None:
    """Make room for a file. A directory is moved aside: what lies in it may be large, and is not ours to delete."""
    try:
        remove(folder, name)
    except (IsADirectoryError, PermissionError):  # macOS says the latter
        os.rename(name, f"{name}.aside-{os.urandom(4).hex()}", src_dir_fd=folder, dst_dir_fd=folder)


def link_whole(folder: int, name: str, target: str) -> None:
    """Let a symbolic link point to `target`, with no moment in which there is none."""
    new = f".{name}.{os.getpid()}.tmp"
    remove(folder, new)
    os.symlink(target, new, dir_fd=folder)
    try:
        os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        remove(folder, new)
        raise
    sync(folder)


def remove(folder: int, name: str) -> None:
    """Remove a file, if it is there."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass


def sync(file: int) -> None:
    """Wait until the disk has it."""
    import fcntl

    try:
        if hasattr(fcntl, "F_FULLFSYNC"):  # on macOS fsync leaves data in the drive's cache
            fcntl.fcntl(file, fcntl.F_FULLFSYNC)
        else:
            os.fsync(file)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems cannot sync a directory
            raise


def _copy_all(source: int, file: int) -> None:
    """All bytes of one file behind those of another, by the system where it can."""
    try:
        while os.copy_file_range(source, file, 1 << 30):
            pass
    except (AttributeError, OSError):
        pass  # not this system, or not between these two disks; whatever else is wrong shows below
    while data := os.read(source, 1 << 20):
        _write_all(file, data)


def _write_all(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
