"""Signal files of an agent, DONE and WAIT_WITHOUT_RESTART, in its task folder."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import TypeVar

from ralphproof.base.errors import Refused
from ralphproof.base.files import explain_os_error, read_file_start
from ralphproof.base.text import MAX_QUOTE_CHARS
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.claim import Claim

if TYPE_CHECKING:
    T = TypeVar("T")

DONE_FILE, WAIT_FILE = "DONE", "WAIT_WITHOUT_RESTART"
_READ_BYTES = 4096
_FLAGS = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)  # macOS lacks the last
_REMEDY = "make it a directory that you may write to"


class SignalFiles:
    """Signal files in a folder that the agent can write to. Whatever they are, nothing hangs, and no link is followed.

    The folder is resolved once: a link that replaces it later leads nowhere.
    """

    def __init__(self, folder: str) -> None:
        self._folder = os.path.realpath(folder)
        self._reported: set[str] = set()
        self._remarks: list[str] = []

    def look(self) -> Claim | None:
        """The claim: that the agent waits, else that it is done. Raises Refused if a signal file is a directory."""
        return self._in_folder(self._claim, None)

    def remarks(self) -> tuple[str, ...]:
        """Remarks since the last call, each only once."""
        remarks, self._remarks = tuple(self._remarks), []
        return remarks

    def put_away(self, known: frozenset[str], suffix: str, why: str = "stale") -> tuple[str, ...]:
        """Rename the signal files with these stamps, which are stale; returns their new names."""

        def work(folder: int) -> tuple[str, ...]:
            stale = [
                name for name in (DONE_FILE, WAIT_FILE) if (seen := _stat_entry(folder, name)) and _stamp(seen) in known
            ]
            return tuple(_rename_to_free_name(folder, name, f"{name}.{why}-{suffix}") for name in stale)

        return self._in_folder(work, ())

    def consume(self, suffix: str) -> tuple[str, ...]:
        """Rename the signal file of a wait that is over, if there is one; returns its new name."""

        def work(folder: int) -> tuple[str, ...]:
            return (
                (_rename_to_free_name(folder, WAIT_FILE, f"{WAIT_FILE}.answered-{suffix}"),)
                if self._find_stamp(folder, WAIT_FILE)
                else ()
            )

        return self._in_folder(work, ())

    def _claim(self, folder: int) -> Claim | None:
        waits, done = self._find_stamp(folder, WAIT_FILE), self._find_stamp(folder, DONE_FILE)
        if waits:
            return Claim(_first_line(folder), waiting=True, source="marker", stamp=waits)
        return Claim(DONE_FILE, source="marker", stamp=done) if done else None

    def _find_stamp(self, folder: int, name: str) -> str:
        """The stamp of a signal file; empty if there is none that counts."""
        seen = _stat_entry(folder, name)
        if seen is None:
            return ""
        if stat.S_ISDIR(seen.st_mode):
            raise Refused(f"{name} is a directory: {os.path.join(self._folder, name)}; remove it")
        if stat.S_ISLNK(seen.st_mode) and (target := _link_problem(folder, name)):
            self._remark(f"{name} is a link to {target}, and counts for nothing")
            return ""
        return _stamp(seen)

    def _remark(self, message: str) -> None:
        if message not in self._reported:
            self._reported.add(message)
            self._remarks.append(message)

    def _in_folder(self, work: Callable[[int], T], missing: T) -> T:
        """Do something in the folder; `missing` if it is gone, or not a folder."""
        try:
            folder = _open_folder(self._folder)
            try:
                return work(folder)
            finally:
                os.close(folder)
        except (FileNotFoundError, NotADirectoryError):
            return missing
        except OSError as error:
            if error.errno == errno.ELOOP:  # a link, on macOS
                return missing
            raise explain_os_error(error, self._folder, _REMEDY) from error


def _open_folder(path: str) -> int:
    """A descriptor of a directory. Each path component is opened by itself, so that no link is followed."""
    folder = os.open("/", _FLAGS)
    for name in filter(None, path.split("/")):
        try:
            inner = os.open(name, _FLAGS, dir_fd=folder)
        finally:
            os.close(folder)
        folder = inner
    return folder


def _stat_entry(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _stamp(seen: os.stat_result) -> str:
    """Identifies a signal file, and changes when it is touched again."""
    return f"{seen.st_dev}:{seen.st_ino}:{seen.st_ctime_ns}"


def _link_problem(folder: int, name: str) -> str:
    """Why a link is no signal file; empty if its target counts. The target is not opened."""
    try:
        return "a directory" if stat.S_ISDIR(os.stat(name, dir_fd=folder).st_mode) else ""
    except OSError:
        return "nothing"


def _first_line(folder: int) -> str:
    """What the agent waits for: the first line of the signal file."""
    text = (read_file_start(folder, WAIT_FILE, _READ_BYTES) or b"").decode("utf-8", "replace")
    return text.strip().replace("\r", "\n").partition("\n")[0].strip()[:MAX_QUOTE_CHARS] or WAIT_FILE


def _rename_to_free_name(folder: int, name: str, wanted: str) -> str:
    """The new name of a signal file: a number is added if it is taken."""
    new, number = wanted, 1
    while _stat_entry(folder, new):
        number += 1
        new = f"{wanted}-{number}"
    os.rename(name, new, src_dir_fd=folder, dst_dir_fd=folder)
    return new
