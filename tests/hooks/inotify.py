"""Knowing that another process has looked at a file, without asking it."""

from __future__ import annotations

import ctypes
import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

IN_CLOSE_NOWRITE = 0x10
TIMEOUT_S = 20.0


@contextmanager
def looked_at(path: Path) -> Iterator[int]:
    """A descriptor to hand to `wait`, which returns once somebody has opened and closed this file."""
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init()
    assert watch >= 0, os.strerror(ctypes.get_errno())
    try:
        assert libc.inotify_add_watch(watch, os.fsencode(path), IN_CLOSE_NOWRITE) >= 0
        yield watch
    finally:
        os.close(watch)


def wait(watch: int) -> None:
    assert select.select([watch], [], [], TIMEOUT_S)[0], "nobody looked"
