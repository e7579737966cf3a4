"""Logins among what is shown: files in folders of tools that are covered, and settings that are not shown at all."""

from __future__ import annotations

import os
import stat

from ralphproof.sandboxes.box import EMPTY, NOTHING, READ, Mount
from ralphproof.sandboxes.places import within
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Files of such folders that hold logins, or may.
NAMES = frozenset((
    ".npmrc", "npmrc", ".yarnrc", ".yarnrc.yml", ".condarc", "condarc", ".netrc", ".pypirc", "pip.conf", "credentials",
    "credentials.toml", "auth.json", "auth.toml", "gradle.properties", "hex.config", ".git-credentials", "bunfig.toml",
    ".bunfig.toml",
))  # fmt: skip
# What comes with packages, and is large; no tool keeps its settings there.
PASSED_OVER = frozenset((
    "lib", "lib32", "lib64", "libexec", "include", "share", "bin", "sbin", "shims", "src", "man", "node_modules",
    "site-packages", "__pycache__", ".git", "content-v2", "index-v5", "tmp", "toolchains", "registry", "archive-v0",
    "repository", "mod", "pkgs", "conda-meta", "ssl", "downloads", "sources", "test", "doc", "docs",
))  # fmt: skip
DEEPEST = 6  # ~/.pyenv/versions/3.12/envs/NAME/pip.conf has five
MOST = 20_000  # entries looked at in one folder of tools, the nearest to its top first
SETTINGS = ("config.toml", "config")  # of cargo: they say how to build, and may hold what is to be kept
SPOKEN_OF = rb"(?i)token|passw|secret|_auth|://[^/\s\"']*@"
MOST_BYTES = 1 << 20


def logins_in(mounts: Iterable[Mount]) -> Iterator[Mount]:
    """What lies over logins in folders that are shown."""
    for mount in mounts:
        if mount.source != NOTHING and os.path.isdir(mount.outside):
            for file in _found(mount.outside):
                yield Mount(READ, mount.path.rstrip("/") + file[len(mount.outside) :], NOTHING)


def _found(top: str) -> Iterator[str]:
    """Files below a folder whose names say that they hold logins; of a link there the file that it leads to."""
    queue, looked_at = [(top, 1)], 0
    for folder, depth in queue:  # which grows meanwhile
        try:
            with os.scandir(folder) as listing:
                entries = list(listing)
        except OSError:
            continue
        looked_at += len(entries)
        if looked_at > MOST:
            return
        for entry in entries:
            real = os.path.realpath(entry.path) if entry.name in NAMES else ""
            if real and os.path.isfile(real) and within(real, top):
                yield real
            elif depth < DEEPEST and entry.name not in PASSED_OVER and entry.is_dir(follow_symlinks=False):
                queue.append((entry.path, depth + 1))


def tells_logins(path: str) -> bool:
    """Whether a file of settings holds what is to be kept secret, as far as can be told."""
    if os.path.basename(path) not in SETTINGS or not os.path.isfile(path):
        return False
    import re

    try:
        with open(path, "rb") as file:
            return re.search(SPOKEN_OF, file.read(MOST_BYTES)) is not None
    except OSError:
        return True


def covers_over(places: Iterable[str], mounts: Iterable[Mount], empty: str = NOTHING) -> tuple[Mount, ...]:
    """What lies over places of the machine, which are free of links, wherever one of these mounts shows them.

    `empty` is what lies over folders.
    """
    there = [(place, kind) for place in places if (kind := _kind(place))]
    covers = (
        Mount(READ, inside, empty if stat.S_ISDIR(kind) else NOTHING)
        for mount in mounts
        if mount.kind != EMPTY and mount.source != NOTHING
        for place, kind in there
        if within(place, mount.outside)
        for inside in [mount.path.rstrip("/") + place[len(mount.outside.rstrip("/")) :]]
    )
    return tuple(dict.fromkeys(covers))


def _kind(path: str) -> int:
    try:
        return stat.S_IFMT(os.lstat(path).st_mode)
    except OSError:
        return 0
