"""What an agent's own settings file says, where that tells how it will run."""

from __future__ import annotations

import os

import msgspec

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

FILE_BYTES = 1 << 20


def setting(file: str, *names: str) -> str | None:
    """The text at this place in a JSON file (`~` is the home folder); None where there is none that can be read."""
    path = os.path.expanduser(file)
    if not os.path.isfile(path):  # a pipe would be waited for
        return None
    try:
        with open(path, "rb") as opened:
            found: Any = msgspec.json.decode(opened.read(FILE_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, str) and found else None
