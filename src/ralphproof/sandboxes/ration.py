"""Holding the processes of one command to a ration, by the strongest means that this machine has."""

from __future__ import annotations

import os
import sys

from ralphproof.sandboxes import cgroups
from ralphproof.sandboxes.cgroups import MEMORY, PROCESSES
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ralphproof.sandboxes.box import Ration

SCOPE, VERSION_2, VERSION_1, RLIMITS, NONE = "systemd scope", "cgroup v2", "cgroup v1", "rlimits", "none"
UNIFIED = "/sys/fs/cgroup"
ANSWER_S = 3.0  # for a manager that may not answer at all
RUNTIME = "XDG_RUNTIME_DIR"
# What limits the scope's group has.
LOOK = 'group=$0$(sed -n s/^0:://p /proc/self/cgroup); cat "$group/memory.max"; cat "$group/pids.max"'


@value
class Rationing:
    """By what a ration is held: `name` is for people, `held` what it holds of what is limited.

    `prefix` stands before the command's argument list. `parents` are folders of groups, by what they limit.
    """

    name: str
    held: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()
    parents: tuple[tuple[str, str], ...] = ()


def means(ration: Ration) -> Rationing:
    """The strongest means that really works here, tried out; it leaves nothing behind."""
    wanted = tuple(_limits(ration))
    best = Rationing(NONE)
    for found in _candidates(ration):
        if found.held == wanted:
            return found
        if len(found.held) > len(best.held):
            best = found
    return best


def _limits(ration: Ration) -> dict[str, int]:
    every = {MEMORY: ration.memory_bytes, PROCESSES: ration.processes}
    return {thing: most for thing, most in every.items() if most}


def _candidates(ration: Ration) -> Iterator[Rationing]:
    if sys.platform != "linux" or not _limits(ration):
        return
    yield scope(ration, os.environ, os.geteuid())
    yield _grouped(VERSION_2, ration)
    yield _grouped(VERSION_1, ration)
    if ration.processes and os.geteuid() != 0:  # root is not counted
        yield Rationing(RLIMITS, (PROCESSES,))


def scope(ration: Ration, environ: Mapping[str, str], uid: int, unified: str = UNIFIED) -> Rationing:
    """A scope of the user's own service manager, or of the system's for root; it holds what its group really says."""
    runtime = environ.get(RUNTIME) or f"/run/user/{uid}"
    answers = os.path.exists("/run/systemd/private" if uid == 0 else f"{runtime}/systemd/private")
    programs = [_program(name, environ) for name in ("systemd-run", "env")]
    if not answers or not all(programs) or not os.path.exists(f"{unified}/cgroup.controllers"):
        return Rationing(SCOPE)
    prefix = _scoped(ration, programs[0], () if uid == 0 else (programs[1], f"{RUNTIME}={runtime}"))
    said = dict(zip((MEMORY, PROCESSES), _answer([*prefix, "sh", "-c", LOOK, unified], environ).split(), strict=False))
    held = tuple(thing for thing in _limits(ration) if said.get(thing, b"max") != b"max")
    return Rationing(SCOPE, held, prefix if held else ())


def _answer(argv: list[str], environ: Mapping[str, str]) -> bytes:
    """What a program says within a short time; nothing where it fails."""
    from subprocess import DEVNULL, PIPE, TimeoutExpired, run

    env = {"PATH": environ.get("PATH", os.defpath)}
    try:
        ended = run(argv, env=env, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, timeout=ANSWER_S, check=False)
    except (OSError, TimeoutExpired):
        return b""
    return b"" if ended.returncode else ended.stdout


def _scoped(ration: Ration, program: str, finding: tuple[str, ...]) -> tuple[str, ...]:
    """How a command is started in a scope. `finding` is what the manager is found by; the command never sees it."""
    memory = ("-p", f"MemoryMax={ration.memory_bytes}", "-p", "MemorySwapMax=0") if ration.memory_bytes else ()
    tasks = ("-p", f"TasksMax={ration.processes}") if ration.processes else ()
    begun = (
        *finding,
        program,
        *(("--user",) if finding else ()),
        "--scope",
        "--quiet",
        "--collect",
        *memory,
        *tasks,
        "--",
    )
    return (*begun, finding[0], "-u", RUNTIME) if finding else begun


def _program(name: str, environ: Mapping[str, str]) -> str:
    folders = [folder for folder in environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(folder)]
    return next((path for folder in folders if os.access(path := os.path.join(folder, name), os.X_OK)), "")


def _grouped(version: str, ration: Ration) -> Rationing:
    """What groups of this version hold, seen by making some."""
    limits = _limits(ration)
    parents = cgroups.parents(version, limits)
    held = {thing: parent for thing, parent in parents.items() if _holds(version, thing, parent, limits)}
    return Rationing(version, tuple(held), parents=tuple(held.items()))


def _holds(version: str, thing: str, parent: str, limits: Mapping[str, int]) -> bool:
    name = cgroups.name_of_group(f"trial-{thing}")
    try:
        cgroups.make({thing: parent}, version, {thing: limits[thing]}, name)
    except OSError:
        return False
    finally:
        cgroups.end([os.path.join(parent, name)])
    return True


class Enclosure:
    """Around one command: made before it is started, entered by the child that becomes it, closed after its end.

    `held` is what it really holds: less than its means promised where the machine has changed its mind since.
    """

    def __init__(self, by: Rationing, ration: Ration, name: str) -> None:
        self._by, self._ration, self.held = by, ration, by.held
        self._groups: dict[str, str] = {}
        if by.parents:
            parents, own = dict(by.parents), cgroups.name_of_group(name)
            cgroups.end_stale(parents.values())
            try:
                self._groups = cgroups.make(parents, by.name, _limits(ration), own)
            except OSError:
                cgroups.end(os.path.join(parent, own) for parent in parents.values())
                self.held = ()

    def enter(self) -> None:
        """In the child: from now on it and all that it starts are held. Raises OSError where that fails."""
        cgroups.join(self._groups)
        if self._by.name == RLIMITS:
            import resource

            most = _tasks_of(os.getuid()) + self._ration.processes
            hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))

    def full(self) -> str:
        """Memory or processes, if the kernel refused more of it; empty if it did not, or does not say.

        A scope takes its counts with it, and for limits of a user nothing is counted.
        """
        return cgroups.refused(self._groups, self._by.name) if self._groups else ""

    def close(self) -> None:
        """End what is left of the command, and leave nothing behind."""
        cgroups.end(dict.fromkeys(reversed(self._groups.values())))
        self._groups = {}


def sweep(ration: Ration) -> None:
    """End and remove what is left of commands whose own process was ended before it could do so."""
    for version in (VERSION_2, VERSION_1):
        cgroups.end_stale(cgroups.parents(version, _limits(ration)).values())


def _tasks_of(uid: int) -> int:
    """How many threads a user has now: the limit counts them all."""
    count = 0
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        try:
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == uid:
                count += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue
    return count
