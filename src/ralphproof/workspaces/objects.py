"""Reading and writing a repository's objects. A written object is on the disk before anything names it."""

from __future__ import annotations

import os
import select

from ralphproof.errand import over
from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.durable import Unnamed, write_all
from ralphproof.workspaces.gitcall import NOTHING_RUNS, SIGKILL, spawn
from ralphproof.workspaces.index import GitFailed
from ralphproof.workspaces.layout import is_id

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT_S = 60.0


class ObjectMissing(Exception):
    """The object store does not have it: git said so."""


class Objects:
    """The object store of one repository, loose objects only; `flush` before naming what was written."""

    def __init__(self, git: str, folder: str, algorithm: str, env: Mapping[str, str]) -> None:
        import hashlib
        import zlib

        self.folder, self.bytes = os.fsencode(folder), 32 if algorithm == "sha256" else 20
        self._hash = hashlib.sha256 if algorithm == "sha256" else hashlib.sha1
        self._compress = zlib.compress
        self._git, self._env = git, env
        self._unnamed = Unnamed(self.folder, 0o444)
        self._batch: tuple[int, int, int] | None = None

    def write(self, kind: bytes, body: bytes) -> str:
        """Store an object unless it is there; return its id."""
        raw = b"%s %d\0%s" % (kind, len(body), body)
        name = self._hash(raw).hexdigest()
        final = b"%s/%s/%s" % (self.folder, name[:2].encode(), name[2:].encode())
        if not self._unnamed.has(final):
            self._unnamed.add(final, self._compress(raw, 1))
        return name

    def flush(self) -> None:
        """Make everything written so far durable."""
        self._unnamed.flush()

    def discard(self) -> None:
        """Forget what was not flushed."""
        self._unnamed.discard()

    def read(self, name: str) -> tuple[bytes, bytes]:
        """Kind and body of an object. Raises ObjectMissing, and GitFailed where git cannot tell whether it is there."""
        if self._unnamed:
            self.flush()
        try:
            return self._ask(name)
        except OSError:  # somebody may have ended our helper, as `pkill git` does: another one can tell
            self.close()
        try:
            return self._ask(name)
        except OSError as error:
            self.close()
            raise GitFailed(f"git cat-file could not be asked for {name}: {error}") from error

    def _ask(self, name: str) -> tuple[bytes, bytes]:
        to, back, _ = self._batch or self._start()
        write_all(to, name.encode() + b"\n")
        head, _, rest = _until_newline(back).partition(b"\n")
        words = head.split()
        if len(words) != 3:
            raise ObjectMissing(head.decode("utf-8", "replace"))
        if is_id(name) and words[0] != name.encode():
            raise OSError("git cat-file answers something else")
        pieces, left = [rest], int(words[2]) + 1 - len(rest)
        while left > 0:
            pieces.append(piece := _hear(back, min(left, 1 << 20)))
            left -= len(piece)
        return words[1], b"".join(pieces)[:-1]

    def _start(self) -> tuple[int, int, int]:
        theirs_in, to = os.pipe()
        back, theirs_out = os.pipe()
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            pid = spawn([self._git, *NOTHING_RUNS, "cat-file", "--batch"], self._env, theirs_in, theirs_out, nowhere)
        except OSError:
            os.close(to)
            os.close(back)
            raise
        finally:
            for end in (theirs_in, theirs_out, nowhere):
                os.close(end)
        self._batch = (to, back, pid)
        return self._batch

    def close(self) -> None:
        """End the helper process; it may be started again."""
        batch, self._batch = self._batch, None
        if batch:
            os.close(batch[0])
            os.close(batch[1])
            os.kill(batch[2], SIGKILL)  # it only reads; one that hangs would be waited for in vain
            os.waitpid(batch[2], 0)
            over(batch[2])


def _until_newline(descriptor: int) -> bytes:
    heard = b""
    while b"\n" not in heard:
        heard += _hear(descriptor, 1 << 16)
    return heard


def _hear(descriptor: int, most_bytes: int) -> bytes:
    poller = select.poll()  # select() cannot watch descriptors past 1023
    poller.register(descriptor, select.POLLIN)
    if not poller.poll(TIMEOUT_S * 1000):
        raise OSError("git cat-file does not answer")
    piece = os.read(descriptor, most_bytes)
    if not piece:
        raise OSError("git cat-file ended")
    return piece
