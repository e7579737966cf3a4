"""Identity and state of processes, from /proc; an identity survives a reused id."""

from __future__ import annotations

import os

from ralphproof.base.value import value

_boot_id: list[str] = []


@value
class ProcessIdentity:
    """A process, identified so that no later one can be mistaken for it. `start` and `boot` are empty where unknown."""

    pid: int
    start: str = ""
    boot: str = ""
    host: str = ""

    @property
    def alive(self) -> bool:
        """It still runs on this machine. A zombie does not."""
        if self.pid <= 0 or (self.boot and self.boot != boot_id()):
            return False
        if self.start or os.path.exists("/proc/self/stat"):
            found = process_start_time(self.pid)
            return bool(found) and found == (self.start or found)
        return accepts_signals(self.pid)


def current_process() -> ProcessIdentity:
    """The calling process."""
    pid = os.getpid()
    return ProcessIdentity(pid, process_start_time(pid), boot_id(), os.uname().nodename)


def process_start_time(pid: int) -> str:
    """When a running process began, in the kernel's own count; empty where there is none, or no /proc."""
    try:
        fields = stat_fields(pid)
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()


def stat_fields(pid: int) -> list[bytes]:
    """What the kernel tells of a process after its name, which may contain anything: the first is its state.

    Raises OSError.
    """
    stat = read_proc_file(f"/proc/{pid}/stat", 4096)
    return stat[stat.rindex(b")") + 2 :].split()


def read_proc_file(path: str, most: int) -> bytes:
    """The first bytes of a file of the kernel; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, most)
    finally:
        os.close(descriptor)


def accepts_signals(pid: int) -> bool:
    """Whether there is such a process, also one of another user."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def boot_id() -> str:
    """An identifier of the machine's present boot; empty where the system gives none."""
    if not _boot_id:
        try:
            _boot_id.append(read_proc_file("/proc/sys/kernel/random/boot_id", 64).strip().decode())
        except OSError:
            _boot_id.append("")
    return _boot_id[0]
