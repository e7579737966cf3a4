"""What a program needs to be started: the links to it, the folder that it is installed in, and its interpreter."""

from __future__ import annotations

import os

from ralphproof.sandboxes.logins import logins_in
from ralphproof.sandboxes.places import hidden, home_of, hops, shown
from ralphproof.sandboxes.roots import in_system, sockets_in
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ralphproof.sandboxes.box import Mount
    from ralphproof.sandboxes.places import Hidden

BINARIES = ("bin", "sbin", ".bin", "shims", "Scripts")  # folders that hold programs and nothing else
PACKAGES = "node_modules"
# What a folder has beside `bin` that a program is installed in, and what one has that somebody works in.
INSTALLED = ("lib", "lib64", "libexec", "share", "pyvenv.cfg", "codex-resources")
WORKED_IN = (".git", ".hg", ".svn", "package.json", "pyproject.toml", "Cargo.toml", "go.mod", "Makefile")
FIRST_LINE_BYTES = 512
MOST = 64  # places that one program may lead to


def program(path: str, environ: Mapping[str, str]) -> tuple[Mount, ...]:
    """Everything that this program, or plain file, needs to be there, as far as the system does not show it anyway.

    Nothing of it is a folder that holds what others keep in a home: of such a folder only the file is shown. A login is
    not shown, whatever names it: the first line of a program may have been written by somebody inside.
    """
    out_of_sight = hidden(home_of(environ), environ)
    found: dict[Mount, None] = {}
    queue, seen = [os.path.abspath(path)], set[str]()
    while queue and len(seen) < MOST:
        place = queue.pop(0)
        if place in seen:
            continue
        seen.add(place)
        for hop in hops(place):
            needed = _needed(hop, out_of_sight)
            found |= dict.fromkeys(shown(needed) if not out_of_sight.secret(needed) else ())
            queue += [interpreter for interpreter in [interpreter_of(hop, environ)] if interpreter]
    kept = [mount for mount in found if not in_system(mount.path)]
    return (*kept, *dict.fromkeys((*logins_in(kept), *sockets_in(kept))))


def _needed(place: str, out_of_sight: Hidden) -> str:
    """What to show of a program: of a link the folder that holds it, so that it stays one; else its installation."""
    folder = os.path.dirname(place)
    if not os.path.islink(place):
        return installation(place, out_of_sight)
    kept = os.path.basename(folder) in BINARIES and not out_of_sight.in_(folder)
    return installation(folder, out_of_sight) if kept else place


def installation(place: str, out_of_sight: Hidden) -> str:
    """The folder that a program, or a folder of programs, is installed in; the place itself where there is none."""
    parts = place.split("/")
    if PACKAGES in parts:  # a package finds others in every such folder above it
        packages = "/".join(parts[: parts.index(PACKAGES) + 1])
        return place if out_of_sight.in_(packages) else packages
    folder = place if os.path.isdir(place) else os.path.dirname(place)
    above = os.path.dirname(folder)
    whole = os.path.basename(folder) in BINARIES and _has(above, INSTALLED) and not _has(above, WORKED_IN)
    return above if whole and not out_of_sight.in_(above) else place


def _has(folder: str, names: tuple[str, ...]) -> bool:
    return any(os.path.exists(os.path.join(folder, name)) for name in names)


def interpreter_of(path: str, environ: Mapping[str, str]) -> str:
    """The program that runs this one, by its first line; empty where it runs by itself or none is found."""
    words = _first_line(path)
    if not words:
        return ""
    if os.path.basename(words[0]) != "env":
        return words[0] if os.path.isabs(words[0]) and _runs(words[0]) else ""
    name = next((word for word in words[1:] if not word.startswith("-") and "=" not in word), "")
    places = (os.path.join(folder, name) for folder in folders_of(environ)) if name else iter(())
    return next(filter(_runs, places), "")


def _runs(path: str) -> bool:
    """Whether it can be started; a folder cannot."""
    return os.path.isfile(path) and os.access(path, os.X_OK)


def _first_line(path: str) -> list[str]:
    if not os.path.isfile(path):  # a pipe would be waited for
        return []
    try:
        with open(path, "rb") as file:
            line = file.read(FIRST_LINE_BYTES).partition(b"\n")[0]
    except OSError:
        return []
    return line[2:].decode("utf-8", "surrogateescape").split() if line.startswith(b"#!") else []


def folders_of(environ: Mapping[str, str]) -> Iterator[str]:
    """The folders that programs are looked for in."""
    for folder in environ.get("PATH", os.defpath).split(os.pathsep):
        if os.path.isabs(folder):
            yield os.path.normpath(folder)
