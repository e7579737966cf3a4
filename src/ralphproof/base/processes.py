"""Processes: identity that survives a reused id, and the registry of those started here."""

from __future__ import annotations

import os

from ralphproof.base.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from subprocess import Popen


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


# Registry of the programs that the harness runs for itself, and running one with a timeout.


# Programs that the harness runs for itself: git, a notification, a sandbox query. Processes left by a dead keeper also
# become our children, so the cleanup must know which ones the harness itself started.


_registered: set[int] = set()
_pending_starts: list[None] = []


class RegisterChild:
    """Context manager around the start of a child process; call its value with the process id to register it."""

    def __enter__(self) -> Callable[[int], None]:
        _pending_starts.append(None)
        return _registered.add

    def __exit__(self, *_: object) -> None:
        _pending_starts.pop()


def unregister_child(pid: int) -> None:
    """Remove a child that was waited for: its process id may be reused."""
    _registered.discard(pid)


def all_children_registered() -> bool:
    """Whether no child is between its start and its registration."""
    return not _pending_starts


def is_registered_child(pid: int) -> bool:
    """Whether this process is a registered child."""
    return pid in _registered


def registered_children() -> tuple[int, ...]:
    """All registered children; each leads its own process group."""
    return tuple(_registered)


# The program gets no terminal, and limited time.


MAX_REASON_CHARS = 300


@value
class ProgramOutput:
    """Output of a program. `code` is None where it could not be started or took too long; `trouble` says so."""

    code: int | None
    out: str = ""
    err: str = ""
    trouble: str = ""

    @property
    def good(self) -> bool:
        return self.code == 0

    @property
    def why(self) -> str:
        """The last line of its output, for display."""
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return self.trouble or (lines[-1].strip()[:MAX_REASON_CHARS] if lines else f"exit code {self.code}")


def run_program(
    argv: Sequence[str], *, said: bytes = b"", timeout_s: float, env: Mapping[str, str] | None = None
) -> ProgramOutput:
    """Run a program to its end. On a timeout it is ended with all processes that it started."""
    import subprocess

    pipe = subprocess.PIPE
    try:
        with RegisterChild() as note:
            child = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env, start_new_session=True)
            note(child.pid)
    except OSError as error:
        return ProgramOutput(None, trouble=f"cannot start {argv[0]}: {error.strerror}")
    try:
        out, err = child.communicate(said, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _kill_process_group(child)
        return ProgramOutput(None, trouble=f"{' '.join(argv[:3])} did not answer within {timeout_s:g} s")
    finally:
        unregister_child(child.pid)
    return ProgramOutput(child.returncode, out.decode(errors="replace"), err.decode(errors="replace"))


def _kill_process_group(child: Popen[bytes]) -> None:
    import os
    import signal

    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()
