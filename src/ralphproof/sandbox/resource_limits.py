"""Memory and process limits of a command: systemd scope, cgroups v2 and v1, rlimits."""

from __future__ import annotations

import os
import sys
import time

from ralphproof.base.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ralphproof.sandbox.plan import ResourceLimits


# Groups of processes that the kernel counts and limits together (cgroups), below the one that this process is in.


if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

MEMORY, PROCESSES = "memory", "processes"
REMOVE_TIMEOUT_S = 5.0  # for processes that were killed to be gone
POLL_S = 0.005
GROUP_PREFIX = "ralph"  # how the names of our groups begin
PROCS_FILE, SUBTREE_FILE, KILL_FILE = "cgroup.procs", "cgroup.subtree_control", "cgroup.kill"


@value
class CgroupControl:
    """How one thing is limited in a group: its controller, what is written where, and where refusals are counted.

    What is written to a file that not every kernel has is `also`; None stands for the limit itself.
    """

    controller: str
    limit: str
    also: tuple[str, int | None]
    counter: tuple[str, str]


PIDS_CONTROL = CgroupControl("pids", "pids.max", ("", None), ("pids.events", "max"))
# Memory that was swapped out counts like any other: a limit that only moves it to the disk stops the machine.
CGROUP_VERSIONS: dict[str, dict[str, CgroupControl]] = {
    "cgroup v2": {
        MEMORY: CgroupControl("memory", "memory.max", ("memory.swap.max", 0), ("memory.events", "oom_kill")),
        PROCESSES: PIDS_CONTROL,
    },
    "cgroup v1": {
        MEMORY: CgroupControl(
            "memory", "memory.limit_in_bytes", ("memory.memsw.limit_in_bytes", None), ("memory.oom_control", "oom_kill")
        ),
        PROCESSES: PIDS_CONTROL,
    },
}


def cgroup_parents(version: str, wanted: Iterable[str], proc: str = "/proc/self") -> dict[str, str]:
    """For each thing that can be limited, the folder in which a group for it can be made; nothing where none can."""
    controls = {thing: CGROUP_VERSIONS[version][thing] for thing in wanted}
    current = dict(_current_cgroups(version, proc))
    if version == "cgroup v1":
        here = {thing: current.get(control.controller, "") for thing, control in controls.items()}
        return {thing: folder for thing, folder in here.items() if folder and os.access(folder, os.W_OK)}
    folder = _find_delegated_cgroup(current.get("", ""), [control.controller for control in controls.values()])
    return dict.fromkeys(controls, folder) if folder else {}


def _current_cgroups(version: str, proc: str) -> Iterator[tuple[str, str]]:
    """Controllers and the folders of the groups that this process is in; version 2 has one for all."""
    members = dict(_memberships(f"{proc}/cgroup"))
    for line in _read_lines(f"{proc}/mountinfo"):
        fields, _, behind = line.partition(" - ")
        root, point = fields.split()[3:5]
        kind, _, options = behind.split()[:3]
        if kind != ("cgroup2" if version == "cgroup v2" else "cgroup"):
            continue
        for controller in [""] if kind == "cgroup2" else options.split(","):
            path = members.get(controller, "")
            if path and "/.." not in path:  # which would be outside of what is mounted
                yield controller, os.path.normpath(point + "/" + (path.removeprefix(root) if root != "/" else path))


def _memberships(file: str) -> Iterator[tuple[str, str]]:
    for line in _read_lines(file):
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, path


def _find_delegated_cgroup(folder: str, controllers: list[str]) -> str:
    """The group itself or the one above, where groups with these controllers can be made; empty where neither can.

    A group with processes in it can have no limited groups below it, unless it is the root of all (Linux 6.18). One
    beside it is as good where it has no limits of its own, from which we would escape.
    """
    if not folder:
        return ""
    unlimited = all(_read_text(f"{folder}/{file}") in ("max", "") for file in ("memory.max", "memory.high", "pids.max"))
    for place in (folder, *([os.path.dirname(folder)] if unlimited else [])):
        offered = {*_read_text(f"{place}/{SUBTREE_FILE}").split()}
        if {*controllers} <= offered and os.access(place, os.W_OK) and os.access(f"{place}/{PROCS_FILE}", os.W_OK):
            return place
    return ""


def cgroup_name(label: str) -> str:
    """A name that tells whose the group is: whether that process still lives can be seen by it."""
    kept = "".join(letter if letter.isalnum() else "_" for letter in label)[:40]
    return f"{GROUP_PREFIX}-{os.getpid()}-{_start_time(os.getpid())}-{_pid_namespace()}-{kept}"


def create_cgroups(parents: dict[str, str], version: str, limits: dict[str, int], name: str) -> dict[str, str]:
    """Make the groups of this name, with their limits; their folders by what they limit. Raises OSError."""
    groups = {thing: os.path.join(parent, name) for thing, parent in parents.items()}
    for folder in dict.fromkeys(groups.values()):
        os.mkdir(folder, 0o755)
    for thing, folder in groups.items():
        control = CGROUP_VERSIONS[version][thing]
        write_control_file(f"{folder}/{control.limit}", str(limits[thing]))
        file, other = control.also
        if file and os.path.exists(f"{folder}/{file}"):
            write_control_file(f"{folder}/{file}", str(limits[thing] if other is None else other))
    return groups


def join_cgroups(groups: dict[str, str]) -> None:
    """Put this process into the groups."""
    for folder in dict.fromkeys(groups.values()):
        write_control_file(f"{folder}/{PROCS_FILE}", "0")


def reached_limit(groups: dict[str, str], version: str) -> str:
    """What the kernel refused, by killing or by not starting a process; empty for nothing."""
    for thing, folder in groups.items():
        file, key = CGROUP_VERSIONS[version][thing].counter
        counts = dict(line.split()[:2] for line in _read_lines(f"{folder}/{file}") if " " in line)
        if int(counts.get(key, "0")):
            return thing
    return ""


def remove_cgroups(folders: Iterable[str]) -> None:
    """Kill whatever is in these groups and below, and remove them. One that cannot be removed is left for the next."""
    every = [below for folder in folders for below, _, _ in os.walk(folder, topdown=False)]
    for folder in every:
        if os.path.exists(f"{folder}/{PIDS_CONTROL.limit}"):
            _try_write_control_file(f"{folder}/{PIDS_CONTROL.limit}", "0")  # nothing new comes to be meanwhile
    deadline = time.monotonic() + REMOVE_TIMEOUT_S
    for folder in every:
        while not _remove_cgroup(folder) and time.monotonic() < deadline:
            _kill_cgroup(folder)
            time.sleep(POLL_S)


def _remove_cgroup(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _kill_cgroup(folder: str) -> None:
    members = [int(pid) for pid in _read_text(f"{folder}/{PROCS_FILE}").split()]
    if os.path.exists(f"{folder}/{KILL_FILE}") and os.getpid() not in members:
        _try_write_control_file(f"{folder}/{KILL_FILE}", "1")
    for pid in members:
        if pid > 0 and pid != os.getpid():  # 0 is one that cannot be seen from here; to kill that is to kill ourselves
            try:
                os.kill(pid, _signal.SIGKILL)
            except OSError:
                continue


def remove_stale_cgroups(folders: Iterable[str]) -> None:
    """Remove groups of ours whose process is gone."""
    for parent in dict.fromkeys(folders):
        for name in _list_names(parent):
            kind, *fields = name.split("-", 4)
            if kind != GROUP_PREFIX or len(fields) != 4 or not fields[0].isdigit():
                continue
            pid, begin, namespace = fields[:3]
            if namespace == _pid_namespace() and _is_gone(int(pid), begin):
                remove_cgroups([os.path.join(parent, name)])


def _is_gone(pid: int, begin: str) -> bool:
    """Whether the process that began then is there no more. One of which nothing can be read may be there."""
    found = _read_text(f"/proc/{pid}/stat")
    return _parse_start_time(found) != begin if found else not os.path.exists(f"/proc/{pid}")


def _start_time(pid: int) -> str:
    """When a process began, in ticks; empty for one that is gone, or nothing but its exit status."""
    return _parse_start_time(_read_text(f"/proc/{pid}/stat"))


def _parse_start_time(stat: str) -> str:
    state, *fields = stat.rpartition(")")[2].split() or ["Z"]
    return "" if state in ("Z", "X") else "".join(fields[18:19])


def _pid_namespace() -> str:
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return ""


def _list_names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _read_text(file: str) -> str:
    try:
        with open(file, encoding="utf-8", errors="surrogateescape") as opened:
            return opened.read().strip()
    except OSError:
        return ""


def _read_lines(file: str) -> list[str]:
    return _read_text(file).splitlines()


def write_control_file(file: str, text: str) -> None:
    """Write to a file of the kernel's; raises OSError."""
    opened = os.open(file, os.O_WRONLY)
    try:
        os.write(opened, text.encode())
    finally:
        os.close(opened)


def _try_write_control_file(file: str, text: str) -> None:
    try:
        write_control_file(file, text)
    except OSError:
        return


# Holding the processes of one command to a ration, by the strongest means that this machine has.


SCOPE, CGROUP_V2, CGROUP_V1, RLIMITS, NO_LIMITS = "systemd scope", "cgroup v2", "cgroup v1", "rlimits", "none"
CGROUP_ROOT = "/sys/fs/cgroup"
PROBE_TIMEOUT_S = 3.0  # for a manager that may not answer at all
RUNTIME_VARIABLE = "XDG_RUNTIME_DIR"
# What limits the scope's group has.
READ_SCOPE_LIMITS = 'group=$0$(sed -n s/^0:://p /proc/self/cgroup); cat "$group/memory.max"; cat "$group/pids.max"'


@value
class LimitMechanism:
    """By what a ration is held: `name` is for people, `enforced` what it holds of what is limited.

    `prefix` stands before the command's argument list. `parents` are folders of groups, by what they limit.
    """

    name: str
    enforced: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()
    parents: tuple[tuple[str, str], ...] = ()


def find_limit_mechanism(limits: ResourceLimits) -> LimitMechanism:
    """The strongest means that really works here, tried out; it leaves nothing behind."""
    wanted = tuple(_wanted_limits(limits))
    best = LimitMechanism(NO_LIMITS)
    for found in _candidates(limits):
        if found.enforced == wanted:
            return found
        if len(found.enforced) > len(best.enforced):
            best = found
    return best


def _wanted_limits(limits: ResourceLimits) -> dict[str, int]:
    every = {MEMORY: limits.memory_bytes, PROCESSES: limits.processes}
    return {thing: most for thing, most in every.items() if most}


def _candidates(limits: ResourceLimits) -> Iterator[LimitMechanism]:
    if sys.platform != "linux" or not _wanted_limits(limits):
        return
    yield systemd_scope(limits, os.environ, os.geteuid())
    yield _cgroup_mechanism(CGROUP_V2, limits)
    yield _cgroup_mechanism(CGROUP_V1, limits)
    if limits.processes and os.geteuid() != 0:  # root is not counted
        yield LimitMechanism(RLIMITS, (PROCESSES,))


def systemd_scope(
    limits: ResourceLimits, environ: Mapping[str, str], uid: int, unified: str = CGROUP_ROOT
) -> LimitMechanism:
    """A scope of the user's own service manager, or of the system's for root; it holds what its group really says."""
    runtime = environ.get(RUNTIME_VARIABLE) or f"/run/user/{uid}"
    answers = os.path.exists("/run/systemd/private" if uid == 0 else f"{runtime}/systemd/private")
    programs = [_find_on_path(name, environ) for name in ("systemd-run", "env")]
    if not answers or not all(programs) or not os.path.exists(f"{unified}/cgroup.controllers"):
        return LimitMechanism(SCOPE)
    prefix = _scope_command(limits, programs[0], () if uid == 0 else (programs[1], f"{RUNTIME_VARIABLE}={runtime}"))
    said = dict(
        zip(
            (MEMORY, PROCESSES),
            _run_briefly([*prefix, "sh", "-c", READ_SCOPE_LIMITS, unified], environ).split(),
            strict=False,
        )
    )
    held = tuple(thing for thing in _wanted_limits(limits) if said.get(thing, b"max") != b"max")
    return LimitMechanism(SCOPE, held, prefix if held else ())


def _run_briefly(argv: list[str], environ: Mapping[str, str]) -> bytes:
    """What a program says within a short time; nothing where it fails."""
    from subprocess import DEVNULL, PIPE, TimeoutExpired, run

    env = {"PATH": environ.get("PATH", os.defpath)}
    try:
        ended = run(argv, env=env, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, timeout=PROBE_TIMEOUT_S, check=False)
    except (OSError, TimeoutExpired):
        return b""
    return b"" if ended.returncode else ended.stdout


def _scope_command(limits: ResourceLimits, program: str, finding: tuple[str, ...]) -> tuple[str, ...]:
    """How a command is started in a scope. `finding` is what the manager is found by; the command never sees it."""
    memory = ("-p", f"MemoryMax={limits.memory_bytes}", "-p", "MemorySwapMax=0") if limits.memory_bytes else ()
    tasks = ("-p", f"TasksMax={limits.processes}") if limits.processes else ()
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
    return (*begun, finding[0], "-u", RUNTIME_VARIABLE) if finding else begun


def _find_on_path(name: str, environ: Mapping[str, str]) -> str:
    folders = [folder for folder in environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(folder)]
    return next((path for folder in folders if os.access(path := os.path.join(folder, name), os.X_OK)), "")


def _cgroup_mechanism(version: str, limits: ResourceLimits) -> LimitMechanism:
    """The limits that groups of this version enforce, found by creating some."""
    wanted = _wanted_limits(limits)
    parents = cgroup_parents(version, wanted)
    working = {thing: parent for thing, parent in parents.items() if _can_limit(version, thing, parent, wanted)}
    return LimitMechanism(version, tuple(working), parents=tuple(working.items()))


def _can_limit(version: str, thing: str, parent: str, limits: Mapping[str, int]) -> bool:
    name = cgroup_name(f"trial-{thing}")
    try:
        create_cgroups({thing: parent}, version, {thing: limits[thing]}, name)
    except OSError:
        return False
    finally:
        remove_cgroups([os.path.join(parent, name)])
    return True


class LimitedCommand:
    """Around one command: made before it is started, entered by the child that becomes it, closed after its end.

    `enforced` is what it really holds: less than its means promised where the machine has changed its mind since.
    """

    def __init__(self, by: LimitMechanism, limits: ResourceLimits, name: str) -> None:
        self._by, self._ration, self.enforced = by, limits, by.enforced
        self._groups: dict[str, str] = {}
        if by.parents:
            parents, own = dict(by.parents), cgroup_name(name)
            remove_stale_cgroups(parents.values())
            try:
                self._groups = create_cgroups(parents, by.name, _wanted_limits(limits), own)
            except OSError:
                remove_cgroups(os.path.join(parent, own) for parent in parents.values())
                self.enforced = ()

    def enter(self) -> None:
        """In the child: from now on it and all that it starts are held. Raises OSError where that fails."""
        join_cgroups(self._groups)
        if self._by.name == RLIMITS:
            import resource

            most = _count_threads(os.getuid()) + self._ration.processes
            hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))

    def limit_reached(self) -> str:
        """Memory or processes, if the kernel refused more of it; empty if it did not, or does not say.

        A scope takes its counts with it, and for limits of a user nothing is counted.
        """
        return reached_limit(self._groups, self._by.name) if self._groups else ""

    def close(self) -> None:
        """End what is left of the command, and leave nothing behind."""
        remove_cgroups(dict.fromkeys(reversed(self._groups.values())))
        self._groups = {}


def remove_stale_limits(limits: ResourceLimits) -> None:
    """End and remove what is left of commands whose own process was ended before it could do so."""
    for version in (CGROUP_V2, CGROUP_V1):
        remove_stale_cgroups(cgroup_parents(version, _wanted_limits(limits)).values())


def _count_threads(uid: int) -> int:
    """How many threads a user has now: the limit counts them all."""
    count = 0
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        try:
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == uid:
                count += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue
    return count
