"""Many contents in one file with a table at its end: one sync makes all of them durable."""

from __future__ import annotations

import hashlib
import os

from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.durable import sync_folders, write_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Self

    Table = dict[bytes, tuple[int, int]]  # name: offset and size

MAGIC = b"RALPHBK1"
FOOTER_BYTES = 32 + 8 + len(MAGIC)  # digest of the table, its length, and the word that ends a whole file
MOST_TABLE = 1 << 28


class NoBundle(Exception):
    """The file is none, or was not written to its end."""


class Writing:
    """A bundle that has its name only when it is whole. Names are any bytes but NUL."""

    def __init__(self, path: str) -> None:
        self._path = path
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(path + ".new", flags, 0o600)
        self.began_ns = os.fstat(self._file).st_ctime_ns  # by the clock that stamps files
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
        """Leave nothing of what was not finished."""
        if self._file >= 0:
            os.close(self._file)
            os.unlink(self._path + ".new")

    def finish(self) -> None:
        """Sync it, then name it."""
        table = b"\0".join(self._names) + b"\n" + b" ".join(b"%d" % size for size in self._sizes)
        write_all(self._file, table + hashlib.sha256(table).digest() + len(table).to_bytes(8, "big") + MAGIC)
        os.fsync(self._file)
        os.rename(self._path + ".new", self._path)
        os.close(self._file)
        self._file = -1
        sync_folders({os.fsencode(os.path.dirname(self._path))})


class Bundle:
    """A whole bundle, to be read. Raises NoBundle."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._names, self._sizes = self._table()
        except (OSError, ValueError) as error:
            raise NoBundle(f"{path}: {error}") from error

    def _table(self) -> tuple[list[bytes], list[bytes]]:
        file = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            end = os.fstat(file).st_size
            footer = os.pread(file, FOOTER_BYTES, max(0, end - FOOTER_BYTES))
            size = int.from_bytes(footer[32:40], "big")
            if len(footer) < FOOTER_BYTES or not footer.endswith(MAGIC) or size > min(end, MOST_TABLE):
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
        """Where each content lies."""
        found, at = {}, 0
        for name, size in zip(self._names, map(int, self._sizes), strict=True):
            found[name] = (at, size)
            at += size
        return found

    def contents(self, wanted: Iterable[bytes] | None = None) -> dict[bytes, bytes]:
        """What these names stand for, or all. Raises OSError, NoBundle."""
        return dict(self.each(wanted))

    def each(self, wanted: Iterable[bytes] | None = None) -> Iterator[tuple[bytes, bytes]]:
        """The same one by one."""
        table = self.table()
        file = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for name in table if wanted is None else (name for name in wanted if name in table):
                at, size = table[name]
                content = os.pread(file, size, at)
                if len(content) != size:
                    raise NoBundle(f"{self.path}: cut off")
                yield name, content
        finally:
            os.close(file)
