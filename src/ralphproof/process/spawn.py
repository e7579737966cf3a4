"""Starting a program in a session of its own, and the stand-in for a dead harness."""

from __future__ import annotations

import errno
import os
import select
import time

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.process.tree import die_with_parent

if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Iterator
    from typing import NoReturn

    from ralphproof.process.protocol import StartMessage
else:
    import _signal


_PROGRAM_SIGNALS = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGPIPE", "SIGCHLD", "SIGXFSZ")
_MAX_FORKS = 20
_FORK_PAUSE_S = 0.05
_EXEC_TIMEOUT_S = 30.0


def spawn_program(start: StartMessage, out: int, err: int) -> tuple[int, int]:
    """Start a program in a session of its own with three descriptors; its process id, and a pipe for an exec error."""
    stdin = os.open(start.stdin, os.O_RDONLY | os.O_CLOEXEC)
    error_reader, error_writer = os.pipe()
    keeper = os.getpid()
    try:
        pid = _fork()
        if pid == 0:
            _become_program(start, (stdin, out, err), error_writer, keeper)
    except OSError:
        os.close(error_reader)
        raise
    finally:
        os.close(stdin)
        os.close(error_writer)
    return pid, error_reader


def read_exec_error(pipe: int) -> str:
    """Why the program could not be executed; empty if it was, or if it hangs: that is for the turn's timeout."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    data = os.read(pipe, 4096) if poll.poll(_EXEC_TIMEOUT_S * 1000) else b""
    os.close(pipe)
    return data.decode(errors="replace")


def _fork() -> int:
    """Fork; a machine that is out of processes for a moment gets a second."""
    for _ in range(_MAX_FORKS):
        try:
            return os.fork()
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.ENOMEM):
                raise
        time.sleep(_FORK_PAUSE_S)
    return os.fork()


def _become_program(start: StartMessage, descriptors: tuple[int, int, int], error_writer: int, keeper: int) -> NoReturn:
    try:
        os.setsid()
        die_with_parent()
        if os.getppid() != keeper:  # it died before we asked to die with it
            os._exit(127)
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        # Ignored signals stay ignored over exec, and both Python and the keeper ignore some.
        for name in _PROGRAM_SIGNALS:
            _signal.signal(getattr(_signal, name), _signal.SIG_DFL)
        os.write(error_writer, (_enter_folder(start.cwd) or _exec_program(start)).encode())
    finally:
        os._exit(127)


def _enter_folder(folder: bytes) -> str:
    try:
        os.chdir(folder)
    except OSError as error:
        return f"cannot enter {os.fsdecode(folder)!a}: {error.strerror}"
    return ""


def _exec_program(start: StartMessage) -> str:
    """Execute the program; returns only with the reason why not."""
    reason = os.strerror(errno.ENOENT)
    for path in _candidate_paths(start.argv[0], start.env):
        try:
            os.execve(path, start.argv, start.env)
        except (FileNotFoundError, NotADirectoryError):
            if os.path.exists(path):
                reason = "the interpreter that its first line names is missing"
        except PermissionError as error:
            reason = "it is a directory" if os.path.isdir(path) else f"{error.strerror}"
        except (OSError, ValueError) as error:
            reason = str(getattr(error, "strerror", None) or error)
            break
    return f"cannot start {os.fsdecode(start.argv[0])!a}: {reason}"


def _candidate_paths(name: bytes, env: dict[bytes, bytes]) -> Iterator[bytes]:
    if b"/" in name:
        yield name
        return
    for folder in env.get(b"PATH", os.fsencode(os.defpath)).split(b":"):
        if folder:
            yield folder + b"/" + name


_STAND_IN_SIGNALS = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGPIPE", "SIGCHLD", "SIGXFSZ", "SIGUSR1", "SIGUSR2")


def start_stand_in(start: StartMessage) -> int:
    """Start the program that observes a turn in place of its dead harness; its process id, 0 if there is none.

    It is a child of ours in a session of its own, with our working folder, our stderr, and no other descriptor. Nothing
    depends on it.
    """
    if not start.stand_in:
        return 0
    try:
        return os.posix_spawn(
            start.stand_in[0],
            start.stand_in,
            start.stand_in_env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=[getattr(_signal, name) for name in _STAND_IN_SIGNALS],
        )
    except (OSError, ValueError):
        return 0
