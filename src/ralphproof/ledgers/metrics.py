"""`.ralph/metrics/`: a line for each run that ended, reports and charts. Only copies: the ledger is the truth."""

from __future__ import annotations

import errno
import os
import stat

from ralphproof.ledgers.files import enter, explain, write_whole
from ralphproof.ledgers.folder import IGNORED
from ralphproof.ledgers.text import to_bytes, to_json
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ralphproof.value import Json

LINES = "loops.jsonl"
TRIES = 100  # of 10 ms
REMEDY = "make it a directory that you may write to"


class MetricsFolder:
    """Nothing in it is written through a link inside the project: an agent could have made it."""

    def __init__(self, project_root: str, mask: Callable[[str], str] = str, once: bool = False) -> None:
        """With `once` a line that is there already is not added again."""
        self._root, self._mask, self._once = os.path.abspath(project_root), mask, once
        self.path = os.path.join(self._root, ".ralph", "metrics")

    def add(self, line: dict[str, Json]) -> None:
        """Append a line, masked and whole: it never runs into one that a crash cut off, nor into another loop's."""
        data = to_bytes(to_json(line, self._mask) + "\n")
        self._within(lambda folder: _append(folder, data, self._once))

    def put(self, name: str, data: str | bytes) -> str:
        """Write a file whole, in place of an older one; its path."""
        raw = data if isinstance(data, bytes) else to_bytes(data)
        self._within(lambda folder: write_whole(folder, name, raw, durable=False))
        return os.path.join(self.path, name)

    def _within(self, work: Callable[[int], None]) -> None:
        opened: list[int] = []
        try:
            opened.append(os.open(self._root, os.O_RDONLY | os.O_DIRECTORY))
            for name in (".ralph", "metrics"):
                inner, made = enter(opened[-1], name)
                opened.append(inner)
                if made and name == ".ralph":
                    write_whole(inner, ".gitignore", IGNORED.encode())
            work(opened[-1])
        except OSError as error:
            raise explain(error, self.path, REMEDY) from error
        finally:
            for folder in opened:
                os.close(folder)


def _append(folder: int, data: bytes, once: bool) -> None:
    file = _opened(folder)
    try:
        if not _take(file) and once:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if once and _is_in(data, file):
            return
        size = os.fstat(file).st_size
        if not size:
            os.fchmod(file, 0o600)  # whatever the umask
        torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
        os.write(file, b"\n" + data if torn else data)
    finally:
        os.close(file)


def _is_in(line: bytes, file: int) -> bool:
    with open(file, "rb", closefd=False) as lines:
        lines.seek(0)
        return any(known == line for known in iter(lambda: lines.readline(len(line) + 1), b""))


def _take(file: int) -> bool:
    """Keep other loops from writing: half of their line would look torn. Who holds on to it is not waited for long."""
    import fcntl
    import time

    for _ in range(TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            time.sleep(0.01)
    return False


def _opened(folder: int) -> int:
    """The file of lines, to append to. Whatever else has its name, a file with a second name too, is moved aside."""
    try:
        found = os.stat(LINES, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            os.rename(LINES, f"{LINES}.aside-{os.urandom(4).hex()}", src_dir_fd=folder, dst_dir_fd=folder)
    except FileNotFoundError:
        pass
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.open(LINES, flags, 0o600, dir_fd=folder)
