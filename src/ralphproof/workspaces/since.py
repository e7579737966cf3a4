"""Telling a turn's changes from earlier ones by the time at which the kernel last saw a file change.

A file's ctime cannot be set back. A changed file whose ctime lies before the turn's beginning was changed by a check,
or by a person, and not by this turn. The instant is read off a file as well: the clock that stamps files is coarser
than the one that programs ask.
"""

from __future__ import annotations

import os
import time

from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.putback import TEMPORARY

if TYPE_CHECKING:
    from collections.abc import Iterable

UNSEEN = frozenset((b".git", b".ralph", b".ralph-active", b"node_modules", b".venv", b"__pycache__"))
STEP_S = 0.001  # well under a step of that clock, which takes some milliseconds


class Since:
    """An instant, and what was touched after it."""

    def __init__(self, root: str, private: str) -> None:
        self._root, self._stamp = os.fsencode(root), os.path.join(os.fsencode(private), b"instant")
        self._mark_ns = self._looked_ns = self._last()

    def mark(self) -> None:
        """Now is the instant, and later than everything before: the clock of the files goes in steps."""
        before = self._now(self._stamp)
        while (instant := self._now(self._stamp)) == before:
            time.sleep(STEP_S)
        self._mark_ns = self._looked_ns = instant

    def older(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Those of the paths that were not touched since the instant; for a deleted one its folder tells."""
        return tuple(path for path in paths if self._ctime_ns(path.encode("utf-8", "surrogateescape")) < self._mark_ns)

    def later(self, paths: Iterable[str], instant_ns: int) -> tuple[str, ...]:
        """Those of the paths that were last touched after another instant, whatever we ourselves left behind aside."""
        names = ((path, path.encode("utf-8", "surrogateescape")) for path in paths)
        others = ((path, name) for path, name in names if not os.path.basename(name).startswith(TEMPORARY))
        return tuple(path for path, name in others if self._ctime_ns(name) > instant_ns)

    def stirred(self) -> bool:
        """Whether any file or folder was touched since the instant, or since this was last asked."""
        before, self._looked_ns = self._looked_ns, self._now(self._stamp + b"-looked")
        return any(changed >= before for changed in _all_ctimes(self._root))

    def _last(self) -> int:
        """The instant that another process marked last: we may go on with what it began."""
        try:
            return os.stat(self._stamp).st_ctime_ns
        except OSError:
            return 0

    def _now(self, stamp: bytes) -> int:
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


def _all_ctimes(folder: bytes) -> Iterable[int]:
    folders = [folder]
    while folders:
        here = folders.pop()
        try:
            yield os.lstat(here).st_ctime_ns
            entries = list(os.scandir(here))
        except OSError:
            continue  # it went away while we looked
        for entry in entries:
            if entry.name in UNSEEN:
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
                continue
            try:
                yield entry.stat(follow_symlinks=False).st_ctime_ns
            except OSError:
                continue
