"""The version of an installed program, without starting it."""

from __future__ import annotations

import os
import re

from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HIGHEST = 8  # folders above a program that are looked at
MANIFEST_BYTES = 1 << 20
VERSION = re.compile(r"v?\d[\w.+-]{0,49}")


def version_of(program: str) -> str | None:
    """What its npm package says, or its own place in a folder `versions`; None where neither tells."""
    real = os.path.realpath(program)
    folder, name = os.path.split(real)
    if os.path.basename(folder) == "versions":  # ~/.local/share/claude/versions/2.1.325
        return name if VERSION.fullmatch(name) else None
    return next((version for folder in _above(real) if (version := _packaged(folder, real))), None)


def _above(path: str) -> Iterator[str]:
    """The folders that a package's file may be in, up to the one that holds packages."""
    for _ in range(HIGHEST):
        path, name = os.path.dirname(path), os.path.basename(path)
        if name == "node_modules" or path == os.path.dirname(path):
            return
        yield path


def _packaged(folder: str, program: str) -> str | None:
    """The version in a folder's package.json, if that names the program as one of its own."""
    import json

    path = os.path.join(folder, "package.json")
    if not os.path.isfile(path):  # a pipe would be waited for
        return None
    try:
        with open(path, "rb") as file:
            manifest = json.loads(file.read(MANIFEST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(manifest, dict):
        return None
    named, version = manifest.get("bin"), manifest.get("version")
    files = named.values() if isinstance(named, dict) else (named,)
    own = any(isinstance(file, str) and os.path.realpath(os.path.join(folder, file)) == program for file in files)
    return version if own and isinstance(version, str) and VERSION.fullmatch(version) else None
