"""Keeping the marker of a run by stories out of commits: a line in .gitignore, unless a rule is there already."""

from __future__ import annotations

import os
import stat

from ralphproof.errors import Refused
from ralphproof.ledgers.files import write_whole
from ralphproof.ledgers.shelf import MARKER
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = ".gitignore"


def rule_for(root: str, environ: Mapping[str, str]) -> bytes | None:
    """What .gitignore is to say, whole, so that the marker is ignored; None where it is already.

    Raises Refused where the file cannot be changed.
    """
    path = os.path.join(root, FILE)
    said = _by_git(root, environ)
    if said:
        return None
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return f"{MARKER}\n".encode()
    if not stat.S_ISREG(mode):
        raise Refused(f"{path} is no file (git follows no link there); make it one, or add {MARKER} to it yourself")
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise Refused(f"cannot read {path}: {error.strerror}; add {MARKER} to it yourself") from error
    if said is None and covers(data):
        return None
    end = b"\r\n" if data[: data.find(b"\n") + 1].endswith(b"\r\n") else b"\n"
    return data + (b"" if not data or data.endswith(b"\n") else end) + MARKER.encode() + end


def write_rule(root: str, data: bytes) -> None:
    """Put .gitignore in its place, with the mode that it had."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        path = os.path.join(root, FILE)
        mode = stat.S_IMODE(os.lstat(path).st_mode) if os.path.lexists(path) else None
        write_whole(folder, FILE, data, private=False)
        if mode is not None:
            os.chmod(path, mode)
    except OSError as error:
        raise Refused(f"cannot write {os.path.join(root, FILE)}: {error.strerror}") from error
    finally:
        os.close(folder)


def ignored(root: str, environ: Mapping[str, str]) -> bool:
    """Whether some rule ignores the marker already."""
    said = _by_git(root, environ)
    if said is not None:
        return said
    try:
        with open(os.path.join(root, FILE), "rb") as file:
            return covers(file.read())
    except OSError:
        return False


def _by_git(root: str, environ: Mapping[str, str]) -> bool | None:
    """Whether git ignores the marker, by whichever of its rules; None where there is no git to ask, or no repository.

    A project may be a folder of a repository, whose rules hold for it too.
    """
    from ralphproof.workspaces.gitcall import NOTHING_RUNS, call, find_program, plain_environment

    git = find_program("git", environ.get("PATH", os.defpath), outside=root)
    if git is None:
        return None
    argv = [git, "-C", root, *NOTHING_RUNS, "--no-literal-pathspecs", "check-ignore", "-q", "--no-index", "--", MARKER]
    return {0: True, 1: False}.get(call(argv, plain_environment(environ), timeout_s=30.0).code)


def covers(data: bytes) -> bool:
    """Whether these rules ignore the marker at the top of a project; the last one that is about it decides."""
    from fnmatch import fnmatchcase

    ignored = False
    for line in data.decode("utf-8", "surrogateescape").splitlines():
        rule = line.rstrip().removeprefix("!")
        name = rule.removeprefix("**/").removeprefix("/")
        if name and not rule.startswith("#") and fnmatchcase(MARKER, name):
            ignored = not line.startswith("!")
    return ignored
