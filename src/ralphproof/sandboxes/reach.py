"""What a sandbox shows of this machine, all of it read-only: the system, tools, programs, and ourselves."""

from __future__ import annotations

import os
import sys

from ralphproof import interpreter
from ralphproof.sandboxes.box import NOTHING
from ralphproof.sandboxes.logins import covers_over, logins_in
from ralphproof.sandboxes.places import hidden, shown, within
from ralphproof.sandboxes.programs import program as program
from ralphproof.sandboxes.roots import in_system, sockets_in
from ralphproof.sandboxes.roots import system as system
from ralphproof.sandboxes.tools import tools as tools
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ralphproof.sandboxes.box import Mount


def python() -> tuple[Mount, ...]:
    """This interpreter and this package: what our own programs inside need."""
    needed = [*program(interpreter.executable(), os.environ), *(one for path in _own() for one in shown(path))]
    kept = [mount for mount in needed if not in_system(mount.path)]
    return tuple(dict.fromkeys((*kept, *logins_in(kept))))


def _own() -> Iterator[str]:
    """The folders of the interpreter, and the package with what is installed beside it."""
    out_of_sight = hidden(os.path.expanduser("~"), os.environ)
    for prefix in dict.fromkeys((sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)):
        if not out_of_sight.in_(prefix):
            yield prefix
        else:  # it was installed among everything else that is at home
            yield os.path.dirname(os.path.abspath(os.__file__))
            yield from _libraries(os.path.join(prefix, "lib"))
    beside = interpreter.ROOT
    yield beside if os.path.basename(beside) in interpreter.SITES else interpreter.PACKAGE


def _libraries(folder: str) -> Iterator[str]:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    yield from (os.path.join(folder, name) for name in names if name.startswith("libpython"))


def checked(
    mounts: Iterable[Mount], home: str, environ: Mapping[str, str], state_dirs: Iterable[str]
) -> tuple[Mount, ...]:
    """The same without what shows too much, and without what another of them shows anyway; folders before what is in
    them, and sockets covered.

    Too much is a home folder, the state of this program, and what logins lie in.
    """
    out_of_sight = hidden(home, environ, state_dirs)
    named = {mount.path: mount for mount in mounts if mount.source == NOTHING or not out_of_sight.in_(mount.outside)}
    kept: list[Mount] = []
    for mount in sorted(named.values(), key=lambda one: one.path.count("/")):
        nearest = next((over for over in reversed(kept) if within(mount.path, over.path)), None)
        if nearest is None or not _shows(nearest, mount):
            kept.append(mount)
    covers = [cover for cover in sockets_in(kept) if cover.path not in named]
    return tuple(sorted((*kept, *covers), key=lambda one: one.path.count("/")))


def covered(mounts: Iterable[Mount], home: str, environ: Mapping[str, str], empty: str) -> tuple[Mount, ...]:
    """What lies over logins that these mounts of the system show: a variable may name one anywhere."""
    return covers_over(hidden(home, environ).private, mounts, empty)


def _shows(over: Mount, mount: Mount) -> bool:
    """Whether a folder's mount shows what another below it does."""
    place = os.path.join(over.outside, os.path.relpath(mount.path, over.path))
    return over.kind == mount.kind and os.path.realpath(place) == os.path.realpath(mount.outside)
