"""Runs whose end is about to be on record, and whose outcome, proof and figures are not written for people yet.

A file for each, which whoever publishes them holds locked: one that nobody holds was left by a process that died.
"""

from __future__ import annotations

import fcntl
import os

from ralphproof.ledgers.files import private_folder, sync

FOLDER = "unpublished"


def unpublished(store: str) -> list[str]:
    """The runs of which something may be missing."""
    try:
        return os.listdir(os.path.join(store, FOLDER))
    except OSError:
        return []


class Publishing:
    """The right and the duty to publish the end of a run. Copies are published: trouble with them stops nobody."""

    def __init__(self, store: str, run: str) -> None:
        self._folder = os.path.join(store, FOLDER)
        self._path = os.path.join(self._folder, run)
        self._file = -1

    def begin(self) -> None:
        """The end of the run will be on record next. This is durable when it returns."""
        try:
            private_folder(self._folder)
            if self._opened(os.O_CREAT):
                sync(self._file)
                _sync_folder(self._folder)
        except OSError:
            self._close()

    def take_over(self) -> bool:
        """Whether a dead process left this to us."""
        try:
            return self._opened(0)
        except OSError:
            return False

    def done(self) -> None:
        """Everything is published."""
        if self._file >= 0:
            try:
                os.unlink(self._path)
            except OSError:
                pass  # the next one publishes it again, to the same end
            self._close()

    def _opened(self, flags: int) -> bool:
        """Lock the file; not where somebody else has it, or was done with it just now."""
        self._close()
        self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._close()
            return False
        if not os.fstat(self._file).st_nlink:
            self._close()
            return False
        return True

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _sync_folder(path: str) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(folder)
    finally:
        os.close(folder)
