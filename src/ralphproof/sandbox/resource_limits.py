"""Memory and process limits of a command: systemd scope, cgroups v2 and v1, rlimits."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping

from ralphproof.base.processes import process_start_time, stat_fields
from ralphproof.base.programs import find_program, run_program
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.sandbox.plan import ResourceLimits

# Cgroups, below the one of this process.


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
    """How a cgroup limits one thing: controller, limit file, and the counter of refusals.

    `also` is a file that not every kernel has, and its value; None stands for the limit itself.
    """

    controller: str
    limit: str
    also: tuple[str, int | None]
    counter: tuple[str, str]


PIDS_CONTROL = CgroupControl("pids", "pids.max", ("", None), ("pids.events", "max"))
# Swap counts like memory: a limit that only swaps to disk would stall the machine.
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
    """The cgroup folder in which each thing can be limited; nothing for things that cannot."""
    controls = {thing: CGROUP_VERSIONS[version][thing] for thing in wanted}
    current = dict(_current_cgroups(version, proc))
    if version == "cgroup v1":
        here = {thing: current.get(control.controller, "") for thing, control in controls.items()}
        return {thing: folder for thing, folder in here.items() if folder and os.access(folder, os.W_OK)}
    folder = _find_delegated_cgroup(current.get("", ""), [control.controller for control in controls.values()])
    return dict.fromkeys(controls, folder) if folder else {}


def _current_cgroups(version: str, proc: str) -> Iterator[tuple[str, str]]:
    """Controllers and cgroup folders of this process; version 2 has one folder for all."""
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
    """This cgroup or its parent, where cgroups with these controllers can be created; empty if neither can.

    A cgroup with processes cannot have limited children unless it is the root (Linux 6.18). A sibling is as good if
    this cgroup has no limits of its own, which would be escaped.
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
    """A name with the owning process, so that a stale cgroup can be recognised."""
    kept = "".join(letter if letter.isalnum() else "_" for letter in label)[:40]
    return f"{GROUP_PREFIX}-{os.getpid()}-{process_start_time(os.getpid())}-{_pid_namespace()}-{kept}"


def create_cgroups(parents: dict[str, str], version: str, limits: dict[str, int], name: str) -> dict[str, str]:
    """Create cgroups of this name with limits; their folders by limited thing. Raises OSError."""
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
    """Move this process into the cgroups."""
    for folder in dict.fromkeys(groups.values()):
        write_control_file(f"{folder}/{PROCS_FILE}", "0")


def reached_limit(groups: dict[str, str], version: str) -> str:
    """The thing whose limit made the kernel kill or refuse a process; empty if none did."""
    for thing, folder in groups.items():
        file, key = CGROUP_VERSIONS[version][thing].counter
        counts = dict(line.split()[:2] for line in _read_lines(f"{folder}/{file}") if " " in line)
        if int(counts.get(key, "0")):
            return thing
    return ""


def remove_cgroups(folders: Iterable[str]) -> None:
    """Kill all processes in these cgroups and below, and remove them. What cannot be removed is left for the next
    command.
    """
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
    """Remove our cgroups whose process is gone."""
    for parent in dict.fromkeys(folders):
        for name in _list_names(parent):
            kind, *fields = name.split("-", 4)
            if kind != GROUP_PREFIX or len(fields) != 4 or not fields[0].isdigit():
                continue
            pid, begin, namespace = fields[:3]
            if namespace == _pid_namespace() and _is_gone(int(pid), begin):
                remove_cgroups([os.path.join(parent, name)])


def _is_gone(pid: int, begin: str) -> bool:
    """Whether the process with this start time is gone. One that cannot be read may still exist."""
    try:
        fields = stat_fields(pid)
    except OSError:
        return not os.path.exists(f"/proc/{pid}")
    return fields[0] in (b"Z", b"X") or fields[19].decode() != begin


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
    """Write to a file of the kernel; raises OSError."""
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


# Choice of the strongest mechanism of this machine.


SCOPE, CGROUP_V2, CGROUP_V1, RLIMITS, NO_LIMITS = "systemd scope", "cgroup v2", "cgroup v1", "rlimits", "none"
CGROUP_ROOT = "/sys/fs/cgroup"
PROBE_TIMEOUT_S = 3.0  # for a manager that may not answer at all
RUNTIME_VARIABLE = "XDG_RUNTIME_DIR"
# Prints the limits of the scope's cgroup.
READ_SCOPE_LIMITS = 'group=$0$(sed -n s/^0:://p /proc/self/cgroup); cat "$group/memory.max"; cat "$group/pids.max"'


@value
class LimitMechanism:
    """A way to limit a command: `name` for display, `enforced` the things that it limits.

    `prefix` precedes the command line. `parents` are cgroup folders by limited thing.
    """

    name: str
    enforced: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()
    parents: tuple[tuple[str, str], ...] = ()


def find_limit_mechanism(limits: ResourceLimits) -> LimitMechanism:
    """The strongest mechanism that works here, found by trying; it leaves nothing behind."""
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
    """A scope of the user's service manager, or the system's for root; it enforces what its cgroup reports."""
    runtime = environ.get(RUNTIME_VARIABLE) or f"/run/user/{uid}"
    answers = os.path.exists("/run/systemd/private" if uid == 0 else f"{runtime}/systemd/private")
    programs = [find_program(name, environ.get("PATH", os.defpath)) or "" for name in ("systemd-run", "env")]
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
    """Output of a program within a short time; empty if it fails."""
    ended = run_program(argv, {"PATH": environ.get("PATH", os.defpath)}, timeout_s=PROBE_TIMEOUT_S)
    return ended.out if ended.good else b""


def _scope_command(limits: ResourceLimits, program: str, finding: tuple[str, ...]) -> tuple[str, ...]:
    """Command that starts another in a scope. `finding` locates the manager; the command does not see it."""
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
    """Limits around one command: created before it starts, entered by its child process, closed after its end.

    `enforced` is less than the mechanism promised if the machine has changed since.
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
        """In the child: apply the limits to it and its descendants. Raises OSError if that fails."""
        join_cgroups(self._groups)
        if self._by.name == RLIMITS:
            import resource

            most = _count_threads(os.getuid()) + self._ration.processes
            hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))

    def limit_reached(self) -> str:
        """Memory or processes, if the kernel refused more; empty if not or unknown.

        The counts of a scope vanish with it, and rlimits are not counted.
        """
        return reached_limit(self._groups, self._by.name) if self._groups else ""

    def close(self) -> None:
        """Kill what is left of the command, and remove the cgroups."""
        remove_cgroups(dict.fromkeys(reversed(self._groups.values())))
        self._groups = {}


def remove_stale_limits(limits: ResourceLimits) -> None:
    """Kill and remove what is left of commands whose launcher was killed."""
    for version in (CGROUP_V2, CGROUP_V1):
        remove_stale_cgroups(cgroup_parents(version, _wanted_limits(limits)).values())


def _count_threads(uid: int) -> int:
    """Current number of threads of a user, all of which count towards the limit."""
    count = 0
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        try:
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == uid:
                count += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue
    return count
