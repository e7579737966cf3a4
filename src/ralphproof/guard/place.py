"""Where a word of a command points to, relative to the project."""

from __future__ import annotations

import os.path
import re

from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.guard.simple import MARKS, PIECE, SOME, UNKNOWN

if TYPE_CHECKING:
    from ralphproof.guard.verdict import Ground

GLOB = re.compile(r"[*?\[]")
NO_NAME = {ord(mark): None for mark in MARKS + "\0"}  # characters that are in no name of a file
EVERYTHING = re.compile(r"\.?(\[!?\.?[^\]]*\]|[*?])*\*")


@value
class Spot:
    """A real path, or what is known of it.

    `tail` says what of it is meant: "" the path itself, `some` something below it, `maybe` itself or something below,
    `all` everything in it. `path` is empty where not even a folder is known. `near` is a path written relative to a
    folder of the project.
    """

    path: str
    tail: str = ""
    near: bool = False


def spot(word: str, cwd: str, at: Ground, follow: bool = True) -> Spot:
    """Where a word points; `follow` a link in its last part, or mean the link itself."""
    word = _home(word, at)
    relative = not word.startswith("/")
    if word.startswith(UNKNOWN) or (relative and not cwd):
        return Spot("", _tail(PIECE.sub(UNKNOWN, word).split("/")))
    parts = PIECE.sub(UNKNOWN, word).split("/")
    fixed = next((i for i, part in enumerate(parts) if _open(part)), len(parts))
    head = "/".join(parts[:fixed]) or ("" if relative else "/")
    return Spot(_real(os.path.join(cwd, head), follow), _tail(parts[fixed:]), relative and below(cwd, at.root))


def _home(word: str, at: Ground) -> str:
    if not word.startswith("~"):
        return word
    user, slash, rest = word[1:].partition("/")
    if user == "+":
        return at.cwd + slash + rest
    return (os.path.join(os.path.dirname(at.home), user) if user else at.home) + slash + rest


def _open(part: str) -> bool:
    return UNKNOWN in part or SOME in part or bool(GLOB.search(part))


def _tail(parts: list[str]) -> str:
    """What the parts mean that are not fixed."""
    kept = [part for part in parts if part not in ("", ".")]
    if not kept or kept == [UNKNOWN]:
        return "maybe" if kept else ""
    if ".." in kept:
        return "all"
    return "all" if all(EVERYTHING.fullmatch(part) for part in kept) else "some"


def _real(path: str, follow: bool) -> str:
    path = path.translate(NO_NAME).encode("utf-8", "replace").decode()
    if follow:
        return os.path.realpath(path)
    path = os.path.normpath(path) if path.endswith("/") or os.path.basename(path) in (".", "..") else path
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def below(path: str, folder: str) -> bool:
    """Whether a path is a folder or something in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def temporary(at: Ground) -> tuple[str, ...]:
    """The folders for whatever may vanish."""
    named = os.environ.get("TMPDIR", "")
    folders = {"/tmp", "/var/tmp", "/dev/shm", *([named] if named.startswith("/") else [])}  # noqa: S108
    real = {os.path.realpath(folder) for folder in folders}
    return tuple(sorted(folder for folder in real if not below(at.home, folder) and folder != "/"))


def zone(place: Spot, at: Ground) -> str:
    """`unknown`, `root` (the project as a whole), `inside`, `temporary` or `outside`."""
    if not place.path:
        return "unknown"
    if place.path == at.root:
        return "inside" if place.tail == "some" else "root"
    if below(place.path, at.root):
        return "inside"
    if place.near or below(at.root, place.path):  # `../other` is a neighbour, wherever the project lies
        return "outside"
    return "temporary" if any(_within(place, folder) for folder in temporary(at)) else "outside"


def _within(place: Spot, folder: str) -> bool:
    return below(place.path, folder) and (place.path != folder or place.tail in ("some", "maybe"))


def inner(place: Spot, at: Ground) -> str:
    """The path from the project's root; empty where it is not in it."""
    inside = below(place.path, at.root) and place.path != at.root
    return place.path[len(at.root.rstrip("/")) + 1 :] if inside else ""
