"""Repositories inside a work tree, submodules and others: what goes with the tree if nobody looks at them."""

from __future__ import annotations

import os

from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.layout import git_folders, is_id
from ralphproof.workspaces.users_git import UsersGit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DEEPEST, MOST = 5, 10
LINKED = b"160000 "
ALONE = ("-c", "protocol.allow=never", "-c", "core.commitGraph=false")  # nothing is fetched that is not there
ASKED = ("rev-list", "--max-count=1", "--ignore-missing")


def unshared(place: str, base: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Repositories below a work tree with commits that neither a remote of theirs nor the commit `base` names.

    Those that git ignores are left out. One that cannot be asked may have some too.
    """
    top = os.path.realpath(place)
    found: list[str] = []
    for path in _below(top, environ, DEEPEST):
        name = os.path.relpath(path, top)
        known = UsersGit(top, environ).line("rev-parse", "-q", "--verify", "--end-of-options", f"{base}:{name}")
        if len(found) < MOST and _own(path, known, environ):
            found.append(name)
    return tuple(found)


def _below(place: str, environ: Mapping[str, str], deepest: int) -> Iterator[str]:
    """The repositories in a work tree, and in those."""
    if not deepest or git_folders(place) is None:
        return
    users = UsersGit(place, environ)
    linked = (row.partition(b"\t")[2] for row in _rows(users, "-s") if row.startswith(LINKED))
    others = (row.rstrip(b"/") for row in _rows(users, "-o", "--exclude-standard") if row.endswith(b"/"))
    for name in sorted({*linked, *others}):
        path = os.path.join(place, os.fsdecode(name))
        if os.path.lexists(os.path.join(path, ".git")):
            yield path
            yield from _below(path, environ, deepest - 1)


def _rows(users: UsersGit, *which: str) -> list[bytes]:
    return users.ask("ls-files", "-z", *which, good=(0, 128)).out.split(b"\0")


def _own(path: str, known: str, environ: Mapping[str, str]) -> bool:
    """Whether branches, HEAD or what was put aside there hold more than remotes and a known commit do."""
    but = ("--not", "--remotes", *([known] if is_id(known) else []), "--")
    tips = (("--branches", "--glob=refs/stas[h]"), ("HEAD",))
    try:
        users = UsersGit(path, environ)
        return any(users.ask(*ALONE, *ASKED, *tip, *but, good=(0, 128)).out for tip in tips)
    except Refused:
        return True
