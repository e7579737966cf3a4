"""Identity of a process that survives a reused id."""

from __future__ import annotations

import os

from ralphproof.base.value import value


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
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
        except PermissionError:
            return True
        return True


def current_process() -> ProcessIdentity:
    """The calling process."""
    pid = os.getpid()
    return ProcessIdentity(pid, process_start_time(pid), boot_id(), os.uname().nodename)


def process_start_time(pid: int) -> str:
    """When a running process began, in the kernel's own count; empty where there is none, or no /proc."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()


def boot_id() -> str:
    """An identifier of the machine's present boot; empty where the system gives none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
