"""What a sandbox permits, as text and JSON."""

from __future__ import annotations

import os

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.sandbox.environment import filter_environment
from ralphproof.sandbox.plan import EMPTY_FOLDER, READ_ONLY, WRITABLE
from ralphproof.sandbox.resource_limits import find_limit_mechanism

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ralphproof.base.value import Json
    from ralphproof.sandbox.plan import Backend, Mount, SandboxPlan

GIB = 1 << 30
SOCKET_CAVEAT = (
    "a socket in the project that a process outside begins to serve after the command began can be connected to"
)


def sandbox_json(backend: Backend, plan: SandboxPlan) -> dict[str, Json]:
    mechanism, enforced = _enforced_limits(backend, plan)
    return {
        "name": backend.name,
        "strength": backend.strength,
        "weak": list(_weak_points(backend)),
        "project": plan.root,
        "writable": list(_paths_with_access(plan, WRITABLE)),
        "readable": list(_paths_with_access(plan, READ_ONLY)),
        "fresh": list(_paths_with_access(plan, EMPTY_FOLDER)),
        "protected": list(plan.names),
        "notToComeToBe": [os.path.relpath(path, plan.root) for path in plan.placeholders],
        "allowHosts": list(plan.egress.hosts),
        "allowLocalPorts": list(plan.egress.local_ports),
        "variables": list(plan.passed_variables),
        "limits": {
            "by": mechanism,
            "held": list(enforced),
            "memoryBytes": plan.limits.memory_bytes,
            "processes": plan.limits.processes,
        },
    }


def sandbox_lines(backend: Backend, plan: SandboxPlan) -> Iterator[str]:
    yield f"sandbox {backend.name}, {backend.strength}"
    yield from (f"  weak point: {clause}" for clause in _weak_points(backend))
    yield "may be written:"
    yield from (f"  {path}" for path in _paths_with_access(plan, WRITABLE))
    yield from (f"  {path} (fresh, and gone afterwards)" for path in _paths_with_access(plan, EMPTY_FOLDER))
    if backend.protects_paths:
        yield "may not be written, although it lies there:"
        yield from (f"  {name}" for name in plan.names)
        yield from (f"  {os.path.relpath(path, plan.root)} (may not come to be either)" for path in plan.placeholders)
    yield "may be read:"
    yield from (f"  {path}" for path in _paths_with_access(plan, READ_ONLY) if not path.startswith(plan.root + "/"))
    hosts = ", ".join(plan.egress.hosts) or "none"
    yield f"may be called: {hosts}"
    if ports := ", ".join(map(str, plan.egress.local_ports)):
        yield f"ports of this machine: {ports}"
    stay = ", ".join(sorted(filter_environment(os.environ, plan.passed_variables)))
    yield f"variables that stay, of those that are set: {stay}"
    yield _limit_lines(backend, plan)


def _weak_points(backend: Backend) -> tuple[str, ...]:
    """Weaknesses of the back end, with the one that all back ends with mounts share."""
    return (
        (*backend.weaknesses, SOCKET_CAVEAT) if backend.protects_paths and backend.can_remount else backend.weaknesses
    )


def _limit_lines(backend: Backend, plan: SandboxPlan) -> str:
    limits, (by, what) = plan.limits, _enforced_limits(backend, plan)
    memory = f"memory {limits.memory_bytes / GIB:.1f} GiB"
    named = {"memory": memory, "processes": f"{limits.processes} processes"}
    held = ", ".join(named[one] for one in what if one in named)
    return f"limited: {held} (by {by})" if held else "limited: nothing"


def _enforced_limits(backend: Backend, plan: SandboxPlan) -> tuple[str, tuple[str, ...]]:
    """The mechanism and what it limits."""
    if own := getattr(backend, "limited_by", ""):
        return own, ("memory", "processes")
    by = find_limit_mechanism(plan.limits)
    return by.name, by.enforced


def _paths_with_access(plan: SandboxPlan, kind: str) -> Iterator[str]:
    """Mounts of this kind, without covers and without folders that are only pinned above a protected path."""
    for at, mount in enumerate(plan.mounts):
        covered = mount.source == os.devnull or mount.source.endswith("/empty")
        if (
            mount.kind == kind
            and not covered
            and not (kind == WRITABLE and _format_limit(plan.mounts[:at], mount.path) == WRITABLE)
        ):
            yield mount.path


def _format_limit(mounts: Sequence[Mount], path: str) -> str:
    """The kind of the innermost mount above a path; empty if there is none."""
    around = [one for one in mounts if path.startswith(one.path.rstrip("/") + "/")]
    return around[-1].kind if around else ""
