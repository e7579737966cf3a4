"""Registry of the programs that the harness runs for itself, and running one with a timeout."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from subprocess import Popen


# Programs that the harness runs for itself: git, a notification, a question to a sandbox. No turn left them behind.
#
# What a dead keeper left comes to us as our children. Whoever cleans up among those must know which ones we started.


_registered: set[int] = set()
_pending_starts: list[None] = []


class RegisterChild:
    """Surrounds the start of an errand; its process id is handed to what this gives, and is known from then on."""

    def __enter__(self) -> Callable[[int], None]:
        _pending_starts.append(None)
        return _registered.add

    def __exit__(self, *_: object) -> None:
        _pending_starts.pop()


def unregister_child(pid: int) -> None:
    """It was waited for: the number may be given to another process."""
    _registered.discard(pid)


def all_children_registered() -> bool:
    """Whether no errand is between its start and the moment when it is known."""
    return not _pending_starts


def is_registered_child(pid: int) -> bool:
    """Whether this is the process of one."""
    return pid in _registered


def registered_children() -> tuple[int, ...]:
    """The processes of all of them; each leads a group of its own."""
    return tuple(_registered)


# Asks a program of the machine one question: it gets no terminal, and only so much time.


MAX_REASON_CHARS = 300


@value
class ProgramOutput:
    """What a program said. `code` is None where it could not be started or took too long; `trouble` says so."""

    code: int | None
    out: str = ""
    err: str = ""
    trouble: str = ""

    @property
    def good(self) -> bool:
        return self.code == 0

    @property
    def why(self) -> str:
        """Its last words, for people."""
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return self.trouble or (lines[-1].strip()[:MAX_REASON_CHARS] if lines else f"exit code {self.code}")


def run_program(
    argv: Sequence[str], *, said: bytes = b"", timeout_s: float, env: Mapping[str, str] | None = None
) -> ProgramOutput:
    """Run it to its end. One that takes too long is ended with all that it started."""
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
