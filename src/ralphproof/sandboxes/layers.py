"""Mounts in an order of their own: engines sort them by path, and make only the topmost file system read-only."""

from __future__ import annotations

from ralphproof.sandboxes.box import READ, Mount
from ralphproof.sandboxes.places import within
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ENGINES_OWN = ("/proc", "/sys", "/dev")  # the engine makes these itself


def laid(mounts: Sequence[Mount], points: Iterable[str]) -> tuple[Mount, ...]:
    """The mounts that can be seen, parents first, with file systems below one that is only read named too.

    `points` are where the machine has file systems. Unnamed, one below a folder that is mounted read-only could be
    written (podman 4.3 with runc 1.1).
    """
    wanted = [one for one in mounts if not any(within(one.path, own) for own in ENGINES_OWN)]
    seen = [one for place, one in enumerate(wanted) if not _hidden(one, wanted[place + 1 :])]
    points = tuple(points)
    deeper = [found for mount in seen if mount.kind == READ for found in _deeper(mount, seen, points)]
    return tuple(sorted((*seen, *deeper), key=lambda mount: mount.path.count("/")))


def _hidden(mount: Mount, later: Iterable[Mount]) -> bool:
    return any(within(mount.path, top.path) for top in later)


def _deeper(mount: Mount, seen: Sequence[Mount], points: Iterable[str]) -> Iterable[Mount]:
    """The file systems below this one that no other mount decides on."""
    for point in points:
        if point == mount.outside or not within(point, mount.outside):
            continue
        inside = mount.path.rstrip("/") + "/" + point[len(mount.outside.rstrip("/")) + 1 :]
        nearest = max((one for one in seen if within(inside, one.path)), key=lambda one: len(one.path))
        if nearest is mount and not any(within(inside, own) for own in ENGINES_OWN):
            yield Mount(READ, inside, point)


def mount_points(table: str = "/proc/self/mountinfo") -> tuple[str, ...]:
    """Where this machine has file systems; nothing where it does not say."""
    try:
        with open(table, encoding="utf-8", errors="surrogateescape") as file:
            return tuple(dict.fromkeys(_plain(line.split()[4]) for line in file))
    except OSError:
        return ()


def _plain(field: str) -> str:
    """The path behind the kernel's way of writing white space and backslashes."""
    for written, meant in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(written, meant)
    return field
