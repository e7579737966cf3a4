"""Process trees: descendants, identity of processes, signals, killing a whole tree.

On Linux a subreaper inherits every orphan, so its descendants are the whole tree, even of processes that detached and
cleared their environment. Elsewhere only the process group is known.
"""

from __future__ import annotations

import os
import sys
import time

from ralphproof.base.processes import accepts_signals, read_proc_file, stat_fields
from ralphproof.base.value import TYPE_CHECKING

if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable, Iterable
else:
    import _signal

LINUX = sys.platform == "linux"
KILL_TIMEOUT_S = 30.0  # a process in an uninterruptible state outlives every KILL: never wait for it for ever
TURN_VARIABLE = "RALPH_TURN"
TURN_FILE_SUFFIX = ".turn"  # how the name of a turn's journal ends, which its keeper holds open
KEEPER_SCRIPT = b"/ralphproof/process/__main__.py"  # what a keeper's interpreter is given to run
_MAX_SCANS = 20  # at the list of processes, while new ones come

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_prctl_address: list[int] = []


def _prctl(option: int, argument: int) -> None:
    if not LINUX:
        return
    import _ctypes  # without its wrapper, which costs 5 ms to import

    if not _prctl_address:
        ourselves = _ctypes.dlopen(None, os.RTLD_NOW)  # type: ignore[arg-type]
        _prctl_address.append(_ctypes.dlsym(ourselves, "prctl"))
    _ctypes.call_function(_prctl_address[0], (option, argument, 0, 0, 0))


def become_subreaper() -> None:
    """From now on orphans among our descendants become our children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have this process killed when its parent dies."""
    _prctl(_PR_SET_PDEATHSIG, _signal.SIGKILL)


def start_time(pid: int) -> int:
    """When a process started, in ticks since boot; 0 if unknown, or it is gone.

    With its id and `boot_id` this identifies a process for ever.
    """
    try:
        return int(stat_fields(pid)[19])
    except OSError:
        return 0


def is_alive(pid: int, started: int) -> bool:
    """Whether the process with this id and start time exists and is no zombie."""
    if pid <= 0:  # to signal such a number would reach many
        return False
    try:
        stat = stat_fields(pid)
    except OSError:
        return not LINUX and accepts_signals(pid)
    return int(stat[19]) == started and stat[0] not in (b"Z", b"X")


def is_stopped(pid: int) -> bool:
    """Whether it is stopped (SIGSTOP); False where that cannot be seen."""
    return process_state(pid) == "T"


def process_state(pid: int) -> str:
    """The letter that `ps` shows for it; empty where that cannot be seen."""
    try:
        return stat_fields(pid)[0].decode()
    except OSError:
        return ""


def _read_whole_proc_file(path: str) -> bytes:
    """A file of the kernel to its end: it returns a list page by page, however much is requested."""
    descriptor, data = os.open(path, os.O_RDONLY | os.O_CLOEXEC), b""
    try:
        while piece := os.read(descriptor, 1 << 16):
            data += piece
    finally:
        os.close(descriptor)
    return data


def child_pids(pid: int) -> list[int]:
    """The children of a process, of all its threads."""
    if not os.path.exists("/proc/thread-self/children"):  # a kernel built without them
        return _children_by_scan(pid)
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, _read_whole_proc_file(f"/proc/{pid}/task/{thread}/children").split())
    except OSError:  # it ended while we looked; its children are our own now
        return found
    return found


def _children_by_scan(pid: int) -> list[int]:
    return [child for child in list_processes() if _parent_pid(child) == pid]


def _parent_pid(pid: int) -> int:
    try:
        return int(stat_fields(pid)[1])
    except OSError:
        return 0


def list_processes() -> list[int]:
    """Every process that can be seen; none where there is no /proc."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def with_descendants(roots: Iterable[int]) -> list[int]:
    """The processes and all their descendants, parents first."""
    found = list(roots)
    for pid in found:
        found += child_pids(pid)
    return found


def find_marked_processes(beginning: str, *, whole: bool = False) -> list[int]:
    """Processes whose environment has a turn's mark that starts with this; exactly this one if `whole`."""
    needle = b"\0" + f"{TURN_VARIABLE}={beginning}".encode(errors="surrogateescape") + (b"\0" if whole else b"")
    found: list[int] = []
    seen = {os.getpid()}
    for _ in range(_MAX_SCANS):
        new = [pid for pid in reversed(list_processes()) if pid not in seen]  # the youngest first
        found += [pid for pid in new if needle in _environment(pid)]
        if found or not new:  # else somebody may have forked and ended between the list and its environment
            break
        seen.update(new)
    return found


def enclosing_turn_files() -> list[str]:
    """The turn files of the keepers above this process, the nearest first; empty for one that cannot be seen."""
    found, pid = [], os.getpid()
    while pid > 1:
        if _is_keeper(pid):
            held = _open_files(pid)
            found.append("" if held is None else next((path for path in held if path.endswith(TURN_FILE_SUFFIX)), ""))
        pid = _parent_pid(pid)
    return found


def _is_keeper(pid: int) -> bool:
    try:
        return (
            read_proc_file(f"/proc/{pid}/cmdline", 4096)
            .partition(b"\0-I\0-S\0")[2]
            .partition(b"\0")[0]
            .endswith(KEEPER_SCRIPT)
        )
    except OSError:
        return False


def _open_files(pid: int) -> list[str] | None:
    """The files that a process has open; None where that cannot be seen."""
    found = []
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            try:
                found.append(os.readlink(f"/proc/{pid}/fd/{name}").removesuffix(" (deleted)"))
            except FileNotFoundError:
                continue  # it was closed while we looked
    except OSError:
        return None
    return found


def _environment(pid: int) -> bytes:
    try:
        return b"\0" + read_proc_file(f"/proc/{pid}/environ", 4 << 20) + b"\0"
    except OSError:
        return b""


def process_group(pid: int) -> int:
    """Its process group; 0 if it is gone."""
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def signal_each(pids: Iterable[int], number: int) -> None:
    """Send a signal to each that still exists."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def signal_group(group: int, number: int) -> None:
    """Send a signal to a process group, if it still exists."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


def kill_until_gone(find: Callable[[], list[int]]) -> list[int]:
    """Kill what `find` returns until it returns nothing; what is left after `KILL_TIMEOUT_S`."""
    deadline, empty_looks = time.monotonic() + KILL_TIMEOUT_S, 0
    while empty_looks < 2:  # whoever forks and ends while we look is seen nowhere
        left = find()
        if left and time.monotonic() > deadline:
            return left
        signal_each(left, _signal.SIGKILL)
        empty_looks = 0 if left else empty_looks + 1
        time.sleep(0.003)
    return []
