"""What can be reached from inside a sandbox, in words and as data."""

from __future__ import annotations

import os

from ralphproof.sandboxes.box import EMPTY, READ, WRITE
from ralphproof.sandboxes.ration import means
from ralphproof.sandboxes.variables import cleaned
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ralphproof.sandboxes.box import Backend, Box, Mount
    from ralphproof.value import Json

GIB = 1 << 30
LATER = "a socket in the project that a process outside begins to serve after the command began can be connected to"


def as_json(backend: Backend, box: Box) -> dict[str, Json]:
    """For programs."""
    return {
        "name": backend.name,
        "strength": backend.strength,
        "weak": list(_weak(backend)),
        "project": box.root,
        "writable": list(_of(box, WRITE)),
        "readable": list(_of(box, READ)),
        "fresh": list(_of(box, EMPTY)),
        "protected": list(box.names),
        "notToComeToBe": [os.path.relpath(path, box.root) for path in box.ghosts],
        "allowHosts": list(box.egress.hosts),
        "allowLocalPorts": list(box.egress.local_ports),
        "variables": list(box.keeps),
        "limits": {
            "by": (by := _limited(backend, box))[0], "held": list(by[1]), "memoryBytes": box.ration.memory_bytes,
            "processes": box.ration.processes,
        },
    }  # fmt: skip


def lines(backend: Backend, box: Box) -> Iterator[str]:
    """For people."""
    yield f"sandbox {backend.name}, {backend.strength}"
    yield from (f"  weak point: {clause}" for clause in _weak(backend))
    yield "may be written:"
    yield from (f"  {path}" for path in _of(box, WRITE))
    yield from (f"  {path} (fresh, and gone afterwards)" for path in _of(box, EMPTY))
    if backend.holds:
        yield "may not be written, although it lies there:"
        yield from (f"  {name}" for name in box.names)
        yield from (f"  {os.path.relpath(path, box.root)} (may not come to be either)" for path in box.ghosts)
    yield "may be read:"
    yield from (f"  {path}" for path in _of(box, READ) if not path.startswith(box.root + "/"))
    hosts = ", ".join(box.egress.hosts) or "none"
    yield f"may be called: {hosts}"
    if ports := ", ".join(map(str, box.egress.local_ports)):
        yield f"ports of this machine: {ports}"
    stay = ", ".join(sorted(cleaned(os.environ, box.keeps)))
    yield f"variables that stay, of those that are set: {stay}"
    yield _limits(backend, box)


def _weak(backend: Backend) -> tuple[str, ...]:
    """What it does not hold, with what no kind holds that shows the project by mounts."""
    return (*backend.weak, LATER) if backend.holds and backend.remounts else backend.weak


def _limits(backend: Backend, box: Box) -> str:
    ration, (by, what) = box.ration, _limited(backend, box)
    memory = f"memory {ration.memory_bytes / GIB:.1f} GiB"
    named = {"memory": memory, "processes": f"{ration.processes} processes"}
    held = ", ".join(named[one] for one in what if one in named)
    return f"limited: {held} (by {by})" if held else "limited: nothing"


def _limited(backend: Backend, box: Box) -> tuple[str, tuple[str, ...]]:
    """By whom, and what."""
    if own := getattr(backend, "limited_by", ""):
        return own, ("memory", "processes")
    by = means(box.ration)
    return by.name, by.held


def _of(box: Box, kind: str) -> Iterator[str]:
    """Places of this kind, those aside that something covers, or that only keep a folder above a protected path."""
    for at, mount in enumerate(box.mounts):
        covered = mount.source == os.devnull or mount.source.endswith("/empty")
        if mount.kind == kind and not covered and not (kind == WRITE and _over(box.mounts[:at], mount.path) == WRITE):
            yield mount.path


def _over(mounts: Sequence[Mount], path: str) -> str:
    """The kind of the place that a path lies in; empty where it lies in none."""
    around = [one for one in mounts if path.startswith(one.path.rstrip("/") + "/")]
    return around[-1].kind if around else ""
