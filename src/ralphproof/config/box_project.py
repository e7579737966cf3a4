"""The project inside a box: written, but for what is held of it; each folder above that is held in its place."""

from __future__ import annotations

import os
import sys

from ralphproof.ledgers.files import read_whole
from ralphproof.sandboxes.box import BLANK, EMPTY, READ, WRITE, Mount
from ralphproof.sandboxes.places import within
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ralphproof.workspaces.held import HeldPaths

OURS = ".ralph"
SPECIAL = "\\*?["  # what a line of git's exclude file does not mean as it is written


@value
class HeldPlaces:
    """The mounts of a project, what must not come to be in it, and the folders that must be there for that."""

    mounts: tuple[Mount, ...]
    ghosts: tuple[str, ...] = ()
    hollow: tuple[str, ...] = ()


def written(root: str, held: HeldPaths) -> list[Mount]:
    """The project, and a repository outside of it, of which only what a commit needs may be written."""
    shared = [Mount(WRITE, path) for path in held.shared if os.path.exists(path)]
    return [Mount(WRITE, root), *(Mount(READ, path) for path in held.common), *shared]


def ours(root: str, task: str, holds: bool) -> list[Mount]:
    """Our own folder in the project is read; only the task's folder in it is the agent's.

    One that lies elsewhere in the project can be written anyway; to mount it would uncover what is held in it, or what
    a link leads to that somebody inside put in its place.
    """
    own = os.path.join(root, OURS)
    apart = bool(task) and (not within(task, root) or (within(task, own) and within(os.path.realpath(task), own)))
    if apart:
        os.makedirs(task, exist_ok=True)
    held = [Mount(READ, own)] if holds and os.path.isdir(own) and not os.path.islink(own) else []
    return [*held, *([Mount(WRITE, task)] if apart else [])]


def held_in(root: str, held: HeldPaths, before: Sequence[Mount], private: str) -> HeldPlaces:
    """What nobody inside may write, in what `before` lets them; `private` is a folder for a file of ours."""
    wanted = {path for path in (*held.found, *held.files, *held.folders) if _writable(path, before)}
    paths = {path for path in wanted if not any(path != other and within(path, other) for other in wanted)}
    files, folders = ([one for one in those if one in paths] for those in (held.files, held.folders))
    if held.exclude and not os.path.lexists(held.exclude):
        files.append(held.exclude)
    ghosts = (*files, *folders)
    tops = tuple(mount.path for mount in before if mount.kind == WRITE)
    above = {over for path in (*paths, held.exclude) if path for over in _above(path, tops)}
    kinds = {**dict.fromkeys(above, WRITE), **dict.fromkeys(paths, READ)}
    blank = dict.fromkeys(held.unread if sys.platform == "linux" else (), os.path.join(private, BLANK))
    mounts = [Mount(kinds[path], path, blank.get(path, "")) for path in sorted(kinds, key=lambda path: path.count("/"))]
    missing = {over for path in ghosts for over in _missing_above(path)}
    hollow = tuple(sorted({*missing, *folders}, key=len))
    return HeldPlaces((*mounts, *_excluding(root, held.exclude, ghosts, private)), ghosts, hollow)


def _excluding(root: str, exclude: str, ghosts: Iterable[str], private: str) -> Iterator[Mount]:
    """What must not come to be is there, empty: git is to pass it over."""
    if not exclude:
        return
    names = (os.path.relpath(path, root) for path in ghosts if within(path, root))
    lines = [_line(name) for name in names if not name.startswith(".git/") and "\n" not in name]
    file = os.path.join(private, "exclude")
    write(file, (read_whole(exclude) or b"").decode("utf-8", "surrogateescape") + "\n" + "".join(lines))
    yield Mount(READ, exclude, file)


def _line(name: str) -> str:
    for special in SPECIAL:
        name = name.replace(special, "\\" + special)
    return f"/{name[:-1]}\\ \n" if name.endswith(" ") else f"/{name}\n"


def write(path: str, text: str) -> None:
    """Write a private file as a whole: a box may show it meanwhile."""
    draft = f"{path}.{os.getpid()}.tmp"
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(text.encode("utf-8", "surrogateescape"))
    os.replace(draft, path)


def strays(path: str, root: str) -> bool:
    """Whether a place that is named in the project lies elsewhere: somebody inside may have put a link there."""
    return within(os.path.normpath(path), root) and not within(os.path.realpath(path), root)


def steady(environ: Mapping[str, str], root: str) -> dict[str, str]:
    """Variables without places that stray. A virtual environment may: that is a tool, wherever it lies."""

    def kept(place: str) -> bool:
        marks = (os.path.join(os.path.realpath(place), up, "pyvenv.cfg") for up in ("", ".."))
        return not os.path.isabs(place) or not strays(place, root) or any(map(os.path.exists, marks))

    return {name: os.pathsep.join(filter(kept, text.split(os.pathsep))) for name, text in environ.items()}


def seen(path: str, mounts: Sequence[Mount], covers: tuple[str, ...]) -> bool:
    """Whether a path is there inside already; what lies below a fresh folder or a cover is not."""
    over = _nearest(path, mounts)
    return over is not None and over.kind != EMPTY and over.source not in covers


def _writable(path: str, mounts: Sequence[Mount]) -> bool:
    over = _nearest(path, mounts)
    return over is not None and over.kind == WRITE


def _nearest(path: str, mounts: Sequence[Mount]) -> Mount | None:
    return next((one for one in reversed(mounts) if within(path, one.path)), None)


def _above(path: str, tops: tuple[str, ...]) -> Iterator[str]:
    """The folders between a path and the nearest place above it that is written."""
    top = max((one for one in tops if within(path, one) and path != one), key=len, default=path)
    while (path := os.path.dirname(path)) != top and len(path) > len(top):
        yield path


def _missing_above(path: str) -> Iterator[str]:
    while not os.path.lexists(path := os.path.dirname(path)):
        yield path
