"""What a box means to a virtual machine that has tools of its own: which folders, links, variables and hosts."""

from __future__ import annotations

import os
import sys

from ralphproof.sandboxes.box import READ, WRITE
from ralphproof.sandboxes.places import within
from ralphproof.sandboxes.told import names_told
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralphproof.sandboxes.box import Box, Mount

# What it has of its own; so do folders in the user's home that begin with a dot.
OWN_FOLDERS = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/snap", "/var", "/run",
    "/proc", "/sys", "/System", "/Library", "/Applications", "/private/etc", "/private/var", "/home/linuxbrew",
)  # fmt: skip
OWN_VARIABLES = frozenset(("PATH", "HOME", "TMPDIR", "SHELL", "USER", "LOGNAME", "PWD", "HOSTNAME"))
CLAUDE, CLAUDE_FOLDER, CLAUDE_FILE = "claude", ".claude", ".claude.json"


def workspaces_of(box: Box) -> tuple[str, ...]:
    """The folders that the machine gets: the project first, what may only be read with `:ro`."""
    written = [mount.outside for mount in box.mounts if mount.kind == WRITE and _apart(mount, box)]
    read = [mount.outside for mount in box.mounts if mount.kind == READ and _apart(mount, box) and _users(mount, box)]
    found = [*(path for path in written), *(f"{path}:ro" for path in read if path not in written)]
    return tuple(dict.fromkeys((box.root, *found)))


def _apart(mount: Mount, box: Box) -> bool:
    """A folder that is not in the project, nor where one command alone keeps things."""
    inside = any(within(mount.outside, place) for place in (box.root, box.temp, box.cwd) if place)
    return not inside and os.path.isdir(mount.outside)


def _users(mount: Mount, box: Box) -> bool:
    """Whether it is the user's, not a part of the system, of a tool, or of ourselves."""
    if mount.outside != mount.path:
        return False
    if within(mount.path, box.home):
        return not os.path.relpath(mount.path, box.home).startswith(".")
    ours = (sys.prefix, sys.base_prefix, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return not any(within(mount.path, own) or within(own, mount.path) for own in (*OWN_FOLDERS, *ours))


def place_of(box: Box) -> str:
    """Where a command begins. A folder that is one command's own is not there: folders cannot be added to a machine."""
    return box.cwd if box.cwd and within(box.cwd, box.root) else "/tmp" if box.cwd else box.root  # noqa: S108 (its own)


def links_of(box: Box, agent: str) -> tuple[tuple[str, str], ...]:
    """What lies in the home of the user inside: names from there, and the folders outside that they lead to."""
    written = [mount for mount in box.mounts if mount.kind == WRITE and _apart(mount, box)]
    links = [(os.path.relpath(mount.path, box.home), mount.outside) for mount in written
             if mount.outside != mount.path and within(mount.path, box.home)]  # fmt: skip
    told = {text for _, text in box.sets}
    if agent == CLAUDE:
        links += [(CLAUDE_FOLDER, mount.path) for mount in written if mount.path in told]
        places = [place for name, place in links if name == CLAUDE_FOLDER]
        links += [(CLAUDE_FILE, _begun(os.path.join(place, CLAUDE_FILE))) for place in places]
    return tuple(dict(links).items())


def _begun(path: str) -> str:
    """A file of settings that is there: Claude Code 2.0 fails on one that is empty. A link is not followed: the agent
    may have put it there."""
    if os.path.islink(path):
        os.unlink(path)
    if not os.path.exists(path) or not os.path.getsize(path):
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(made, "w", encoding="ascii") as file:
            file.write("{}\n")
    return path


def names_of(box: Box, env: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The variables that come inside, without those that it has of its own, or that name a place it has not."""
    places = [one.removesuffix(":ro") for one in workspaces_of(box)]
    there = [name for name, text in env if all(_known(part, places) for part in text.split(os.pathsep))]
    return tuple(name for name in names_told(box, there) if name not in OWN_VARIABLES)


def _known(text: str, places: Iterable[str]) -> bool:
    return not os.path.isabs(text) or any(within(text, place) for place in places)


def hosts_of(box: Box) -> tuple[str, ...]:
    """What may be reached, as the machine's proxy is told it; services of this machine are `localhost` to that."""
    named = [host.removeprefix("private:") for host in box.egress.hosts]
    return tuple(dict.fromkeys((*named, *(f"localhost:{port}" for port in box.egress.local_ports))))


def shut(host: str, allowed: Iterable[str], denied: Iterable[str]) -> bool:
    """Whether a policy keeps a host back; what it denies is denied whatever it allows."""
    return any(_covers(rule, host) for rule in denied) or not any(_covers(rule, host) for rule in allowed)


def _covers(rule: str, host: str) -> bool:
    """`**` is everything, `*.name` what lies below a name; a rule without a port is for all of them."""
    name, _, port = host.partition(":")
    ruled, _, only = rule.partition(":")
    if only and only != (port or "443"):
        return False
    if ruled in ("**", "*"):
        return True
    if ruled.startswith(("*.", "**.")):
        return name.removeprefix("*").endswith(ruled.lstrip("*"))
    return name == ruled
