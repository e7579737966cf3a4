"""Groups of processes that the kernel counts and limits together (cgroups), below the one that this process is in."""

from __future__ import annotations

import os
import time

from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Iterable, Iterator
else:
    import _signal

MEMORY, PROCESSES = "memory", "processes"
PATIENCE_S = 5.0  # for processes that were killed to be gone
LOOK_S = 0.005
OURS = "ralph"  # how the names of our groups begin
MEMBERS, BELOW, AT_ONCE = "cgroup.procs", "cgroup.subtree_control", "cgroup.kill"


@value
class Control:
    """How one thing is limited in a group: its controller, what is written where, and where refusals are counted.

    What is written to a file that not every kernel has is `also`; None stands for the limit itself.
    """

    controller: str
    limit: str
    also: tuple[str, int | None]
    counter: tuple[str, str]


PIDS = Control("pids", "pids.max", ("", None), ("pids.events", "max"))
# Memory that was swapped out counts like any other: a limit that only moves it to the disk stops the machine.
VERSIONS: dict[str, dict[str, Control]] = {
    "cgroup v2": {
        MEMORY: Control("memory", "memory.max", ("memory.swap.max", 0), ("memory.events", "oom_kill")),
        PROCESSES: PIDS,
    },
    "cgroup v1": {
        MEMORY: Control(
            "memory", "memory.limit_in_bytes", ("memory.memsw.limit_in_bytes", None), ("memory.oom_control", "oom_kill")
        ),
        PROCESSES: PIDS,
    },
}


def parents(version: str, wanted: Iterable[str], proc: str = "/proc/self") -> dict[str, str]:
    """For each thing that can be limited, the folder in which a group for it can be made; nothing where none can."""
    controls = {thing: VERSIONS[version][thing] for thing in wanted}
    current = dict(_current(version, proc))
    if version == "cgroup v1":
        here = {thing: current.get(control.controller, "") for thing, control in controls.items()}
        return {thing: folder for thing, folder in here.items() if folder and os.access(folder, os.W_OK)}
    folder = _divisible(current.get("", ""), [control.controller for control in controls.values()])
    return dict.fromkeys(controls, folder) if folder else {}


def _current(version: str, proc: str) -> Iterator[tuple[str, str]]:
    """Controllers and the folders of the groups that this process is in; version 2 has one for all."""
    members = dict(_memberships(f"{proc}/cgroup"))
    for line in _lines(f"{proc}/mountinfo"):
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
    for line in _lines(file):
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, path


def _divisible(folder: str, controllers: list[str]) -> str:
    """The group itself or the one above, where groups with these controllers can be made; empty where neither can.

    A group with processes in it can have no limited groups below it, unless it is the root of all (Linux 6.18). One
    beside it is as good where it has no limits of its own, from which we would escape.
    """
    if not folder:
        return ""
    unlimited = all(_text(f"{folder}/{file}") in ("max", "") for file in ("memory.max", "memory.high", "pids.max"))
    for place in (folder, *([os.path.dirname(folder)] if unlimited else [])):
        offered = {*_text(f"{place}/{BELOW}").split()}
        if {*controllers} <= offered and os.access(place, os.W_OK) and os.access(f"{place}/{MEMBERS}", os.W_OK):
            return place
    return ""


def name_of_group(label: str) -> str:
    """A name that tells whose the group is: whether that process still lives can be seen by it."""
    kept = "".join(letter if letter.isalnum() else "_" for letter in label)[:40]
    return f"{OURS}-{os.getpid()}-{_begin_of(os.getpid())}-{_namespace()}-{kept}"


def make(parents: dict[str, str], version: str, limits: dict[str, int], name: str) -> dict[str, str]:
    """Make the groups of this name, with their limits; their folders by what they limit. Raises OSError."""
    groups = {thing: os.path.join(parent, name) for thing, parent in parents.items()}
    for folder in dict.fromkeys(groups.values()):
        os.mkdir(folder, 0o755)
    for thing, folder in groups.items():
        control = VERSIONS[version][thing]
        write(f"{folder}/{control.limit}", str(limits[thing]))
        file, other = control.also
        if file and os.path.exists(f"{folder}/{file}"):
            write(f"{folder}/{file}", str(limits[thing] if other is None else other))
    return groups


def join(groups: dict[str, str]) -> None:
    """Put this process into the groups."""
    for folder in dict.fromkeys(groups.values()):
        write(f"{folder}/{MEMBERS}", "0")


def refused(groups: dict[str, str], version: str) -> str:
    """What the kernel refused, by killing or by not starting a process; empty for nothing."""
    for thing, folder in groups.items():
        file, key = VERSIONS[version][thing].counter
        counts = dict(line.split()[:2] for line in _lines(f"{folder}/{file}") if " " in line)
        if int(counts.get(key, "0")):
            return thing
    return ""


def end(folders: Iterable[str]) -> None:
    """Kill whatever is in these groups and below, and remove them. One that cannot be removed is left for the next."""
    every = [below for folder in folders for below, _, _ in os.walk(folder, topdown=False)]
    for folder in every:
        if os.path.exists(f"{folder}/{PIDS.limit}"):
            _try_write(f"{folder}/{PIDS.limit}", "0")  # nothing new comes to be meanwhile
    deadline = time.monotonic() + PATIENCE_S
    for folder in every:
        while not _removed(folder) and time.monotonic() < deadline:
            _kill(folder)
            time.sleep(LOOK_S)


def _removed(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _kill(folder: str) -> None:
    members = [int(pid) for pid in _text(f"{folder}/{MEMBERS}").split()]
    if os.path.exists(f"{folder}/{AT_ONCE}") and os.getpid() not in members:
        _try_write(f"{folder}/{AT_ONCE}", "1")
    for pid in members:
        if pid > 0 and pid != os.getpid():  # 0 is one that cannot be seen from here; to kill that is to kill ourselves
            try:
                os.kill(pid, _signal.SIGKILL)
            except OSError:
                continue


def end_stale(folders: Iterable[str]) -> None:
    """Remove groups of ours whose process is gone."""
    for parent in dict.fromkeys(folders):
        for name in _names(parent):
            kind, *fields = name.split("-", 4)
            if kind != OURS or len(fields) != 4 or not fields[0].isdigit():
                continue
            pid, begin, namespace = fields[:3]
            if namespace == _namespace() and _is_gone(int(pid), begin):
                end([os.path.join(parent, name)])


def _is_gone(pid: int, begin: str) -> bool:
    """Whether the process that began then is there no more. One of which nothing can be read may be there."""
    found = _text(f"/proc/{pid}/stat")
    return _began(found) != begin if found else not os.path.exists(f"/proc/{pid}")


def _begin_of(pid: int) -> str:
    """When a process began, in ticks; empty for one that is gone, or nothing but its exit status."""
    return _began(_text(f"/proc/{pid}/stat"))


def _began(stat: str) -> str:
    state, *fields = stat.rpartition(")")[2].split() or ["Z"]
    return "" if state in ("Z", "X") else "".join(fields[18:19])


def _namespace() -> str:
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return ""


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _text(file: str) -> str:
    try:
        with open(file, encoding="utf-8", errors="surrogateescape") as opened:
            return opened.read().strip()
    except OSError:
        return ""


def _lines(file: str) -> list[str]:
    return _text(file).splitlines()


def write(file: str, text: str) -> None:
    """Write to a file of the kernel's; raises OSError."""
    opened = os.open(file, os.O_WRONLY)
    try:
        os.write(opened, text.encode())
    finally:
        os.close(opened)


def _try_write(file: str, text: str) -> None:
    try:
        write(file, text)
    except OSError:
        return
