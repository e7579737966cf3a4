"""Contents of files, kept many in one file, because to sync one file takes as long as to sync a thousand contents."""

from __future__ import annotations

import errno
import os

from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.durable import sync_folders, write_all

if TYPE_CHECKING:
    from collections.abc import Container
    from typing import Any

    from ralphproof.value import Json

MOST_BYTES = 1 << 30  # of all copies; what comes after is only known by its digest, and cannot be put back
PACK = "pack-"


class Contents:
    """Copies in a private folder, named by their digest. `settle` makes them durable, and says where they are."""

    def __init__(self, folder: str) -> None:
        import hashlib

        self._folder, self._digest = folder, hashlib.sha256
        self._held: dict[str, tuple[str, int, int]] = {}  # digest: file, offset, length
        self._bytes = 0
        self._writing: tuple[str, int] | None = None
        self.taking = False
        os.makedirs(folder, mode=0o700, exist_ok=True)

    def know(self, held: Any) -> None:
        """What `settle` said once. Raises ValueError and the like where it said no such thing."""
        self._held = {str(digest): (str(file), int(at), int(size)) for digest, (file, at, size) in held.items()}
        self._bytes = sum(size for _, _, size in self._held.values())

    def name(self, content: bytes) -> str:
        """What a content is called."""
        return self._digest(content).hexdigest()

    def take(self, content: bytes) -> str:
        """The name of a content; while `taking`, it is held as well."""
        return self.hold(content) if self.taking else self.name(content)

    def hold(self, content: bytes) -> str:
        """Keep a content until things settle; return its name."""
        digest = self.name(content)
        if digest not in self._held and self._bytes + len(content) <= MOST_BYTES:
            name, descriptor = self._writing or self._start()
            at = os.lseek(descriptor, 0, os.SEEK_CUR)
            write_all(descriptor, content)
            self._held[digest] = (name, at, len(content))
            self._bytes += len(content)
        return digest

    def holds(self, digest: str) -> bool:
        return digest in self._held

    def _start(self) -> tuple[str, int]:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        number = 1
        while os.path.lexists(os.path.join(self._folder, f"{PACK}{number}")):
            number += 1
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._writing = (f"{PACK}{number}", os.open(os.path.join(self._folder, f"{PACK}{number}"), flags, 0o600))
        return self._writing

    def read(self, digest: str) -> bytes:
        """A content that is held. Raises OSError where there is no true copy."""
        if digest not in self._held:
            raise OSError(errno.ENOENT, "no copy of it was kept")
        name, at, size = self._held[digest]
        descriptor = os.open(os.path.join(self._folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            content = os.pread(descriptor, size, at)
        finally:
            os.close(descriptor)
        if self.name(content) != digest:
            raise OSError(errno.EIO, "the copy of it was damaged")
        return content

    def settle(self, wanted: Container[str]) -> Json:
        """Make all contents durable that are wanted; forget the others. Where they are must be written down next."""
        if self._writing:
            os.fsync(self._writing[1])
            os.close(self._writing[1])
            self._writing = None
        self.know({digest: place for digest, place in self._held.items() if digest in wanted})
        return {digest: list(place) for digest, place in self._held.items()}

    def sweep(self) -> None:
        """Remove files that hold nothing any more, once that is written down."""
        needed = {file for file, _, _ in self._held.values()}
        for name in os.listdir(self._folder):
            if name.startswith(PACK) and name not in needed:
                os.unlink(os.path.join(self._folder, name))


def put_whole(path: str, content: bytes) -> None:
    """Write a private file, so that it is there whole or not at all, whatever happens."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    descriptor = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        write_all(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(path + ".new", path)
    sync_folders({os.fsencode(os.path.dirname(path))})
