"""Starting programs: finding one, spawning it in its own session, and running it to its end within limits."""

from __future__ import annotations

import os
import select
import time

from ralphproof.base.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable, Mapping, Sequence
else:
    import _signal

NOT_STARTED = 127
SIGKILL = 9  # the `signal` module would import `enum`
# We ignore some of these, and whoever started us may ignore others.
_DEFAULT_SIGNALS = (_signal.SIGPIPE, _signal.SIGCHLD, _signal.SIGTERM, _signal.SIGQUIT, _signal.SIGALRM)
MAX_OUTPUT_BYTES = 1 << 28
TICK_MS = 50
MAX_REASON_CHARS = 300
EXIT_GRACE_S = 1.0  # for a program to leave that is not wanted any more


@value
class ProgramResult:
    """Result of a program. A negative code is the signal that ended it, or that the harness sent for a limit."""

    code: int
    out: bytes
    err: bytes

    @property
    def lost(self) -> bool:
        """Whether it was never started or was ended early: missing output then means nothing."""
        return self.code < 0 or self.code == NOT_STARTED

    @property
    def good(self) -> bool:
        return self.code == 0

    @property
    def text(self) -> str:
        """Its output as text."""
        return self.out.decode("utf-8", "replace")

    @property
    def why(self) -> str:
        """The last line of its output, or why it was lost, for display."""
        lines = (self.err.strip() or self.out.strip()).decode("utf-8", "replace").splitlines()
        shown = lines[:1] if self.lost else lines[-1:]
        return shown[0].strip()[:MAX_REASON_CHARS] if shown else f"exit code {self.code}"

    @property
    def said(self) -> str:
        """Its error output in one line."""
        lines = (self.err.strip() or self.out.strip()).decode("utf-8", "replace").splitlines()
        return " ".join(line.strip() for line in lines if line.strip())[:500]


def find_program(name: str, path: str, outside: str = "") -> str | None:
    """The absolute path of a program. A name without a path is never resolved to a folder below `outside`."""
    if os.path.isabs(name):
        return name if os.path.isfile(name) and os.access(name, os.X_OK) else None
    for folder in path.split(os.pathsep):
        if not os.path.isabs(folder) or (outside and _is_below(folder, outside)):
            continue
        found = os.path.join(folder, name)
        if os.path.isfile(found) and os.access(found, os.X_OK):
            return found
    return None


def _is_below(folder: str, root: str) -> bool:
    real = os.path.realpath(folder)
    return real == root or real.startswith(root.rstrip("/") + "/")


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


def spawn(argv: Sequence[str | bytes], env: Mapping[str, str], descriptors: Sequence[int]) -> int:
    """Start a program in its own session, with these descriptors as 0, 1, 2 and so on; its process id.

    Ctrl-C does not reach it, and its prompts find no terminal.
    """
    for number, descriptor in enumerate(descriptors):
        if descriptor == number:  # to duplicate it would leave it closed on exec
            os.set_inheritable(descriptor, True)
    actions = [(os.POSIX_SPAWN_DUP2, descriptor, number) for number, descriptor in enumerate(descriptors)]
    return os.posix_spawn(
        argv[0], list(argv), env, file_actions=actions, setsid=True, setsigmask=(), setsigdef=_DEFAULT_SIGNALS
    )


def start_program(argv: Sequence[str | bytes], env: Mapping[str, str], stdin: int, stdout: int, stderr: int) -> int:
    """Start a program that is registered as a child process until the caller unregisters it."""
    with RegisterChild() as note:
        pid = spawn(argv, env, (stdin, stdout, stderr))
        note(pid)
    return pid


def run_in_terminal(
    argv: Sequence[str], env: Mapping[str, str], folder: str, *, capture: bool, timeout_s: float | None = None
) -> ProgramResult:
    """Run a program in a folder and in our own session: it may ask at the terminal, never on standard input."""
    import subprocess

    output = subprocess.PIPE if capture else None
    try:
        done = subprocess.run(
            argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=timeout_s,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return ProgramResult(-SIGKILL, b"", b"did not finish in time")
    except OSError as error:
        return ProgramResult(NOT_STARTED, b"", str(error).encode("utf-8", "replace"))
    return ProgramResult(done.returncode, done.stdout or b"", done.stderr or b"")


def run_program(
    argv: Sequence[str | bytes], env: Mapping[str, str], stdin: bytes = b"", *,
    timeout_s: float = 120.0, most_bytes: int = MAX_OUTPUT_BYTES,
) -> ProgramResult:  # fmt: skip
    """Run a program to its end. Past the time or size limit its process group is killed and the code is negative."""
    ends = [*os.pipe(), *os.pipe(), *os.pipe()]
    theirs = (ends[0], ends[3], ends[5])
    try:
        pid = start_program(argv, env, *theirs)
    except OSError as error:
        for end in ends:
            os.close(end)
        return ProgramResult(NOT_STARTED, b"", str(error).encode("utf-8", "replace"))
    for end in theirs:
        os.close(end)
    return _Conversation(pid, ends[1], ends[2], ends[4], stdin).run(time.monotonic() + timeout_s, most_bytes)


class _Conversation:
    def __init__(self, pid: int, to: int, out: int, err: int, stdin: bytes) -> None:
        self.pid, self.to, self.out, self.err = pid, to, out, err
        self.left = memoryview(stdin)
        self.heard: dict[int, list[bytes]] = {out: [], err: []}
        self.open = {out, err}
        self.status: int | None = None
        self.poller = select.poll()
        os.set_blocking(to, False)
        self.poller.register(to, select.POLLOUT)
        for end in (out, err):
            self.poller.register(end, select.POLLIN)

    def run(self, deadline: float, most_bytes: int) -> ProgramResult:
        try:
            return self._talk(deadline, most_bytes)
        except BaseException:  # Ctrl-C: nothing of ours goes on without us
            self._end()
            raise

    def _talk(self, deadline: float, most_bytes: int) -> ProgramResult:
        size, why = 0, b""
        if not self.left:
            self._stop_writing()
        while self.open and not why:
            ready = self.poller.poll(TICK_MS)
            size += sum(self._serve(end) for end, _ in ready)
            if not ready and self._ended():
                self._hear_out()  # it may have spoken and ended since we looked
                break  # something it left behind may hold the pipe for ever
            if size > most_bytes:
                why = b"said more than %d bytes" % most_bytes
            elif time.monotonic() > deadline:
                why = b"did not finish in time"
        return self._finish(deadline, why)

    def _hear_out(self) -> None:
        """Read what an ended program left in its pipes: they hold less than one read takes."""
        for end, _ in self.poller.poll(0):
            self._serve(end)

    def _serve(self, end: int) -> int:
        if end == self.to:
            self._write()
            return 0
        piece = os.read(end, 1 << 18)
        if piece:
            self.heard[end].append(piece)
        else:
            self.poller.unregister(end)
            self.open.discard(end)
        return len(piece)

    def _write(self) -> None:
        try:
            self.left = self.left[os.write(self.to, self.left[:65536]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self.left = self.left[:0]
        if not self.left:
            self._stop_writing()

    def _stop_writing(self) -> None:
        if self.to >= 0:
            self.poller.unregister(self.to)
            os.close(self.to)
            self.to = -1

    def _ended(self) -> bool:
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status is not None

    def _finish(self, deadline: float, why: bytes) -> ProgramResult:
        self._stop_writing()
        pause_s = 0.0001
        while not why and not self._ended():
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 0.05)
            why = b"did not finish in time" if time.monotonic() > deadline else b""
        if why:
            self._kill()
        os.close(self.out)
        os.close(self.err)
        out, err = b"".join(self.heard[self.out]), b"".join(self.heard[self.err])
        unregister_child(self.pid)
        return ProgramResult(-SIGKILL, out, why + b"\n" + err) if why else ProgramResult(self.status or 0, out, err)

    def _end(self) -> None:
        """TERM first, so that git removes its lock files."""
        try:
            os.killpg(self.pid, _signal.SIGTERM)
        except ProcessLookupError:
            pass
        until = time.monotonic() + EXIT_GRACE_S
        while not self._ended() and time.monotonic() < until:
            time.sleep(0.01)
        self._kill()
        unregister_child(self.pid)

    def _kill(self) -> None:
        try:
            os.killpg(self.pid, SIGKILL)
        except ProcessLookupError:
            pass
        if self.status is None:
            os.waitpid(self.pid, 0)
