"""What runs on this machine."""

from __future__ import annotations

import os
from pathlib import Path


def processes(word: str) -> list[tuple[int, list[str]]]:
    """Every process in whose command line there is this, with its command line; those that are dead do not count."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            text = Path("/proc", pid, "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if word in text and int(pid) != os.getpid():
            found.append((int(pid), text.rstrip("\0").split("\0")))
    return found
