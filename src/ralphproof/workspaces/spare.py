"""A spare of the repository, outside the project: what it takes to put a deleted `.git` together again."""

from __future__ import annotations

import os
from itertools import islice

from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.durable import write_all
from ralphproof.workspaces.layout import read_small

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.workspaces.layout import GitFolders

OBJECTS = b"objects"
COPIED = (b"HEAD", b"config", b"packed-refs", b"index", b"shallow", b"refs", b"reftable", b"hooks", b"info")
MOST_FILES = 500  # of objects: a link takes 30 µs, and every run begins with them; `git gc` makes a few of many


def make_spare(folders: GitFolders, spare: str) -> None:
    """Link all objects, which git never changes in place, and copy the rest. Where that is not possible, do nothing.

    Links take no room, and need one file system for both. All files lie in one folder: to make a folder costs as much
    as twenty links (ext4). A linked worktree is no whole repository.
    """
    common, final = os.fsencode(folders.common), os.fsencode(spare)
    if folders.git_dir != folders.common or os.path.lexists(final):
        return
    try:
        objects = list(islice(_files(common, OBJECTS), MOST_FILES + 1))
        if len(objects) > MOST_FILES:
            return
        drop_spare(spare)
        os.mkdir(final + b".new", 0o700)
        for path in objects:
            os.link(os.path.join(common, path), os.path.join(final + b".new", _flat(path)))
        for name in COPIED:
            for path in _files(common, name):
                _copy(os.path.join(common, path), os.path.join(final + b".new", _flat(path)))
        os.rename(final + b".new", final)
    except OSError:
        return  # it only adds to safety


def assemble(spare: str, repository: str) -> bool:
    """Make a repository of the spare; whether it is there then."""
    source, target = os.fsencode(spare), os.fsencode(repository)
    if os.path.isdir(source) and not os.path.isdir(target):
        try:
            for name in os.listdir(source):
                path = os.path.join(target + b".new", _deep(name))
                os.makedirs(os.path.dirname(path), exist_ok=True)
                if not os.path.lexists(path):
                    os.link(os.path.join(source, name), path)
            os.rename(target + b".new", target)
        except OSError:
            return False
    return os.path.isdir(target)


def drop_spare(spare: str) -> None:
    """Remove it again, finished or not."""
    for top in (os.fsencode(spare), os.fsencode(spare) + b".new"):
        if os.path.isdir(top):
            for name in os.listdir(top):
                os.unlink(os.path.join(top, name))
            os.rmdir(top)


def _flat(path: bytes) -> bytes:
    return path.replace(b"%", b"%25").replace(b"/", b"%2F")


def _deep(name: bytes) -> bytes:
    return name.replace(b"%2F", b"/").replace(b"%25", b"%")


def _files(top: bytes, path: bytes) -> Iterator[bytes]:
    """The regular files at or below a path, without what git has not finished, or only shows. No link is followed."""
    full = os.path.join(top, path)
    if not os.path.isdir(full):
        yield from [path] if os.path.isfile(full) and not os.path.islink(full) else []
        return
    with os.scandir(full) as listed:
        entries = list(listed)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _files(top, path + b"/" + entry.name)
        elif entry.is_file(follow_symlinks=False) and not _is_no_use(entry.name):
            yield path + b"/" + entry.name


def _is_no_use(name: bytes) -> bool:
    return name.startswith(b"tmp_") or name.endswith(b".sample")


def _copy(source: bytes, target: bytes) -> None:
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, os.stat(source).st_mode & 0o777)
    try:
        write_all(descriptor, read_small(source))
    finally:
        os.close(descriptor)
